"""Outcore as a library: train on any system's mini-batches, read run records, write and
check a system.

    import outcore

    loader = outcore.loader(
        "data/shop", system="gnndrive", memory="8GiB", fanout=[10, 10], batch_size=1000
    )
    with loader as batches:
        for batch in batches: ...
    table = outcore.results("results")          # one row a run
    checked = outcore.check("my_package.system:MySystem")
    failed = [rule for rule in checked if not rule.ok]

`loader` and the names that a system's author needs (`System`, the parts of a
`PathSystem`, sampling, reads) work with `pip install outcore` alone; `results` and
`check` need `pip install 'outcore[harness]'`, as the `outcore` command does. Names are
imported when they are first used: `import outcore` does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.check.rules import CheckResult
    from harness.check.runner import check_system as check
    from harness.results.table import load as results
    from systems.engine.io.reader import ReadStats, RowReader
    from systems.engine.io.row_reads import (
        RowReadOptions,
        feature_reader,
        feature_reader_bytes,
    )
    from systems.engine.io.tally import counters_of
    from systems.interface import (
        Batch,
        Counters,
        MemoryBudget,
        Plan,
        PlanItem,
        Runtime,
        StageClock,
        System,
        SystemInfo,
    )
    from systems.loading import LayerEdges, MiniBatch
    from systems.loading import Loader as loader
    from systems.options import Options, PartUse, auto
    from systems.parts import (
        Cache,
        ChangingCache,
        Copy,
        Demand,
        DirectRows,
        FirstLayer,
        Follower,
        Graph,
        HostRows,
        Load,
        Loaded,
        Mapped,
        MappedRows,
        Need,
        NeighbourLists,
        Neighbours,
        PagedRows,
        Part,
        Path,
        PathSystem,
        Ranked,
        Ring,
        Rows,
        Sample,
        SamplingOptions,
        SingleRows,
        Site,
        Source,
        StaticDevice,
        StaticHost,
        Tables,
        Topology,
        ZeroCopy,
        host_graph,
    )
    from workloads.dataset import Dataset
    from workloads.errors import (
        BudgetError,
        DataIOError,
        DatasetError,
        HostError,
        InputError,
        OutcoreError,
    )
    from workloads.sampling.bounds import batch_bounds
    from workloads.sampling.make import make_sampler, make_seed_plan
    from workloads.workload import Workload

_MODULES = {
    "harness.check.rules": "CheckResult",
    "harness.check.runner": "check_system",
    "harness.results.table": "load",
    "systems.engine.io.reader": "ReadStats RowReader",
    "systems.engine.io.row_reads": "RowReadOptions feature_reader feature_reader_bytes",
    "systems.engine.io.tally": "counters_of",
    "systems.interface": "Batch Counters MemoryBudget Plan PlanItem Runtime "
    "StageClock System "
    "SystemInfo",
    "systems.loading": "LayerEdges Loader MiniBatch",
    "systems.options": "Options PartUse auto",
    "systems.parts": "Cache ChangingCache Copy Demand DirectRows FirstLayer Follower "
    "Graph HostRows Load Loaded Mapped MappedRows Need NeighbourLists Neighbours "
    "PagedRows Part Path PathSystem Ranked Ring Rows Sample SamplingOptions SingleRows "
    "Site Source StaticDevice StaticHost Tables Topology ZeroCopy host_graph",
    "workloads.dataset": "Dataset",
    "workloads.errors": "BudgetError DataIOError DatasetError HostError InputError "
    "OutcoreError",
    "workloads.sampling.bounds": "batch_bounds",
    "workloads.sampling.make": "make_sampler make_seed_plan",
    "workloads.workload": "Workload",
}
_RENAMED = {"Loader": "loader", "check_system": "check", "load": "results"}
#: Public name -> module, and its name there.
_PLACES = {
    _RENAMED.get(name, name): (module, name)
    for module, text in _MODULES.items()
    for name in text.split()
}

__all__ = [
    "CheckResult",
    "Dataset",
    "LayerEdges",
    "MiniBatch",
    "Workload",
    "check",
    "loader",
    "results",
]
__all__ += [
    "Batch",
    "Counters",
    "MemoryBudget",
    "Options",
    "PartUse",
    "Plan",
    "PlanItem",
    "Runtime",
    "StageClock",
]
__all__ += ["System", "SystemInfo", "auto"]
__all__ += [
    "Cache",
    "ChangingCache",
    "Copy",
    "Demand",
    "DirectRows",
    "FirstLayer",
    "Follower",
    "Graph",
    "HostRows",
    "Load",
]
__all__ += [
    "Loaded",
    "Mapped",
    "MappedRows",
    "Need",
    "NeighbourLists",
    "Neighbours",
    "PagedRows",
    "Part",
]
__all__ += [
    "Path",
    "PathSystem",
    "Ranked",
    "Ring",
    "Rows",
    "Sample",
    "SamplingOptions",
    "SingleRows",
    "Site",
    "Source",
]
__all__ += [
    "StaticDevice",
    "StaticHost",
    "Tables",
    "Topology",
    "ZeroCopy",
    "host_graph",
]
__all__ += ["batch_bounds", "make_sampler", "make_seed_plan"]
__all__ += [
    "ReadStats",
    "RowReadOptions",
    "RowReader",
    "counters_of",
    "feature_reader",
    "feature_reader_bytes",
]
__all__ += [
    "BudgetError",
    "DataIOError",
    "DatasetError",
    "HostError",
    "InputError",
    "OutcoreError",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    from outcore.command import named

    with named():
        return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__

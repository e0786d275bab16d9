"""Advice for a graph that is not stored here, from its published statistics: predictions for its full size."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.advise.advice import Advice, AdviceSetting, advise
from harness.advise.holes import make_holes
from harness.advise.implied import ImpliedGraph

if TYPE_CHECKING:
    from harness.advise.published import PublishedGraph
    from harness.plan.experiment import RunSettings
    from systems.interface import DiskProfile


def advise_published(
    graph: PublishedGraph,
    settings: RunSettings,
    profile: DiskProfile,
    *,
    epochs: int,
    batches: int,
    cores: int,
    systems: list[str] | None = None,
    options: dict[str, dict[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Advice, int]:
    """Rank the systems for a published graph on a disk; return the advice and the host budget in bytes.

    The forecast leaves out the processor's cost of sampling and uses mini-batches of the implied graph.

    Args:
        settings: settings of a run; `dataset` is set here, `memory` has to be a budget (`0.1x`, `+8GiB`).
        epochs, batches: epochs of the whole training; mini-batches of an epoch to sample.
        options: options of single systems, by name.

    Raises:
        InputError: the memory is no budget, or statistics cannot imply the sampler's mini-batches.
    """
    from harness.plan.experiment import PlannedRun, resolve
    from harness.settings import parse_memory
    from harness.worker.build import workload_of
    from workloads.errors import InputError

    if settings.sampler != "neighbor" or settings.replace:
        raise InputError(
            "only neighbour sampling without replacement is predicted from statistics", "use --sampler neighbor"
        )
    budget = parse_memory(settings.memory, graph.num_nodes * graph.dim * np.dtype(graph.dtype).itemsize).budget_bytes
    if budget is None:
        raise InputError(
            f"{settings.memory} is no budget for data, and nothing can be measured for {graph.name}",
            "give --memory like +8GiB or 0.1x",
        )
    with tempfile.TemporaryDirectory(prefix="outcore-outlines-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        implied = ImpliedGraph(graph.num_nodes, graph.num_edges, graph.accesses, settings.fanout, settings.seed)
        seeds = np.arange(round(graph.train_share * graph.num_nodes), dtype=np.int64)
        # Seed nodes of any rank: the statistics do not give the degrees of labelled nodes.
        seeds = np.sort(implied.node_of(seeds * (graph.num_nodes // max(1, len(seeds)))))
        dataset = make_holes(folder / graph.name, graph, seeds)
        progress(f"fitting mini-batches to the accesses of {graph.name}")
        implied.fit(settings.batch_size)
        named = settings.model_copy(update={"dataset": str(dataset.path)})
        config = resolve(PlannedRun("gnndrive", named), folder, "none")
        workload, memory = workload_of(config, dataset), config.device_memory_bytes
        setting = AdviceSetting(workload, config.device, memory, budget, epochs, cores, options or {})
        return advise(setting, profile, batches=batches, systems=systems, progress=progress, graph=implied), budget

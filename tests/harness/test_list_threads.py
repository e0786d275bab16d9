"""Memory of threads that share a mini-batch's lists is planned, named in refusals, and
kept under a kernel's cap."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from harness.run.orchestrator import execute
from harness.run.series import Series
from systems.engine.io.topology import list_threads_bytes
from systems.ginex.options import GinexOptions
from systems.ginex.sizes import size_buffers
from systems.interface import MemoryBudget, StagesWanted
from tests.harness.cap_tools import MIB, needs_cap, on_disk
from tests.harness.run_tools import config, share_cache
from tests.support import make_tiny
from tests.systems.support_systems import assert_refused, running, workload_of
from workloads.dataset import Dataset
from workloads.sampling.bounds import batch_bounds

NAMED = "threads that share a mini-batch's lists"
SAMPLERS = {"ginex": "samplers", "gnndrive": "samplers", "ali+pg": "sampling_workers"}


@pytest.mark.parametrize("name", SAMPLERS)
def test_threads_are_planned_and_those_without_room_refused_by_name(
    tiny_dataset: Dataset, name: str
) -> None:
    workload = workload_of(tiny_dataset, batch_size=40)
    options = {SAMPLERS[name]: 4}
    # A plan of ginex shows the larger of its two stages; these threads belong to the
    # stage that samples.
    stages: StagesWanted = "sample" if name == "ginex" else "all"
    for threads, least in ((1, 0), (9, 4 * 8 * 160 * 1024)):
        with running(
            name,
            workload,
            prepare=False,
            stages=stages,
            list_threads=threads,
            **options,
        ) as one:
            planned = sum(item.bytes for item in one.plan().items if item.name == NAMED)
        assert (planned >= least > 0) or planned == least == 0
    assert_refused(
        re.escape(NAMED),
        name,
        workload,
        budget=MemoryBudget(32 * MIB),
        list_threads=256,
        **options,
    )


def test_ginex_takes_eight_where_they_are_an_eighth_of_memory_at_most(
    tiny_dataset: Dataset,
) -> None:
    """In little memory the threads would make superbatches smaller, which costs more
    time than they save."""
    workload = workload_of(tiny_dataset, batch_size=40)

    def planned(host: int | None) -> int:
        with running(
            "ginex", workload, budget=MemoryBudget(host), prepare=False, cores=2
        ) as one:
            assert isinstance(one.options, GinexOptions)
            return size_buffers(one, one.options).list_threads

    assert planned(None) == planned(256 * MIB) == 8
    assert planned(4 * MIB) == 1
    threads = planned(24 * MIB)
    bounds = batch_bounds(workload)
    assert (
        4 * list_threads_bytes(bounds, threads)
        <= 3 * MIB
        < 4 * list_threads_bytes(bounds, threads + 1)
    )


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    results = tmp_path_factory.mktemp("threads") / "results"
    share_cache(results, tmp_path_factory)
    for folder in on_disk():
        dataset = make_tiny(folder / "tiny", nodes=60_000, edges=1_200_000, dim=64)
        with Series(results, folder) as opened:
            opened.prepare([config(opened, "ginex")], dataset)
            yield opened


@needs_cap
@pytest.mark.slow("systems/ginex", "harness/settings.py")
def test_ginex_with_many_threads_lives_under_its_cap(series: Series) -> None:
    """Over a hundred threads take nearly half of the budget from the caches."""
    settings = {
        "memory": "+56MiB",
        "device_memory": "16MiB",
        "fanout": [10, 10],
        "batch_size": 100,
        "max_batches": 40,
    }
    record = execute(
        series,
        config(
            series, "ginex", **settings, options={"samplers": 8, "list_threads": 18}
        ),
        Dataset.open(series.data_root / "tiny"),
    )
    assert record.status == "ok", record.reason
    assert record.memory.oom_kills == 0
    assert not [
        rule for rule in record.verdict_rules if rule.rule == "4" and not rule.ok
    ]

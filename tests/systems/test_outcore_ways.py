"""What `outcore` keeps in memory: more memory never reads more, and enough memory reads
nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from systems.interface import Counters, DiskPoint, DiskProfile, MemoryBudget
from systems.outcore.choice import hottest
from systems.outcore.cost import gap_bytes
from systems.planning import least
from tests.systems.support_systems import reference, run, running, workload_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError
from workloads.making.writer import DatasetWriter
from workloads.sampling.distinct import distinct
from workloads.workload import Workload

pytestmark = pytest.mark.timeout(300)
MIB = 1 << 20
DEVICES = ["cpu", "emulated:instant"]
STEPS = 12
DIMS = (1, 16, 128, 1024)
BATCHES = 12
#: A drive with 2 GB/s and 100,000 requests a second.
FAST = DiskProfile(
    (
        DiskPoint(512, 128, 100_000, 51.2e6),
        DiskPoint(4096, 128, 90_000, 368e6),
        DiskPoint(65536, 128, 30_000, 1.97e9),
        DiskPoint(MIB, 16, 2000, 2e9, "sequential"),
    )
)


def edges_of(
    kind: str, nodes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of a graph as (targets, sources)."""
    ids = np.arange(nodes)
    if kind == "star":
        centre = np.zeros(nodes - 1, dtype=np.int64)
        return np.concatenate([centre, ids[1:]]), np.concatenate([ids[1:], centre])
    if kind == "hubs":
        hubs = rng.choice(nodes, 20, replace=False)
        sources = np.concatenate(
            [rng.integers(0, nodes, 4 * nodes), hubs[rng.integers(0, 20, 4 * nodes)]]
        )
        return rng.integers(0, nodes, 8 * nodes), sources
    bits = int(nodes).bit_length() - 1
    codes = np.zeros((2, 8 * nodes), dtype=np.int64)
    for _ in range(bits):
        quarter = rng.choice(4, codes.shape[1], p=(0.57, 0.19, 0.19, 0.05))
        codes = 2 * codes + np.stack([quarter // 2, quarter % 2])
    return codes[0], codes[1]


def make_graph(path: Path, kind: str, nodes: int, dim: int) -> Dataset:
    rng = np.random.default_rng(5)
    targets, sources = edges_of(kind, nodes, rng)
    edges = distinct(targets * nodes + sources)
    indptr = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(edges // nodes, minlength=nodes), out=indptr[1:])
    order = rng.permutation(nodes)
    train = nodes // 10
    with DatasetWriter(path, recipe={"source": "test"}) as writer:
        writer.write("indptr", indptr)
        writer.write("indices", (edges % nodes).astype(np.int32))
        writer.write("features", rng.standard_normal((nodes, dim), np.float32))
        writer.write("labels", rng.integers(0, 4, nodes))
        writer.write("train", np.sort(order[:train]))
        writer.write("valid", np.sort(order[train : train + 10]))
        writer.write("test", np.sort(order[train + 10 : train + 20]))
        writer.num_classes = 4
    return Dataset.open(path)


def fits(workload: Workload, host: int) -> bool:
    try:
        with running(
            "outcore", workload, budget=MemoryBudget(host), prepare=False
        ) as system:
            return system.plan().total("host") <= host
    except BudgetError:
        return False


def read(workload: Workload, host: int, disk: DiskProfile) -> tuple[Counters, str]:
    """Run two epochs within a budget; return the counters of the second one, and the
    way."""
    with running("outcore", workload, budget=MemoryBudget(host), disk=disk) as system:
        for epoch in range(2):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == sorted(order)
        counters = system.counters()
        assert sum(counters.hits.values()) + counters.misses == counters.rows
        assert sum(counters.requests_by_size.values()) == counters.io_requests
        return counters, system.notes().get("way", "passes")


@pytest.mark.slow("systems/outcore", "systems/engine/passes", seconds=200)
@pytest.mark.parametrize("disk", [DiskProfile(), FAST], ids=["no-profile", "fast"])
@pytest.mark.parametrize("kind", ["hubs", "star", "rmat"])
@pytest.mark.parametrize("dim", DIMS)
def test_bytes_read_never_grow_with_memory(
    tmp_path: Path, kind: str, dim: int, disk: DiskProfile
) -> None:
    nodes = 1 << (14 if dim == 1024 else 17)
    dataset = make_graph(tmp_path / kind, kind, nodes, dim)
    workload = workload_of(dataset, batch_size=50, fanout=(5, 5), max_batches=BATCHES)
    first = least(lambda host: fits(workload, host), step=256 << 10)
    assert first is not None
    most = max(
        2 * first,
        int(1.5 * dataset.feature_bytes) + 2 * dataset.topology_bytes + (32 << 20),
    )
    # A longer gap is read only where that saves a request, which costs as much, to a
    # tenth (`_NEAR` of the cost model).
    price = gap_bytes(disk)
    found = [
        read(workload, host, disk)
        for host in np.geomspace(first, most, STEPS).astype(int).tolist()
    ]
    reported = [
        (way, counters.bytes_read, counters.bytes_written, counters.io_requests)
        for counters, way in found
    ]
    for (_, read_before, written_before, asked_before), (
        _,
        read_after,
        written_after,
        asked_after,
    ) in pairwise(reported):
        saved = max(0, asked_before - asked_after)
        assert read_after <= read_before + 1.1 * price * saved, reported
        cost_before = read_before + written_before + price * asked_before
        assert read_after + written_after + price * asked_after <= 1.02 * cost_before, (
            reported
        )
    assert reported[-1] == ("resident", 0, 0, 0)


#: A drive on which a short read costs no more than its bytes.
RANDOM = DiskProfile(
    (DiskPoint(512, 128, 4e6, 2e9), DiskPoint(MIB, 16, 2000, 2e9, "sequential"))
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Make a graph whose features, 16 MiB, are more than its lists and buffers."""
    return make_graph(tmp_path_factory.mktemp("ways") / "graph", "rmat", 1 << 15, 128)


def budget_of(host: int, device: str) -> MemoryBudget:
    return MemoryBudget(host, None if device == "cpu" else 2 << 20)


@pytest.mark.parametrize("device", DEVICES)
def test_memory_for_graph_and_rows_means_no_reads(graph: Dataset, device: str) -> None:
    workload = workload_of(graph, batch_size=50, max_batches=BATCHES)
    with running(
        "outcore", workload, device=device, budget=budget_of(96 << 20, device)
    ) as system:
        for epoch in (0, 3):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(BATCHES))
        counters = system.counters()
        assert (
            counters.misses
            == counters.bytes_read
            == counters.io_requests
            == counters.bytes_written
            == 0
        )
        assert (counters.hits["device"] > 0) == (device != "cpu")
        assert system.notes()["way"] == "resident"


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_are_not_resident_are_read_alone(graph: Dataset, device: str) -> None:
    workload = workload_of(graph, batch_size=50, max_batches=BATCHES)
    first = least(lambda host: fits(workload, host), step=256 << 10)
    assert first is not None
    seen = []
    for host in range(first + (2 << 20), first + (26 << 20), 2 << 20):
        with running(
            "outcore",
            workload,
            device=device,
            budget=budget_of(host, device),
            disk=RANDOM,
        ) as system:
            for epoch in range(2):
                assert run(system, epoch)[:2] == reference(workload, epoch)
            counters = system.counters()
            notes = system.notes()
            if notes.get("way") == "resident" and counters.misses:
                assert counters.bytes_useful <= counters.bytes_read
                assert counters.bytes_read <= counters.misses * 1024
                assert counters.bytes_written == 0
                seen.append(counters.misses)
    assert len(seen) > 1
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize("device", DEVICES)
def test_an_epoch_that_was_left_is_whole_when_it_comes_again(
    graph: Dataset, device: str
) -> None:
    workload = workload_of(graph, batch_size=50, max_batches=BATCHES)
    with running(
        "outcore", workload, device=device, budget=budget_of(96 << 20, device)
    ) as system:
        left = system.epoch(0)
        next(left).release()
        del left
        assert run(system, 0)[:2] == reference(workload, 0)
        system.prepare()
        assert run(system, 1)[:2] == reference(workload, 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("group", [0, 5])
def test_the_first_two_groups_share_a_pass_over_the_table(
    graph: Dataset, device: str, group: int
) -> None:
    workload = workload_of(graph, batch_size=50, max_batches=BATCHES)
    groups = -(-BATCHES // group) if group else 1
    with running(
        "outcore",
        workload,
        device=device,
        budget=budget_of(24 << 20, device),
        packing="on",
        group=group,
    ) as system:
        assert run(system, 0)[:2] == reference(workload, 0)
        first = system.counters()
        assert run(system, 1)[:2] == reference(workload, 1)
        second = system.counters()
    # Each epoch prepares a group ahead; the first one prepares its own as well.
    table = graph.feature_bytes
    assert first.observed["groups"] == groups + 1
    assert first.observed["table_bytes_read"] <= groups * 1.02 * table
    assert first.observed["direct_rows"] > 0
    for counters in (first, second):
        assert sum(counters.hits.values()) + counters.misses == counters.rows
        assert min(counters.hits.values()) >= 0
        assert counters.bytes_useful <= counters.bytes_read
    # Rows that go straight to their slots are not written to chunks.
    written = first.observed["packed_bytes_written"]
    direct = first.observed["direct_rows"]
    assert written <= (first.misses + second.misses - direct) * 512 + BATCHES * 2 * 4096


@pytest.mark.parametrize("device", DEVICES)
def test_pinned_rows_never_make_an_epoch_read_more(graph: Dataset, device: str) -> None:
    workload = workload_of(graph, batch_size=50, max_batches=BATCHES)
    pinned = []
    for host in range(14 << 20, 18 << 20, 1 << 20):
        budget = budget_of(host, device)
        counted = []
        for resident in (True, False):
            with running(
                "outcore", workload, device=device, budget=budget, resident=resident
            ) as system:
                for epoch in range(3):
                    assert run(system, epoch)[:2] == reference(workload, epoch)
                counters = system.counters()
                counted.append(counters.bytes_read + counters.bytes_written)
                pinned.append(int(system.notes().get("pinned_rows", 0)))
        assert counted[0] <= 1.02 * counted[1]
    assert max(pinned) > 0


def test_the_hottest_rows_are_those_of_the_highest_scores() -> None:
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 9, 500).astype(np.float32)
    order = np.argsort(-scores, kind="stable")
    for on_device, count in ((0, 0), (0, 7), (5, 40), (40, 40), (60, 40), (3, 500)):
        found = hottest(scores, on_device, count)
        cut = min(on_device, count)
        assert found[:cut].tolist() == sorted(order[:cut].tolist())
        assert found[cut:].tolist() == sorted(order[cut:count].tolist())


def test_runs_that_only_sample_read_nothing_where_the_graph_fits(
    graph: Dataset,
) -> None:
    workload = workload_of(graph, batch_size=50, max_batches=BATCHES)
    with running(
        "outcore", workload, budget=MemoryBudget(48 << 20), stages="sample"
    ) as system:
        indices = [batch.sampled.index for batch in system.epoch(0)]
        assert indices == list(range(BATCHES))
        assert system.counters().bytes_read == 0


def test_an_option_of_the_passes_means_passes(graph: Dataset) -> None:
    workload = workload_of(graph, batch_size=50, max_batches=BATCHES)
    for options in (
        {"resident": False},
        {"packing": "on"},
        {"external_sampling": "on"},
    ):
        with running(
            "outcore", workload, budget=MemoryBudget(96 << 20), **options
        ) as system:
            assert run(system, 0)[:2] == reference(workload, 0)
            assert system.counters().bytes_read > 0
            assert "way" not in system.notes()

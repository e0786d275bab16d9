"""`mariusgnn`: mini-batches among buffered nodes, reads as forecast, and each mechanism
visible in a counter."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.check.case import Case
from harness.check.drive import drive
from harness.check.rules import judge
from systems.interface import MemoryBudget
from systems.mariusgnn import SYSTEM
from systems.mariusgnn.parts import BufferedPartitions
from systems.mariusgnn.sizes import buffered
from tests.support import make_tiny
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.dataset import Dataset
from workloads.errors import BudgetError
from workloads.making.writer import DatasetWriter
from workloads.sampling.make import make_seed_plan

pytestmark = pytest.mark.timeout(60)
ORDERINGS = ("random", "rotation", "sequential", "fixed")
CUT: dict[str, Any] = {"partitions": 16}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Make 4,000 nodes with rows of a sector, so that partitions have the requested
    sizes; 200 are trained on."""
    folder = tmp_path_factory.mktemp("marius") / "graph"
    return make_tiny(folder, nodes=4000, edges=40000, dim=128, train_fraction=0.05)


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Make a graph whose neighbour lists are unsorted and have some neighbours
    twice."""
    rng = np.random.default_rng(3)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 40, 1000))]).astype(
        np.int64
    )
    with DatasetWriter(
        tmp_path_factory.mktemp("marius") / "shuffled", recipe={"source": "test"}
    ) as writer:
        writer.write("indptr", indptr)
        writer.write("indices", rng.integers(0, 1000, int(indptr[-1])).astype(np.int64))
        writer.write("features", rng.standard_normal((1000, 256)).astype(np.float16))
        writer.write("labels", rng.integers(0, 3, 1000))
        order = rng.permutation(1000)
        for part, low, high in (
            ("train", 0, 150),
            ("valid", 150, 200),
            ("test", 200, 250),
        ):
            writer.write(part, np.sort(order[low:high]))  # type: ignore[arg-type]
        writer.num_classes = 3
    return Dataset.open(writer.path)


def graph_of(system: Any) -> BufferedPartitions:
    """Return the part of the path that holds the partitions in memory."""
    graph = system.planned().path.sample.topology
    assert isinstance(graph, BufferedPartitions)
    return graph


def epoch_of(system: Any, k: int) -> dict[str, Any]:
    """Run an epoch; return its number of edges and its counters."""
    edges = 0
    for batch in system.epoch(k):
        edges += batch.sampled.num_edges
        batch.release()
    return {"edges": edges, **system.counters().as_dict()}


@pytest.mark.parametrize("device", ["cpu", "emulated:instant"])
@pytest.mark.parametrize("name", ["graph", "shuffled"])
def test_with_all_partitions_buffered_its_mini_batches_are_in_memorys(
    request: pytest.FixtureRequest, name: str, device: str
) -> None:
    workload = workload_of(request.getfixturevalue(name), fanout=(4, 3))
    with running("mariusgnn", workload, device=device, **CUT) as system:
        assert len(graph_of(system).partitions_of(0)) > 4
        for epoch in range(2):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == sorted(order)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("name", ["graph", "shuffled"])
def test_every_row_is_its_nodes_and_every_neighbour_a_buffered_in_neighbour(
    request: pytest.FixtureRequest, name: str, ordering: str
) -> None:
    dataset: Dataset = request.getfixturevalue(name)
    indptr, indices, features = (
        dataset.load(part) for part in ("indptr", "indices", "features")
    )
    workload = workload_of(dataset, fanout=(-1, 3))
    with running("mariusgnn", workload, buffer=7, ordering=ordering, **CUT) as system:
        for epoch in range(3):
            inside = np.zeros(dataset.num_nodes, dtype=bool)
            for batch in system.epoch(epoch):
                inside[:] = graph_of(system).buffer.row_of >= 0
                sampled = batch.sampled
                assert inside[sampled.nodes].all()
                assert batch.table is not None
                assert np.array_equal(
                    np.asarray(batch.table)[: sampled.num_nodes],
                    features[sampled.nodes],
                )
                for number, block in enumerate(sampled.blocks):
                    for i in range(block.num_dst):
                        node = sampled.nodes[i]
                        whole = indices[indptr[node] : indptr[node + 1]]
                        drawn = sampled.nodes[
                            block.indices[block.indptr[i] : block.indptr[i + 1]]
                        ]
                        there = Counter(whole[inside[whole]].tolist())
                        assert Counter(drawn.tolist()) <= there
                        # The first hop takes all buffered in-neighbours, the second up
                        # to three of them.
                        wanted = there.total() if number == 1 else min(3, there.total())
                        assert len(drawn) == wanted
                batch.release()
            assert 0 < inside.sum() < dataset.num_nodes


def test_lists_keep_their_order_among_buffered_neighbours(shuffled: Dataset) -> None:
    indptr = shuffled.load("indptr")
    indices = shuffled.load("indices")
    with running("mariusgnn", workload_of(shuffled), buffer=6, **CUT) as system:
        epoch_of(system, 1)
        buffer = graph_of(system).buffer
        for node in range(shuffled.num_nodes):
            whole = indices[indptr[node] : indptr[node + 1]]
            kept = (
                whole[buffer.row_of[whole] >= 0]
                if buffer.row_of[node] >= 0
                else whole[:0]
            )
            assert np.array_equal(
                buffer.indices[buffer.indptr[node] : buffer.indptr[node + 1]], kept
            )


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_training_nodes_stay_buffered(graph: Dataset, ordering: str) -> None:
    workload = workload_of(graph)
    seeds = sorted(
        int(node) for batch in make_seed_plan(workload).batches(0) for node in batch
    )
    with running("mariusgnn", workload, buffer=4, ordering=ordering, **CUT) as system:
        slots = set()
        for epoch in range(4):
            epoch_of(system, epoch)
            slots.add(tuple(graph_of(system).buffer.row_of[seeds].tolist()))
        assert len(slots) == 1
        assert min(slots.pop()) >= 0


def test_other_partitions_change_as_the_ordering_states() -> None:
    def sets(ordering: Any, epochs: int = 8) -> list[set[int]]:
        found = [buffered(16, 2, 7, ordering, seed=5, epoch=k) for k in range(epochs)]
        assert all(
            len(one) == 7 and one[:2] == [0, 1] and one == sorted(one) for one in found
        )
        assert found == [
            buffered(16, 2, 7, ordering, seed=5, epoch=k) for k in range(epochs)
        ]
        return [set(one) for one in found]

    assert len(set(map(frozenset, sets("random")))) > 4
    assert sets("random") != [
        set(buffered(16, 2, 7, "random", seed=6, epoch=k)) for k in range(8)
    ]
    assert (
        len(set().union(*sets("rotation", 3))) == 16
    )  # 14 others in three turns of five
    assert all(
        len(new - old) == 1
        for old, new in zip(sets("sequential"), sets("sequential")[1:], strict=False)
    )
    assert len(set(map(frozenset, sets("fixed")))) == 1
    assert buffered(16, 2, 16, "random", seed=5, epoch=3) == list(range(16))


def test_random_gives_every_partition_its_turn_equally() -> None:
    turns = Counter(
        k
        for epoch in range(600)
        for k in buffered(12, 2, 5, "random", seed=1, epoch=epoch)
    )
    assert turns[0] == turns[1] == 600
    others = np.array([turns[k] for k in range(2, 12)])
    # 600 draws of 3 in 10: expectation 180; chi-square with 9 degrees of freedom, below
    # its 99.9 % point.
    assert ((others - 180) ** 2 / 180).sum() < 27.9


def test_a_larger_buffer_draws_more_edges_and_reads_more(graph: Dataset) -> None:
    workload = workload_of(graph)
    found = {}
    for capacity in (4, 8, 16):
        with running("mariusgnn", workload, buffer=capacity, **CUT) as system:
            found[capacity] = epoch_of(system, 0)
    for key in ("edges", "rows", "bytes_read", "bytes_useful"):
        assert found[4][key] < found[8][key] < found[16][key], key
    assert [found[c]["observed"]["buffered_edges"] for c in (4, 8)] < [
        graph.num_edges / 2,
        graph.num_edges,
    ]
    assert found[16]["observed"]["buffered_edges"] == graph.num_edges


def expected_reads(
    system: Any, before: list[int], now: list[int]
) -> tuple[Counter[int], int]:
    """Compute requests by size and useful bytes of one data preparation from the
    layout, partition by partition."""
    parts = system._parts
    counts = system._layout.counts
    step = 1 << 20
    item = parts.index_dtype.itemsize

    def whole(nbytes: int) -> int:
        return -(-nbytes // 512) * 512

    useful = 0
    requests = Counter[int]()
    pieces: list[tuple[str, int, int]] = []
    list_at = 0
    bucket_at = {}
    nodes = [
        min(parts.size, parts.num_nodes - k * parts.size) for k in range(parts.count)
    ]
    for k in range(parts.count):
        size = whole(8 * nodes[k]) + whole(4 * nodes[k]) + whole(int(counts[k].sum()))
        if k in now:
            pieces.append(("lists", list_at, size))
            useful += 12 * nodes[k] + int(counts[k].sum())
        if k in now and k not in before:
            requests += requests_of(whole(nodes[k] * parts.row_bytes), step)
            useful += nodes[k] * parts.row_bytes
        list_at += size
    at = list_at
    for i in range(parts.count):
        for j in range(parts.count):
            bucket_at[i, j] = at
            at += whole(int(counts[i, j]) * item)
    for i in now:
        for j in now:
            pieces.append(
                (f"buckets {i}", bucket_at[i, j], whole(int(counts[i, j]) * item))
            )
            useful += int(counts[i, j]) * item
    # Pieces adjacent in the file are joined, lists and buckets separately.
    joined: list[list[Any]] = []
    for kind, start, size in pieces:
        kind = kind.split()[0]
        if joined and joined[-1][0] == kind and joined[-1][1] + joined[-1][2] == start:
            joined[-1][2] += size
        else:
            joined.append([kind, start, size])
    for _, _, size in joined:
        requests += requests_of(size, step)
    return requests, useful


def requests_of(nbytes: int, step: int) -> Counter[int]:
    found = Counter({step: nbytes // step}) if nbytes >= step else Counter[int]()
    return found + Counter([nbytes % step] if nbytes % step else [])


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("name", ["graph", "shuffled"])
def test_reads_of_data_preparation_are_exactly_those_forecast(
    request: pytest.FixtureRequest, name: str, ordering: str
) -> None:
    with running(
        "mariusgnn",
        workload_of(request.getfixturevalue(name)),
        buffer=6,
        ordering=ordering,
        **CUT,
    ) as system:
        before: list[int] = []
        for epoch in range(4):
            counters = epoch_of(system, epoch)
            now = graph_of(system).partitions_of(epoch)
            requests = Counter[int]()
            useful = 0
            if now != before:
                requests, useful = expected_reads(system, before, now)
            assert (
                Counter(
                    {int(size): n for size, n in counters["requests_by_size"].items()}
                )
                == requests
            )
            assert counters["io_requests"] == requests.total()
            assert counters["bytes_read"] == sum(
                size * count for size, count in requests.items()
            )
            assert counters["bytes_useful"] == useful
            before = now


def test_partitions_that_stay_are_not_read_again(graph: Dataset) -> None:
    found = {}
    for ordering in ORDERINGS:
        with running(
            "mariusgnn", workload_of(graph), buffer=6, ordering=ordering, **CUT
        ) as system:
            found[ordering] = [
                epoch_of(system, epoch)["bytes_read"] for epoch in range(2)
            ]
    assert found["fixed"][1] == 0
    assert found["sequential"][1] < found["rotation"][1] < found["rotation"][0]


def test_data_preparation_is_part_of_the_epoch_and_nothing_is_read_after_it(
    graph: Dataset,
) -> None:
    with running("mariusgnn", workload_of(graph), buffer=5, **CUT) as system:
        system.clock.drain()
        batches = system.epoch(0)
        assert system.clock.drain() == []
        next(batches).release()
        after_first = system.counters().bytes_read
        for batch in batches:
            batch.release()
        spans = system.clock.drain()
        assert spans[0].stage == "data_prep"
        assert spans[0].end <= min(span.start for span in spans[1:])
        assert system.counters().bytes_read == after_first > 0
        assert {span.stage for span in spans} == {"data_prep", "sample", "extract"}


def test_an_abandoned_epoch_leaves_the_buffer_usable(graph: Dataset) -> None:
    workload = workload_of(graph)
    with running("mariusgnn", workload, buffer=5, **CUT) as system:
        expected = [run(system, epoch) for epoch in range(2)]
    with running("mariusgnn", workload, buffer=5, **CUT) as system:
        batches = system.epoch(1)
        next(batches).release()
        batches.close()  # type: ignore[attr-defined]
        assert [run(system, epoch) for epoch in range(2)] == expected


def test_the_buffer_is_as_large_as_the_budget_holds(graph: Dataset) -> None:
    workload = workload_of(graph)
    with running("mariusgnn", workload, prepare=False, buffer=9, **CUT) as system:
        room = system.plan().total("host")
        part = system._parts.slot_bytes  # type: ignore[attr-defined]
    for spare, capacity in ((0, 9), (-1, 8), (part // 2, 9)):
        with running(
            "mariusgnn",
            workload,
            prepare=False,
            budget=MemoryBudget(room + spare),
            **CUT,
        ) as system:
            assert len(graph_of(system).partitions_of(0)) == capacity
            assert system.plan().total("host") <= room + spare


def test_a_budget_too_small_is_refused_by_part_with_the_least_that_works(
    graph: Dataset,
) -> None:
    workload = workload_of(graph)
    few = {"sampling_workers": 1, "prefetch": 1}
    with running(
        "mariusgnn", workload, prepare=False, buffer=2, **few, **CUT
    ) as system:
        least = system.plan().total("host")
    with running("mariusgnn", workload, budget=MemoryBudget(least), **CUT) as system:
        assert len(graph_of(system).partitions_of(0)) == 2
        assert epoch_of(system, 0)["rows"] > 0
    assert_refused(
        "buffered features needs .* left of",
        "mariusgnn",
        workload,
        budget=MemoryBudget(least - 1),
        **CUT,
    )
    assert_refused(
        "indptr needs", "mariusgnn", workload, budget=MemoryBudget(1000), **CUT
    )
    assert_refused(
        "lower buffer, or leave it",
        "mariusgnn",
        workload,
        budget=MemoryBudget(least),
        buffer=9,
        **CUT,
    )
    assert_refused(
        "1 that hold training nodes and one more; raise buffer to 2",
        "mariusgnn",
        workload,
        buffer=1,
        **CUT,
    )
    assert_refused(
        "partitions and edge buckets needs",
        "mariusgnn",
        workload,
        budget=MemoryBudget(None, None, 1 << 20),
        **CUT,
    )


def test_a_mini_batch_larger_than_planned_is_refused_with_the_option(
    tmp_path: Path,
) -> None:
    # Every training node has eight hubs and two other training nodes as in-neighbours.
    # In the whole graph a mini-batch mostly samples the hubs; where they are not
    # buffered it samples the others, which differ from node to node.
    rng = np.random.default_rng(0)
    nodes = 2000
    train = 1000
    lists: list[Any] = [
        np.concatenate([1000 + np.arange(8), [(node + 1) % train, (node + 2) % train]])
        if node < train
        else []
        for node in range(nodes)
    ]
    with DatasetWriter(tmp_path / "hubs", recipe={"source": "test"}) as writer:
        writer.write(
            "indptr",
            np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(
                np.int64
            ),
        )
        writer.write("indices", np.concatenate(lists).astype(np.int32))
        writer.write("features", rng.standard_normal((nodes, 128)).astype(np.float32))
        writer.write("labels", np.zeros(nodes, dtype=np.int64))
        for part, low, high in (
            ("train", 0, train),
            ("valid", train, train + 9),
            ("test", train + 9, nodes),
        ):
            writer.write(part, np.arange(low, high, dtype=np.int64))  # type: ignore[arg-type]
        writer.num_classes = 1
    workload = workload_of(Dataset.open(tmp_path / "hubs"), batch_size=40, fanout=(4,))
    reported = pytest.raises(
        BudgetError,
        match=r"has \d+ nodes among the buffered ones.*raise batch_slack above 1",
    )
    with (
        running(
            "mariusgnn", workload, buffer=17, partitions=32, batch_slack=1.0
        ) as system,
        reported,
    ):
        epoch_of(system, 0)
    with running(
        "mariusgnn", workload, buffer=17, partitions=32, batch_slack=2.0
    ) as system:
        assert epoch_of(system, 0)["rows"] > 0


@pytest.mark.parametrize(
    "case",
    [
        Case("base"),
        Case("dim 127 float16", dim=127, dtype="float16", index_dtype="int64"),
        Case("emulated", device="emulated:instant"),
        Case("smallest", kind="smallest", dim=100),
        Case("abandon", kind="abandon"),
        Case("close", kind="close"),
        Case("cut", kind="cut"),
        Case("cut-late", kind="cut-late", batch_size=5),
        Case("gone", kind="gone"),
        Case("artefacts", kind="artefacts"),
        Case("sample-only", kind="sample-only"),
    ],
    ids=lambda case: str(case.name),
)
def test_it_keeps_its_promises_with_a_part_of_the_graph_buffered(
    tmp_path: Path, case: Case
) -> None:
    options = {"partitions": 12, "buffer": 0 if case.kind == "smallest" else 4}
    seen = drive(tmp_path, Case(**{**case.__dict__, "options": options}), SYSTEM)
    assert [result for result in judge([seen], faithful=False) if not result.ok] == []
    if case.kind == "run":
        assert all(epoch.structure != epoch.expected_structure for epoch in seen.epochs)


def test_partitions_are_whole_sectors_of_rows(
    graph: Dataset, shuffled: Dataset
) -> None:
    for dataset in (graph, shuffled):
        for wanted in (1, 3, 16, 256):
            with running(
                "mariusgnn", workload_of(dataset), prepare=False, partitions=wanted
            ) as system:
                parts = system._parts  # type: ignore[attr-defined]
            assert parts.slot_bytes % 512 == 0
            assert parts.count <= wanted
            assert parts.count == math.ceil(dataset.num_nodes / parts.size)

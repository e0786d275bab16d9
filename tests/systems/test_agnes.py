"""`agnes`: the workload's mini-batches, and counters that equal a model of blocks,
tiers and files in NumPy."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.advise.trace import take_trace
from systems import _native
from systems.agnes.group import Preparer
from systems.agnes.planner import AgnesOptions
from systems.agnes.tiers import place
from systems.engine.passes.group import Uses
from systems.engine.passes.groups import Groups
from systems.interface import Counters, DiskPoint, DiskProfile, MemoryBudget
from tests.support import make_tiny
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.dataset import Dataset
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

pytestmark = pytest.mark.timeout(180)

DEVICES = ["cpu", "emulated:instant"]
ROW = 16 * 4
BLOCK = 16 << 10
PAGE = 4096


def counters_of(workload: Workload, epochs: int = 2, **options: Any) -> Counters:
    """Run epochs, each checked against the reference; return the counters of the
    last."""
    with running("agnes", workload, **options) as system:
        for epoch in range(epochs):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(len(order)))
        counters = system.counters()
    assert sum(counters.hits.values()) + counters.misses == counters.rows
    assert min(counters.hits.values()) >= 0
    assert sum(counters.requests_by_size.values()) == counters.io_requests
    return counters


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hyperbatch": 1},
        {"hyperbatch": 3, "block_bytes": BLOCK, "slots": str(1600 * ROW)},
        {"tiers": "off", "window": 1, "block_bytes": 4096},
        {"tiers": "average", "slots": str(1600 * ROW), "hyperbatch": 7},
        {"look_ahead": False, "device_slots": "off", "queue": 1, "window": 3},
        {"look_ahead": "training", "hyperbatch": 4, "slots": str(1600 * ROW)},
    ],
)
def test_mini_batches_are_the_oracles_in_order(
    tiny_dataset: Dataset, device: str, options: dict[str, Any]
) -> None:
    more: dict[str, Any] = (
        {"budget": MemoryBudget(None, 256 * ROW)} if device != "cpu" else {}
    )
    counters_of(workload_of(tiny_dataset), 3, device=device, **more, **options)


@pytest.mark.parametrize("dim", [1, 1024])
def test_rows_of_one_value_and_rows_longer_than_half_a_page(
    tmp_path: Path, dim: int
) -> None:
    counters_of(
        workload_of(make_tiny(tmp_path / "d", dim=dim)), block_bytes=BLOCK, hyperbatch=5
    )


def star(folder: Path) -> Dataset:
    """Make a graph of a hub with all nodes as neighbours, nodes that have the hub
    alone, loops, and isolated nodes."""
    from workloads.making.writer import DatasetWriter

    nodes = 3000
    hub = np.arange(3000)
    lists = [
        hub,
        *([np.array([0])] * 1500),
        *([np.array([i]) for i in range(1501, 2000)]),
        *([hub[:0]] * 1000),
    ]
    rng = np.random.default_rng(0)
    with DatasetWriter(folder / "star", recipe={"source": "test"}) as writer:
        writer.write("indptr", np.cumsum([0, *map(len, lists)]).astype(np.int64))
        writer.write("indices", np.concatenate(lists).astype(np.int32))
        writer.write("features", rng.standard_normal((nodes, 16)).astype(np.float32))
        writer.write("labels", rng.integers(0, 4, nodes))
        parts = np.split(rng.permutation(nodes), [400, 450])
        for name, part in zip(("train", "valid", "test"), parts, strict=True):
            writer.write(name, np.sort(part)[:400])
        writer.num_classes = 4
    return Dataset.open(folder / "star")


@pytest.mark.parametrize("fanout", [(5, 5), (-1, 3)])
def test_hubs_loops_and_isolated_nodes(tmp_path: Path, fanout: tuple[int, ...]) -> None:
    counters_of(
        workload_of(star(tmp_path), fanout=fanout), block_bytes=4096, hyperbatch=6
    )


def sampled(workload: Workload, epoch: int) -> list[SampledBatch]:
    sampler = make_sampler(workload)
    return [
        sampler.sample(epoch, i, seeds)
        for i, seeds in enumerate(make_seed_plan(workload).batches(epoch))
    ]


def groups_of(batches: list[Any], size: int) -> list[list[Any]]:
    return [batches[i : i + size] for i in range(0, len(batches), size)]


def hop_destinations(batch: SampledBatch) -> list[np.ndarray]:
    """Return the nodes whose neighbours each hop draws, the seed nodes first."""
    return [batch.nodes[: block.num_dst] for block in reversed(batch.blocks)]


def graph_blocks(dataset: Dataset, group: list[SampledBatch]) -> list[int]:
    """Return the bytes of each read of `indptr` and `indices` blocks for a group, by
    hop, from its drawn edges."""
    reads: list[int] = []
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    for hop in range(len(group[0].blocks)):
        nodes = np.unique(
            np.concatenate([hop_destinations(batch)[hop] for batch in group])
        )
        first = dataset.data_offset("indptr") + 8 * nodes
        end = dataset.data_offset("indptr") + 8 * len(indptr)
        for block in np.unique(first // BLOCK).tolist():
            # A list that ends in the next block has its end there: one page more.
            last = int((first[first // BLOCK == block] + 8).max()) // BLOCK > block
            reads.append(
                min((block + 1) * BLOCK + (PAGE if last else 0), end) - block * BLOCK
            )
        item = dataset.topology_bytes // dataset.num_edges
        begin = dataset.data_offset("indices")
        touched: set[int] = set()
        for batch in group:
            block_ = list(reversed(batch.blocks))[hop]
            sources = batch.nodes[block_.indices]
            for i, node in enumerate(hop_destinations(batch)[hop].tolist()):
                drawn = sources[block_.indptr[i] : block_.indptr[i + 1]]
                row = indices[indptr[node] : indptr[node + 1]]
                at = indptr[node] + np.flatnonzero(np.isin(row, drawn))
                touched.update(((begin + item * at) // BLOCK).tolist())
        stop = begin + item * dataset.num_edges
        reads += [min((block + 1) * BLOCK, stop) - block * BLOCK for block in touched]
    block = block_bytes(dataset, "indices")
    return [-(-size // block) * block for size in reads]


def label_bytes(dataset: Dataset, group: list[SampledBatch]) -> int:
    """Return the bytes of the one read of the labels of a group's seed nodes, in a file
    below 64 KiB."""
    at = dataset.data_offset("labels") + 8 * np.concatenate(
        [batch.nodes[: batch.num_seeds] for batch in group]
    )
    block = block_bytes(dataset, "labels")
    return -(-(int(at.max()) + 8) // block) * block - int(at.min()) // block * block


def block_bytes(dataset: Dataset, part: str) -> int:
    return int(_native.block_bytes(str(dataset.file(part))))


def feature_blocks(dataset: Dataset, group: list[SampledBatch]) -> list[int]:
    """Return the bytes of each read of a block of rows that a group uses."""
    rows = BLOCK // ROW
    begin = dataset.data_offset("features")
    used = np.unique(np.concatenate([batch.nodes for batch in group]))
    sizes = [
        min((block + 1) * rows, dataset.num_nodes) - block * rows
        for block in np.unique(used // rows).tolist()
    ]
    assert begin % PAGE == 0
    block = block_bytes(dataset, "features")
    return [-(-size * ROW // block) * block for size in sizes]


def model_of_tiers(
    group: list[SampledBatch], room: int, device: int, window: int, rule: str
) -> dict[str, int]:
    """Return rows by tier and the rows of files, by sorting all rows; the ring's length
    is found as `place` does."""
    nodes, counts = np.unique(
        np.concatenate([batch.nodes for batch in group]), return_counts=True
    )
    order = np.lexsort((nodes, -counts))
    eligible = order[counts[order] >= counts.mean()] if rule == "average" else order
    eligible = eligible[:0] if rule == "off" else eligible

    def beside(kept: set[int]) -> list[int]:
        return [len(set(batch.nodes.tolist()) - kept) for batch in group]

    def ring_of(missing: list[int]) -> int:
        step = min(window, len(missing))
        return max(sum(missing[i : i + step]) for i in range(len(missing) - step + 1))

    kept = set(nodes[eligible[:room]].tolist())
    if max(len(kept), device) + ring_of(beside(kept)) > room:
        kept = set()
        for _ in range(4):
            kept = set(nodes[eligible[: room - ring_of(beside(kept))]].tolist())
    on_device = eligible[: min(device, len(kept))]
    hits = int(counts[on_device].sum()) - len(on_device)
    return {"kept": len(kept), "device_hits": hits, "in_files": sum(beside(kept))}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tiers", ["fill", "average", "off"])
@pytest.mark.parametrize("hyperbatch", [1, 8, 0])
def test_counters_are_those_of_a_model_of_blocks_tiers_and_files(
    tiny_dataset: Dataset, device: str, tiers: str, hyperbatch: int
) -> None:
    workload = workload_of(tiny_dataset)
    options = {
        "tiers": tiers,
        "hyperbatch": hyperbatch,
        "block_bytes": BLOCK,
        "look_ahead": False,
    }
    budget = MemoryBudget(None, 256 * ROW if device != "cpu" else None)
    with running(
        "agnes",
        workload,
        device=device,
        budget=budget,
        slots=str(1600 * ROW),
        **options,
    ) as system:
        run(system, 0)
        counters = system.counters()
        sizes = system._sizes  # type: ignore[attr-defined]
        assert sizes.device_slots == (256 if device != "cpu" else 0)
    batches = sampled(workload, 0)
    groups = groups_of(batches, hyperbatch or len(batches))
    tables = [feature_blocks(tiny_dataset, group) for group in groups]
    assert counters.observed["table_bytes_read"] == sum(map(sum, tables))
    placed = [
        model_of_tiers(group, sizes.slots, sizes.device_slots, 2, tiers)
        for group in groups
    ]
    kept, device_hits, in_files = (
        sum(one[name] for one in placed) for name in ("kept", "device_hits", "in_files")
    )
    assert counters.misses == kept + in_files
    assert counters.observed["file_rows"] == in_files
    assert counters.rows == sum(batch.num_nodes for batch in batches)
    assert counters.hits == {
        "device": device_hits,
        "host": counters.rows - kept - in_files - device_hits,
    }
    # Each file is a whole number of pages, written once.
    missing = counters.observed["packed_bytes_written"]
    assert in_files * ROW <= missing <= in_files * ROW + len(batches) * PAGE
    graph = sum(
        sum(graph_blocks(tiny_dataset, group)) + label_bytes(tiny_dataset, group)
        for group in groups
    )
    assert counters.observed["graph_bytes_read"] == graph
    assert (
        counters.bytes_useful
        == counters.misses * ROW + sum(batch.edge_reads for batch in batches) * 4
    )


def test_each_block_is_read_once_a_hop_however_many_edges_are_wanted_of_it(
    tmp_path: Path,
) -> None:
    """A block of which far more edges are wanted than are noted at a time is kept in
    memory, not read again."""
    dataset = make_tiny(tmp_path / "d", nodes=4000, edges=60_000)
    workload = workload_of(dataset, batch_size=100, fanout=(10, 10, 10))
    with running("agnes", workload, block_bytes=1 << 20, cores=2) as system:
        run(system, 0)
        counters = system.counters()
    files = (
        dataset.data_offset("indptr") + 8 * 4001,
        dataset.data_offset("indices") + 4 * 60_000,
    )
    assert counters.observed["groups"] == 2  # and the next epoch's
    block = block_bytes(dataset, "indices")
    graph = 2 * 3 * sum(-(-size // block) * block for size in files)
    assert (
        graph
        < counters.observed["graph_bytes_read"]
        <= graph + 2 * (8 * 4000 + 2 * PAGE)
    )


def test_the_hyperbatch_is_an_epoch_of_fewer_mini_batches_and_1024_of_more(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    with running("agnes", workload) as system:
        assert system.chosen()["hyperbatch"] == make_seed_plan(workload).num_batches
        run(system)
        assert "not" not in system.notes()["hyperbatch"]


def test_a_hyperbatch_shrinks_to_the_budget_and_states_so(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "d", nodes=20_000, edges=200_000)
    workload = workload_of(dataset, batch_size=20, fanout=(10, 10))
    options: dict[str, Any] = {"block_bytes": 1 << 16}
    with running("agnes", workload, **options, budget=MemoryBudget(14 << 20)) as system:
        hyperbatch = system.chosen()["hyperbatch"]
        assert system.plan().total("host") <= 14 << 20
        assert run(system, 0)[:2] == reference(workload, 0)
        batches = make_seed_plan(workload).num_batches
        assert 1 <= hyperbatch < batches  # type: ignore[operator]
        assert (
            system.notes()["hyperbatch"]
            == f"{hyperbatch}, not {batches}: the budget holds the structure of no more"
        )
    refused = f"hyperbatch of {batches} mini-batches needs"
    assert_refused(
        refused,
        "agnes",
        workload,
        budget=MemoryBudget(14 << 20),
        hyperbatch=batches,
        **options,
    )
    assert_refused(
        "passes over the graph|largest mini-batch",
        "agnes",
        workload,
        budget=MemoryBudget(4 << 20),
    )


@pytest.mark.slow(
    "systems/agnes", "systems/engine/passes", "systems/forecast.py", "harness/advise"
)
@pytest.mark.parametrize("options", [{}, {"tiers": "off"}, {"hyperbatch": 5}])
def test_the_forecast_has_the_bytes_that_an_epoch_moves(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    dataset = make_tiny(
        tmp_path / "d", nodes=20_000, edges=200_000, train_fraction=0.02
    )
    workload = workload_of(dataset, batch_size=20, fanout=(10, 10))
    with running(
        "agnes", workload, block_bytes=1 << 16, slots=str(9000 * ROW), **options
    ) as system:
        for epoch in range(2):
            run(system, epoch)
        counters = system.counters()
        forecast = system.forecast(
            take_trace(workload, system.runtime.accelerator, 1000), 0
        )
    assert forecast is not None
    expected = sum(size * count for size, count in forecast.reads.items())
    assert expected == pytest.approx(
        counters.bytes_read + counters.bytes_written, rel=0.15
    )


def test_auto_samples_while_training_where_memory_then_holds_a_larger_hyperbatch(
    tmp_path: Path,
) -> None:
    dataset = make_tiny(tmp_path / "d", nodes=20_000, edges=200_000)
    workload = workload_of(dataset, batch_size=20, fanout=(10, 10))
    disk = DiskProfile(
        (DiskPoint(4096, 64, 5e3, 2e7), DiskPoint(1 << 20, 8, 20.0, 2e7, "sequential"))
    )
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for look_ahead in ("auto", "on", "training", "off"):
        for mib in (14, 400):
            budget = MemoryBudget(mib << 20)
            options = {"block_bytes": 1 << 16, "look_ahead": look_ahead}
            with running(
                "agnes", workload, budget=budget, disk=disk, prepare=False, **options
            ) as system:
                assert system.plan().total("host") <= mib << 20
                found[look_ahead, mib] = dict(system.chosen())
    assert (
        found["training", 14]["hyperbatch"]
        == found["off", 14]["hyperbatch"]
        > found["on", 14]["hyperbatch"]
    )
    assert found["auto", 14] == found["training", 14]
    assert found["auto", 400] == found["on", 400]
    assert found["on", 400]["hyperbatch"] == make_seed_plan(workload).num_batches
    counters_of(
        workload, 2, budget=MemoryBudget(14 << 20), disk=disk, block_bytes=1 << 16
    )


@pytest.mark.parametrize("look_ahead", ["on", "training", "off"])
def test_the_next_hyperbatch_is_sampled_beside_gathering_or_after_it(
    tiny_dataset: Dataset, monkeypatch: pytest.MonkeyPatch, look_ahead: str
) -> None:
    workload = workload_of(tiny_dataset)
    order = list[str]()

    def noted(kind: type, name: str, word: str) -> None:
        call = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda *given: (order.append(word), call(*given))[1]
        )

    noted(Groups, "_request", "sample")
    noted(Preparer, "gather", "gather")
    with running("agnes", workload, look_ahead=look_ahead, hyperbatch=4) as system:
        run(system, 0)
    groups = -(-make_seed_plan(workload).num_batches // 4)
    each = ["gather", "sample"] if look_ahead == "training" else ["sample", "gather"]
    assert order == ["sample"] * (look_ahead != "off") + each * groups
    assert groups > 1


def test_an_epoch_left_before_a_hyperbatch_is_gathered_closes_its_files(
    tiny_dataset: Dataset,
) -> None:
    def opened() -> list[str]:
        links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
        return [link for link in links if "/agnes-" in link]

    with running("agnes", workload_of(tiny_dataset), hyperbatch=4) as system:
        epoch = system.epoch(0)
        next(epoch).release()
        epoch.close()  # type: ignore[attr-defined]
        assert opened() == []


def test_look_ahead_samples_the_next_epoch_within_this_one(
    tiny_dataset: Dataset,
) -> None:
    for look_ahead, groups in ((True, 2), ("training", 2), (False, 1)):
        with running(
            "agnes", workload_of(tiny_dataset), look_ahead=look_ahead
        ) as system:
            run(system, 0)
            assert system.counters().observed["groups"] == groups


def test_an_epoch_that_was_left_or_asked_for_again_is_whole(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    with running("agnes", workload, hyperbatch=4) as system:
        left = system.epoch(0)
        next(left).release()
        del left
        for epoch in (1, 1, 0, 2):
            assert run(system, epoch)[:2] == reference(workload, epoch)
    assert (
        not list(system.runtime.scratch.glob("*"))
        if system.runtime.scratch.exists()
        else True
    )


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_row_has_a_slot_that_no_other_uses_meanwhile(data: st.DataObject) -> None:
    """Any mini-batches, slots and window: kept rows have slots of their own, rows of
    files rotate through the ring."""
    nodes = 120
    window = data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    weights = 1 / np.arange(1, nodes + 1) ** data.draw(st.sampled_from([0.0, 1.0, 2.0]))
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=12))
    batches = [
        rng.choice(nodes, size, replace=False, p=weights / weights.sum())
        for size in sizes
    ]
    used = Uses(
        np.concatenate(batches).astype(np.uint32),
        np.cumsum([0, *sizes]),
        np.array([min(3, size) for size in sizes]),
    )
    longest = max(
        sum(sizes[i : i + window]) for i in range(max(1, len(sizes) - window + 1))
    )
    device = data.draw(st.integers(0, 30))
    slots = device + longest + data.draw(st.integers(0, 60))
    least = data.draw(st.sampled_from([0, 1, len(sizes) + 1]))
    tiers = place(
        used,
        num_nodes=nodes,
        slots=slots,
        device_slots=device,
        window=window,
        least=least,
    )
    counts = np.bincount(used.nodes, minlength=nodes)
    average = len(used.nodes) / np.count_nonzero(counts)
    kept = tiers.kept.astype(np.int64)
    others = np.setdiff1d(np.flatnonzero(counts), tiers.kept)
    assert np.all(np.diff(kept) > 0)
    assert counts[kept].min(initial=99) >= (average if least == 0 else least)
    eligible = others[counts[others] >= (average if least == 0 else least)]
    assert counts[kept].min(initial=99) >= counts[eligible].max(initial=0)
    places = tiers.places[kept]
    assert len(set(places.tolist())) == len(kept)
    assert np.all((places >= 0) & (places < slots))
    assert (
        np.count_nonzero(places < device) == tiers.on_device == min(device, len(kept))
    )
    assert counts[kept[places < device]].min(initial=99) >= counts[
        kept[places >= device]
    ].max(initial=0)
    table = np.full(slots, -1)
    recent = list[np.ndarray]()
    table[places] = kept
    for batch, (ids, to, where) in zip(batches, tiers.lists(used), strict=True):
        assert np.array_equal(ids, np.sort(np.intersect1d(batch, others)))
        assert np.all((to >= max(device, places.max(initial=-1) + 1)) & (to < slots))
        in_use = (
            np.concatenate([to[:0], *recent[len(recent) - window + 1 :]])
            if window > 1
            else to[:0]
        )
        assert not set(to.tolist()) & set(in_use.tolist())
        assert len(set(to.tolist())) == len(to)
        table[to] = ids
        assert np.array_equal(table[where], batch)
        recent.append(to)
    assert [len(to) for to in recent] == tiers.missing.tolist()


def test_fewer_rows_are_left_to_files_the_more_slots_there_are() -> None:
    rng = np.random.default_rng(1)
    batches = [
        rng.choice(500, 100, replace=False, p=(w := 1 / np.arange(1, 501)) / w.sum())
        for _ in range(20)
    ]
    used = Uses(
        np.concatenate(batches).astype(np.uint32),
        np.arange(0, 2001, 100),
        np.full(20, 5),
    )
    left = [
        place(
            used, num_nodes=500, slots=slots, device_slots=0, window=2, least=1
        ).missing.sum()
        for slots in (200, 250, 300, 400, 500)
    ]
    assert all(more > less for more, less in pairwise(left))
    assert left[-1] == 0


def test_options_are_words_and_whole_pages() -> None:
    assert AgnesOptions.model_validate({"tiers": False}).tiers == "off"
    with pytest.raises(ValueError, match="multiple of 4096"):
        AgnesOptions.model_validate({"block_bytes": 5000})

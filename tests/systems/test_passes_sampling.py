"""Sampling out of core: the mini-batches equal those of the in-memory sampler, however
the passes are split."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from systems.engine.passes.sampling import ExternalSampler, Ids, Job, Nodes
from systems.engine.store.batch_store import BatchReader, BatchWriter
from tests.support import make_tiny
from tests.systems.support_systems import workload_of
from workloads.dataset import Dataset
from workloads.errors import DataIOError, InputError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

pytestmark = pytest.mark.timeout(60)


def seeds_of(workload: Workload) -> Callable[[Job], list[Ids]]:
    plan = make_seed_plan(workload)
    return lambda job: plan.batches(job.epoch)[job.first : job.first + job.count]


def external(
    workload: Workload, epoch: int, first: int, count: int, **arguments: int
) -> list[SampledBatch]:
    sampler = ExternalSampler(workload, **{"gap_bytes": 0, **arguments})
    try:
        sampler.sample([Job(epoch, first, count)], seeds_of(workload))
        return written(sampler)
    finally:
        sampler.close()


def written(
    sampler: ExternalSampler, room_bytes: int = 1 << 16, nodes: Nodes | None = None
) -> list[SampledBatch]:
    """Write the sampled mini-batches to a file and read them back; their nodes are
    those that `write` returns."""
    with tempfile.TemporaryDirectory() as folder:
        writer = BatchWriter(Path(folder) / "samples")
        offsets, nodes = sampler.write(
            writer, room_bytes, np.empty(0, dtype=np.uint32) if nodes is None else nodes
        )
        reader = BatchReader(Path(folder) / "samples", writer.close())
        batches = [reader.read(i) for i in range(len(reader))]
        reader.close()
    assert nodes is not None
    assert offsets[-1] <= len(nodes)
    for batch, begin, end in zip(batches, offsets[:-1], offsets[1:], strict=True):
        assert np.array_equal(nodes[begin:end], batch.nodes)
    return batches


def assert_equal(
    found: list[SampledBatch], workload: Workload, epoch: int, first: int
) -> None:
    sampler = make_sampler(workload)
    seeds = make_seed_plan(workload).batches(epoch)
    for i, batch in enumerate(found):
        wanted = sampler.sample(epoch, first + i, seeds[first + i])
        assert structure_digest(batch) == structure_digest(wanted)
        assert (batch.edge_reads, batch.list_reads) == (
            wanted.edge_reads,
            wanted.list_reads,
        )


@pytest.mark.parametrize("fanout", [(5, 5), (10, 10, 10), (3,), (-1, 2), (40, 2)])
@pytest.mark.parametrize("replace", [False, True])
def test_mini_batches_are_the_in_memory_sampler_s(
    tiny_dataset: Dataset, fanout: tuple[int, ...], replace: bool
) -> None:
    workload = workload_of(tiny_dataset, fanout=fanout, replace=replace)
    assert_equal(external(workload, 3, 0, 20), workload, 3, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"piece_bytes": 4096, "group_nodes": 1},
        {"gap_bytes": 1 << 20, "group_nodes": 7},
        {"threads": 3},
        {"threads": 3, "piece_bytes": 4096},
        {"whole": True, "piece_bytes": 4096, "pieces": 2},
        {"whole": True, "threads": 3},
    ],
)
@pytest.mark.parametrize("fanout", [(10, 10), (10, -1)])
def test_pieces_groups_and_threads_change_nothing(
    tiny_dataset: Dataset, arguments: dict[str, int], fanout: tuple[int, ...]
) -> None:
    workload = workload_of(tiny_dataset, fanout=fanout)
    assert_equal(external(workload, 0, 5, 9, **arguments), workload, 0, 5)


def test_threads_do_not_change_what_is_read(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset, fanout=(10, 10))

    def reads(threads: int) -> tuple[int, int]:
        sampler = ExternalSampler(
            workload, gap_bytes=0, threads=threads, piece_bytes=4096
        )
        sampler.sample([Job(0, 0, 20)], seeds_of(workload))
        found = sampler.reads()
        sampler.close()
        return found.requests, found.bytes_read

    assert reads(1) == reads(4)


def test_one_mini_batch_or_many_at_once_are_the_same(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    together = external(workload, 1, 0, 6)
    for i, batch in enumerate(together):
        assert structure_digest(external(workload, 1, i, 1)[0]) == structure_digest(
            batch
        )


def test_indices_of_eight_bytes_are_read_too(tmp_path: Path) -> None:
    workload = workload_of(make_tiny(tmp_path / "wide", index_dtype="int64"))
    assert_equal(external(workload, 0, 0, 20), workload, 0, 0)


def test_a_graph_that_was_cut_is_reported_with_file_and_offset(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "cut")
    workload = workload_of(dataset)
    path = dataset.file("indices")
    size = dataset.data_offset("indices") + dataset.topology_bytes // 2
    os.truncate(path, size)
    with pytest.raises(DataIOError, match="indices") as found:
        external(workload, 0, 0, 20)
    assert str(path) in str(found.value)
    assert found.value.offset >= size - 8192


def groups_of(workload: Workload, epochs: int, size: int) -> list[Job]:
    """Cut all epochs into groups."""
    count = make_seed_plan(workload).num_batches
    starts = range(0, count, size)
    return [
        Job(epoch, first, min(size, count - first))
        for epoch in range(epochs)
        for first in starts
    ]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("fanout", [(3,), (5, 5), (10, 10, 10), (4, -1, 2)])
@pytest.mark.parametrize("ahead", [0, 1, 2, 5])
def test_groups_that_share_passes_are_the_same_mini_batches(
    tiny_dataset: Dataset, fanout: tuple[int, ...], ahead: int, threads: int
) -> None:
    workload = workload_of(tiny_dataset, fanout=fanout)
    groups = groups_of(workload, 3, 7)
    sampler = ExternalSampler(workload, gap_bytes=0, threads=threads, piece_bytes=8192)
    for number, group in enumerate(groups):
        sampler.sample(groups[number : number + 1 + ahead], seeds_of(workload))
        assert_equal(written(sampler), workload, group.epoch, group.first)
    sampler.close()


def test_a_group_costs_one_pass_where_the_next_groups_are_announced(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset, fanout=(3, 3, 3))
    groups = groups_of(workload, 4, 20)

    def pointers(ahead: int) -> list[int]:
        """Count each group's requests for index pointers, a page each; with these seeds
        all pages are wanted."""
        sampler = ExternalSampler(workload, gap_bytes=1 << 20, piece_bytes=1 << 19)
        found = []
        for number in range(len(groups)):
            before = sampler.reads().bytes_read
            sampler.sample(groups[number : number + 1 + ahead], seeds_of(workload))
            found.append(sampler.reads().bytes_read - before)
        sampler.close()
        return found

    alone = pointers(0)
    shared = pointers(2)
    assert shared[0] >= alone[0], (
        "the first group has a pass for each hop, shared with later groups"
    )
    assert all(
        0.3 * one < both < 0.4 * one
        for one, both in zip(alone[1:-2], shared[1:-2], strict=True)
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("room_bytes", [4096, 3 * 4096, 1 << 20])
def test_the_file_is_as_if_mini_batches_were_appended(
    tiny_dataset: Dataset, tmp_path: Path, room_bytes: int, threads: int
) -> None:
    workload = workload_of(tiny_dataset, fanout=(5, 3))
    seeds = make_seed_plan(workload).batches(4)[2:11]
    sampler = ExternalSampler(workload, gap_bytes=0, threads=threads)
    online = make_sampler(workload)
    sampler.sample([Job(4, 2, len(seeds))], lambda _: seeds)
    whole = BatchWriter(tmp_path / "whole")
    single = BatchWriter(tmp_path / "single")
    offsets, nodes = sampler.write(whole, room_bytes, None)
    for i, part in enumerate(seeds):
        single.append(online.sample(4, 2 + i, part))
    index = whole.close()
    wanted = single.close()
    assert nodes is None
    assert np.diff(offsets).tolist() == wanted.counts.tolist()
    assert np.array_equal(index.entries, wanted.entries)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "single").read_bytes()
    sampler.close()


def test_room_for_nodes_grows(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    sampler = ExternalSampler(workload, gap_bytes=0, threads=2)
    sampler.sample([Job(0, 0, 5)], seeds_of(workload))
    assert_equal(written(sampler, nodes=np.empty(100, dtype=np.uint32)), workload, 0, 0)
    sampler.close()


def test_writing_stops(tiny_dataset: Dataset, tmp_path: Path) -> None:
    workload = workload_of(tiny_dataset)
    sampler = ExternalSampler(workload, gap_bytes=0)
    writer = BatchWriter(tmp_path / "samples")
    sampler.sample([Job(0, 0, 5)], seeds_of(workload))
    sampler.stop()
    with pytest.raises(InterruptedError, match="stopped"):
        sampler.write(writer, 1 << 16, None)
    writer.abandon()
    sampler.close()


def test_a_group_that_was_not_announced_starts_from_its_seed_nodes(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset, fanout=(5, 5))
    first, second, third, fourth = groups_of(workload, 2, 10)[:4]
    sampler = ExternalSampler(workload, gap_bytes=0)
    for group, ahead in (
        (first, [second]),
        (third, [second]),
        (second, []),
        (fourth, [first]),
        (first, []),
    ):
        sampler.sample([group, *ahead], seeds_of(workload))
        assert_equal(written(sampler), workload, group.epoch, group.first)
    sampler.close()


def test_a_sampler_goes_on_after_a_fault(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    sampler = ExternalSampler(workload, gap_bytes=0)
    with pytest.raises(InputError, match="twice"):
        sampler.sample([Job(0, 0, 1)], lambda _: [np.array([4, 4])])
    sampler.sample([Job(0, 0, 2)], seeds_of(workload))
    assert_equal(written(sampler), workload, 0, 0)
    sampler.close()


def test_other_samplers_are_refused(tiny_dataset: Dataset) -> None:
    with pytest.raises(InputError, match="sample online"):
        ExternalSampler(workload_of(tiny_dataset, name="layerwise"), gap_bytes=0)


def test_gaps_are_read_where_that_saves_requests(tiny_dataset: Dataset) -> None:
    def reads(gap: int) -> tuple[int, int]:
        workload = workload_of(tiny_dataset, batch_size=2)
        sampler = ExternalSampler(workload, gap_bytes=gap)
        sampler.sample([Job(0, 0, 1)], seeds_of(workload))
        found = sampler.reads()
        sampler.close()
        return found.requests, found.bytes_read

    (many, few_bytes), (few, many_bytes) = reads(0), reads(1 << 20)
    assert few < many
    assert many_bytes > few_bytes

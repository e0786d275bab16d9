"""Sampling out of core: the mini-batches are those of the in-memory sampler, whatever the passes are cut into."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from systems.outcore.sampling import ExternalSampler
from tests.support import make_tiny
from tests.systems.support_systems import workload_of
from workloads.dataset import Dataset
from workloads.errors import DataIOError, InputError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

pytestmark = pytest.mark.timeout(60)


def external(workload: Workload, epoch: int, first: int, count: int, **arguments: int) -> list[SampledBatch]:
    sampler = ExternalSampler(workload, **{"gap_bytes": 0, **arguments})
    try:
        sampler.sample(epoch, first, make_seed_plan(workload).batches(epoch)[first : first + count])
        return [sampler.take(i) for i in range(count)]
    finally:
        sampler.close()


def assert_equal(found: list[SampledBatch], workload: Workload, epoch: int, first: int) -> None:
    sampler, seeds = make_sampler(workload), make_seed_plan(workload).batches(epoch)
    for i, batch in enumerate(found):
        wanted = sampler.sample(epoch, first + i, seeds[first + i])
        assert structure_digest(batch) == structure_digest(wanted)
        assert (batch.edge_reads, batch.list_reads) == (wanted.edge_reads, wanted.list_reads)


@pytest.mark.parametrize("fanout", [(5, 5), (10, 10, 10), (3,), (-1, 2), (40, 2)])
@pytest.mark.parametrize("replace", [False, True])
def test_mini_batches_are_the_in_memory_sampler_s(
    tiny_dataset: Dataset, fanout: tuple[int, ...], replace: bool
) -> None:
    workload = workload_of(tiny_dataset, fanout=fanout, replace=replace)
    assert_equal(external(workload, 3, 0, 20), workload, 3, 0)


@pytest.mark.parametrize(
    "arguments",
    [{"piece_bytes": 4096, "group_nodes": 1}, {"gap_bytes": 1 << 20, "group_nodes": 7}, {"threads": 3},
     {"threads": 3, "piece_bytes": 4096}],
)  # fmt: skip
@pytest.mark.parametrize("fanout", [(10, 10), (10, -1)])
def test_pieces_groups_and_threads_change_nothing(
    tiny_dataset: Dataset, arguments: dict[str, int], fanout: tuple[int, ...]
) -> None:
    workload = workload_of(tiny_dataset, fanout=fanout)
    assert_equal(external(workload, 0, 5, 9, **arguments), workload, 0, 5)


def test_threads_do_not_change_what_is_read(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset, fanout=(10, 10))

    def reads(threads: int) -> tuple[int, int]:
        sampler = ExternalSampler(workload, gap_bytes=0, threads=threads, piece_bytes=4096)
        sampler.sample(0, 0, make_seed_plan(workload).batches(0)[:20])
        found = sampler.reads()
        sampler.close()
        return found.requests, found.bytes_read

    assert reads(1) == reads(4)


def test_one_mini_batch_or_many_at_once_are_the_same(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    together = external(workload, 1, 0, 6)
    for i, batch in enumerate(together):
        assert structure_digest(external(workload, 1, i, 1)[0]) == structure_digest(batch)


def test_indices_of_eight_bytes_are_read_too(tmp_path: Path) -> None:
    workload = workload_of(make_tiny(tmp_path / "wide", index_dtype="int64"))
    assert_equal(external(workload, 0, 0, 20), workload, 0, 0)


def test_a_graph_that_was_cut_is_told_with_file_and_offset(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "cut")
    workload = workload_of(dataset)
    path = dataset.file("indices")
    size = dataset.data_offset("indices") + dataset.topology_bytes // 2
    os.truncate(path, size)
    with pytest.raises(DataIOError, match="indices") as found:
        external(workload, 0, 0, 20)
    assert str(path) in str(found.value) and found.value.offset >= size - 8192


def test_a_sampler_goes_on_after_a_fault(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    sampler = ExternalSampler(workload, gap_bytes=0)
    with pytest.raises(InputError, match="twice"):
        sampler.sample(0, 0, [np.array([4, 4])])
    sampler.sample(0, 0, make_seed_plan(workload).batches(0)[:2])
    assert_equal([sampler.take(0), sampler.take(1)], workload, 0, 0)
    sampler.close()


def test_other_samplers_are_refused(tiny_dataset: Dataset) -> None:
    with pytest.raises(InputError, match="sample online"):
        ExternalSampler(workload_of(tiny_dataset, name="layerwise"), gap_bytes=0)


def test_gaps_are_read_where_that_saves_requests(tiny_dataset: Dataset) -> None:
    def reads(gap: int) -> tuple[int, int]:
        workload = workload_of(tiny_dataset, batch_size=2)
        sampler = ExternalSampler(workload, gap_bytes=gap)
        sampler.sample(0, 0, make_seed_plan(workload).batches(0)[:1])
        found = sampler.reads()
        sampler.close()
        return found.requests, found.bytes_read

    (many, few_bytes), (few, many_bytes) = reads(0), reads(1 << 20)
    assert few < many and many_bytes > few_bytes

"""The batch store: a read returns the bytes that were written, or raises an error that
names the place."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.engine.io.regions import RegionReader, RegionWriter
from systems.engine.store.batch_store import BatchReader, BatchWriter
from tests.systems.support_systems import workload_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError
from workloads.sampling.batch import Block, SampledBatch
from workloads.sampling.digest import structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan


def sampled(dataset: Dataset, **arguments: object) -> list[SampledBatch]:
    workload = workload_of(dataset, **arguments)  # type: ignore[arg-type]
    sampler = make_sampler(workload)
    return [
        sampler.sample(0, i, seeds)
        for i, seeds in enumerate(make_seed_plan(workload).batches(0))
    ]


def assert_same(one: SampledBatch, other: SampledBatch) -> None:
    assert structure_digest(one) == structure_digest(other)
    assert (one.epoch, one.index, one.edge_reads, one.list_reads) == (
        other.epoch,
        other.index,
        other.edge_reads,
        other.list_reads,
    )
    assert np.array_equal(one.labels, other.labels)
    for mine, theirs in zip(one.blocks, other.blocks, strict=True):
        assert (mine.indptr.dtype, mine.indices.dtype) == (np.int64, np.int32)
        assert np.array_equal(mine.indices, theirs.indices)


def test_batches_come_back_as_they_were_in_any_order(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    batches = sampled(tiny_dataset, fanout=(4, 3, -1))
    writer = BatchWriter(tmp_path / "batches")
    for batch in batches:
        writer.append(batch)
    index = writer.close()
    assert index.nbytes == (tmp_path / "batches").stat().st_size
    assert (index.offsets % 4096 == 0).all()
    reader = BatchReader(tmp_path / "batches", index)
    for i in np.random.default_rng(0).permutation(len(batches)):
        assert_same(reader.read(i), batches[i])
        assert np.array_equal(reader.nodes(i), batches[i].nodes)
    reader.close()


@given(
    nodes=st.lists(st.integers(0, 1 << 48), max_size=40, unique=True),
    edges=st.lists(st.integers(0, 3), max_size=30),
    seeds=st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_any_batch_survives_the_disk(
    tmp_path_factory: pytest.TempPathFactory,
    nodes: list[int],
    edges: list[int],
    seeds: int,
) -> None:
    """Batches have ids beyond 32 bits and odd sizes, some no edges or no nodes."""
    block = Block(
        np.array([0, len(edges)]), np.array(edges, dtype=np.int32), len(nodes), 1
    )
    batch = SampledBatch(
        3,
        9,
        np.array(nodes, dtype=np.int64),
        seeds,
        (block, block),
        np.arange(seeds),
        edge_reads=5,
        list_reads=2,
    )
    path = tmp_path_factory.mktemp("store") / "one"
    writer = BatchWriter(path)
    writer.append(batch)
    writer.append(replace(batch, blocks=()))
    index = writer.close()
    reader = BatchReader(path, index)
    assert_same(reader.read(0), batch)
    assert reader.read(1).blocks == ()
    assert reader.nodes(1).tolist() == nodes
    reader.close()


def test_a_file_is_written_over_in_place(tiny_dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "batches"
    batches = sampled(tiny_dataset)
    for part in (batches[:6], batches[6:9], batches[2:7]):
        before = (path.stat().st_ino, path.stat().st_size) if path.exists() else None
        writer = BatchWriter(path, reuse=True)
        for batch in part:
            writer.append(batch)
        index = writer.close(sync=False)
        assert before is None or before == (
            path.stat().st_ino,
            max(before[1], index.nbytes),
        )
        reader = BatchReader(path, index)
        for i, batch in enumerate(part):
            assert_same(reader.read(i), batch)
        reader.close()


def test_the_bound_holds_what_is_written(tiny_dataset: Dataset, tmp_path: Path) -> None:
    for batch in sampled(tiny_dataset, fanout=(3, 2, 1))[:5]:
        writer = BatchWriter(tmp_path / "one")
        writer.append(batch)
        assert writer.nbytes <= BatchWriter.bound_bytes(batch.nbytes, len(batch.blocks))
        writer.close()


def test_a_full_budget_is_refused_by_name_and_leaves_no_file(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    writer = BatchWriter(tmp_path / "batches", budget_bytes=20_000)
    with pytest.raises(BudgetError, match=r"batches needs .* its budget is"):
        for batch in sampled(tiny_dataset):
            writer.append(batch)
    assert not (tmp_path / "batches").exists()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("cannot mount a small tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=False)


def test_a_full_disk_is_named_with_its_offset(
    tiny_dataset: Dataset, full_disk: Path
) -> None:
    writer = BatchWriter(full_disk / "batches")
    with pytest.raises(
        DataIOError, match=r"writing .*batches failed at offset \d+: No space left"
    ) as caught:
        for batch in sampled(tiny_dataset):
            writer.append(batch)
    assert caught.value.errno == errno.ENOSPC
    assert list(full_disk.iterdir()) == []


def damage(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_batch_is_detected_and_named(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "batches"
    writer = BatchWriter(path)
    for batch in sampled(tiny_dataset):
        writer.append(batch)
    index = writer.close()
    entries = index.entries
    damage(path, int(entries[2]["offset"]))
    damage(path, int(entries[3]["offset"] + entries[3]["head_bytes"] + 100))
    reader = BatchReader(path, index)
    for read in (reader.read, reader.nodes):
        with pytest.raises(
            DataIOError, match=r"batch 2 of .*batches failed at offset \d+: .*XXH3"
        ) as caught:
            read(2)
        assert caught.value.offset == int(entries[2]["offset"])
    assert len(reader.nodes(3))  # its ids are intact
    with pytest.raises(DataIOError, match="batch 3"):
        reader.read(3)
    os.truncate(path, int(entries[4]["offset"]) + 100)
    with pytest.raises(DataIOError, match=r"batch 4 .* the file ends there"):
        reader.read(4)
    reader.close()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    writer = RegionWriter(tmp_path / "r")
    writer.append_region(np.arange(10), [np.arange(3)])
    with pytest.raises(DataIOError, match="cannot open"):
        RegionReader(tmp_path / "none", writer.close())


def test_many_threads_read_at_once(tiny_dataset: Dataset, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    batches = sampled(tiny_dataset, fanout=(8, 8))
    writer = BatchWriter(tmp_path / "batches")
    for batch in batches:
        writer.append(batch)
    reader = BatchReader(tmp_path / "batches", writer.close())
    with ThreadPoolExecutor(4) as pool:
        for got, batch in zip(
            pool.map(reader.read, list(range(len(batches))) * 5),
            batches * 5,
            strict=True,
        ):
            assert structure_digest(got) == structure_digest(batch)
    reader.close()

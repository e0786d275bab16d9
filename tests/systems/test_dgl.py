"""The systems that load through DGL: rows gathered by DGL, reads made for it, and its
samplers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.check.oracle import OwnBatches
from systems.engine.dgl import dgl_graph, from_dgl_blocks, require_dgl, to_dgl_blocks
from systems.interface import Counters, MemoryBudget, System
from systems.registry import load
from tests.support import make_tiny
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.dataset import Dataset
from workloads.errors import HostError, InputError
from workloads.sampling.digest import structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

try:
    DGL = require_dgl("tests")
except HostError as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = pytest.mark.timeout(90)
ROW = 64
DEVICES = ["cpu", "emulated:instant"]
NAMES = ["dgl", "dgl+cache", "dgl-ondisk"]


@pytest.fixture(scope="module")
def wide_ids(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny(tmp_path_factory.mktemp("data") / "wide-ids", index_dtype="int64")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", DEVICES)
def test_mini_batches_are_the_workloads_by_default(
    tiny_dataset: Dataset, wide_ids: Dataset, name: str, device: str
) -> None:
    for dataset in (tiny_dataset, wide_ids):
        workload = workload_of(dataset)
        with running(name, workload, device=device, device_bytes=1 << 18) as system:
            for epoch in range(2):
                structure, features, order = run(system, epoch)
                assert (structure, features) == reference(workload, epoch)
                assert order == list(range(20))
        assert system.is_faithful(system.options)


@pytest.mark.parametrize("name", NAMES)
def test_dgls_own_sampler_gives_other_mini_batches_of_the_same_graph_and_states_so(
    tiny_dataset: Dataset, wide_ids: Dataset, name: str
) -> None:
    for dataset in (tiny_dataset, wide_ids):
        workload = workload_of(dataset)
        own = OwnBatches(
            dataset.load("features"), dataset.load("indptr"), dataset.load("indices")
        )
        with running(name, workload, sampler="dgl") as system:
            assert not system.is_faithful(system.options)
            assert "not faithful" in system.notes()["sampled_by"]
            digests = []
            for batch in system.epoch(0):
                table = batch.table
                assert isinstance(table, torch.Tensor)
                rows = (
                    table[: batch.sampled.num_nodes]
                    if batch.rows is None
                    else table[batch.rows]
                )
                np.testing.assert_array_equal(
                    rows.numpy(), dataset.load("features")[batch.sampled.nodes]
                )
                own.add(batch.sampled, rows=False)
                assert batch.sampled.num_seeds == 20
                assert all(
                    len(block.indptr) == block.num_dst + 1
                    for block in batch.sampled.blocks
                )
                assert all(
                    np.diff(block.indptr).max() <= 5 for block in batch.sampled.blocks
                )
                assert all(
                    block.indices.max(initial=-1) < block.num_src
                    for block in batch.sampled.blocks
                )
                digests.append(structure_digest(batch.sampled))
                batch.release()
        assert own.foreign_edges == 0
        sampler = make_sampler(workload)
        seeds = make_seed_plan(workload).batches(0)
        assert all(
            digest != structure_digest(sampler.sample(0, index, seeds[index]))
            for index, digest in enumerate(digests)
        )


@pytest.mark.parametrize("device", DEVICES)
def test_dgl_gathers_and_copies_every_row(tiny_dataset: Dataset, device: str) -> None:
    with running("dgl", workload_of(tiny_dataset), device=device) as system:
        run(system, 1)
        counters = system.counters()
    assert counters.hits == {"device": 0, "host": counters.rows}
    assert counters.bytes_loaded == counters.rows * ROW


@pytest.mark.parametrize("device", DEVICES)
def test_the_cache_spares_dgl_the_rows_of_highest_out_degree(
    tiny_dataset: Dataset, device: str
) -> None:
    workload = workload_of(tiny_dataset)
    out = np.bincount(tiny_dataset.load("indices"), minlength=2000)
    cached = np.lexsort((np.arange(2000), -out))[:400]
    sampler = make_sampler(workload)
    rows = 0
    hits = 0
    for index, seeds in enumerate(make_seed_plan(workload).batches(1)):
        nodes = sampler.sample(1, index, seeds).nodes
        rows = rows + len(nodes)
        hits = hits + int(np.isin(nodes, cached).sum())
    found = {}
    for share in ("0.2x", "0x"):
        with running("dgl+cache", workload, device=device, cache=share) as system:
            for epoch in range(2):
                run(system, epoch)
            found[share] = system.counters()
    assert found["0.2x"].hits == {"device": hits, "host": rows - hits}
    assert found["0.2x"].bytes_loaded == (rows - hits) * ROW
    assert found["0x"].hits == {"device": 0, "host": rows}


def requests(
    dataset: Dataset, workload: Workload, epoch: int, block: int
) -> tuple[int, int]:
    """Count reads and bytes if each row of each mini-batch is read alone, in whole
    blocks."""
    sampler = make_sampler(workload)
    count = 0
    nbytes = 0
    size = dataset.dim * dataset.feature_dtype.itemsize
    for index, seeds in enumerate(make_seed_plan(workload).batches(epoch)):
        begin = (
            dataset.data_offset("features")
            + sampler.sample(epoch, index, seeds).nodes * size
        )
        count += len(begin)
        nbytes += (
            int(((begin + size + block - 1) // block - begin // block).sum()) * block
        )
    return count, nbytes


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("granularity", "block"), [("logical", 512), ("4096", 4096)])
def test_every_row_is_one_read_of_its_own(
    tmp_path: Path, device: str, granularity: str, block: int
) -> None:
    dataset = make_tiny(tmp_path / "odd", dim=130)
    workload = workload_of(dataset)
    with running(
        "dgl-ondisk", workload, device=device, io_granularity=granularity
    ) as system:
        for epoch in range(2):
            run(system, epoch)
        counters = system.counters()
    count, nbytes = requests(dataset, workload, 1, block)
    assert counters.rows == counters.misses == counters.io_requests == count
    # A read past the end of the file returns fewer bytes.
    assert (
        sum(size * times for size, times in counters.requests_by_size.items()) == nbytes
    )
    assert nbytes - 4096 * 40 <= counters.bytes_read <= nbytes
    assert counters.bytes_useful == count * 520
    assert counters.hits == {"device": 0}


def test_nothing_is_kept_from_one_mini_batch_to_the_next(tiny_dataset: Dataset) -> None:
    """The same epoch, run twice, reads the same bytes twice."""
    found: list[Counters] = []
    with running("dgl-ondisk", workload_of(tiny_dataset)) as system:
        for _ in range(2):
            run(system, 0)
            found.append(system.counters())
    assert found[0].io_requests == found[1].io_requests == found[0].rows


def test_loading_waits_for_training(tiny_dataset: Dataset) -> None:
    import time

    with running("dgl", workload_of(tiny_dataset)) as system:
        released = []
        for batch in system.epoch(0):
            time.sleep(0.005)
            released.append(time.monotonic())
            batch.release()
        begun = {
            span.batch: span.start
            for span in system.clock.drain()
            if span.stage == "extract"
        }
    assert all(
        begun[number + 1] > moment for number, moment in enumerate(released[:-1])
    )


def test_dgl_is_given_64_bit_ids_and_makes_our_blocks(tiny_dataset: Dataset) -> None:
    graph = dgl_graph(DGL, tiny_dataset.load("indptr"), tiny_dataset.load("indices"))
    assert graph.idtype == torch.int64
    assert graph.num_edges() == 20_000
    workload = workload_of(tiny_dataset)
    seeds = make_seed_plan(workload).batches(0)[0]
    sampled = make_sampler(workload).sample(0, 0, seeds)
    again = from_dgl_blocks(
        to_dgl_blocks(DGL, sampled),
        torch.from_numpy(sampled.nodes),
        0,
        0,
        tiny_dataset.load("labels"),
    )
    assert structure_digest(again) == structure_digest(sampled)


def test_32_bit_index_pointers_are_refused(tiny_dataset: Dataset) -> None:
    with pytest.raises(InputError, match="give DGL int64"):
        dgl_graph(
            DGL,
            tiny_dataset.load("indptr").astype(np.int32),
            tiny_dataset.load("indices"),
        )


@pytest.mark.parametrize("name", [*NAMES, "dgl+pp"])
def test_without_dgl_the_run_is_unsupported_and_the_command_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(HostError, match=r"pip install dgl==1\.1\.3") as reported:
        load(name).load_libraries()
    assert reported.value.exit_code == 3


@pytest.mark.parametrize("name", [*NAMES, "dgl+pp"])
def test_no_cuda_is_promised(name: str) -> None:
    assert load(name).info.devices == ("cpu", "emulated")


def test_an_error_while_reading_ends_the_epoch_and_names_the_file(
    tmp_path: Path,
) -> None:
    import os

    from workloads.errors import DataIOError

    dataset = make_tiny(tmp_path / "cut")
    with running("dgl-ondisk", workload_of(dataset)) as system:
        batches = system.epoch(0)
        next(batches).release()
        os.truncate(dataset.file("features"), dataset.data_offset("features") + 100)
        with pytest.raises(DataIOError, match=r"features\.npy"):
            for batch in batches:
                batch.release()


def test_a_budget_too_small_names_the_part(tiny_dataset: Dataset) -> None:
    assert_refused(
        "reader buffers",
        "dgl-ondisk",
        workload_of(tiny_dataset),
        budget=MemoryBudget(200_000),
    )


def counters_once(system: System) -> Counters:
    run(system, 0)
    return system.counters()


def test_mapped_rows_come_through_the_page_cache(tiny_dataset: Dataset) -> None:
    with running("dgl", workload_of(tiny_dataset), host_store="mapped") as system:
        counters = counters_once(system)
    assert counters.hits == {"device": 0, "page_cache": counters.rows}

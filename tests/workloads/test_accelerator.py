"""Accelerators: bytes are really moved, emulated time is the profile's, device memory
is bounded."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from workloads.accelerator import move_rows, wait_until
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.accelerators.make import make_accelerator
from workloads.accelerators.pool import DevicePool
from workloads.accelerators.profile import (
    LayerShape,
    Profile,
    load_profile,
    profile_names,
    step_cost,
)
from workloads.errors import BudgetError, HostError, InputError
from workloads.sampling.batch import Block, SampledBatch
from workloads.training import Trainer
from workloads.workload import ModelSpec

MIB = 1 << 20


def emulated(name: str = "a10g", memory: int = 4 * MIB) -> EmulatedAccelerator:
    device = make_accelerator(f"emulated:{name}", memory_bytes=memory)
    assert isinstance(device, EmulatedAccelerator)
    return device


def hand_batch(index: int = 0) -> SampledBatch:
    """Make a batch of two hops: 40 sources, 12 destinations with 3 edges each, 4 seed
    nodes with 3 edges each."""
    rng = np.random.default_rng(index)
    blocks = []
    for num_src, num_dst in ((40, 12), (12, 4)):
        indptr = np.arange(num_dst + 1, dtype=np.int64) * 3
        blocks.append(
            Block(
                indptr,
                rng.integers(0, num_src, num_dst * 3).astype(np.int32),
                num_src,
                num_dst,
            )
        )
    return SampledBatch(
        0, index, np.arange(40), 4, tuple(blocks), np.zeros(4, dtype=np.int64)
    )


# Profiles


def test_a10g_gives_back_the_training_time_it_was_derived_from() -> None:
    profile = load_profile("a10g")
    shape = profile.derived_from
    assert shape is not None
    assert shape.batches == math.ceil(1_207_179 / 1024)
    sources = shape.nodes[:0:-1]
    destinations = shape.nodes[-2::-1]
    edges = shape.edges[::-1]
    widths = [shape.in_dim, *[shape.hidden] * (shape.layers - 1), shape.classes]
    layers = [
        LayerShape(*sizes)
        for sizes in zip(
            sources, destinations, edges, widths[:-1], widths[1:], strict=True
        )
    ]
    cost = step_cost(profile, ModelSpec(name="sage", layers=3, hidden=256), layers)
    assert cost.total * shape.batches == pytest.approx(27.79, rel=0.02)
    assert min(cost.launch, cost.dense, cost.edges) > 0
    row_bytes = shape.in_dim * 4
    assembly = profile.copy_seconds(
        round(shape.nodes[-1] * shape.bus_share) * row_bytes
    )
    assert assembly * shape.batches == pytest.approx(21.96, rel=0.02)


def test_every_profile_loads_and_names_its_sources() -> None:
    assert {"a10g", "null"} <= set(profile_names())
    for name in profile_names():
        profile = load_profile(name)
        assert profile.name == name
        assert all(len(c.source) > 5 for c in profile.coefficients().values())
    assert load_profile("a10g").bus_bytes_per_s.assumed is False
    assert load_profile("a10g").edge_s.assumed is True


def test_a_profile_with_an_unknown_key_or_no_source_is_refused(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "workloads/accelerators/null.toml").read_text()
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(text + "\nspeed = 3\n")
    with pytest.raises(InputError, match="speed"):
        load_profile(str(wrong))
    data = load_profile("null").model_dump()
    data["edge_s"] = {"value": 1.0, "source": "", "assumed": False}
    with pytest.raises(ValidationError):
        Profile.model_validate(data)


def test_unknown_devices_are_refused_with_what_there_is() -> None:
    with pytest.raises(InputError, match=r"a10g, h200, instant, late, null"):
        make_accelerator("emulated:h999", memory_bytes=1)
    with pytest.raises(InputError, match="not known"):
        make_accelerator("tpu", memory_bytes=None)
    with pytest.raises(InputError, match="not known"):
        make_accelerator("cuda:first", memory_bytes=None)
    with pytest.raises(InputError, match="no memory"):
        make_accelerator("emulated:a10g", memory_bytes=None)
    with pytest.raises(InputError, match="no memory of its own"):
        make_accelerator("cpu", memory_bytes=5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has CUDA")
def test_cuda_without_a_device_is_a_fault_of_the_host() -> None:
    with pytest.raises(HostError, match="no CUDA device") as caught:
        make_accelerator("cuda", memory_bytes=None)
    assert caught.value.exit_code == 3


# The pool


def test_the_pool_hands_out_aligned_tables_and_never_more_than_it_has() -> None:
    device = emulated(memory=1 * MIB)
    tables = [device.allocate(100, 128, torch.float32) for _ in range(3)]
    starts = sorted(table.data_ptr() for table in tables)
    assert all(start % 4096 == 0 for start in starts)
    assert all(b - a >= 100 * 512 for a, b in pairwise(starts))
    for number, table in enumerate(tables):
        table.fill_(number)
    assert [float(table[99, 127]) for table in tables] == [0.0, 1.0, 2.0]
    with pytest.raises(BudgetError, match=r"needs 1\.0 MiB.*is left of 1\.0 MiB"):
        device.allocate(2048, 128, torch.float32)
    device.free(tables[1])
    again = device.allocate(100, 128, torch.float32)
    assert again.data_ptr() == tables[1].data_ptr()
    device.free(tables[0])
    with pytest.raises(ValueError, match="freed before"):
        device.free(tables[0])
    for table in (again, tables[2]):
        device.free(table)
    assert device.allocate(2048, 128, torch.float32).shape == (2048, 128)


@pytest.mark.parametrize(
    ("dim", "dtype"), [(1, torch.float32), (129, torch.float16), (768, torch.float32)]
)
def test_tables_of_any_width_fit_the_pool(dim: int, dtype: torch.dtype) -> None:
    device = emulated()
    table = device.allocate(7, dim, dtype)
    source = torch.randn(7, dim).to(dtype)
    device.copy(table, source).wait()
    assert torch.equal(table, source)
    assert device.holds(table)
    assert not device.holds(source)


def test_another_process_sees_the_same_bytes_and_nothing_stays_behind() -> None:
    name = f"test-{os.getpid()}-{time.monotonic_ns()}"
    worker = (
        "import sys, torch; from workloads.accelerators.make import make_accelerator\n"
        "from workloads.accelerators.pool import DevicePool\n"
        "device = make_accelerator('emulated:null', memory_bytes=None, "
        "pool=DevicePool.attach(sys.argv[1]))\n"
        "table = device.allocate(10, 4, torch.float32)\n"
        "device.copy(table, torch.full((10, 4), 7.0))\n"
    )
    with DevicePool.create(1 * MIB, name) as pool:
        subprocess.run([sys.executable, "-c", worker, name], check=True)
        assert torch.equal(
            pool.allocate(160).view(torch.float32), torch.full((40,), 7.0)
        )
        assert not list(Path("/dev/shm").glob(f"*{name}*"))
    with pytest.raises(HostError, match="no device pool"):
        DevicePool.attach(name)


def test_the_pools_pages_belong_to_its_maker() -> None:
    """The maker allocates all pages, so that none is charged to the worker that first
    writes to it."""
    name = f"test-{os.getpid()}-{time.monotonic_ns()}"
    with DevicePool.create(2 * MIB, name) as pool:
        assert os.fstat(pool.descriptor).st_blocks * 512 >= 2 * MIB


def test_a_pool_larger_than_free_memory_is_refused_before_a_page_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        os, "posix_fallocate", lambda *_: pytest.fail("pages were taken")
    )
    with pytest.raises(HostError, match="of memory are free"):
        DevicePool.create(1 << 50, f"huge-{os.getpid()}")


def test_an_unmeasured_pool_takes_pages_as_they_are_used() -> None:
    device = make_accelerator("emulated:null", memory_bytes=1 << 40, touch=False)
    assert isinstance(device, EmulatedAccelerator)
    assert device.memory_bytes == 1 << 40
    device.copy(device.allocate(10, 4, torch.float32), torch.ones(10, 4))
    # one page, possibly a huge one
    assert os.fstat(device.pool.descriptor).st_blocks * 512 < 4 * MIB
    device.close()


# Copies and lanes


@pytest.mark.parametrize("name", ["cpu", "emulated:a10g", "emulated:null"])
def test_copies_write_the_rows_that_they_are_given(name: str) -> None:
    device = make_accelerator(name, memory_bytes=None if name == "cpu" else 4 * MIB)
    table = device.allocate(1000, 33, torch.float32)
    table.zero_()
    rows = torch.randperm(1000)[:300]
    staged = device.host_buffer(300 * 33 * 4)
    assert staged.data_ptr() % 4096 == 0
    source = staged.view(torch.float32).view(300, 33)
    source.copy_(torch.randn(300, 33))
    event = device.copy(table, source, rows)
    event.wait()
    assert event.done()
    assert torch.equal(device.gather(table, rows), source)
    assert int((table != 0).any(1).sum()) == 300
    device.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [1, 7, 128, 768])
def test_rows_of_any_width_and_type_are_scattered_whole(
    dim: int, dtype: torch.dtype
) -> None:
    table = torch.zeros(50, dim, dtype=dtype)
    source = torch.randn(20, dim).to(dtype)
    rows = torch.randperm(50)[:20]
    move_rows(table, source, rows)
    assert torch.equal(
        table, torch.zeros(50, dim, dtype=dtype).index_copy_(0, rows, source)
    )
    columns = torch.randn(dim, 20).to(dtype).t()  # not contiguous
    move_rows(table, columns, rows)
    assert torch.equal(table[rows], columns)
    before = table.clone()
    move_rows(table, source[:0], rows[:0])
    assert torch.equal(table, before)
    with pytest.raises((IndexError, RuntimeError)):
        move_rows(table, source, rows + 50)


def test_a_copy_takes_what_the_bus_takes() -> None:
    device = emulated(memory=32 * MIB)
    source = torch.ones(30_000, 128)
    table = device.allocate(30_000, 128, torch.float32)
    table.zero_()
    start = time.monotonic()
    events = [device.copy(table, source) for _ in range(3)]
    nbytes = source.numel() * 4
    modelled = load_profile("a10g").copy_seconds(nbytes)
    assert modelled == pytest.approx(20e-6 + nbytes / 7e9)
    for event in events:
        event.wait()
    took = time.monotonic() - start
    assert took >= 3 * modelled  # one lane: copies take turns
    assert events[2].ended_at - events[0].ended_at >= 2 * modelled - 1e-6
    assert time.monotonic() >= events[2].ended_at


def test_copy_and_compute_run_beside_each_other() -> None:
    device = emulated()
    copied = device._copy_lane.occupy(60.0, batch=1)
    computed = device.compute(0.05, batch=0)
    assert computed < copied  # the compute lane did not queue behind the copy
    spans = {span.lane: span for span in device.lanes()}
    assert spans["copy"].batch == 1
    assert spans["compute"].end - spans["compute"].start == pytest.approx(
        0.05, abs=1e-6
    )
    assert device.lanes() == []


def test_steps_of_many_threads_take_turns_on_the_compute_lane() -> None:
    device = emulated()
    threads = [threading.Thread(target=device.compute, args=(0.02,)) for _ in range(6)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - start >= 0.12
    spans = device.lanes()
    assert len(spans) == 6
    assert all(a.end <= b.start + 1e-9 for a, b in pairwise(spans))


def test_the_null_device_moves_bytes_and_asks_for_no_time() -> None:
    device = emulated("null")
    table = device.allocate(4, 4, torch.float32)
    event = device.copy(table, torch.ones(4, 4))
    assert event.done()
    assert float(table.sum()) == 16
    trainer = Trainer(ModelSpec(layers=2), 4, 2, device)
    assert trainer.modelled_seconds(hand_batch(), table, None) == 0.0


# Emulated steps


def test_an_emulated_step_holds_the_lane_for_its_modelled_time() -> None:
    device = emulated()
    trainer = Trainer(ModelSpec(layers=2, hidden=256), 128, 16, device)
    table = device.allocate(64, 128, torch.float32)
    rows = torch.arange(40)
    modelled = trainer.modelled_seconds(hand_batch(), table, rows)
    assert modelled is not None
    assert modelled > 0.004
    start = time.monotonic()
    result = trainer.step(hand_batch(7), table, rows)
    took = time.monotonic() - start
    assert took >= modelled
    assert math.isnan(result.loss)
    assert (result.correct, result.seen) == (0, 4)
    (span,) = device.lanes()
    assert (span.lane, span.batch) == ("compute", 7)
    assert span.end - span.start == pytest.approx(modelled)
    with pytest.raises(InputError, match="computes nothing"):
        trainer.evaluate([])


def test_reads_cost_by_the_place_of_their_rows() -> None:
    device = emulated()
    trainer = Trainer(ModelSpec(layers=2), 128, 16, device)
    in_pool = device.allocate(64, 128, torch.float32)
    rows = torch.arange(40)
    batch = hand_batch()
    in_place = trainer.modelled_seconds(batch, in_pool, None)
    gathered = trainer.modelled_seconds(batch, in_pool, rows)
    over_bus = trainer.modelled_seconds(batch, torch.empty(64, 128), rows)
    profile = load_profile("a10g")
    nbytes = 40 * 512
    assert in_place is not None
    assert gathered == pytest.approx(
        in_place + 1e-5 + 2 * nbytes / profile.memory_bytes_per_s.value
    )
    assert over_bus == pytest.approx(
        in_place + 1e-5 + nbytes / profile.zero_copy_bytes_per_s.value
    )
    assert over_bus > gathered > in_place


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_more_edges_and_wider_rows_cost_more(name: str) -> None:
    spec = ModelSpec(name=name, layers=1, hidden=64)  # type: ignore[arg-type]
    profile = load_profile("a10g")

    def cost(edges: int, in_dim: int) -> float:
        return step_cost(
            profile, spec, [LayerShape(1000, 500, edges, in_dim, 64)]
        ).total

    assert cost(20_000, 128) > cost(10_000, 128)
    assert cost(10_000, 256) > cost(10_000, 128)


# Telemetry and time


def test_waiting_never_ends_early() -> None:
    for _ in range(20):
        moment = time.monotonic() + 0.003
        wait_until(moment)
        assert time.monotonic() >= moment

"""A table split between device and host trains and digests like a whole one, and costs
by the place of its rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.workloads.test_sampling import GRAPH
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.accelerators.make import make_accelerator
from workloads.accelerators.profile import load_profile
from workloads.errors import InputError
from workloads.feature_table import SplitTable, batch_feature_digest, gather_parts
from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import feature_digest
from workloads.sampling.neighbor import NeighborSampler
from workloads.training import Trainer
from workloads.workload import ModelSpec

NODES = 20_000
DIM = 24
SPEC = ModelSpec(layers=2, hidden=8)


@pytest.fixture(scope="module")
def batches() -> list[SampledBatch]:
    sampler = NeighborSampler(*GRAPH, (4, 4), seed=1, labels=np.arange(NODES) % 5)
    return [
        sampler.sample(0, index, np.arange(index * 40, index * 40 + 40))
        for index in range(4)
    ]


def make_table(
    cut: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, SplitTable]:
    whole = torch.randn(NODES, DIM, generator=torch.Generator().manual_seed(0)).to(
        dtype
    )
    return whole, SplitTable(whole[:cut].clone(), whole[cut:].clone())


@pytest.mark.parametrize("cut", [0, 7000, NODES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_split_table_trains_as_a_whole_one(
    batches: list[SampledBatch], cut: int, dtype: torch.dtype
) -> None:
    whole, split = make_table(cut, dtype)
    one, two = (
        Trainer(SPEC, DIM, 5, make_accelerator("cpu"), seed=1) for _ in range(2)
    )
    for batch in batches:
        rows = torch.from_numpy(batch.nodes)
        expected = one.step(batch, whole, rows).loss
        got = two.step(batch, split, rows).loss
        assert got == pytest.approx(expected, rel=1e-5)
    held = [(batch, split, torch.from_numpy(batch.nodes)) for batch in batches]
    assert two.evaluate(held) == one.evaluate([(b, whole, rows) for b, _, rows in held])


@pytest.mark.parametrize("cut", [0, 100, 7000, NODES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("aliased", [True, False])
def test_digests_of_a_split_table_are_those_of_its_rows(
    batches: list[SampledBatch], cut: int, dtype: torch.dtype, aliased: bool
) -> None:
    whole, split = make_table(cut, dtype)
    batch = batches[0]
    rows = torch.from_numpy(batch.nodes) if aliased else None
    expected = feature_digest(batch, whole.numpy(), batch.nodes if aliased else None)
    assert (
        batch_feature_digest(batch, split, rows)
        == expected
        == batch_feature_digest(batch, whole, rows)
    )


def test_rows_outside_a_split_table_are_refused(batches: list[SampledBatch]) -> None:
    _, split = make_table(100)
    rows = torch.from_numpy(batches[0].nodes.copy())
    with pytest.raises(InputError, match="alias rows for"):
        batch_feature_digest(batches[0], split, rows[:-1])
    rows[3] = NODES
    with pytest.raises(InputError, match="alias rows run from 0 to 20000"):
        batch_feature_digest(batches[0], split, rows)


@pytest.mark.parametrize("cut", [0, 1, 9, 20])
def test_both_parts_are_gathered_in_the_order_of_rows(cut: int) -> None:
    """Without Triton the gather keeps the order of rows, repeated rows included."""
    whole = torch.arange(80, dtype=torch.float32).view(20, 4)
    out = torch.empty(8, 4)
    rows = torch.tensor([19, 0, 8, 9, 9, 3, 19, 10])
    gather_parts(whole[:cut].clone(), whole[cut:].clone(), rows, out)
    assert torch.equal(out, whole[rows])


def emulated() -> EmulatedAccelerator:
    device = make_accelerator("emulated:a10g", memory_bytes=4 << 20)
    assert isinstance(device, EmulatedAccelerator)
    return device


@pytest.mark.parametrize("cut", [0, 7000, NODES])
def test_a_step_costs_device_reads_for_device_rows_and_bus_reads_for_host_rows(
    batches: list[SampledBatch], cut: int
) -> None:
    device = emulated()
    batch = batches[0]
    _, host = make_table(cut)
    split = SplitTable(device.allocate(cut, DIM, torch.float32), host.host)
    trainer = Trainer(SPEC, DIM, 5, device)
    profile = load_profile("a10g")
    row_bytes = DIM * 4

    def reading(on_device: int, on_host: int) -> float:
        own = profile.gather_seconds(on_device * row_bytes) if on_device else 0.0
        return own + (
            profile.zero_copy_seconds(on_host * row_bytes) if on_host else 0.0
        )

    computing = trainer.modelled_seconds(batch)
    assert computing is not None
    count = batch.num_nodes
    on_device = int((batch.nodes < cut).sum())
    aliased = trainer.modelled_seconds(batch, split, torch.from_numpy(batch.nodes))
    assert aliased == pytest.approx(computing + reading(on_device, count - on_device))
    in_order = trainer.modelled_seconds(batch, split)
    assert in_order == pytest.approx(
        computing + reading(min(cut, count), count - min(cut, count))
    )
    device.close()


def test_zero_copy_reads_hold_the_bus(batches: list[SampledBatch]) -> None:
    device = emulated()
    batch = batches[0]
    _, split = make_table(0)
    trainer = Trainer(SPEC, DIM, 5, device)
    # far ahead, so no span depends on this machine
    busy_until = device._copy_lane.occupy(0.5)
    trainer.step(
        batch,
        SplitTable(device.allocate(0, DIM, torch.float32), split.host),
        torch.from_numpy(batch.nodes),
    )
    spans = {span.lane: span for span in device.lanes()}
    assert (
        spans["copy"].start
        == spans["compute"].start
        == pytest.approx(busy_until, abs=1e-6)
    )
    wanted = load_profile("a10g").zero_copy_seconds(batch.num_nodes * DIM * 4)
    assert spans["copy"].end - spans["copy"].start == pytest.approx(wanted, abs=1e-9)
    device.close()


def test_zero_copy_reads_wait_for_the_copies_before_them() -> None:
    device = emulated()
    copied = device._copy_lane.occupy(0.05)
    end = device.compute(0.03, bus_seconds=0.01)
    assert end == pytest.approx(copied + 0.03, abs=1e-6)
    compute = next(span for span in device.lanes() if span.lane == "compute")
    assert compute.start == pytest.approx(copied, abs=1e-6)
    device.close()

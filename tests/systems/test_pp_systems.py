"""`+pp`: the precomputed first layer equals the model's own, one hop fewer is sampled,
and the oracle finds faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.check.case import Case
from harness.check.drive import drive
from harness.check.rules import judge
from systems.engine.dgl import require_dgl
from systems.interface import System
from systems.pagraph_plus_pp import PaGraphPP
from systems.parts.kinds.first_layer import FirstLayer
from systems.parts.kinds.graphs import Loaded
from systems.parts.kinds.host_rows import HostRows
from systems.parts.kinds.neighbours import Neighbours
from systems.parts.path import Path as DataPath
from systems.registry import load
from tests.systems.support_systems import running, workload_of
from workloads.accelerator import CpuAccelerator
from workloads.dataset import Dataset
from workloads.errors import HostError, InputError
from workloads.models import first_layer_rows, make_model
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.training import Trainer
from workloads.workload import ModelSpec, Workload

pytestmark = pytest.mark.timeout(90)
NAMES = ["pagraph+pp", "dgl+pp"]


def skip_without_dgl(name: str) -> None:
    if name.startswith("dgl"):
        try:
            require_dgl(name)
        except HostError as error:
            pytest.skip(str(error))


def whole_lists(dataset: Dataset, model: str = "sage") -> Workload:
    """Make a workload of two layers, the first over whole neighbour lists."""
    workload = workload_of(dataset, fanout=(5, -1))
    return replace(workload, model=ModelSpec(name=model, layers=2, hidden=16))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_the_model_gives_the_scores_of_whole_neighbour_lists(
    tiny_dataset: Dataset, name: str
) -> None:
    """Seed nodes' scores equal those of the original model whose first layer sees every
    in-neighbour."""
    skip_without_dgl(name)
    workload = whole_lists(tiny_dataset)
    sampler = make_sampler(workload)
    table = torch.from_numpy(tiny_dataset.load("features"))
    original = make_model(workload.model, 16, 5, seed=0)
    trainer = Trainer(workload.model, 16, 5, CpuAccelerator(), seed=0)
    seeds = make_seed_plan(workload).batches(0)
    with running(name, workload) as system:
        for batch in system.epoch(0):
            index = batch.sampled.index
            whole = sampler.sample(0, index, seeds[index])
            wanted = original(table, whole.blocks, torch.from_numpy(whole.nodes))
            assert batch.first_layer_aggregated
            assert len(batch.sampled.blocks) == 1
            got, _ = trainer._scores(batch.sampled, batch.table, batch.rows, None, True)
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
            batch.release()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_rows_are_the_aggregates_over_all_in_neighbours(
    tiny_dataset: Dataset, name: str, model: str
) -> None:
    skip_without_dgl(name)
    workload = whole_lists(tiny_dataset, model)
    wanted = first_layer_rows(
        workload.model,
        tiny_dataset.load("indptr"),
        tiny_dataset.load("indices"),
        tiny_dataset.load("features"),
        np.arange(tiny_dataset.num_nodes),
    )
    with running(name, workload, device="emulated:instant") as system:
        for epoch in range(2):
            for batch in system.epoch(epoch):
                assert isinstance(batch.table, torch.Tensor)
                rows = batch.table if batch.rows is None else batch.table[batch.rows]
                expected = torch.from_numpy(wanted[batch.sampled.nodes])
                torch.testing.assert_close(
                    rows[: batch.sampled.num_nodes], expected, rtol=1e-5, atol=1e-5
                )
                batch.release()


def rows_asked(system: System) -> int:
    for batch in system.epoch(0):
        batch.release()
    return system.counters().rows


def test_a_hop_less_is_sampled_so_fewer_rows_are_asked_for(
    tiny_dataset: Dataset,
) -> None:
    workload = whole_lists(tiny_dataset)
    with (
        running("pagraph", workload) as plain,
        running("pagraph+pp", workload) as prepared,
    ):
        assert rows_asked(prepared) < 0.5 * rows_asked(plain)


def test_a_model_of_one_layer_needs_the_seed_nodes_alone(tiny_dataset: Dataset) -> None:
    with running("pagraph+pp", workload_of(tiny_dataset, fanout=(5,))) as system:
        assert rows_asked(system) == len(tiny_dataset.load("train"))


def test_layer_wise_mini_batches_lose_their_last_layer_too(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset, fanout=(60, 40), name="layerwise")
    whole = make_sampler(workload)
    seeds = make_seed_plan(workload).batches(0)
    with running("pagraph+pp", workload) as system:
        for batch in system.epoch(0):
            wanted = whole.sample(
                0, batch.sampled.index, seeds[batch.sampled.index]
            ).blocks[-1]
            assert len(batch.sampled.blocks) == 1
            np.testing.assert_array_equal(
                batch.sampled.blocks[0].indices, wanted.indices
            )
            batch.release()


def test_shadow_has_no_first_hop_to_leave_out(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset, fanout=(5, 3), name="shadow")
    with (
        pytest.raises(InputError, match="layers of sampler shadow share"),
        running("pagraph+pp", workload),
    ):
        pass


def test_attention_has_no_first_layer_to_prepare(tiny_dataset: Dataset) -> None:
    with (
        pytest.raises(InputError, match="gat's first layer"),
        running("pagraph+pp", whole_lists(tiny_dataset, "gat")),
    ):
        pass


def test_the_aggregates_are_planned_on_disk(tiny_dataset: Dataset) -> None:
    with running("pagraph+pp", whole_lists(tiny_dataset), prepare=False) as system:
        assert system.plan().total("disk") >= 2 * tiny_dataset.feature_bytes


class WrongAggregates(PaGraphPP):
    """PaGraph+PP with aggregates of other nodes."""

    def path(self) -> DataPath:
        return replace(super().path(), rows=HostRows(ReversedAggregates()))


class ReversedAggregates(FirstLayer):
    def prepare(self) -> None:
        super().prepare()
        rows = np.load(self.table.path, mmap_mode="r+")
        rows[:] = rows[::-1].copy()


class WholeHops(PaGraphPP):
    """PaGraph+PP that also samples the hop it does not need."""

    def path(self) -> DataPath:
        return replace(
            super().path(),
            sample=Neighbours(Loaded(), self.workers, self.options.prefetch),
        )


@pytest.mark.parametrize(
    ("system", "broken"),
    [
        (PaGraphPP, set()),
        (WrongAggregates, {"features equal the oracle's"}),
        (WholeHops, {"structure equals the oracle's"}),
    ],
)
def test_the_check_holds_it_to_its_own_oracle(
    tmp_path: Path, system: type[System], broken: set[str]
) -> None:
    seen = [
        drive(
            tmp_path,
            Case("base", batch_size=5, nodes=300, edges=1200, train=20, fanout=(2, 2)),
            system,
        )
    ]
    found = {result.name for result in judge(seen, faithful=False) if not result.ok}
    assert found == broken


def test_neither_claims_the_workloads_mini_batches() -> None:
    for name in NAMES:
        system = load(name)
        assert not system.is_faithful(system.info.options())

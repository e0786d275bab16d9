"""The estimate of a sweep follows its settings and the durations of earlier runs of the
system."""

from __future__ import annotations

import pytest

from harness.plan.datasets import Recipe
from harness.plan.experiment import PlannedRun
from harness.records.record import Preprocess, Record
from harness.run.sweep import FIXED_S, CostModel, modelled_s
from harness.settings import RunSettings
from tests.harness.records import make_record

SETTING = {"batch_size": 50, "fanout": [10, 10, 10], "max_batches": 16, "epochs": 3}


def cell(system: str = "gnndrive", **settings: object) -> PlannedRun:
    return PlannedRun(
        system, RunSettings.model_validate({**SETTING, "memory": "+64MiB", **settings})
    )


def took(system: str, factor: float, **config: object) -> Record:
    """Make a record of a run that took `factor` times the model's estimate."""
    record = make_record(system, [1.0, 1.0], **{**SETTING, **config})
    expected = modelled_s(record.config, 0, 2_000_000)
    return record.model_copy(update={"duration_s": factor * expected})


def test_more_mini_batches_take_longer_and_memory_is_faster() -> None:
    model = CostModel([])
    few = model.seconds(cell(), None)
    many = model.seconds(cell(max_batches=160), None)
    assert many - FIXED_S == pytest.approx(10 * (few - FIXED_S))
    assert FIXED_S < model.seconds(cell(memory="none"), None) < few


def test_earlier_runs_of_the_system_scale_the_model() -> None:
    model = CostModel(
        [took("gnndrive", 3.0), took("gnndrive", 3.0), took("gnndrive", 50.0)]
    )
    assert model.knows(cell())
    assert model.seconds(cell(), None) == pytest.approx(
        3 * CostModel([]).seconds(cell(), None)
    )
    assert not model.knows(cell("pyg+"))
    assert not model.knows(cell(memory="none"))


def test_earlier_runs_of_the_same_cell_are_the_estimate() -> None:
    same = took("gnndrive", 3.0)
    planned = cell(
        dataset=same.config.dataset.name,
        memory="+64MiB",
        device="emulated:a10g",
        device_memory="32MiB",
    )
    same = same.model_copy(
        update={
            "cell": same.cell.model_copy(update={"key": planned.key}),
            "duration_s": 123.0,
        }
    )
    assert (
        CostModel([same]).seconds(planned, None)
        == 123.0
        != CostModel([same]).seconds(cell(), None)
    )


def test_a_run_that_did_not_end_teaches_nothing() -> None:
    failed = took("gnndrive", 9.0).model_copy(update={"status": "oom"})
    assert not CostModel([failed]).knows(cell())


def test_artefacts_are_counted_as_the_system_states_until_runs_have_shown_it() -> None:
    recipe = Recipe.model_validate(
        {"kind": "kronecker", "nodes": "2M", "edges": "40M", "dim": 128}
    )
    assert recipe.feature_bytes() == 2_000_000 * 512
    assert CostModel([]).artefact_bytes(cell("gnndrive"), recipe) == 0
    assert CostModel([]).artefact_bytes(cell("diskgnn"), recipe) == round(
        0.6 * recipe.feature_bytes()
    )
    wrote, again = (
        took("diskgnn", 1.0).model_copy(
            update={"preprocess": Preprocess(bytes_written=count)}
        )
        for count in (recipe.feature_bytes(), 0)
    )
    features = wrote.config.dataset.num_nodes * wrote.config.dataset.dim * 4
    expected = round(0.5 * recipe.feature_bytes() ** 2 / features)
    assert CostModel([wrote, again]).artefact_bytes(
        cell("diskgnn"), recipe
    ) == pytest.approx(expected, abs=1)

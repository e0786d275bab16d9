"""A planned run and its record have one identity, whatever the notation, the round, the
host and the experiment."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.plan.experiment import PlannedRun, cells, parse_experiment
from harness.records.record import DatasetConfig, RunConfig
from harness.settings import RunSettings, SharedSettings, check_options

DATASET = DatasetConfig(
    name="d", fingerprint="f", num_nodes=9, num_edges=9, dim=4, dtype="float32"
)


def planned(system: str = "gnndrive", **settings: Any) -> PlannedRun:
    return PlannedRun(
        system,
        RunSettings.model_validate({"dataset": "d", "fanout": [3, 3], **settings}),
    )


def recorded(run: PlannedRun, **labels: Any) -> RunConfig:
    """Return a configuration as a run of the cell has it."""
    shared = run.settings.model_dump(
        include=set(SharedSettings.model_fields) - {"options"}
    )
    memory = {"32MiB": 32 << 20, 32 << 20: 32 << 20, None: None}[
        run.settings.device_memory
    ]
    return RunConfig(
        system=run.system,
        dataset=DATASET,
        layers=run.settings.layers or len(run.settings.fanout),
        device_memory_bytes=memory,
        options=check_options(run.system, run.settings.options),
        **shared,
        **labels,
    )


@given(
    st.sampled_from(["+64MiB", "+67108864", "none", "0.25x"]),
    st.integers(1, 9),
    st.sampled_from(["32MiB", 32 << 20, None]),
    st.integers(0, 5),
)
def test_a_run_has_the_key_of_its_cell(
    memory: str, hidden: int, device_memory: Any, round_: int
) -> None:
    run = planned(memory=memory, hidden=hidden, device_memory=device_memory)
    made = recorded(
        run,
        round=round_,
        experiment="x",
        isolation="cgroup2",
        figure_tags=["y"],
        axes={"hidden": hidden},
    )
    assert made.cell.key == run.key
    assert made.cell.experiment == "x"
    assert made.cell.axes == {"hidden": hidden}


def test_what_is_measured_reports_cells_apart() -> None:
    keys = [
        planned().key,
        planned("ginex").key,
        planned(memory="+32MiB").key,
        planned(options={"extractors": 3}).key,
        planned(dataset="e").key,
        planned(sampler="shadow", layers=3).key,
    ]
    assert len(set(keys)) == len(keys)
    assert (
        planned(options=check_options("gnndrive", {})).key
        == planned(timeout="2h", isolation="none").key
        == keys[0]
    )


def test_a_cell_knows_the_values_of_the_grid() -> None:
    grid = {"dataset": ["d", "e"], "options.extractors": [1, 2]}
    found = list(
        cells(parse_experiment({"name": "x", "grid": grid, "systems": ["gnndrive"]}))
    )
    assert [cell.axes for cell in found] == [
        {"dataset": dataset, "options.extractors": count}
        for dataset in "de"
        for count in (1, 2)
    ]
    assert len({cell.key for cell in found}) == 4

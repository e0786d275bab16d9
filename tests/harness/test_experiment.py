"""Experiments are strict: a mistake is refused before anything runs, with the key's
path and the nearest valid name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.plan.experiment import PROFILES, cells, load_experiment, parse_experiment
from harness.records.record import DatasetConfig, RunConfig
from harness.run.sweep import order, union
from harness.settings import (
    RunSettings,
    check_options,
    check_settings,
    parse_memory,
    parse_seconds,
)
from workloads.errors import InputError

BASE: dict[str, Any] = {
    "name": "e",
    "run": {"dataset": "d"},
    "systems": ["pyg+", "gnndrive"],
}


def refused(content: dict[str, Any]) -> str:
    with pytest.raises(InputError) as error:
        for cell in cells(parse_experiment(content)):
            check_settings(cell.settings)
            check_options(cell.system, cell.settings.options)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("change", "path", "nearest"),
    [
        ({"systms": []}, "systms", "'systems'"),
        ({"run": {"dataset": "d", "batchsize": 10}}, "run.batchsize", "'batch_size'"),
        ({"grid": {"fan_out": [[1]]}}, "grid.fan_out", "'fanout'"),
        (
            {"systems": [{"name": "pyg+", "memroy": "1GiB"}]},
            "systems[0].memroy",
            "'memory'",
        ),
        (
            {"systems": [{"name": "pyg+", "options": {"prefetchh": 1}}]},
            "prefetchh",
            "'prefetch'",
        ),
        ({"systems": ["gnn-drive"]}, "'gnn-drive'", "'gnndrive'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(
    change: dict[str, Any], path: str, nearest: str
) -> None:
    message = refused({**BASE, **change})
    assert path in message
    assert nearest in message


@pytest.mark.parametrize(
    ("run", "part"),
    [
        ({"batch_size": "many"}, "run.batch_size"),
        ({"memory": "64M"}, "'M' is not a unit"),
        ({"memory": "quarter x"}, "memory"),
        ({"memory": "0x"}, "above 0"),
        ({"timeout": "soon"}, "timeout"),
        ({"fanout": [10, 0]}, "run.fanout"),
        ({"fanout": [10, 10], "layers": 3}, "layers is 3"),
        ({"epochs": 2, "warmup": 2}, "none to measure"),
        ({"device_memory": "1GiB"}, "device_memory"),
        ({"device": "emulated:a10g"}, "has no device_memory"),
        ({"device": "emulated:a100g", "device_memory": "1GiB"}, "a10g"),
        ({"device": "gpu"}, "device"),
        ({"disk_class": "aws-nvm"}, "aws-nvme"),
        ({"disk_class": "aws-nvme", "isolation": "none"}, "needs a cgroup"),
        ({"isolation": "cgroups"}, "run.isolation"),
    ],
)
def test_an_impossible_setting_is_refused(run: dict[str, Any], part: str) -> None:
    assert part in refused({**BASE, "run": {"dataset": "d", **run}})


def test_a_wrong_option_value_names_the_option() -> None:
    message = refused(
        {**BASE, "systems": [{"name": "pyg+", "options": {"prefetch": -1}}]}
    )
    assert "prefetch" in message
    assert "outcore systems pyg+" in message


@pytest.mark.parametrize(
    "text", ["- a\n- b\n", "name: [unclosed\n", "name: x\nsystems: []\n"]
)
def test_a_file_that_is_no_experiment_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(text)
    with pytest.raises(InputError):
        load_experiment(file)
    with pytest.raises(InputError, match="cannot be read"):
        load_experiment(tmp_path / "none.yaml")


HEAD = "name: e\nsystems: [pyg+]\nrun:\n  dataset: d\n"


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        (
            "e.yaml",
            HEAD + "systems: [gnndrive]\n",
            "line 5: the key 'systems' is in line 2 already",
        ),
        (
            "e.yaml",
            HEAD + "  fanout: [2]\n  fanout: [3]\n",
            "line 6: the key 'fanout' is in line 5 already",
        ),
        ("e.yaml", HEAD + "grid: {seed: [1], seed: [2]}\n", "line 5: the key 'seed'"),
        (
            "e.yaml",
            HEAD + "  learning_rate: .inf\n",
            "line 5: .inf is not a finite number",
        ),
        ("e.yaml", HEAD + "  7: 8\n", "line 5: the key 7 is no text"),
        ("e.yaml", HEAD + "---\nname: f\n", "line 5: expected a single document"),
        ("e.yaml", HEAD + "description: caf\xe9\n", "line 5: it is not UTF-8"),
        (
            "e.json",
            '{"name": "e", "systems": ["pyg+"], "systems": ["gnndrive"]}',
            "'systems' is in one object twice",
        ),
        (
            "e.json",
            '{"name": "e", "systems": ["pyg+"], "run": {"learning_rate": NaN}}',
            "NaN is not a finite",
        ),
        ("e.json", '{"name": "e",\n"systems": [}', "line 2: "),
    ],
)
def test_a_file_with_two_meanings_is_refused_with_its_line(
    tmp_path: Path, name: str, text: str, part: str
) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as refusal:
        load_experiment(file)
    assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_sexagesimal_size_of_a_file_is_no_size(tmp_path: Path) -> None:
    file = tmp_path / "e.yml"
    file.write_text(HEAD + "  memory: 1:30\n")
    (cell,) = cells(load_experiment(file))
    with pytest.raises(InputError, match="memory is '1:30', which is not a size"):
        check_settings(cell.settings)


def test_numbers_of_a_file_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        HEAD
        + "  batch_size: 0100\n  seed: 0o17\n  max_batches: 1_000\n  shuffle: off\n"
    )
    (cell,) = cells(load_experiment(file))
    settings = cell.settings
    assert (
        settings.batch_size,
        settings.seed,
        settings.max_batches,
        settings.shuffle,
    ) == (100, 15, 1000, False)


@pytest.mark.parametrize(
    "profile", sorted(file.stem for file in PROFILES.glob("*.yaml"))
)
def test_every_bench_profile_is_a_valid_experiment(profile: str) -> None:
    for cell in cells(load_experiment(profile)):
        check_settings(cell.settings)
        check_options(cell.system, cell.settings.options)


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(InputError, match="'quick'"):
        load_experiment("quik")


def test_a_grid_expands_to_its_product_and_systems_override() -> None:
    content = {
        **BASE,
        "grid": {"batch_size": [10, 20], "fanout": [[2], [3, 3]]},
        "systems": [
            "pyg+",
            {
                "name": "gnndrive",
                "memory": "+1MiB",
                "grid": {"options.extractors": [1, 2, 4]},
            },
        ],
    }
    found = list(cells(parse_experiment(content)))
    assert Counter(cell.system for cell in found) == {"pyg+": 4, "gnndrive": 12}
    drive = [cell.settings for cell in found if cell.system == "gnndrive"]
    assert {settings.options["extractors"] for settings in drive} == {1, 2, 4}
    assert {settings.memory for settings in drive} == {"+1MiB"}
    assert {cell.settings.memory for cell in found if cell.system == "pyg+"} == {"none"}


def test_memory_is_a_cap_a_share_or_a_budget() -> None:
    assert parse_memory("768MiB", 1000).cap_bytes == 768 << 20
    assert parse_memory("0.25x", 1000).budget_bytes == 250
    assert parse_memory("+64MiB", 1000).budget_bytes == 64 << 20
    nothing = parse_memory("none", 1000)
    assert nothing.cap_bytes is None
    assert nothing.budget_bytes is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("600s", 600), ("10min", 600), ("2h", 7200), (5, 5), ("1.5", 1.5)],
)
def test_times_have_units(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == seconds


def test_shared_cells_run_once_and_carry_the_figures_of_both() -> None:
    one = parse_experiment({**BASE, "figures": ["a"]})
    other = parse_experiment(
        {
            **BASE,
            "figures": ["b"],
            "systems": ["pyg+"],
            "grid": {"batch_size": [1000, 500]},
        }
    )
    merged = union([one, other])
    assert len(merged) == 3
    assert merged[0].figure_tags == ("a", "b")


def test_a_size_is_one_cell_however_it_is_written() -> None:
    grid = {"device_memory": ["32MiB", 32 << 20, "64MiB"]}
    assert (
        len(union([parse_experiment({**BASE, "systems": ["gnndrive"], "grid": grid})]))
        == 2
    )


@given(
    systems=st.integers(1, 5),
    sizes=st.integers(1, 4),
    rounds=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_rounds_interleave_what_is_compared(
    systems: int, sizes: int, rounds: int, seed: int
) -> None:
    content = {
        **BASE,
        "systems": [f"s{index}" for index in range(systems)],
        "grid": {"batch_size": [10 * (index + 1) for index in range(sizes)]},
    }
    wanted = union([parse_experiment({**content, "rounds": rounds})])
    planned = order(wanted, seed)
    assert len(planned) == systems * sizes * rounds
    assert planned == order(wanted, seed), "the order depends on the seed alone"
    for start in range(0, len(planned), systems):
        window = planned[start : start + systems]
        assert len({cell.system for cell in window}) == systems, (
            "every system once before any comes again"
        )
        assert len({(cell.settings.batch_size, cell.round) for cell in window}) == 1


def _config(**changes: Any) -> RunConfig:
    dataset = DatasetConfig(
        name="d",
        fingerprint="f",
        num_nodes=1,
        num_edges=1,
        dim=1,
        dtype="float32",
        num_classes=2,
        train_nodes=1,
    )
    return RunConfig.model_validate({"system": "s", "dataset": dataset, **changes})


def test_identity_is_everything_but_labels() -> None:
    base = _config().config_hash
    assert (
        _config(
            round=3, experiment="x", axes={"seed": 1}, figure_tags=["y"]
        ).config_hash
        == base
    )
    labels = {"experiment", "axes", "figure_tags", "round", "dataset", "system"}
    other: dict[type, Any] = {
        int: 7,
        float: 0.5,
        str: "other",
        bool: None,
        list: [1],
        dict: {"a": 1},
    }
    for name, field in RunConfig.model_fields.items():
        if name in labels:
            continue
        default = field.get_default(call_default_factory=True)
        changed = (
            7
            if default is None
            else (not default if isinstance(default, bool) else other[type(default)])
        )
        choices = get_args(field.annotation)
        if default in choices:
            changed = next(choice for choice in choices if choice != default)
        assert _config(**{name: changed}).config_hash != base, name


def test_every_setting_reaches_the_configuration() -> None:
    apart = {"device_memory", "timeout", "layers"}
    assert set(RunSettings.model_fields) - apart <= set(RunConfig.model_fields)


def test_a_choice_that_looks_like_a_number_may_be_given_as_one() -> None:
    assert (
        check_options("gnndrive", {"io_granularity": 4096})["io_granularity"] == "4096"
    )
    assert (
        check_options("gnndrive", {"io_granularity": "4096"})["io_granularity"]
        == "4096"
    )
    with pytest.raises(InputError, match="io_granularity"):
        check_options("gnndrive", {"io_granularity": 512})


@pytest.mark.parametrize(
    "text",
    ["inf", "infinity", "nan", "1e999h", "1e300", "400000000s", "-1s", "0", "0h"],
)
def test_a_time_that_no_timer_takes_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"timeout is .*, which is not a time; write it like 600s"
    ):
        parse_seconds(text)


@pytest.mark.parametrize(
    "entry",
    [{"gnndrive": {"extractors": 2}}, {"system": "gnndrive"}, {"options": {}}, {}],
)
def test_an_entry_without_a_name_is_refused_with_the_form_of_one(
    entry: dict[str, Any],
) -> None:
    with pytest.raises(
        InputError,
        match=r"systems\[0\] has no name of a system; write it like {name: gnndrive",
    ):
        parse_experiment({**BASE, "systems": [entry]})

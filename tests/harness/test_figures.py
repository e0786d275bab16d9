"""Figures come from records alone: altered records change them, missing ones give the
reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare.comparable import complete_options
from harness.compare.evidence import Evidence, load_evidence
from harness.compare.plan import Plan, grid, keep
from harness.compare.verdicts import uncounted_text
from harness.figures.base import catalogue, chosen
from harness.figures.render import render
from harness.plan.experiment import cells, parse_experiment
from harness.results.table import runs_table
from harness.settings import SharedSettings
from tests.harness.figure_profile import keep_profile, profile
from tests.harness.records import make_record, save
from workloads.errors import InputError
from workloads.units import parse_bytes

# Figures for which `fill` makes records; the other figures are tested in a file for
# each paper.
IDS = [
    "gnndrive-fig10",
    "gnndrive-fig11",
    "gnndrive-fig2",
    "gnndrive-fig3",
    "gnndrive-fig8",
    "gnndrive-fig9",
    "outcore-roofline",
]

# Figures that need several devices.
SEVERAL_GPUS = {"tiering-fig11"}


def at(dim: int) -> dict[str, Any]:
    """Return settings of a run in a sweep over dimensions; the device holds the same
    number of rows at each."""
    return {"dim": dim, "device_memory_bytes": 32 * 2**20 * dim // 128}


def fill(root: Path, factor: float = 1.0) -> None:
    """Write runs from which every figure of `IDS` can be drawn."""
    keep_profile(root, memory_factors=[0.5, 2.0, 4.0], batch_factors=[0.25, 0.5, 1.0])
    for dim in (64, 128, 256, 512):
        for system, base in (("pyg+", 40.0), ("gnndrive", 24.0)):
            seconds = [
                base * factor * (dim / 128) ** 0.5 * noise for noise in (1.0, 1.1)
            ]
            save(
                root,
                make_record(system, seconds, **at(dim), sample_s=base / 10 * factor),
            )
            only = make_record(
                system, seconds, **at(dim), sample_s=base / 40 * factor, stages="sample"
            )
            save(root, only)
    for size in (12, 25, 50):
        for system, base in (("pyg+", 40.0), ("gnndrive", 24.0)):
            if size != 50:
                save(
                    root,
                    make_record(system, [base * factor * 40 / size], batch_size=size),
                )
    for memory in (32, 128, 256):
        for system, base in (("pyg+", 60.0), ("gnndrive", 25.0)):
            save(
                root,
                make_record(
                    system,
                    [base * factor * 64 / memory, 30.0],
                    **at(512),
                    memory=f"+{memory * 2**20}",
                ),
            )
        save(
            root,
            make_record(
                "in-memory", [], status="oom", **at(512), memory=f"+{memory * 2**20}"
            ),
        )
    save(
        root,
        make_record(
            "gnndrive",
            [50.0 * factor],
            device="cpu",
            device_memory_bytes=None,
            memory="+96MiB",
        ),
    )


@pytest.mark.parametrize("figure", list(catalogue()))
def test_a_figure_without_records_prints_the_reason(
    figure: str, tmp_path: Path
) -> None:
    result = render(chosen(figure), load_evidence(tmp_path), tmp_path / "figures")[0]
    assert result.status == "not drawn"
    assert len(result.reason) > 10
    assert [file.name for file in (tmp_path / "figures").iterdir()] == [
        f"{figure}.json"
    ]


@pytest.mark.slow("harness/figures", "harness/compare", "harness/records")
@pytest.mark.parametrize("figure", IDS)
def test_altered_records_change_what_is_drawn(figure: str, tmp_path: Path) -> None:
    drawn = []
    for name, factor in (("a", 1.0), ("b", 2.0)):
        fill(tmp_path / name, factor)
        result = render(
            chosen(figure), load_evidence(tmp_path / name), tmp_path / name / "figures"
        )[0]
        assert result.status == "drawn", result.reason
        assert [file.suffix for file in result.files] == [".png", ".svg", ".csv"]
        assert all(file.stat().st_size > 100 for file in result.files)
        drawn.append(
            (
                result.files[0].read_bytes(),
                pd.read_csv(result.files[2]).drop(columns="run", errors="ignore"),
            )
        )
    assert drawn[0][0] != drawn[1][0]
    assert not drawn[0][1].equals(drawn[1][1])


@pytest.mark.parametrize("verdict", ["INVALID", "SPOILT"])
def test_an_invalid_run_is_never_drawn(tmp_path: Path, verdict: str) -> None:
    keep_profile(tmp_path)
    for dim in (64, 128):
        save(tmp_path, make_record("gnndrive", [1.0], **at(dim)))
        save(tmp_path, make_record("pyg+", [9.0], **at(dim), verdict=verdict))
    result = render(chosen("gnndrive-fig8"), load_evidence(tmp_path), tmp_path / "out")[
        0
    ]
    table = pd.read_csv(result.files[2])
    assert set(table["system"]) == {"gnndrive"}
    reason = {
        "INVALID": "2 invalid runs left out",
        "SPOILT": "2 runs spoilt by other programs left out",
    }[verdict]
    assert reason in result.files[1].read_text()


def test_a_figure_without_points_names_why_its_runs_do_not_count_each_once(
    tmp_path: Path,
) -> None:
    """Three runs stand for the same cells of every experiment: they are counted
    once."""
    keep_profile(tmp_path)
    for dim, verdict in ((64, "SPOILT"), (128, "SPOILT"), (256, "INVALID")):
        save(tmp_path, make_record("gnndrive", [1.0], **at(dim), verdict=verdict))
    result = render(chosen("gnndrive-fig8"), load_evidence(tmp_path), tmp_path / "out")[
        0
    ]
    assert result.status == "not drawn"
    assert (
        "(1 invalid run and 2 runs spoilt by other programs left out; `outcore bench` "
        "makes" in result.reason
    )


@pytest.mark.parametrize("figure", ["pagraph-fig4", "pagraph-tab1", "gnndrive-fig2"])
def test_a_figure_that_words_its_own_reason_names_runs_that_do_not_count_too(
    tmp_path: Path, figure: str
) -> None:
    keep_profile(tmp_path)
    evidence = load_evidence(tmp_path)
    plans = [
        cell
        for one in catalogue()[figure].experiments(evidence.experiments[0])
        for cell in cells(one)
    ]
    for cell in plans[:2]:
        settings = cell.settings.model_dump(
            include={*SharedSettings.model_fields} - {"options"}
        )
        bytes_ = (
            None
            if cell.settings.device_memory is None
            else parse_bytes(cell.settings.device_memory)
        )
        options = complete_options(cell.system, cell.settings.options)
        where = {
            "dataset": str(cell.settings.dataset),
            "device_memory_bytes": bytes_,
            "options": options,
        }
        where["layers"] = cell.settings.layers or len(cell.settings.fanout)
        save(
            tmp_path,
            make_record(cell.system, [1.0], verdict="SPOILT", **{**settings, **where}),
        )
    result = render(chosen(figure), load_evidence(tmp_path), tmp_path / "out")[0]
    assert result.status == "not drawn"
    assert "spoilt by other programs left out" in result.reason


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        ([], ""),
        (["INVALID"], "1 invalid run"),
        (["SPOILT"], "1 run spoilt by other programs"),
        (
            ["SPOILT", "INVALID", "INVALID", "SPOILT"],
            "2 invalid runs and 2 runs spoilt by other programs",
        ),
    ],
)
def test_runs_that_do_not_count_are_counted_by_their_reason(
    verdicts: list[str], text: str
) -> None:
    assert uncounted_text(verdicts) == text


def test_out_of_memory_is_marked_and_not_a_number(tmp_path: Path) -> None:
    keep_profile(tmp_path, memory_factors=[0.5, 1.0])
    for memory in (32, 64):
        save(
            tmp_path,
            make_record("gnndrive", [1.0], **at(512), memory=f"+{memory * 2**20}"),
        )
        save(
            tmp_path,
            make_record(
                "in-memory", [], status="oom", **at(512), memory=f"+{memory * 2**20}"
            ),
        )
    result = render(chosen("gnndrive-fig9"), load_evidence(tmp_path), tmp_path / "out")[
        0
    ]
    table = pd.read_csv(result.files[2])
    failed = table[table["system"] == "in-memory"]
    assert list(failed["status"]) == ["oom", "oom"]
    assert failed["value"].isna().all()
    assert "OOM" in result.files[1].read_text()


def test_rounds_are_pooled_and_warm_up_left_out(tmp_path: Path) -> None:
    keep_profile(tmp_path)
    for round_ in (0, 1):
        for dim in (64, 128):
            save(
                tmp_path,
                make_record(
                    "gnndrive", [1.0 + round_, 2.0 + round_], **at(dim), round=round_
                ),
            )
    result = render(chosen("gnndrive-fig8"), load_evidence(tmp_path), tmp_path / "out")[
        0
    ]
    table = pd.read_csv(result.files[2])
    assert list(table["samples"]) == [4, 4]
    assert list(table["value"]) == [2.0, 2.0]


def test_different_settings_are_never_mixed(tmp_path: Path) -> None:
    keep_profile(tmp_path)
    for dim in (64, 128):
        save(tmp_path, make_record("gnndrive", [1.0], **at(dim)))
    save(tmp_path, make_record("gnndrive", [99.0], **at(256), disk_class="none"))
    result = render(chosen("gnndrive-fig8"), load_evidence(tmp_path), tmp_path / "out")[
        0
    ]
    assert 99.0 not in set(pd.read_csv(result.files[2])["value"])


@given(
    extra=st.lists(
        st.tuples(
            st.sampled_from(["pyg+", "gnndrive", "outcore"]),
            st.sampled_from([7, 25, 50]),
            st.sampled_from(["none", "aws-gp3"]),
            st.sampled_from([{}, {"extract_threads": 3}]),
            st.integers(0, 1),
        ),
        max_size=4,
    )
)
@settings(max_examples=15, deadline=None)
def test_records_of_other_settings_or_options_move_no_figure(
    extra: list[tuple[str, int, str, dict[str, int], int]],
) -> None:
    """A figure shows the planned cells, whatever other runs are in the folder."""
    sizes = {25: {"batch_size": 25}, 50: {"batch_size": 50}}

    def plan(content: dict[str, Any]) -> Plan:
        return grid(content, ["pyg+", "gnndrive"], sizes)

    mine = [
        make_record(name, [1.0, 2.0], batch_size=size)
        for size in sizes
        for name in ("pyg+", "gnndrive")
    ]
    others = [
        make_record(
            name,
            [99.0],
            batch_size=size,
            disk_class=disk,
            options=options if name == "pyg+" else {},
            seed=seed,
        )
        for name, size, disk, options, seed in extra
    ]
    one, other = (
        Evidence(runs_table([record.to_json() for record in records]), [], [profile()])
        .cells("gnndrive-fig9", plan)
        .medians()
        for records in (mine, [*mine, *others])
    )
    assert one.equals(other)


def test_the_caption_states_emulated_and_names_the_caveats(tmp_path: Path) -> None:
    keep_profile(tmp_path)
    for dim in (64, 128):
        save(tmp_path, make_record("gnndrive", [1.0], **at(dim), verdict="CAVEATS"))
    result = render(chosen("gnndrive-fig8"), load_evidence(tmp_path), tmp_path / "out")[
        0
    ]
    text = " ".join(result.files[1].read_text().split())
    assert "EMULATED" in text
    assert "the SSD class was not enforced" in text


def test_an_unknown_figure_names_the_nearest() -> None:
    with pytest.raises(InputError, match="gnndrive-fig9"):
        chosen("gnndrive-fig99")


@pytest.mark.parametrize("figure", list(catalogue()))
def test_the_needs_of_a_figure_are_valid_experiments_and_studies(figure: str) -> None:
    from harness.plan.experiment import cells, load_experiment
    from harness.studies.base import resolve_study

    profile = load_experiment("quick").model_dump()
    experiments = catalogue()[figure].experiments(profile)
    studies = catalogue()[figure].studies(profile)
    # Two take any runs there are; the gate's proof makes its slowed runs without a
    # bench.
    made_elsewhere = {"outcore-trend", "outcore-gate", "outcore-fidelity"}
    assert experiments or studies or figure in SEVERAL_GPUS | made_elsewhere
    assert all(sum(1 for _ in cells(experiment)) >= 1 for experiment in experiments)
    for need in studies:
        _, params = resolve_study(need)
        name = getattr(params, "dataset", None)
        assert name is None or name in {**profile["datasets"], **need.datasets}


def test_what_has_not_changed_is_not_drawn_again(tmp_path: Path) -> None:
    fill(tmp_path)
    out = tmp_path / "figures"
    first = render(chosen("gnndrive-fig8"), load_evidence(tmp_path), out)[0]
    times = [file.stat().st_mtime_ns for file in first.files]
    second = render(chosen("gnndrive-fig8"), load_evidence(tmp_path), out)[0]
    assert (second, [file.stat().st_mtime_ns for file in second.files]) == (
        first,
        times,
    )
    save(tmp_path, make_record("gnndrive", [1.0], **at(64)))
    third = render(chosen("gnndrive-fig8"), load_evidence(tmp_path), out)[0]
    assert third.inputs != first.inputs
    assert [file.stat().st_mtime_ns for file in third.files] != times


def test_another_plan_draws_again_and_a_name_stays_within_the_folder(
    tmp_path: Path,
) -> None:
    root = tmp_path / "of" / "results"
    fill(root)
    first = render(chosen("gnndrive-fig8"), load_evidence(root), root / "figures")[0]
    keep(root, parse_experiment({**profile(dims=[64, 128]), "name": "../../mine"}))
    assert [path.parent for path in tmp_path.rglob("*mine*")] == [root / "experiments"]
    second = render(chosen("gnndrive-fig8"), load_evidence(root), root / "figures")[0]
    assert second.inputs != first.inputs


def test_a_damaged_experiment_is_passed_over(tmp_path: Path) -> None:
    fill(tmp_path)
    for name, text in (("a", "{"), ("b", "[]"), ("c", "null"), ("d", '{"name": "d"}')):
        (tmp_path / "experiments" / f"{name}.json").write_text(text)
    result = render(
        chosen("gnndrive-fig8"), load_evidence(tmp_path), tmp_path / "figures"
    )[0]
    assert result.status == "drawn", result.reason


def test_a_lost_file_is_drawn_again(tmp_path: Path) -> None:
    fill(tmp_path)
    first = render(
        chosen("gnndrive-fig8"), load_evidence(tmp_path), tmp_path / "figures"
    )[0]
    first.files[1].unlink()
    second = render(
        chosen("gnndrive-fig8"), load_evidence(tmp_path), tmp_path / "figures"
    )[0]
    assert second.files[1].is_file()


def test_a_gallery_run_is_the_profile_s_with_its_own_settings_over_it() -> None:
    from harness.figures.grids import gallery, values

    profile = {
        "run": {"max_batches": 80, "memory": "+64MiB"},
        "rounds": 2,
        "datasets": {},
        "gallery": {
            "run": {"max_batches": 16},
            "rounds": 1,
            "grid": {"dims": [64, 512]},
        },
    }
    changed = gallery(profile)
    assert changed["run"] == {"max_batches": 16, "memory": "+64MiB"}
    assert changed["rounds"] == 1
    assert values(profile, "dims", [64, 128, 512]) == [64, 512]
    assert values(profile, "ranks", [1, 2, 4]) == [1, 2, 4]
    assert profile["run"]["max_batches"] == 80

"""outcore-pipeline shows one measured epoch of each system, from its own record and
stages alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from harness.compare.evidence import load_evidence
from harness.figures.base import catalogue, chosen
from harness.figures.render import render
from harness.plan.experiment import PROFILES, cells
from harness.records.record import Record
from harness.results.store import STAGE_COLUMNS, write_run
from tests.harness.figure_profile import keep_profile
from tests.harness.records import make_record
from workloads.parsing import parse_yaml

FIGURE = "outcore-pipeline"


def stages_of(record: Record, batches: int = 5, slow: float = 1.0) -> pd.DataFrame:
    """Return spans of two samplers, an extractor, a trainer, a device lane, and an
    inspection outside mini-batches."""
    rows = []
    for epoch in record.epochs:
        step = epoch.seconds / (batches + 3)
        rows.append(
            (
                epoch.epoch,
                -1,
                "inspect",
                "main",
                epoch.start_s,
                epoch.start_s + step / 2,
            )
        )
        for batch in range(batches):
            at = epoch.start_s + batch * step
            rows += [
                (epoch.epoch, batch, "sample", f"s-{batch % 2}", at, at + 0.9 * step),
                (
                    epoch.epoch,
                    batch,
                    "extract",
                    "x",
                    at + step,
                    at + step + 0.5 * slow * step,
                ),
                (epoch.epoch, batch, "train", "main", at + 2 * step, at + 2.5 * step),
                (
                    epoch.epoch,
                    batch,
                    "lane:compute",
                    "lane",
                    at + 2 * step,
                    at + 2.4 * step,
                ),
            ]
    return pd.DataFrame(rows, columns=list(STAGE_COLUMNS))


def fill(root: Path, slow: float = 1.0, batches: int = 5) -> dict[str, Record]:
    made = {}
    keep_profile(root)
    for system, seconds in (
        ("pyg+", [4.0, 5.0, 9.0]),
        ("gnndrive", [2.0]),
        ("diskgnn", [1.0]),
    ):
        made[system] = make_record(system, seconds)
        write_run(
            root, made[system], {"stages": stages_of(made[system], batches, slow)}
        )
    return made


def drawn(root: Path) -> tuple[pd.DataFrame, str]:
    result = render(chosen(FIGURE), load_evidence(root), root / "figures")[0]
    assert result.status == "drawn", result.reason
    return pd.read_csv(result.files[2]), result.caption


def test_one_measured_epoch_a_system_in_its_own_time(tmp_path: Path) -> None:
    made = fill(tmp_path)
    table, caption = drawn(tmp_path)
    assert set(table["system"]) == {"pyg+", "gnndrive", "diskgnn"}
    own = table[table["system"] == "pyg+"]
    # Of 4, 5 and 9 s the median is 5: the second measured epoch, the third of all.
    assert set(own["epoch"]) == {2}
    assert len(own) == 1 + 5 * 4
    sample = own[(own["stage"] == "sample") & (own["batch"] == 1)].iloc[0]
    assert (sample["start"], sample["end"]) == pytest.approx((5 / 8, 1.9 * 5 / 8))
    assert own["run"].unique().tolist() == [made["pyg+"].run_id]
    assert "EMULATED" in caption
    assert "ginex not run" in caption


def test_altered_stages_change_the_drawing(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    fill(tmp_path / "b", slow=1.5)
    one = drawn(tmp_path / "a")[0]
    other = drawn(tmp_path / "b")[0]
    assert not one.drop(columns="run").equals(other.drop(columns="run"))
    images = [
        (tmp_path / name / "figures" / f"{FIGURE}.png").read_bytes() for name in "ab"
    ]
    assert images[0] != images[1]


def test_a_long_epoch_is_shown_in_part_and_the_caption_states_which(
    tmp_path: Path,
) -> None:
    fill(tmp_path, batches=100)
    table, caption = drawn(tmp_path)
    assert "pyg+: the middle 80 of 100 mini-batches' time" in caption
    assert table["batch"].nunique() == 101, "the table has all of them"


def test_what_ran_out_of_memory_or_has_no_stages_is_named(tmp_path: Path) -> None:
    fill(tmp_path)
    write_run(tmp_path, make_record("ginex", [], status="oom"), {})
    found = render(chosen(FIGURE), load_evidence(tmp_path), tmp_path / "figures")[0]
    assert "ginex runs out of memory" in found.finding
    only = tmp_path / "only"
    keep_profile(only)
    write_run(only, make_record("gnndrive", [1.0]), {})
    result = render(chosen(FIGURE), load_evidence(only), only / "figures")[0]
    assert result.status == "not drawn"
    assert "gnndrive without recorded stages" in result.reason


def test_runs_of_another_host_are_not_put_beside_it(tmp_path: Path) -> None:
    fill(tmp_path)
    other = make_record("ginex", [1.0]).model_copy(
        update={"environment": {"cpu": {"model": "B", "usable": 2}}}
    )
    write_run(tmp_path, other, {"stages": stages_of(other)})
    table, caption = drawn(tmp_path)
    assert "ginex" not in set(table["system"])
    assert "1 run of other hosts or devices left out" in caption


@pytest.mark.parametrize("profile", ["smoke", "quick"])
def test_its_runs_are_those_of_the_profile(profile: str) -> None:
    content = parse_yaml((PROFILES / f"{profile}.yaml").read_text())
    figure = catalogue()[FIGURE]
    assert figure.headline
    (needed,) = figure.experiments(content)
    assert {cell.system for cell in cells(needed)} == {
        "pyg+",
        "ginex",
        "gnndrive",
        "diskgnn",
    }
    assert sum(1 for _ in cells(needed)) == 4

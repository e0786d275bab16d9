"""Data Tiering's figures come from records and studies alone; a figure that needs
several GPUs says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.claims.published import find_claim
from harness.compare.evidence import load_evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, Sheet, catalogue, chosen
from harness.figures.render import render
from harness.plan.experiment import load_experiment
from harness.run.sweep import union
from harness.studies.base import union_of
from tests.harness.figure_profile import keep_profile
from tests.harness.tier_records import run, study

IDS = sorted(name for name in catalogue() if name.startswith("tiering-fig"))
SHARES = [0.05, 0.1, 0.25, 1.0]


def host(dim: int = 128) -> dict[str, Any]:
    """Return settings of a run with all features in host memory, on a device that holds
    a quarter of them."""
    return {
        "memory": "none",
        "max_batches": 0,
        "device_memory_bytes": 32 * 2**20 + 2_000_000 * dim,
        "dim": dim,
    }


HOST = host()


def fill_coverage(root: Path, factor: float) -> None:
    for fanout in ([12, 12, 12], [25, 15], *([10] * hops for hops in (2, 3, 4, 5))):
        best = [0.4, 0.5, 0.7, 1.0]
        coverage = {
            "degree": [value * 0.8 / factor for value in best[:-1]] + [1.0],
            "reverse-pagerank": [value * 0.85 for value in best[:-1]] + [1.0],
            "weighted-reverse-pagerank": [value * 0.9 for value in best[:-1]] + [1.0],
            "measured": best,
        }
        scores = [score for score in coverage if score != "measured"]
        params = {
            "fanout": fanout,
            "batch_size": 50,
            "max_batches": 200,
            "scores": scores,
        }
        result = {
            "accesses": 9000,
            "unique_rows": 900,
            "batches": 9,
            "shares": SHARES,
            "coverage": coverage,
        }
        study(root, "access-coverage", params, result)


def fill_8(root: Path, factor: float) -> None:
    keep_profile(root)
    run(root, "dgl", [30.0, 30.0], **HOST)
    run(root, "uva", [10.0 * factor, 10.0 * factor], **HOST)
    run(root, "data-tiering", [5.0, 5.0], options={"cache": "0.1x"}, **HOST)


def fill_10(root: Path, factor: float) -> None:
    keep_profile(root)
    for share, seconds, loaded in (
        (0.0, 10.0, 1000),
        (0.05, 7.0, 400),
        (0.25, 5.0 * factor, round(30 * factor)),
    ):
        run(
            root,
            "data-tiering",
            [seconds, seconds],
            options={"cache": f"{share:g}x"},
            counters={"rows": 2, "bytes_loaded": loaded},
            **HOST,
        )


FILL = {
    "tiering-fig7": fill_coverage,
    "tiering-fig9": fill_coverage,
    "tiering-fig8": fill_8,
    "tiering-fig10": fill_10,
}


def drawn(figure: str, root: Path) -> Drawing | Sheet:
    """Draw a figure from the records of `root`."""
    import matplotlib as mpl

    mpl.use("Agg")
    return catalogue()[figure].draw(load_evidence(root))


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_every_figure_of_the_paper_is_tried() -> None:
    assert sorted([*FILL, "tiering-fig11"]) == IDS


@pytest.mark.slow("harness/figures", "harness/compare", "harness/records")
@pytest.mark.parametrize("figure", sorted(FILL))
def test_altered_records_change_what_is_drawn(figure: str, tmp_path: Path) -> None:
    tables = []
    for name, factor in (("a", 1.0), ("b", 1.5)):
        FILL[figure](tmp_path / name, factor)
        drawing = drawn(figure, tmp_path / name)
        assert len(drawing.caption) > 40
        tables.append(drawing.data.drop(columns="run", errors="ignore"))
        if isinstance(drawing, Drawing):
            drawing.canvas.draw_without_rendering()
    assert not tables[0].equals(tables[1])


@pytest.mark.parametrize("figure", ["tiering-fig8"])
def test_a_figure_becomes_files(figure: str, tmp_path: Path) -> None:
    FILL[figure](tmp_path, 1.0)
    result = render(chosen(figure), load_evidence(tmp_path), tmp_path / "figures")[0]
    assert result.status == "drawn", result.reason
    assert all(file.stat().st_size > 100 for file in result.files)


@pytest.mark.parametrize("figure", IDS)
def test_the_needs_at_quick_can_run_and_its_studies_exist(figure: str) -> None:
    profile = load_experiment("quick").model_dump()
    for experiment in catalogue()[figure].experiments(profile):
        assert union([experiment])
    assert len(union_of(catalogue()[figure].studies(profile))) == len(
        catalogue()[figure].studies(profile)
    )


@pytest.mark.parametrize("figure", ["tiering-fig8", "tiering-fig10"])
def test_the_device_holds_the_largest_hot_share_of_the_rows(figure: str) -> None:
    from workloads.units import parse_bytes, parse_count

    profile = load_experiment("quick").model_dump()
    (experiment,) = catalogue()[figure].experiments(profile)
    for cell in union([experiment]):
        assert cell.settings.memory == "none"
        recipe = experiment.datasets[str(cell.settings.dataset)]
        table = parse_count(recipe["nodes"], "nodes") * recipe["dim"] * 4
        assert parse_bytes(cell.settings.device_memory or 0) >= 0.25 * table


def test_two_figures_share_the_run_of_a_tenth_hot() -> None:
    profile = load_experiment("quick").model_dump()
    both = [
        catalogue()[name].experiments(profile)[0]
        for name in ("tiering-fig8", "tiering-fig10")
    ]
    assert len(union(both)) == len(union(both[:1])) + len(union(both[1:])) - 1


def test_coverage_is_drawn_as_the_study_has_it(tmp_path: Path) -> None:
    fill_coverage(tmp_path, 1.0)
    table = drawn("tiering-fig7", tmp_path).data
    assert set(table["fanout"]) == {"12,12,12", "25,15"}
    mine = table[
        (table["fanout"] == "25,15") & (table["score"] == "weighted-reverse-pagerank")
    ].set_index("x")["y"]
    assert mine.loc[10.0] == pytest.approx(45.0)


def test_a_depth_that_was_not_studied_is_named_as_left_out(tmp_path: Path) -> None:
    params: dict[str, Any] = {
        "batch_size": 50,
        "max_batches": 8,
        "scores": ["degree", "weighted-reverse-pagerank"],
    }
    coverage = {
        name: [0.1, 0.2, 0.3, 1.0]
        for name in ("degree", "weighted-reverse-pagerank", "measured")
    }
    result = {
        "accesses": 100,
        "unique_rows": 10,
        "batches": 2,
        "shares": SHARES,
        "coverage": coverage,
    }
    for hops in (2, 5):
        study(tmp_path, "access-coverage", {**params, "fanout": [10] * hops}, result)
    drawing = drawn("tiering-fig9", tmp_path)
    assert set(drawing.data["series"]) == {"2 hops", "5 hops"}
    assert "reduced grid: hops 2, 5 of 2, 3, 4, 5" in drawing.caption


def test_studies_of_two_graphs_are_never_mixed(tmp_path: Path) -> None:
    fill_coverage(tmp_path, 1.0)
    old = load_evidence(tmp_path).study(
        "access-coverage", where=lambda params: params["fanout"] == [25, 15]
    )
    assert old.dataset is not None
    from harness.records.study import write_study

    other = old.dataset.model_copy(update={"name": "other", "fingerprint": "x"})
    write_study(
        tmp_path,
        old.model_copy(
            update={"dataset": other, "key": "z" * 16, "started_at": "2027-01-01"}
        ),
    )
    table = drawn("tiering-fig7", tmp_path).data
    assert set(table["fanout"]) == {"25,15"}


def test_each_step_is_compared_with_the_one_before(tmp_path: Path) -> None:
    fill_8(tmp_path, 1.0)
    table = drawn("tiering-fig8", tmp_path).data
    time = table[table["panel"] == "time"].set_index("series")
    assert time.loc["zero-copy", "speedup_over_previous"] == pytest.approx(3.0)
    assert time.loc["tiering", "speedup_over_previous"] == pytest.approx(2.0)
    parts = table[table["panel"] == "parts"].groupby("bar")["value"].sum()
    assert parts["zero-copy"] == pytest.approx(10.0)


def test_a_missing_system_is_stated_and_its_speedup_not_made_up(tmp_path: Path) -> None:
    keep_profile(tmp_path)
    run(tmp_path, "dgl", [30.0], **HOST)
    run(tmp_path, "data-tiering", [5.0], options={"cache": "0.1x"}, **HOST)
    drawing = drawn("tiering-fig8", tmp_path)
    time = drawing.data[drawing.data["panel"] == "time"].set_index("series")
    assert time.loc["zero-copy", "status"] == "not run"
    assert pd.isna(time.loc["tiering", "speedup_over_previous"])
    assert isinstance(drawing, Drawing)
    (axes,) = drawing.canvas.axes
    assert [text.get_text() for text in axes.texts] == ["not run"]
    assert axes.get_xlabel() == ""


def test_the_speedups_stand_beside_the_papers(tmp_path: Path) -> None:
    fill_8(tmp_path, 1.0)
    drawing = drawn("tiering-fig8", tmp_path)
    assert isinstance(drawing, Drawing)
    steps = [
        "zero-copy over CPU gather: 3.00x (paper 2.5–4.6x)",
        "tiering over zero-copy: 2.00x (paper 1.6–2.1x)",
    ]
    assert drawing.canvas.axes[0].get_xlabel().split("\n") == steps


def test_traffic_and_time_are_held_to_no_hot_rows(tmp_path: Path) -> None:
    fill_10(tmp_path, 1.0)
    table = drawn("tiering-fig10", tmp_path).data.set_index("hot_percent")
    assert table.loc[25.0, "traffic_percent"] == pytest.approx(3.0)
    assert table.loc[5.0, "time_percent"] == pytest.approx(70.0)


def test_without_a_run_without_hot_rows_nothing_is_compared(tmp_path: Path) -> None:
    keep_profile(tmp_path)
    for share in ("0.1x", "0.25x"):
        run(
            tmp_path,
            "data-tiering",
            [5.0],
            options={"cache": share},
            counters={"bytes_loaded": 5},
            **HOST,
        )
    with pytest.raises(NotDrawn, match="without hot rows"):
        drawn("tiering-fig10", tmp_path)


def test_several_devices_are_not_made_up_from_one(tmp_path: Path) -> None:
    fill_10(tmp_path, 1.0)
    with pytest.raises(NotDrawn, match="real GPUs"):
        drawn("tiering-fig11", tmp_path)
    assert (
        catalogue()["tiering-fig11"].experiments(load_experiment("paper").model_dump())
        == []
    )


@pytest.mark.parametrize("figure", ["tiering-fig8", "tiering-fig10"])
def test_rows_chosen_for_an_effect_are_stated_to_be(
    tmp_path: Path, figure: str
) -> None:
    for dim in (128, 768):
        root = tmp_path / str(dim)
        keep_profile(
            root, run={"dataset": "kron-d128" if dim == 128 else f"kron-d128-d{dim}"}
        )
        for system, seconds in (("dgl", 30.0), ("uva", 10.0)):
            run(root, system, [seconds, seconds], **host(dim))
        for share, seconds in ((0.0, 10.0), (0.1, 5.0)):
            run(
                root,
                "data-tiering",
                [seconds, seconds],
                options={"cache": f"{share:g}x"},
                counters={"rows": 2, "bytes_loaded": round(100 * seconds)},
                **host(dim),
            )
        caption = drawn(figure, root).caption
        chosen = "rows of 768 columns so that the bus shows" in caption
        assert chosen == (dim == 768)
    for claim in ("dt-01", "dt-02", "dt-03", "dt-08", "dt-09", "dt-12"):
        assert "wide rows" in find_claim(claim).differs

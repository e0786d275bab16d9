"""Findings of the papers' figures and tables: with other records the sentence is
another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from harness.compare.evidence import load_evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.accuracy_runs import first_to_target
from harness.figures.base import Drawing, Sheet, catalogue, chosen
from harness.figures.datasets_table import TABLES, _sizes
from harness.figures.diskgnn.studies import _space_over
from harness.figures.draw.bars import draw_bars
from harness.figures.ginex.parts import _at_once, _rows_read
from harness.figures.ginex.sizes import _best_size
from harness.figures.pagraph.devices import _all_steps, _beside_one, _scaling
from harness.figures.pagraph.epochs import (
    COMPUTE,
    EXPOSED,
    HIDDEN_LOADING,
    _exposed,
    _too_small,
)
from harness.figures.pagraph.studies import _partitioned, _read_again, _widest
from harness.figures.render import render
from harness.figures.tiering import _by_depth, _by_scores, _saved, _steps
from tests.harness import (
    test_figures_diskgnn,
    test_figures_ginex,
    test_figures_pagraph,
    test_figures_tiering,
)
from tests.harness.test_captions import check
from tests.harness.tier_records import run

NAN = float("nan")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            [1.2, 1.0, 0.85],
            "an epoch takes 1.2 times as long with 4 and 0.85 times with 16",
        ),
        (
            [1.02, 1.0, 1.1],
            "an epoch takes 1 times as long with 4 and 1.1 times with 16 (no "
            "difference with 4)",
        ),
    ],
)
def test_superbatches_are_compared_with_the_default(
    values: list[float], sentence: str
) -> None:
    rows = pd.DataFrame({"size": [4, 8, 16], "value": values})
    rows = rows.assign(low=rows.value, high=rows.value)
    begin = "Over the default superbatch of 8 units, "
    assert _best_size(rows, 8, "units") == f"{begin}{sentence}"


def iterations(both: float, width: float) -> pd.DataFrame:
    names = ["sample alone", "gather alone", "both in a pipeline"]
    values = pd.Series([1.0, 2.0, both], names)
    return pd.DataFrame(
        {"low": values - width, "value": values, "high": values + width}
    )


def test_a_difference_within_the_intervals_is_none() -> None:
    assert _at_once(iterations(3.3, 0.2)) == (
        "Sampling and gathering at once take as long as one after the other, within "
        "the intervals: 3.3 and 3 s an iteration"
    )
    assert "take 1.1 times as long as one after" in _at_once(iterations(3.3, 0.05))
    assert "take 0.5 times as long as one after" in _at_once(iterations(1.5, 0.2))


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([10.5, 10.4, 10.2], "batches of 25 to 100 seed nodes make no difference"),
        ([10.0, 9.0, 5.0], "over batches of 25 to 100 seed nodes it changes 0.5 times"),
    ],
)
def test_disk_space_is_compared_over_both_axes(sizes: list[float], text: str) -> None:
    fanouts = pd.DataFrame({"group": ["10,15", "10,15,20"], "value": [0.7, 10.5]})
    batches = pd.DataFrame({"group": [25, 50, 100], "value": sizes})
    found = _space_over(fanouts, batches)
    assert found.startswith(f"The third hop takes 15 times the disk space; {text}")


def test_rows_read_need_both_systems() -> None:
    ratios = pd.DataFrame({"series": ["ginex", "ginex-pg"], "+ fills": [62.0, 84.0]})
    assert "ginex 62 % and ginex-pg 84 % are read" in _rows_read(ratios)
    assert _rows_read(ratios.head(1)) == ""


def coverage(degree: float, best: float, x: float = 10.0) -> pd.DataFrame:
    scores = {"degree": degree, "reverse-pagerank": degree - 0.3, "measured": best}
    return pd.DataFrame(
        [("12,12", name, x, y) for name, y in scores.items()],
        columns=["fanout", "score", "x", "y"],
    )


def test_scores_are_compared_with_the_best_ranking_at_a_tenth_of_the_rows() -> None:
    sentence = _by_scores(coverage(79.0, 81.0))
    assert (
        "cover 79 % of the accesses, the best possible ranking 2 points more"
        in sentence
    )
    assert sentence.endswith("at most 0.3 points apart")
    assert "best possible ranking 9 points more" in _by_scores(coverage(72.0, 81.0))
    assert _by_scores(coverage(79.0, 81.0, x=5.0)) == ""


@pytest.mark.parametrize(
    ("last", "text"), [(54.0, "54 % with 5 hops"), (91.0, "91 % with 5 hops")]
)
def test_depths_are_compared_and_one_alone_is_not(last: float, text: str) -> None:
    rows = pd.DataFrame(
        {"series": ["2 hops", "5 hops"], "x": [10.0, 10.0], "y": [80.0, last]}
    )
    assert _by_depth(rows).endswith(f"cover 80 % with 2 hops, {text}")
    assert _by_depth(rows.head(1)) == ""


@pytest.mark.parametrize(
    ("percents", "text"),
    [
        ((13.0, 58.0), "87 % less traffic, 42 % less"),
        ((13.0, 104.0), "traffic, 4 % more time"),
    ],
)
def test_hot_rows_save_or_cost(percents: tuple[float, float], text: str) -> None:
    rows = pd.DataFrame({"hot_percent": [0.0, 25.0]})
    rows["traffic_percent"] = [100.0, percents[0]]
    rows["time_percent"] = [100.0, percents[1]]
    assert text in _saved(rows)
    assert _saved(rows.head(1)) == ""


def test_a_step_is_compared_with_the_one_before_it() -> None:
    assert (
        _steps(pd.Series({"zero-copy": 0.5}))
        == "zero-copy is 0.5 times as fast as CPU gather"
    )
    assert _steps(pd.Series(dtype=float)) == ""


@pytest.mark.parametrize(
    ("rates", "sentence"),
    [
        ([100.0, 120.0], "2 devices train 1.2 times as fast as 1 with GCN"),
        ([100.0, 80.0], "2 devices train 0.8 times as fast as 1 with GCN"),
        ([NAN, 120.0], ""),
        ([100.0, NAN], ""),
    ],
)
def test_devices_are_compared_with_one(rates: list[float], sentence: str) -> None:
    rows = pd.DataFrame({"model": "gcn", "x": [1, 2], "y": rates})
    assert _scaling(rows.assign(low=rows.y, high=rows.y)) == sentence
    if sentence:
        even = _scaling(rows.assign(low=rows.y - 25, high=rows.y + 25))
        assert even == f"{sentence} (no difference)"


def test_devices_are_compared_with_the_same_system_on_one() -> None:
    data = pd.DataFrame({"series": ["pagraph", "dgl", "pagraph", "dgl"]})
    data = data.assign(model="gcn", devices=[1, 1, 2, 2], value=[2.8, 1.0, 3.5, NAN])
    one = "On 1 device, times as fast as dgl: pagraph 2.8"
    two = "pagraph on 2 is 1.2 times as fast as on 1"
    assert _beside_one(data) == f"{one}; {two}"
    assert _beside_one(data.head(2)) == one
    assert _beside_one(data.assign(value=NAN)) == ""


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        ([2.0, 1.0], "All steps make pagraph 2 times as fast with GCN"),
        ([1.0, 2.0], "All steps make pagraph 0.5 times as fast with GCN"),
        ([1.0, NAN], ""),
    ],
)
def test_all_steps_are_compared_with_the_loader_alone(
    seconds: list[float], sentence: str
) -> None:
    rows = pd.DataFrame(
        {"group": "GCN", "series": ["loader alone", "+ pipelining"], "value": seconds}
    )
    assert _all_steps(rows) == sentence


def test_a_step_that_costs_time_is_named() -> None:
    rows = pd.DataFrame(
        {"group": "GCN", "series": ["loader alone", "+ partitions", "+ pipelining"]}
    )
    rows = rows.assign(value=[3.0, 4.0, 1.5], saved=[NAN, -1 / 3, 0.62])
    assert _all_steps(rows).endswith(
        "; partitions alone make it 0.75 times as fast with GCN"
    )


def test_the_first_and_the_last_to_a_target_are_named() -> None:
    rows = pd.DataFrame(
        {"system": ["dgl", "pagraph"], "target": 75.0, "seconds": [0.4, 1.2]}
    )
    assert (
        first_to_target("GCN", rows)
        == "GCN reaches 75 % first with dgl (0.4 s), last with pagraph (1.2 s)"
    )
    assert "first with pagraph" in first_to_target(
        "GCN", rows.assign(seconds=[1.4, 1.2])
    )
    assert first_to_target("GCN", rows.assign(seconds=[NAN, 1.2])) == ""


def parts(loading: float | None) -> pd.DataFrame:
    rows = {COMPUTE: 1.0, EXPOSED: loading, HIDDEN_LOADING: 0.001}
    return pd.DataFrame(
        {"bar": "dgl", "part": list(rows), "value": list(rows.values())}
    )


def test_loading_is_a_share_of_the_epoch_and_too_small_parts_are_found() -> None:
    assert _exposed(parts(3.0)) == "Loading's share of the epoch: dgl 75 %"
    assert _exposed(parts(None)) == ""
    assert _too_small(parts(3.0)) == [HIDDEN_LOADING]


def test_studies_of_one_sampler_or_one_partition() -> None:
    both = pd.Series({"neighbour sampling": 28.0, "layer-wise sampling": 12.0})
    assert (
        _read_again(both)
        == "Neighbour sampling reads 28 % of the nodes more than once, layer-wise "
        "sampling 12 %"
    )
    assert (
        _read_again(both.tail(1))
        == "Layer-wise sampling reads 12 % of the nodes more than once"
    )
    found = pd.DataFrame(
        {"count": [1, 8], "hit_ratio": [0.72, 0.75], "share": [0.86, 0.43]}
    )
    assert _partitioned(found).startswith(
        "Caches hit 72 % with 1 partition, 75 % with 8; each of the 8 holds 43 %"
    )
    assert _partitioned(found.head(1)) == ""


def test_hits_are_named_where_rankings_are_furthest_apart() -> None:
    rows = pd.DataFrame(
        {
            "x": [5, 20, 5, 20],
            "series": ["a", "a", "b", "b"],
            "y": [50.0, 60.0, 40.0, 90.0],
        }
    )
    assert _widest(rows) == "Hits differ most with 20 % cached: b 90 %, a 60 %"


@pytest.mark.parametrize(
    ("count", "begin"),
    [(1, "Our dataset has 250.0k nodes"), (2, "Our 2 datasets have 250.0k")],
)
def test_sizes_of_one_dataset_and_of_several(count: int, begin: str) -> None:
    rows = pd.DataFrame(
        {
            "nodes": [250_000, 2_000_000],
            "degree": [20.0, 20.0],
            "features": [10**9, 2 * 10**9],
        }
    )
    assert _sizes(rows.head(count)).startswith(begin)


def test_a_missing_bar_names_its_system_and_a_missing_base_itself() -> None:
    rows = pd.DataFrame(
        {"series": ["ginex", "ali+pg", "ginex", "ginex"], "value": [NAN, NAN, 2.0, NAN]}
    )
    rows["status"] = ["oom", "pyg+: timeout", "ok", "ok"]
    rows["group"] = ["a", "a", "b", "c"]
    _, axes = draw_bars(rows, title="", ylabel="")
    assert [text.get_text() for text in axes.texts] == [
        "ginex OOM",
        "pyg+: timeout",
        "ginex n/a",
    ]


FILL: dict[str, Callable[[Path, float], None]] = {
    **test_figures_ginex.FILL,
    **test_figures_tiering.FILL,
}
FILL |= dict.fromkeys(test_figures_pagraph.IDS, test_figures_pagraph.fill)
FILL |= test_figures_diskgnn.FILL
#: Figures whose fixtures change no ratio that the finding names: tests above try their
#: sentences with others.
SAME = {"ginex-tab2", "pagraph-fig5", "pagraph-fig14", "pagraph-fig18"}
SAME |= {"diskgnn-fig10", "diskgnn-fig11", "diskgnn-fig14", "diskgnn-fig19"}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, float], Path]:
    """Return a function from figure and factor to a results root with its records."""
    made: dict[object, Path] = {}

    def root(figure: str, factor: float) -> Path:
        fill = FILL[figure]
        if (fill, factor) not in made:
            made[fill, factor] = tmp_path_factory.mktemp("root")
            fill(made[fill, factor], factor)
        return made[fill, factor]

    return root


def draw(figure: str, root: Path) -> Drawing | Sheet:
    return catalogue()[figure].draw(load_evidence(root))


@pytest.mark.slow("harness/figures", "harness/compare", "harness/records")
@pytest.mark.parametrize("figure", sorted(set(FILL) - set(TABLES)))
def test_a_figure_opens_with_a_finding_that_follows_its_records(
    figure: str, roots: Callable[[str, float], Path]
) -> None:
    drawing = draw(figure, roots(figure, 1.0))
    other = draw(figure, roots(figure, 2.5))
    assert re.search(r"\d", drawing.finding)
    assert (drawing.finding == other.finding) == (figure in SAME)
    check(drawing.caption)
    if isinstance(drawing, Drawing):
        shown = [text.get_text() for text in drawing.canvas.texts]
        assert drawing.finding in [" ".join(text.split()) for text in shown]
        for axes in drawing.canvas.axes:
            assert axes.get_xscale() != "log" or "log" in axes.get_xlabel()
            sharing = axes.get_shared_y_axes().get_siblings(axes)
            assert axes.get_yscale() != "log" or any(
                "log" in one.get_ylabel() for one in sharing
            )


def test_a_failed_system_is_named_in_the_sentence_and_in_the_drawing(
    tmp_path: Path,
) -> None:
    test_figures_ginex.keep(tmp_path)
    for memory in ("+64MiB", "+128MiB"):
        run(tmp_path, "pyg+", [40.0], memory=memory)
        run(tmp_path, "ginex", [20.0], memory=memory)
        run(tmp_path, "ali+pg", [], memory=memory, status="oom")
    drawing = draw("ginex-fig18", tmp_path)
    assert isinstance(drawing, Drawing)
    assert drawing.finding == (
        "ginex is 2 times as fast as pyg+; ali+pg runs out of memory"
    )
    assert "ali+pg OOM" in [text.get_text() for text in drawing.canvas.axes[0].texts]


def test_coinciding_scores_are_drawn_as_differences(
    roots: Callable[[str, float], Path],
) -> None:
    drawing = draw("tiering-fig7", roots("tiering-fig7", 1.0))
    assert isinstance(drawing, Drawing)
    above = drawing.canvas.axes[0]
    below = drawing.canvas.axes[2]
    labels = [[str(line.get_label()) for line in axes.lines] for axes in (above, below)]
    assert "reverse PageRank" not in labels[0]
    assert "degree" not in labels[1]
    (line,) = [line for line in below.lines if line.get_label() == "reverse PageRank"]
    assert np.asarray(line.get_ydata())[0] == pytest.approx(2.0)
    assert below.get_ylim() == drawing.canvas.axes[3].get_ylim()


def test_layer_wise_panels_share_few_legend_entries(
    roots: Callable[[str, float], Path],
) -> None:
    drawing = draw("pagraph-fig20", roots("pagraph-fig20", 1.0))
    assert isinstance(drawing, Drawing)
    assert len(drawing.canvas.legends[0].get_texts()) <= 8


def test_files_of_a_figure_hold_its_finding(
    roots: Callable[[str, float], Path], tmp_path: Path
) -> None:
    evidence = load_evidence(roots("ginex-fig14", 1.0))
    drawn, table = render(chosen("ginex-fig14,ginex-tab4"), evidence, tmp_path)
    for one in (drawn, table):
        content = json.loads((tmp_path / f"{one.id}.json").read_text())
        assert content["finding"] == one.finding
    assert "ginex is 2 times as fast as pyg+" in drawn.finding
    assert drawn.alternative == f"{drawn.finding}. {drawn.caption}"
    assert replace(drawn, finding="").alternative == f"{drawn.title}. {drawn.caption}"
    with Image.open(tmp_path / "ginex-fig14.png") as image:
        assert image.info["Description"] == drawn.alternative
    assert f"\n\n{table.finding}.\n\n| " in (tmp_path / "ginex-tab4.md").read_text()


def test_layer_wise_panels_need_a_run_of_gcn(tmp_path: Path) -> None:
    for system in ("dgl", "pagraph"):
        record = test_figures_pagraph.paper_record(
            system, model="sage", sampler="layerwise"
        )
        test_figures_pagraph.save(tmp_path, record)
    with pytest.raises(NotDrawn, match="no run of GCN"):
        draw("pagraph-fig20", tmp_path)

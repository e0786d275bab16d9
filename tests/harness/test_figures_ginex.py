"""Ginex's figures come from records alone: their numbers are those of the runs, and
missing runs give the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.compare.evidence import load_evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, Sheet, catalogue, chosen
from harness.figures.draw.breakdown import covered_seconds, split_epoch
from harness.figures.ginex.page_cache import miss_ratio
from harness.figures.ginex.parts import gather_alone
from harness.figures.render import render
from harness.plan.experiment import load_experiment
from harness.records.study import write_study
from harness.run.sweep import union
from tests.harness.figure_profile import keep_profile, nothing_published
from tests.harness.tier_records import BATCHES, run, study
from workloads.units import parse_count

IDS = sorted(name for name in catalogue() if name.startswith("ginex-"))
SECONDS = {"pyg+": 40.0, "ali+pg": 28.0, "ginex": 20.0, "ginex-pg": 26.0}
PAGES_OF = {
    "model": "sage",
    "sampler": "neighbor",
    "fanout": [10, 10, 10],
    "replace": False,
    "shuffle": True,
    "batch_size": 50,
    "max_batches": BATCHES,
    "epochs": 3,
    "seed": 0,
}
MIB = 2**20


def keep(root: Path, **axes: Any) -> None:
    """Store the profile of these records: epochs of ten mini-batches."""
    keep_profile(root, run={"max_batches": BATCHES}, **axes)


def fill_14(root: Path, factor: float) -> None:
    keep(root)
    for model in ("sage", "gcn"):
        for system, base in SECONDS.items():
            slower = factor if system == "ginex" else 1.0
            counters = {
                "rows": 1000,
                "misses": 300 * slower,
                "observed": {"initial_rows": 100},
            }
            run(
                root,
                system,
                [base * slower, base * slower * 1.1],
                model=model,
                counters=counters,
            )


def fill_16(root: Path, factor: float) -> None:
    keep(root, superbatches=[2, 5, 10])
    for size, base in ((2, 30.0), (5, 20.0 * factor), (10, 18.0)):
        run(root, "ginex", [base, base], options={"superbatch": size})


def fill_17(root: Path, factor: float) -> None:
    keep(root, wide_dims=[128, 512, 768])
    for dim in (128, 512, 768):
        for system in ("pyg+", "ali+pg", "ginex"):
            options = {} if system == "pyg+" else {"io_granularity": "4096"}
            slower = factor if system == "ginex" else 1.0
            run(
                root,
                system,
                [SECONDS[system] * slower * dim / 128],
                dim=dim,
                options=options,
                device_memory_bytes=32 * MIB * dim // 128,
            )


def fill_18(root: Path, factor: float) -> None:
    keep(root)
    for share in (0.5, 1.0, 2.0):
        for system in ("pyg+", "ali+pg", "ginex"):
            slower = factor if system == "ginex" else 1.0
            run(
                root,
                system,
                [SECONDS[system] * slower / share],
                memory=f"+{round(64 * share)}MiB",
            )


def fill_19(root: Path, factor: float) -> None:
    keep(root, batch_factors=[0.5, 1.0, 2.0])
    for size in (25, 50, 100):
        for system in ("pyg+", "ali+pg", "ginex"):
            slower = factor if system == "ginex" else 1.0
            run(
                root,
                system,
                [SECONDS[system] * slower],
                batch_size=size,
                max_batches=BATCHES * 50 // size,
            )


def fill_4(root: Path, factor: float) -> None:
    keep(root)
    pages = [100] * (3 * BATCHES)
    batches = [*range(BATCHES)] * 3
    run(root, "pyg+", [10.0, 10.0], faults=1.0 * factor)
    study(
        root,
        "page-accesses",
        PAGES_OF,
        {
            "epoch": [k for k in range(3) for _ in range(BATCHES)],
            "batch": batches,
            "nodes": pages,
            "feature_pages": pages,
            "topology_pages": [20] * (3 * BATCHES),
        },
    )


def fill_5(root: Path, factor: float) -> None:
    policies = [
        {"policy": "belady", "misses": [800, 500, 300], "fills": [0, 0, 0]},
        {
            "policy": "degree",
            "misses": [900, round(600 * factor), 400],
            "fills": [10, 50, 100],
        },
        {"policy": "lru", "misses": [990, 900, 700], "fills": [0, 0, 0]},
    ]
    names = [entry["policy"] for entry in policies]
    params = {
        "fanout": [10, 10, 10],
        "batch_size": 50,
        "max_batches": 400,
        "policies": names,
    }
    shares = [0.01, 0.05, 0.1]
    result = {
        "accesses": 1000,
        "unique_rows": 250,
        "batches": 4,
        "shares": shares,
        "sizes": [10, 50, 100],
    }
    study(
        root, "miss-ratios", params, {**result, "row_bytes": 512, "policies": policies}
    )


def fill_6(root: Path, factor: float) -> None:
    keep(root)
    run(root, "pyg+", [4.0, 4.0], stages="sample")
    run(root, "pyg+", [30.0 * factor, 30.0 * factor], stages="sample+extract")
    ahead = {"options": {"prefetch": 5}, "epochs": 6}
    run(
        root,
        "pyg+",
        [32.0 * factor] * 5,
        stages="sample+extract",
        sampled_by=0.3,
        **ahead,
    )


def fill_tab2(root: Path, factor: float) -> None:
    measures = {
        "num_nodes": 1000,
        "num_edges": 9000,
        "top1_degree_share": 0.4,
        "homophily": 0.6,
    }
    study(
        root,
        "expansion",
        {},
        {
            "kind": "fractal",
            "base_name": "",
            "num_nodes": 4000,
            "num_edges": round(90_000 * factor),
            "dim": 16,
            "total_bytes": 12345,
            "copies": 4.0,
            "base": measures,
            "result": {**measures, "top1_degree_share": 0.2},
        },
    )


FILL = {
    "ginex-fig4": fill_4,
    "ginex-fig5": fill_5,
    "ginex-fig6": fill_6,
    "ginex-tab2": fill_tab2,
    "ginex-fig14": fill_14,
    "ginex-fig15": fill_14,
    "ginex-fig16": fill_16,
    "ginex-fig17": fill_17,
    "ginex-fig18": fill_18,
    "ginex-fig19": fill_19,
    "ginex-tab4": fill_14,
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
    assert sorted(FILL) == IDS


@pytest.mark.slow("harness/figures", "harness/compare", "harness/records")
@pytest.mark.parametrize("figure", sorted(FILL))
def test_altered_records_change_what_is_drawn(figure: str, tmp_path: Path) -> None:
    tables = []
    for name, factor in (("a", 1.0), ("b", 1.5)):
        FILL[figure](tmp_path / name, factor)
        drawing = drawn(figure, tmp_path / name)
        assert len(drawing.caption) > 40
        tables.append(drawing.data.drop(columns=["run", "base_run"], errors="ignore"))
        if isinstance(drawing, Drawing):
            drawing.canvas.draw_without_rendering()
    assert not tables[0].equals(tables[1])


@pytest.mark.parametrize("figure", ["ginex-fig15", "ginex-tab2"])
def test_a_figure_becomes_files(figure: str, tmp_path: Path) -> None:
    FILL[figure](tmp_path, 1.0)
    result = render(chosen(figure), load_evidence(tmp_path), tmp_path / "figures")[0]
    assert result.status == "drawn", result.reason
    assert all(file.stat().st_size > 100 for file in result.files)


@pytest.mark.parametrize("figure", sorted(set(FILL) - {"ginex-fig5", "ginex-tab2"}))
def test_runs_that_all_failed_are_reported_and_nothing_is_drawn(
    figure: str, tmp_path: Path
) -> None:
    keep(tmp_path)
    for system in SECONDS:
        run(tmp_path, system, [], status="oom")
    result = render(chosen(figure), load_evidence(tmp_path), tmp_path / "figures")[0]
    assert result.status == "not drawn"
    assert len(result.reason) > 10


@pytest.mark.parametrize("figure", IDS)
def test_the_needs_at_quick_are_experiments_that_can_run(figure: str) -> None:
    profile = load_experiment("quick").model_dump()
    for experiment in catalogue()[figure].experiments(profile):
        assert union([experiment])


def test_the_needs_at_quick_stay_within_their_share() -> None:
    profile = load_experiment("quick").model_dump()
    mine = [name for name in catalogue() if name.startswith(("ginex-", "tiering-fig"))]
    runs = union(
        [
            experiment
            for name in mine
            for experiment in catalogue()[name].experiments(profile)
        ]
    )
    assert len(runs) <= 50


def test_the_paper_profile_has_the_full_grids() -> None:
    profile = load_experiment("paper").model_dump()
    (dims,) = catalogue()["ginex-fig17"].experiments(profile)
    assert {cell.settings.dataset for cell in union([dims])} == {
        "kron-111m",
        "kron-111m-d256",
        "kron-111m-d512",
        "kron-111m-d768",
    }
    (sizes,) = catalogue()["ginex-fig19"].experiments(profile)
    assert {cell.settings.batch_size for cell in union([sizes])} == {
        250,
        500,
        1000,
        2000,
    }
    (superbatches,) = catalogue()["ginex-fig16"].experiments(profile)
    files = {cell.settings.options["runtime_files"] for cell in union([superbatches])}
    assert files == {"25GB", "50GB", "100GB", "200GB"}


def test_parts_of_an_epoch_make_the_whole() -> None:
    spans = pd.DataFrame(
        [
            ("train", 1.0, 2.0),
            ("transfer", 1.5, 2.5),
            ("extract", 0.0, 4.0),
            ("train", 9.5, 12.0),
        ],
        columns=["stage", "start", "end"],
    )
    found = split_epoch(
        spans,
        {"start_s": 0.0, "seconds": 10.0},
        {"a": ["train"], "b": ["transfer"], "rest": []},
    )
    assert found == pytest.approx({"a": 1.5, "b": 0.5, "rest": 8.0})


def test_covered_seconds_counts_overlaps_once() -> None:
    assert covered_seconds(
        np.array([0.0, 1.0, 5.0]), np.array([3.0, 2.0, 6.0])
    ) == pytest.approx(4.0)
    assert covered_seconds(np.empty(0), np.empty(0)) == 0.0


def test_bars_of_the_breakdown_are_as_high_as_their_epochs(tmp_path: Path) -> None:
    fill_14(tmp_path, 1.0)
    table = drawn("ginex-fig14", tmp_path).data
    heights = table.groupby(["model", "system"])["value"].sum()
    assert heights["sage", "pyg+"] == pytest.approx(1.0)
    assert heights["gcn", "ginex"] == pytest.approx(20.0 / 40.0)
    paper = table[(table["model"] == "sage") & (table["system"] == "ginex")].iloc[0]
    assert (paper["paper_low"], paper["paper_high"]) == pytest.approx(
        (1 / 2.5, 1 / 1.86)
    )


def test_a_missing_paper_value_does_not_break_a_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nothing_published(monkeypatch, tmp_path):
        for figure in ("ginex-fig4", "ginex-fig14", "ginex-fig16", "ginex-tab2"):
            FILL[figure](tmp_path / figure, 1.0)
            assert len(drawn(figure, tmp_path / figure).data)
        fill_14(tmp_path / "tab4", 1.0)
        with pytest.raises(NotDrawn, match="prices"):
            drawn("ginex-tab4", tmp_path / "tab4")


def test_a_failed_system_is_marked_and_not_zero(tmp_path: Path) -> None:
    keep(tmp_path)
    for system in ("pyg+", "ginex"):
        run(tmp_path, system, [10.0])
    run(tmp_path, "ali+pg", [], status="oom")
    table = drawn("ginex-fig14", tmp_path).data
    failed = table[table["system"] == "ali+pg"]
    assert list(failed["status"]) == ["oom"]
    assert failed["value"].isna().all()


def test_the_miss_ratio_is_misses_over_rows_with_and_without_fills(
    tmp_path: Path,
) -> None:
    fill_14(tmp_path, 1.0)
    table = drawn("ginex-fig15", tmp_path).data
    mine = table[(table["system"] == "ginex") & (table["model"] == "sage")].iloc[0]
    assert mine["miss_percent"] == pytest.approx(30.0)
    assert mine["miss_percent_with_fills"] == pytest.approx(40.0)


def test_superbatches_are_held_to_half_an_epochs_mini_batches(tmp_path: Path) -> None:
    fill_16(tmp_path, 1.0)
    table = drawn("ginex-fig16", tmp_path).data.set_index("size")
    assert table.loc[5, "value"] == pytest.approx(1.0)
    assert table.loc[10, "value"] == pytest.approx(18.0 / 20.0)
    assert table.loc[10, "factor"] == 2.0


def test_the_speedup_is_pyg_plus_over_the_system(tmp_path: Path) -> None:
    fill_18(tmp_path, 1.0)
    table = drawn("ginex-fig18", tmp_path).data
    ginex = table[table["series"] == "ginex"].set_index("group")["value"]
    assert dict(ginex) == pytest.approx({32 * MIB: 2.0, 64 * MIB: 2.0, 128 * MIB: 2.0})


def test_sizes_at_which_only_the_baseline_ran_take_no_room(tmp_path: Path) -> None:
    fill_19(tmp_path, 1.0)
    run(tmp_path, "pyg+", [50.0], batch_size=10, max_batches=50)
    assert sorted(set(drawn("ginex-fig19", tmp_path).data["group"])) == [25, 50, 100]


def test_epochs_of_other_lengths_are_never_compared(tmp_path: Path) -> None:
    fill_19(tmp_path, 1.0)
    for system in ("pyg+", "ali+pg", "ginex"):
        run(tmp_path, system, [999.0], batch_size=50, max_batches=80)
    table = drawn("ginex-fig19", tmp_path).data
    assert 999.0 not in set(table["epoch_s"])
    assert sorted(set(table["group"])) == [25, 50, 100]


def test_other_options_are_never_taken_for_the_plain_system(tmp_path: Path) -> None:
    fill_14(tmp_path, 1.0)
    run(tmp_path, "ginex", [1.0, 1.0, 1.0, 1.0], options={"superbatch": 3})
    run(tmp_path, "ginex", [1.0, 1.0, 1.0, 1.0], options={"io_granularity": "4096"})
    assert drawn("ginex-fig14", tmp_path).data["epoch_s"].min() > 15.0


def test_gather_alone_is_what_began_after_sampling_was_over() -> None:
    stages = pd.DataFrame(
        [
            (0, "sample", 0.0, 5.0),
            (0, "extract", 1.0, 9.0),
            (1, "sample", 10.0, 12.0),
            (1, "extract", 11.0, 14.0),
            (1, "extract", 14.0, 16.0),
            (1, "extract", 16.0, 19.0),
        ],
        columns=["epoch", "stage", "start", "end"],
    )
    epochs = [{"epoch": 0, "warmup": True}, {"epoch": 1, "warmup": False}]
    assert gather_alone(stages, {"epochs": epochs}) == [2.0, 3.0]


def test_without_sampling_far_ahead_gather_alone_is_not_made_up(tmp_path: Path) -> None:
    keep(tmp_path)
    run(tmp_path, "pyg+", [4.0, 4.0], stages="sample")
    run(tmp_path, "pyg+", [30.0, 30.0], stages="sample+extract")
    run(
        tmp_path,
        "pyg+",
        [32.0],
        stages="sample+extract",
        options={"prefetch": 5},
        sampled_by=1.0,
        epochs=6,
    )
    with pytest.raises(NotDrawn, match="ahead"):
        drawn("ginex-fig6", tmp_path)


def test_the_miss_ratio_counts_faults_over_pages_asked_for() -> None:
    # Ten iterations of a second with 100 feature and 20 topology pages each; half of
    # the pages of the last five fault.
    count = 10
    stages = pd.DataFrame(
        [
            row
            for batch in range(count)
            for row in (
                (0, batch, "sample", batch, batch + 0.5),
                (0, batch, "extract", batch + 0.0, batch + 1.0),
            )
        ],
        columns=["epoch", "batch", "stage", "start", "end"],
    )
    t = np.arange(0.1, 10.05, 0.1)
    telemetry = pd.DataFrame({"t": t, "major_faults": np.where(t <= 5.01, 12.0, 6.0)})
    pages = {
        "epoch": [0] * count,
        "batch": list(range(count)),
        "nodes": [1] * count,
        "feature_pages": [100] * count,
        "topology_pages": [20] * count,
    }
    table = miss_ratio(stages, telemetry, pages, window=3)
    assert table["miss_percent"].iloc[4] == pytest.approx(100.0, rel=0.02)
    assert table["miss_percent"].iloc[-1] == pytest.approx(50.0, rel=0.02)
    assert table["accesses"].iloc[-1] == pytest.approx(1200.0)


def test_the_miss_ratio_of_other_mini_batches_is_refused(tmp_path: Path) -> None:
    fill_4(tmp_path, 1.0)
    run(
        tmp_path, "pyg+", [10.0, 10.0], faults=9.0, seed=7
    )  # newer, but without a trace of its mini-batches
    first = drawn("ginex-fig4", tmp_path)
    assert len(first.runs) == 1
    assert set(first.data["run"].dropna()) == set(first.runs)
    record = next(
        entry
        for entry in load_evidence(tmp_path).runs["record"]
        if entry["run_id"] == first.runs[0]
    )
    assert record["config"]["seed"] == 0


@pytest.mark.parametrize(
    ("figure", "table"), [("ginex-fig4", "telemetry"), ("ginex-fig6", "stages")]
)
def test_a_run_without_the_table_that_a_figure_reads_is_named(
    figure: str, table: str, tmp_path: Path
) -> None:
    FILL[figure](tmp_path, 1.0)
    for file in tmp_path.rglob(f"{table}.parquet"):
        file.unlink()
    with pytest.raises(NotDrawn, match=f"has no {table}"):
        drawn(figure, tmp_path)


def test_pages_of_an_older_dataset_of_the_same_name_are_refused(tmp_path: Path) -> None:
    fill_4(tmp_path, 1.0)
    old = load_evidence(tmp_path).study("page-accesses")
    assert old.dataset is not None
    dataset = old.dataset.model_copy(update={"fingerprint": "older"})
    write_study(tmp_path, old.model_copy(update={"dataset": dataset}))
    with pytest.raises(NotDrawn, match="page-accesses"):
        drawn("ginex-fig4", tmp_path)


def test_without_its_trace_the_miss_ratio_is_not_drawn(tmp_path: Path) -> None:
    keep(tmp_path)
    run(tmp_path, "pyg+", [10.0, 10.0], faults=1.0)
    with pytest.raises(NotDrawn, match="page-accesses"):
        drawn("ginex-fig4", tmp_path)


def test_the_longest_trace_of_a_dataset_is_drawn(tmp_path: Path) -> None:
    fill_5(tmp_path, 1.0)
    long = load_evidence(tmp_path).study("miss-ratios")
    short = long.model_copy(
        update={
            "key": "b" * 16,
            "started_at": "2027-01-01",
            "result": {**long.result, "accesses": 9},
        }
    )
    write_study(tmp_path, short)
    assert set(drawn("ginex-fig5", tmp_path).data["accesses"]) == {1000}


def test_the_fractal_graph_is_a_tenth_with_a_tenth_of_the_mini_batch() -> None:
    profile = load_experiment("quick").model_dump()
    whole, fractal = catalogue()["ginex-fig5"].studies(profile)[:2]
    (recipe,), (expanded,) = whole.datasets.values(), fractal.datasets.values()
    counts = [parse_count(own["edges"], "edges") for own in (recipe, expanded)]
    assert expanded["kind"] == "fractal"
    assert counts[1] * 10 == counts[0]
    assert fractal.params["batch_size"] * 10 == whole.params["batch_size"]


def test_fills_of_the_static_cache_count_as_reads(tmp_path: Path) -> None:
    fill_5(tmp_path, 1.0)
    table = drawn("ginex-fig5", tmp_path).data
    static = table[table["policy"] == "degree"].set_index("x")["y"]
    assert static.loc[10.0] == pytest.approx(50.0)


def test_our_expansion_stands_beside_the_papers(tmp_path: Path) -> None:
    fill_tab2(tmp_path, 1.0)
    sheet = drawn("ginex-tab2", tmp_path)
    assert isinstance(sheet, Sheet)
    assert list(sheet.data["source"]) == ["ours", "paper", "paper", "paper", "paper"]
    assert list(sheet.shown["copies"])[1:] == ["4", "89.96", "4", "5"]


def test_a_system_at_the_papers_speedup_has_the_papers_performance_per_dollar(
    tmp_path: Path,
) -> None:
    keep(tmp_path)
    run(tmp_path, "pyg+", [21.1])
    run(tmp_path, "ginex", [10.0])
    sheet = drawn("ginex-tab4", tmp_path)
    ours = sheet.data[
        (sheet.data["side"] != "paper") & (sheet.data["system"] == "ginex")
    ].set_index("dataset")
    assert ours.loc["Friendster", "performance/$"] == pytest.approx(0.20 * 13.80)
    assert ours.loc["Twitter", "performance/$"] == pytest.approx(0.43 * 13.15)
    assert (
        ours.loc["Twitter", "least"]
        < ours.loc["Twitter", "performance/$"]
        < ours.loc["Twitter", "most"]
    )
    assert "MODELLED" in sheet.caption

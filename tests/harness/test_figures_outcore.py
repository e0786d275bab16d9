"""Outcore's own figures over SSD classes and memory, and the tables of datasets, from
records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.compare.evidence import load_evidence
from harness.figures.base import catalogue, chosen
from harness.figures.datasets_table import TABLES
from harness.figures.outcore.memory import _fastest, pareto
from harness.figures.render import render
from harness.plan.experiment import PROFILES, load_experiment
from harness.records.record import DatasetConfig, Record
from harness.records.study import StudyRecord, write_study
from harness.results.table import cell_of
from harness.run.sweep import union
from harness.settings import check_options
from tests.harness.figure_profile import keep_profile
from tests.harness.records import make_record, save
from workloads.units import parse_bytes

IDS = ["outcore-ssd", "outcore-frontier", *TABLES]
MIB = 2**20


def disk_record(
    system: str, seconds: list[float], iops: float = 39_000.0, **config: Any
) -> Record:
    """Make a record of a system with its default options on a device of `iops` random
    reads a second."""
    options = config.pop("options", {})
    record = make_record(
        system, seconds, options=check_options(system, options), **config
    )
    points = [
        {
            "block_bytes": 4096,
            "depth": 64,
            "iops": iops,
            "bytes_per_s": 4096 * iops,
            "pattern": "random",
        }
    ]
    record.disk = {"limited": {"points": points}, "bare": {"points": points}}
    return record


def facts_of(
    root: Path, name: str = "kron-d128", fingerprint: str = "f128", degree: float = 20.0
) -> None:
    data = DatasetConfig(
        name=name,
        fingerprint=fingerprint,
        num_nodes=2_000_000,
        num_edges=round(2_000_000 * degree),
        dim=128,
        dtype="float32",
        num_classes=16,
        train_nodes=20_000,
    )
    result = {
        "num_nodes": 2_000_000,
        "num_edges": data.num_edges,
        "dim": 128,
        "num_classes": 16,
        "mean_degree": degree,
        "topology_bytes": 10**8,
        "feature_bytes": 10**9,
        "total_bytes": 11 * 10**8,
        "train_share": 0.01,
    }
    record = StudyRecord(
        study="dataset-facts",
        version=1,
        key=fingerprint,
        dataset=data,
        started_at="2026-01-01",
        seconds=0.1,
        params={"dataset": name},
        environment={},
        result=result,
    )
    write_study(root, record)


def fill(root: Path, factor: float = 1.0) -> None:
    """Write runs from which all figures of this file can be drawn; `factor` changes the
    measured values."""
    keep_profile(root)
    for name, iops in (
        ("aws-nvme/16", 39_000.0),
        ("aws-gp3", 16_000.0),
        ("none", 90_000.0),
    ):
        for system, base in (("pyg+", 40.0), ("gnndrive", 24.0), ("diskgnn", 6.0)):
            save(
                root,
                disk_record(
                    system, [base * factor * 4e4 / iops], iops, disk_class=name
                ),
            )
    for budget in (128, 256):
        for system, base in (("pyg+", 40.0), ("gnndrive", 24.0), ("diskgnn", 6.0)):
            save(
                root,
                disk_record(
                    system, [base * factor * 64 / budget], memory=f"+{budget * MIB}"
                ),
            )
    save(root, disk_record("in-memory", [], status="oom", memory=f"+{64 * MIB}"))
    free = disk_record("in-memory", [1.0 * factor], memory="none")
    free.memory.peak_bytes = 1500 * MIB
    free.memory.floor_bytes = 300 * MIB
    save(root, free)
    for system in ("dgl", "pagraph", "uva", "data-tiering"):
        save(
            root,
            make_record(system, [1.0], memory="none", dim=64 if factor == 1.0 else 32),
        )
    facts_of(root, degree=20.0 * factor)
    facts_of(root, "kron-t65", "t65", 20.0 * factor)


def drawn(root: Path, figure: str) -> tuple[pd.DataFrame, Any]:
    result = render(chosen(figure), load_evidence(root), root / "figures", again=True)[
        0
    ]
    assert result.status == "drawn", result.reason
    return pd.read_csv(
        next(file for file in result.files if file.suffix == ".csv")
    ), result


def data_of(root: Path, figure: str) -> pd.DataFrame:
    """Return the data that a figure draws, without writing it."""
    import matplotlib.pyplot as plt

    try:
        return catalogue()[figure].draw(load_evidence(root)).data
    finally:
        plt.close("all")


@pytest.mark.slow("harness/figures", "harness/compare", "harness/records")
@pytest.mark.parametrize("figure", IDS)
def test_altered_records_change_what_is_drawn(figure: str, tmp_path: Path) -> None:
    for factor in (1.0, 2.0):
        fill(tmp_path / f"{factor}", factor)
    _, result = drawn(tmp_path / "1.0", figure)
    one, two = (
        data_of(tmp_path / f"{factor}", figure).drop(columns="run", errors="ignore")
        for factor in (1.0, 2.0)
    )
    assert len(result.caption) > 40
    assert not one.equals(two)


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.yaml")))
@pytest.mark.parametrize("figure", IDS)
def test_what_a_figure_needs_can_be_asked_for(figure: str, name: str) -> None:
    profile = load_experiment(name).model_dump()
    experiments = catalogue()[figure].experiments(profile)
    assert bool(experiments) == figure.startswith("outcore-")
    assert len(union(experiments)) <= 35
    assert bool(catalogue()[figure].studies(profile)) != figure.startswith("outcore-")


def test_classes_stand_from_slow_to_fast_and_a_missing_run_is_stated(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    save(
        tmp_path,
        disk_record("ginex", [], 16_000.0, status="timeout", disk_class="aws-gp3"),
    )
    table, result = drawn(tmp_path, "outcore-ssd")
    assert list(dict.fromkeys(table["group"])) == ["aws-gp3", "aws-nvme/16", "none"]
    ginex = table[table["series"] == "ginex"]
    assert ginex["value"].isna().all()
    assert list(ginex["status"]) == ["timeout", "not run", "not run"]
    text = next(file for file in result.files if file.suffix == ".svg").read_text()
    assert "OOT" in text
    assert "EMULATED" in result.caption


def test_both_rates_of_a_class_are_printed_since_either_may_decide(
    tmp_path: Path,
) -> None:
    keep_profile(tmp_path)
    for iops, bandwidth, disk_class in (
        (3_000.0, 125e6, "aws-gp3"),
        (6_250.0, 45e6, "aws-nvme/16"),
    ):
        record = disk_record("pyg+", [1.0], iops, disk_class=disk_class)
        points = record.disk["limited"]["points"]
        large = {
            "block_bytes": 1 << 20,
            "depth": 8,
            "iops": bandwidth / 2**20,
            "bytes_per_s": bandwidth,
        }
        points.append({**large, "pattern": "sequential"})
        save(tmp_path, record)
    table, result = drawn(tmp_path, "outcore-ssd")
    rates = {
        row["group"]: (row["reads_per_s"], row["bytes_per_s"])
        for row in table.to_dict("records")
    }
    assert rates["aws-gp3"] == (3_000.0, 125e6)
    assert rates["aws-nvme/16"] == (6_250.0, 45e6)
    text = next(file for file in result.files if file.suffix == ".svg").read_text()
    for label in ("3k reads/s", "125 MB/s", "6.25k reads/s", "45 MB/s"):
        assert label in text
    assert "bandwidth" in result.caption


def test_the_mark_of_the_first_figure_is_the_least_that_the_distance_was_made_of(
    tmp_path: Path,
) -> None:
    keep_profile(tmp_path)
    record = disk_record("ginex", [4.0, 6.0], disk_class="aws-nvme/16")
    # T(3) = 12 once + 1 first (6 s for 5) + 3 x 5 = 28 s, so the least of an epoch is a
    # quarter of 28 / 3.
    record.preprocess.seconds = 12.0
    record.summary = record.summary.model_copy(update={"distance_to_limit": 0.25})
    save(tmp_path, record)
    table, _ = drawn(tmp_path, "outcore-roofline")
    (row,) = table[table["panel"] == "distance"].to_dict("records")
    assert (row["least_s"], row["offline_s"]) == pytest.approx((28 / 12, 13 / 3))


def test_the_mark_is_that_of_the_run_whose_distance_it_is(tmp_path: Path) -> None:
    keep_profile(tmp_path)
    for number, (seconds, distance) in enumerate(((10.0, 0.2), (5.0, 0.4))):
        record = disk_record("ginex", [seconds], disk_class="aws-nvme/16", round=number)
        record.summary = record.summary.model_copy(
            update={"distance_to_limit": distance}
        )
        save(tmp_path, record)
    table, _ = drawn(tmp_path, "outcore-roofline")
    (row,) = table[table["panel"] == "distance"].to_dict("records")
    assert (row["x"], row["least_s"], row["offline_s"]) == (7.5, 2.0, 0.0)


def test_an_ablation_is_not_the_system_on_another_ssd(tmp_path: Path) -> None:
    fill(tmp_path)
    save(
        tmp_path,
        disk_record(
            "diskgnn",
            [0.001],
            disk_class="aws-nvme/16",
            options={"packing": "individual"},
        ),
    )
    table = data_of(tmp_path, "outcore-ssd")
    assert table["value"].min() > 0.1


def test_a_planned_run_is_found_by_the_options_of_its_record() -> None:
    quick = load_experiment("quick").model_dump()
    for cell in union(
        experiment
        for figure in catalogue().values()
        for experiment in figure.experiments(quick)
    ):
        settings = cell.settings
        memory = cell.settings.device_memory
        config: dict[str, Any] = {
            **settings.model_dump(),
            "dataset": {"name": str(settings.dataset)},
        }
        config["device_memory_bytes"] = None if memory is None else parse_bytes(memory)
        config["layers"] = settings.layers or len(settings.fanout)
        # As records keep them: `look_ahead: false` of the plan is "off" there.
        record = {
            "system": cell.system,
            "config": {
                **config,
                "options": check_options(cell.system, settings.options),
            },
        }
        assert cell_of(record) == cell.key, (cell.system, settings.options)


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12)
)
def test_the_frontier_is_what_no_other_beats(points: list[tuple[int, int]]) -> None:
    flags = list(pareto(pd.DataFrame(points, columns=["budget_bytes", "seconds"])))
    assert any(flags)
    for point, flag in zip(points, flags, strict=True):
        beaten = any(
            other[0] <= point[0]
            and other[1] <= point[1]
            and (other[0] < point[0] or other[1] < point[1])
            for other in points
        )
        assert flag == (not beaten)


def test_the_budget_at_which_the_order_changes_is_named() -> None:
    rows = [("a", 1, 1.0), ("b", 1, 4.0), ("a", 2, 1.0), ("b", 2, 3.0)]
    rows += [("b", 4, 0.5), ("a", 4, 1.0), ("a", 8, 1.0)]
    data = pd.DataFrame(
        [{"system": s, "budget_bytes": m * MIB, "seconds": t} for s, m, t in rows]
    )
    data = data.assign(low=data.seconds, high=data.seconds)
    assert _fastest(data, "") == "a at 1 MiB and 2 MiB, b at 4 MiB"


def test_the_frontier_holds_a_run_without_a_cap_at_what_it_took(tmp_path: Path) -> None:
    fill(tmp_path)
    table, result = drawn(tmp_path, "outcore-frontier")
    whole = table[(table["system"] == "in-memory") & table["seconds"].notna()]
    assert list(whole["budget_bytes"]) == [1200 * MIB]
    assert bool(whole["pareto"].iloc[0])
    assert set(table.loc[table["pareto"], "system"]) == {"diskgnn", "in-memory"}
    failed = table[table["seconds"].isna()]
    assert list(failed["system"]) == ["in-memory"]
    assert not failed["pareto"].any()
    assert "in-memory runs out of memory at 64 MiB" in result.finding


def test_a_table_of_datasets_has_ours_from_facts_and_from_runs_and_the_papers(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    table = data_of(tmp_path, "gnndrive-tab1")
    ours = table[table["source"] == "ours"]
    assert list(ours["dataset"]) == ["kron-d128"]
    assert ours["total"].iloc[0] == 11 * 10**8
    paper = table[table["source"] == "paper"].set_index("dataset")
    assert paper.loc["Papers100M", "features"] == 53e9
    assert paper.loc["MAG240M", "dim"] == 768
    pagraph = data_of(tmp_path, "pagraph-tab2")
    listed = pagraph[pagraph["source"] == "ours"].set_index("dataset")
    assert "kron-d128-d64" in listed.index
    assert listed.loc["kron-d128-d64", "features"] == 2_000_000 * 64 * 4
    assert list(listed["total"].isna()) == [
        name == "kron-d128-d64" for name in listed.index
    ]


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [
        ({"web": "generated (rmat)"}, "Ours are generated. The paper's"),
        ({"web": "imported (snap)"}, "Ours are imported. The paper's"),
        (
            {"web": "imported (npz)", "kron": "generated (rmat)"},
            "Ours: web imported; kron generated. The paper's",
        ),
        (
            {"web": "as a system wrote it"},
            "Ours are of an origin that no record shows. The paper's",
        ),
        ({"web": None}, "Ours are of an origin that no record shows. The paper's"),
    ],
)
def test_the_caption_of_a_table_of_datasets_is_true_for_those_shown(
    tmp_path: Path, notes: dict[str, str | None], sentence: str
) -> None:
    keep_profile(tmp_path)
    for number, (name, origin) in enumerate(notes.items()):
        record = make_record("gnndrive", [1.0], dataset=name, dim=64 + number)
        record.notes |= {} if origin is None else {"dataset": origin}
        save(tmp_path, record)
    table, result = drawn(tmp_path, "gnndrive-tab1")
    assert sentence in result.caption
    ours = table[table["source"] == "ours"].set_index("dataset")["origin"]
    assert ours.to_dict() == {
        name: origin or "unknown" for name, origin in notes.items()
    }


def test_only_a_failed_run_draws_no_figure_and_states_so(tmp_path: Path) -> None:
    save(tmp_path, disk_record("pyg+", [], status="failed"))
    for figure in ("outcore-ssd", "outcore-frontier"):
        result = render(chosen(figure), load_evidence(tmp_path), tmp_path / "figures")[
            0
        ]
        assert result.status == "not drawn"
        assert "comparable runs" in result.reason

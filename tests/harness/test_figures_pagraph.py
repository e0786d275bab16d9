"""PaGraph's figures come from records and studies alone; systems that cannot run on
several devices are named."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.compare.evidence import load_evidence
from harness.compare.plan import base_of_gallery
from harness.figures.accuracy_runs import GENERATED
from harness.figures.base import Figure, catalogue, chosen
from harness.figures.pagraph import devices, epochs
from harness.figures.pagraph.devices import STEPS
from harness.figures.pagraph.epochs import (
    COMPUTE,
    EXPOSED,
    HIDDEN_LOADING,
    OTHER,
    epoch_parts,
)
from harness.figures.pagraph.grid import (
    LAYERWISE,
    MODELS,
    PARTITION_SCALE,
    SPLIT,
    device_bytes,
    setting,
    small_study,
)
from harness.figures.render import render
from harness.plan.experiment import PROFILES, load_experiment
from harness.records.record import DatasetConfig, PlannedBuffer, Record
from harness.records.study import StudyRecord, write_study
from harness.results.store import write_run
from harness.results.table import each, load
from harness.run.sweep import union
from harness.settings import check_options
from harness.studies.base import resolve_study
from systems.options import Facts
from tests.harness.figure_profile import nothing_published
from tests.harness.records import make_record
from workloads.parsing import parse_yaml

IDS = sorted(figure.id for figure in catalogue().values() if figure.paper == "pagraph")
TRAIN = 1_300_000
MIB = 2**20
BASE_SECONDS = {
    "dgl": 1.0,
    "pagraph": 0.4,
    "dgl+pp": 0.7,
    "pagraph+pp": 0.25,
    "dgl+cache": 0.6,
}


def quick() -> dict[str, Any]:
    """Return the profile that the paper's figures start from."""
    return base_of_gallery(load_experiment("quick").model_dump())


def spans_of(
    record: Record, train_s: float = 0.1, load_s: float = 0.2, *, overlap: bool = False
) -> pd.DataFrame:
    """Return a table of stages: every epoch loads, then trains; with `overlap` training
    begins with loading."""
    rows = []
    for epoch in record.epochs:
        begin = epoch.start_s
        half = load_s / 2
        rows += [
            (epoch.epoch, 0, "extract", "a", begin, begin + half),
            (epoch.epoch, 0, "transfer", "b", begin + half, begin + load_s),
        ]
        start = begin if overlap else begin + load_s
        rows.append((epoch.epoch, 0, "train", "c", start, start + train_s))
    return pd.DataFrame(
        rows, columns=["epoch", "batch", "stage", "thread", "start", "end"]
    )


def paper_record(
    system: str,
    factor: float = 1.0,
    *,
    model: str = "gcn",
    sampler: str = "neighbor",
    status: str = "ok",
    options: dict[str, Any] | None = None,
    loaded: float = 1e9,
    neighbours: int = 2,
    **config: Any,
) -> Record:
    """Make a run of the paper's workload with two measured epochs; `loaded` bytes were
    copied in each."""
    seconds = (
        [BASE_SECONDS[system] * factor * noise for noise in (1.0, 1.1)]
        if status == "ok"
        else []
    )
    ranks = config.get("ranks", 1)
    record = make_record(
        system,
        seconds,
        status=status,
        model=model,
        hidden=MODELS[model]["hidden"],
        layers=2,
        sampler=sampler,
        memory="none",
        fanout=[neighbours] * 2 if sampler == "neighbor" else LAYERWISE["fanout"],
        disk_class="none",
        batch_size=6000,
        max_batches=48,
        options=check_options(system, options or {}),
        **{"device_memory_bytes": device_bytes(quick()), **config},
    )
    data = record.config.dataset.model_copy(
        update={"train_nodes": TRAIN, "name": "kron-2m-t65", "num_classes": 16}
    )
    record.config.dataset = data
    for epoch in record.epochs:
        epoch.batches = 48 * ranks
        epoch.counters["bytes_loaded"] = loaded * factor
    record.memory.plan = [
        PlannedBuffer(
            name="device buffers", bytes=round(20 * factor * MIB), tier="device"
        )
    ]
    record.facts = Facts.model_validate(
        {"cached_rows": 800_000, "table_rows": 2_000_000}
    )
    record.summary.accelerator_utilisation = 0.2 / factor
    return record


def save(root: Path, *records: Record, overlap: bool = False) -> None:
    for record in records:
        write_run(
            root,
            record,
            {"stages": spans_of(record, overlap=overlap)} if record.epochs else {},
        )


def study_of(
    root: Path, name: str, result: dict[str, Any], number: int = 0, **params: Any
) -> None:
    data = DatasetConfig(
        name="kron-2m-t65",
        fingerprint="f",
        num_nodes=2_000_000,
        num_edges=40_000_000,
        dim=128,
        dtype="float32",
        num_classes=16,
        train_nodes=TRAIN,
    )
    record = StudyRecord(
        study=name,
        version=1,
        key=f"{number:016x}",
        dataset=data,
        started_at=f"2026-01-01T00:00:{number:02d}",
        params={
            "dataset": data.name,
            "fanout": [2, 2],
            "batch_size": 6000,
            "sampler": "neighbor",
            **params,
        },
        seconds=1.0,
        environment={},
        result=result,
    )
    write_study(root, record)


def accuracy_record(system: str, factor: float, **config: Any) -> Record:
    """Make a run with test accuracy after each epoch."""
    options = check_options(system, {})
    ranks = config.get("ranks", 1)
    record = make_record(
        system,
        [1.0 * factor] * 3,
        memory="none",
        device="cpu",
        device_memory_bytes=None,
        test_nodes=4000,
        disk_class="none",
        fanout=[10, 5],
        layers=2,
        options=options,
        epochs=10,
        batch_size=100 // ranks,
        hidden=64,
        dataset=GENERATED,
        **{key: value for key, value in config.items() if key != "best"},
    )
    for epoch in record.epochs:
        epoch.test_accuracy = config.get("best", 0.9) - 0.5 / (1 + epoch.epoch)
    return record


def fill(root: Path, factor: float = 1.0) -> None:
    """Write runs and studies from which every figure of the paper can be drawn;
    `factor` changes all measurements."""
    own: dict[str, Any]
    for model in MODELS:
        for system in ("dgl", "pagraph", "dgl+pp", "pagraph+pp"):
            slower = factor if system != "pagraph" else factor**2
            loaded = 1e9 if system == "dgl" else 2e8 * factor
            save(
                root,
                paper_record(system, slower, model=model, loaded=loaded),
                overlap="pagraph" in system,
            )
            save(
                root,
                paper_record(system, slower, model=model, sampler="layerwise"),
                overlap="pagraph" in system,
            )
        for sampler in ("neighbor", "layerwise"):
            own = {
                "model": model,
                "sampler": sampler,
                "ranks": 2,
                "partition": "self-reliant",
            }
            save(root, paper_record("pagraph", factor, **own))
            save(root, paper_record("dgl", status="unsupported", **own))
        for cache, pipeline, partition in STEPS.values():
            options = {"cache": cache, "pipeline": pipeline}
            own = {
                "model": model,
                "options": options,
                "partition": partition,
                "ranks": 2,
            }
            save(
                root,
                paper_record(
                    "pagraph",
                    factor,
                    **own,
                    device_memory_bytes=device_bytes(quick(), devices.DEVICE_SHARE),
                ),
            )
        save(root, accuracy_record("dgl", factor, model=model))
        save(root, accuracy_record("pagraph", factor, model=model))
        save(
            root,
            accuracy_record(
                "pagraph",
                factor,
                model=model,
                ranks=2,
                partition="self-reliant",
                best=0.895,
            ),
        )
    for ranking, worse in (("out-degree", 1.0), ("aligraph", 1.3), ("random", 1.6)):
        for share in ("0.05x", "0.2x", "0.4x"):
            own = {
                "options": {"ranking": ranking, "cache": share},
                "device_memory_bytes": device_bytes(quick(), epochs.DEVICE_SHARE),
            }
            save(root, paper_record("pagraph", worse * factor, **own))
    for count in (5, 10):
        for system in ("dgl", "pagraph", "dgl+pp", "pagraph+pp"):
            save(root, paper_record(system, factor * count, neighbours=count))
    for number, sampler in enumerate(("neighbor", "layerwise")):
        cdf = [[1, 0.6 / factor], [10, 0.9 / factor], [100, 1.0]]
        facts = {
            "accesses_over_nodes": 2.6,
            "repeated": 0.3,
            "most": 100,
            "out_degree_repeated": 60.0,
        }
        result = {"cdf": cdf, **facts, "out_degree_others": 1.5}
        study_of(root, "access-frequency", result, number, sampler=sampler)
    ratios = {
        name: [0.1 / factor, 0.5 / factor, 1.0]
        for name in ("PaGraph", "AliGraph", "random", "optimal")
    }
    study_of(
        root, "device-cache-hits", {"shares": [0.05, 0.2, 1.0], "hit_ratio": ratios}, 3
    )
    parts = [
        {
            "count": k,
            "seconds": 5.0 * factor,
            "hit_ratio": (0.7 + 0.01 * k) / factor,
            "hit_ratio_shared": 0.7 / factor,
            "share": 1 / k,
            "redundant": 0.1 / factor,
            "replication": 1.0 + k / 10,
            "balance": 1.0,
        }
        for k in (1, 2, 4, 8)
    ]
    study_of(
        root,
        "partition-quality",
        {"partitions": parts, "cached_share": 0.2, "hops": 2},
        4,
    )
    facts = {
        "num_nodes": 2_000_000,
        "num_edges": 40_000_000,
        "dim": 128,
        "num_classes": 16,
        "topology_bytes": round(10**8 * factor),
        "feature_bytes": 10**9,
        "total_bytes": 11 * 10**8,
        "train_share": 0.65,
    }
    study_of(root, "dataset-facts", facts, 5)


def drawn(root: Path, figure: str) -> tuple[pd.DataFrame, Any]:
    result = render(chosen(figure), load_evidence(root), root / "figures", again=True)[
        0
    ]
    assert result.status == "drawn", result.reason
    table = next(file for file in result.files if file.suffix == ".csv")
    return pd.read_csv(table), result


def data_of(root: Path, figure: str) -> pd.DataFrame:
    """Return the data that a figure draws, without writing it."""
    import matplotlib.pyplot as plt

    try:
        return catalogue()[figure].draw(load_evidence(root)).data
    finally:
        plt.close("all")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[float, Path]:
    """Make two results roots with everything, the second with other measurements."""
    roots = {}
    for factor in (1.0, 2.0):
        roots[factor] = tmp_path_factory.mktemp(f"pagraph-{factor:g}")
        fill(roots[factor], factor)
    return roots


@pytest.mark.slow("harness/figures", "harness/compare", "harness/records")
@pytest.mark.parametrize("figure", IDS)
def test_altered_records_change_what_is_drawn(
    figure: str, filled: dict[float, Path]
) -> None:
    _, result = drawn(filled[1.0], figure)
    one, two = (data_of(filled[factor], figure) for factor in (1.0, 2.0))
    suffixes = [file.suffix for file in result.files]
    assert suffixes == (
        [".md", ".csv", ".tex"] if "-tab" in figure else [".png", ".svg", ".csv"]
    )
    assert not one.drop(columns="run", errors="ignore").equals(
        two.drop(columns="run", errors="ignore")
    )
    assert len(result.caption) > 40


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.yaml")))
@pytest.mark.parametrize("figure", IDS)
def test_what_a_figure_needs_can_be_asked_for(figure: str, name: str) -> None:
    profile = load_experiment(name).model_dump()
    needed: Figure = catalogue()[figure]
    needed.experiments(profile)
    for need in needed.studies(profile):
        _, params = resolve_study(need)
        assert params.dataset in need.datasets


def test_all_figures_of_the_paper_take_sixty_runs_at_quick() -> None:
    experiments = [
        experiment
        for name in IDS
        for experiment in catalogue()[name].experiments(quick())
    ]
    assert len(union(experiments)) <= 60


def test_the_workload_is_the_papers_on_the_profiles_graph() -> None:
    profile = base_of_gallery(parse_yaml((PROFILES / "quick.yaml").read_text()))
    made = setting(profile, model="sage")
    run = made["run"]
    recipe = made["datasets"][run["dataset"]]
    assert (run["fanout"], run["hidden"], run["batch_size"], run["memory"]) == (
        [2, 2],
        16,
        6000,
        "none",
    )
    assert {key: recipe[key] for key in SPLIT} == SPLIT
    own = profile["datasets"][profile["run"]["dataset"]]
    assert {**recipe, **own} == {**own, **SPLIT}
    small = small_study(profile, "partition-quality")
    (name,) = small.datasets
    assert small.params["dataset"] == name
    assert small.datasets[name]["nodes"] * PARTITION_SCALE == 2_000_000


def test_parts_of_an_epoch_make_the_epoch_and_hidden_loading_is_what_computation_covered(
    tmp_path: Path,
) -> None:
    for overlap, hidden in ((False, 0.0), (True, 0.1)):
        record = paper_record("pagraph")
        save(tmp_path, record, overlap=overlap)
        runs = load(tmp_path).assign(run=record.run_id)
        parts = epoch_parts(next(each(runs[runs["run_id"] == record.run_id])))
        mean = sum(epoch.seconds for epoch in record.measured) / len(record.measured)
        assert parts[COMPUTE] + parts[EXPOSED] + parts[OTHER] == pytest.approx(mean)
        assert parts[COMPUTE] == pytest.approx(0.1)
        assert parts[HIDDEN_LOADING] == pytest.approx(hidden)
        assert parts[EXPOSED] + parts[HIDDEN_LOADING] == pytest.approx(0.2)


def test_speedups_are_over_dgl_and_stand_beside_the_papers_range(
    filled: dict[float, Path],
) -> None:
    table = data_of(filled[1.0], "pagraph-fig11")
    found = {(row["group"], row["series"]): row for row in table.to_dict("records")}
    assert found["GCN", "dgl"]["speedup"] == pytest.approx(1.0)
    assert found["GCN", "pagraph"]["speedup"] == pytest.approx(2.5)
    assert (
        found["GraphSAGE", "pagraph"]["paper_low"],
        found["GraphSAGE", "pagraph"]["paper_high"],
    ) == (1.3, 4.9)
    assert math.isnan(found["GCN", "dgl+pp"]["paper_low"])


def test_without_dgl_there_is_no_speedup_but_the_time_stays(tmp_path: Path) -> None:
    save(tmp_path, paper_record("pagraph"), paper_record("pagraph+pp"))
    table = data_of(tmp_path, "pagraph-fig11")
    assert table["speedup"].isna().all()
    assert table["value"].notna().sum() == 2


def test_a_system_of_one_process_is_stated_on_two_devices_and_is_no_number(
    filled: dict[float, Path],
) -> None:
    table, result = drawn(filled[1.0], "pagraph-fig16")
    two = table[(table["series"] == "dgl") & (table["devices"] == 2)]
    assert list(two["status"].unique()) == ["unsupported"]
    assert two["value"].isna().all()
    assert (
        "n/a"
        in next(file for file in result.files if file.suffix == ".svg").read_text()
    )
    assert "EMULATED" in result.caption


def test_throughput_counts_the_seed_nodes_of_all_devices(tmp_path: Path) -> None:
    one = paper_record("pagraph")
    two = paper_record("pagraph", ranks=2, partition="self-reliant")
    save(tmp_path, one, two)
    table = data_of(tmp_path, "pagraph-fig15").set_index("x")
    rates = [48 * 6000 / epoch.seconds / 1000 for epoch in one.measured]
    assert table.loc[1, "y"] == pytest.approx(statistics.median(rates))
    # 650,000 seed nodes of a partition in 109 mini-batches of nearly equal size.
    rates = [48 * TRAIN / 109 / epoch.seconds / 1000 for epoch in two.measured]
    assert table.loc[2, "y"] == pytest.approx(statistics.median(rates))


def test_seed_nodes_of_several_devices_without_partitions_are_those_of_full_mini_batches(
    tmp_path: Path,
) -> None:
    step: dict[str, Any] = {"ranks": 2, "options": {"cache": "0x", "pipeline": False}}
    record = paper_record(
        "pagraph",
        device_memory_bytes=device_bytes(quick(), devices.DEVICE_SHARE),
        **step,
    )
    save(tmp_path, record)
    (row,) = data_of(tmp_path, "pagraph-fig18").to_dict("records")
    seconds = [1e6 * epoch.seconds / (2 * 48 * 6000) for epoch in record.measured]
    assert row["series"] == "loader alone"
    assert row["value"] == pytest.approx(
        1 / statistics.mean(1 / second for second in seconds)
    )


def test_saved_volume_and_cached_share_come_from_counters_and_notes(
    filled: dict[float, Path],
) -> None:
    table = data_of(filled[1.0], "pagraph-tab4")
    ours = table[table["source"] == "measured"].iloc[0]
    assert ours["saved (%)"] == pytest.approx(80.0)
    assert ours["cached (%)"] == pytest.approx(40.0)
    assert set(table.loc[table["source"] == "paper", "dataset"]) == {
        "lj-link",
        "lj-large",
        "enwiki",
    }


def test_an_ablation_never_stands_for_pagraph(tmp_path: Path) -> None:
    save(
        tmp_path,
        paper_record("dgl"),
        paper_record("pagraph", 0.5, options={"pipeline": False}),
    )
    table = data_of(tmp_path, "pagraph-fig11")
    assert set(table.loc[table["value"].notna(), "series"]) == {"dgl"}


def test_each_step_saves_over_the_one_before(tmp_path: Path) -> None:
    for (cache, pipeline, partition), factor in zip(
        STEPS.values(), (4.0, 2.0, 1.0, 1.0), strict=True
    ):
        own: dict[str, Any] = {"partition": partition, "ranks": 2}
        own["options"] = {"cache": cache, "pipeline": pipeline}
        own["device_memory_bytes"] = device_bytes(quick(), devices.DEVICE_SHARE)
        save(tmp_path, paper_record("pagraph", factor, **own))
    table = data_of(tmp_path, "pagraph-fig18")
    assert list(table["series"]) == list(STEPS)
    assert table["saved"].iloc[1] == pytest.approx(0.5)
    assert table["saved"].iloc[3] == pytest.approx(0.0)


@pytest.mark.slow("harness/figures", "harness/published", seconds=6)
def test_a_paper_value_that_is_missing_stops_nothing(
    filled: dict[float, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with nothing_published(monkeypatch, tmp_path):
        for figure in IDS:
            assert len(data_of(filled[1.0], figure))


def test_one_device_alone_is_one_point_of_its_curve(tmp_path: Path) -> None:
    for system in ("dgl", "pagraph"):
        save(
            tmp_path,
            *(
                paper_record(system, model=model, sampler="layerwise")
                for model in MODELS
            ),
        )
    table = data_of(tmp_path, "pagraph-fig20")
    assert list(table.loc[table["panel"] == "c", "x"]) == [1]

"""DiskGNN's figures come from records alone: their numbers are those of runs and
studies; missing ones are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.compare.evidence import load_evidence
from harness.figures.accuracy_runs import GENERATED
from harness.figures.base import Drawing, Sheet, catalogue, chosen
from harness.figures.diskgnn.epochs import EPOCHS, SEQUENTIAL, STEPS
from harness.figures.render import render
from harness.plan.experiment import load_experiment
from harness.records.record import DatasetConfig, OfflineWork, Preprocess, Record
from harness.records.study import StudyRecord, write_study
from harness.results.store import write_run
from harness.run.sweep import union
from systems.options import Facts
from tests.harness.figure_profile import keep_profile, nothing_published
from tests.harness.records import make_record, telemetry_of

IDS = sorted(
    name
    for name in catalogue()
    if name.startswith("diskgnn-") and name != "diskgnn-tab2"
)
SYSTEMS = {"ginex": 20.0, "mariusgnn": 8.0, "diskgnn": 4.0}
SHARES = ("0.1x", "0.3x", "0.5x")
STAGES: dict[str, tuple[str, ...]] = {
    "ginex": ("inspect", "extract", "cache_update", "transfer", "train"),
    "mariusgnn": ("data_prep", "sample", "gather", "train"),
    "diskgnn": ("load_graph", "extract", "assemble", "train"),
}


def run(
    root: Path,
    system: str,
    seconds: list[float],
    *,
    prepared: float = 2.0,
    made: float = 0.0,
    facts: dict[str, float] | None = None,
    accuracies: list[float] | None = None,
    **config: Any,
) -> Record:
    """Write a run with telemetry and its system's stages, one after another in equal
    parts of each epoch."""
    record = make_record(system, seconds, **config)
    record.preprocess = Preprocess(seconds=prepared, made_s=made, reused=made > 0)
    if system == "diskgnn" and record.config.options.get("resample_every") == 1:
        served = len(record.epochs)
        record.preprocess.offline = OfflineWork(
            epochs=served, seconds=prepared, made_s=made
        )
    record.facts = Facts.model_validate(facts or {})
    for epoch, accuracy in zip(record.epochs, accuracies or [], strict=False):
        epoch.test_accuracy = accuracy
    rows = []
    for epoch in record.epochs:
        names = STAGES.get(system, ("extract", "train"))
        part = epoch.seconds / len(names)
        for number, stage in enumerate(names):
            at = epoch.start_s + number * part
            rows.append((epoch.epoch, 0, stage, "t", at, at + part))
    spans = pd.DataFrame(
        rows, columns=["epoch", "batch", "stage", "thread", "start", "end"]
    )
    write_run(
        root,
        record,
        {"telemetry": telemetry_of(record), "stages": spans} if record.epochs else {},
    )
    return record


def study(
    root: Path,
    name: str,
    params: dict[str, Any],
    result: dict[str, Any],
    dataset: str = "kron",
) -> None:
    """Write a study record of a dataset of 2 M nodes."""
    write_study(
        root,
        StudyRecord(
            study=name,
            version=1,
            key=f"{len(list((root / 'studies').glob('*'))):016x}",
            params={
                "dataset": dataset,
                "fanout": [10, 10, 10],
                "batch_size": 50,
                "max_batches": 0,
                **params,
            },
            dataset=DatasetConfig(
                name=dataset,
                fingerprint=dataset,
                num_nodes=2_000_000,
                num_edges=40_000_000,
                dim=128,
                dtype="float32",
            ),
            started_at="2026-01-01T00:00:00+00:00",
            seconds=1.0,
            environment={"host_fingerprint": "h"},
            result=result,
        ),
    )


def fill_accuracy(root: Path, factor: float) -> None:
    keep_profile(root, accuracy={"epochs": 4, "test_nodes": 1000})
    for model, sampler in (
        ("sage", "neighbor"),
        ("gat", "neighbor"),
        ("gcn", "neighbor"),
        ("sage", "shadow"),
    ):
        for system, base in SYSTEMS.items():
            if (system, sampler) != ("mariusgnn", "shadow"):
                best = 0.6 / factor if system == "mariusgnn" else 0.7
                run(
                    root,
                    system,
                    [base * factor] * 3,
                    device="cpu",
                    device_memory_bytes=None,
                    test_nodes=1000,
                    accuracies=[0.3, 0.5, best - 0.05, best],
                    model=model,
                    sampler=sampler,
                    epochs=4,
                    dataset=GENERATED,
                    fanout=[10, 5],
                    layers=2,
                    batch_size=100,
                    hidden=64,
                    memory="+56MiB",
                )


def fill_tab1(root: Path, factor: float) -> None:
    for system, base in SYSTEMS.items():
        run(root, system, [base * factor, base * factor])
    fill_accuracy(root, factor)


def fill_fig9(root: Path, factor: float) -> None:
    keep_profile(root)
    for model in ("sage", "gat"):
        for system, base in SYSTEMS.items():
            run(
                root,
                system,
                [base * (factor if system != "diskgnn" else 1.0)],
                model=model,
            )
        run(root, "dgl-ondisk", [], status="timeout", model=model)


def fill_memory(root: Path, factor: float) -> None:
    keep_profile(root)
    for number, memory in enumerate(SHARES):
        for system, base in SYSTEMS.items():
            run(
                root,
                system,
                [base * factor / (number + 1)],
                memory=memory,
                epochs=2,
                facts={"pack_s": 1.5},
            )


def fill_fig12(root: Path, factor: float) -> None:
    keep_profile(root, space_limits=["0.9x", "0.8x"])
    for number, limit in enumerate(("none", "0.9x", "0.8x")):
        facts = {
            "disk_bytes": 10**9,
            "read_amplification": 1 + number * factor,
            "segment": 1 + number,
        }
        options = {"disk_limit": limit, "io_granularity": "4096"}
        run(
            root,
            "diskgnn",
            [4.0 + number * factor],
            memory="0.1x",
            epochs=2,
            options=options,
            facts=facts,
        )
    run(root, "ginex", [20.0], memory="0.1x", epochs=2)


def fill_fig15(root: Path, factor: float) -> None:
    keep_profile(root)
    for disk, slower in (("aws-nvme/16", 1.0), ("aws-gp3/16", 1.2 * factor)):
        for system, base in SYSTEMS.items():
            run(root, system, [base * slower], disk_class=disk, epochs=1, warmup=0)


def fill_tab8(root: Path, factor: float) -> None:
    fill_memory(root, 1.0)
    for memory in SHARES:
        run(
            root,
            "diskgnn",
            [8.0 * factor],
            memory=memory,
            epochs=2,
            options={"pipeline": False},
        )


def fill_fig17(root: Path, factor: float) -> None:
    keep_profile(root)
    for memory in SHARES:
        for packing, packed, prepared in (
            ("batched", 1.5, 2.0),
            ("individual", 12 * factor, 14 * factor),
        ):
            facts = {"pack_s": packed, "pack_read_bytes": 1000}
            options = {"packing": packing}
            run(
                root,
                "diskgnn",
                [4.0],
                memory=memory,
                epochs=2,
                options=options,
                facts=facts,
                prepared=prepared,
            )


def fill_fig18(root: Path, factor: float) -> None:
    keep_profile(root)
    for parts, base in zip(
        STEPS.values(), (40.0, 20.0, 10.0 * factor, 2.0), strict=True
    ):
        run(root, "diskgnn", [base], options=dict.fromkeys(parts, "off"))


def fill_fig19(root: Path, factor: float) -> None:
    keep_profile(root)
    for system, base in SYSTEMS.items():
        run(root, system, [base * factor], options=SEQUENTIAL[system])


def fill_tab3(root: Path, factor: float) -> None:
    for dataset, first in (("kron", 0.3 * factor), ("fractal", 0.1)):
        shares = [first, 0.3, 0.2, 0.5 - first]
        result = {
            "shares": shares,
            "accesses": 100,
            "touched": 0.4,
            "batches": 400,
            "rows_per_batch": 15.0,
        }
        study(root, "access-share", {"bounds": [0.01, 0.05, 0.1]}, result, dataset)


def fill_tab4(root: Path, factor: float) -> None:
    point = {
        "engine": "async",
        "direct": True,
        "threads": 1,
        "mean_latency_s": 1e-4,
        "p99_latency_s": 2e-4,
        "cpu": 0.5,
    }
    points = [
        {
            **point,
            "pattern": "random",
            "block_bytes": 4096,
            "depth": 256,
            "iops": 5e4 * factor,
            "bytes_per_s": 2e8,
        },
        {
            **point,
            "pattern": "sequential",
            "block_bytes": 1 << 20,
            "depth": 16,
            "iops": 1e3,
            "bytes_per_s": 1e9,
        },
    ]
    study(root, "fio-grid", {}, {"points": points, "device": {"name": "nvme0n1"}})


def fill_layouts(root: Path, factor: float) -> None:
    layouts = []
    for segment in (400, 50, 100, 150):
        for reordered in (False, True):
            read = (6.0 if segment == 400 else 2.0 + segment / 100) * (
                0.5 * factor if reordered else 1.0
            )
            layouts.append(
                {
                    "segment": segment,
                    "global": segment == 400,
                    "reordered": reordered,
                    "disk_bytes": 10**9 - segment,
                    "read_bytes": int(read * 1e9),
                    "useful_bytes": 10**9,
                    "cache_read_bytes": 10**8,
                    "cache_useful_bytes": 10**7,
                    "amplification": read,
                    "cache_amplification": 2 * read,
                    "reduction": [number / 20 for number in range(21)],
                }
            )
    result = {
        "layouts": layouts,
        "batches": 400,
        "packed_bytes": 10**9,
        "row_bytes": 512,
        "feature_bytes": 10**9,
    }
    params = {"memory_share": 0.1, "granularity": 4096, "segments": [50, 100, 150]}
    for dataset in ("kron", "fractal"):
        study(root, "amplification", params, result, dataset)


def fill_space(root: Path, factor: float) -> None:
    shares = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
    points = [
        {"memory_share": share, "packed_x": factor * (4 - 5 * share), "least_x": 0.5}
        for share in shares
    ]
    result = {
        "points": points,
        "accesses": 10**7,
        "batches": 400,
        "rows_per_batch": 2.5e4,
        "row_bytes": 512,
    }
    study(root, "disk-space", {"memory_shares": shares}, result)
    for number, (fanout, size) in enumerate(
        (([10, 15], 50), ([10, 15, 20], 50), ([10, 15, 20], 100))
    ):
        one = {
            **result,
            "points": [
                {
                    "memory_share": 0.1,
                    "packed_x": factor * (1.0 + 9 * number),
                    "least_x": 0.5,
                }
            ],
        }
        study(
            root,
            "disk-space",
            {"memory_shares": [0.1], "fanout": fanout, "batch_size": size},
            one,
        )


def fill_search(root: Path, factor: float) -> None:
    quick = {
        "segment": 3,
        "threshold": 2,
        "seconds": 0.1,
        "amplification": 1.2,
        "disk_bytes": 10,
    }
    brute = {
        "segment": 3,
        "threshold": 2,
        "seconds": 30.0 * factor,
        "amplification": 1.2,
        "disk_bytes": 10,
    }
    cases = [
        {
            "limit": 0.5,
            "limit_bytes": 10,
            "limit_x": 3.0,
            "heuristic": quick,
            "brute_force": brute,
        },
        {
            "limit": 0.1,
            "limit_bytes": 2,
            "limit_x": 0.6,
            "heuristic": None,
            "brute_force": None,
        },
    ]
    params = {"memory_share": 0.1, "limits": [0.5, 0.1], "search_points": 8}
    study(
        root, "packing-search", params, {"cases": cases, "packed_x": 6.0, "batches": 64}
    )


FILL: dict[str, Callable[[Path, float], None]] = {
    "diskgnn-tab1": fill_tab1,
    "diskgnn-tab3": fill_tab3,
    "diskgnn-tab4": fill_tab4,
    "diskgnn-fig5": fill_layouts,
    "diskgnn-fig8": fill_accuracy,
    "diskgnn-fig9": fill_fig9,
    "diskgnn-tab5": fill_accuracy,
    "diskgnn-tab6": fill_accuracy,
    "diskgnn-fig10": fill_memory,
    "diskgnn-fig11": fill_memory,
    "diskgnn-fig12": fill_fig12,
    "diskgnn-fig13": fill_space,
    "diskgnn-fig14": fill_space,
    "diskgnn-fig15": fill_fig15,
    "diskgnn-fig16": fill_layouts,
    "diskgnn-tab7": fill_search,
    "diskgnn-fig17": fill_fig17,
    "diskgnn-tab8": fill_tab8,
    "diskgnn-fig18": fill_fig18,
    "diskgnn-fig19": fill_fig19,
}
FROM_RUNS = sorted(
    name
    for name in FILL
    if FILL[name].__name__
    not in ("fill_tab3", "fill_tab4", "fill_layouts", "fill_space", "fill_search")
)


def drawn(figure: str, root: Path) -> Drawing | Sheet:
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
    FILL[figure](tmp_path / "a", 1.0)
    result = render(
        chosen(figure), load_evidence(tmp_path / "a"), tmp_path / "figures"
    )[0]
    assert result.status == "drawn", result.reason
    assert all(file.stat().st_size > 100 for file in result.files)
    assert len(result.caption) > 40
    before = drawn(figure, tmp_path / "a").data.drop(columns=["run"], errors="ignore")
    FILL[figure](tmp_path / "b", 1.4)
    after = drawn(figure, tmp_path / "b").data.drop(columns=["run"], errors="ignore")
    assert not before.equals(after)


@pytest.mark.parametrize("figure", sorted(FILL))
def test_without_records_the_reason_is_reported(figure: str, tmp_path: Path) -> None:
    result = render(chosen(figure), load_evidence(tmp_path), tmp_path / "figures")[0]
    assert result.status == "not drawn"
    assert len(result.reason) > 10


@pytest.mark.parametrize("figure", FROM_RUNS)
def test_runs_that_all_failed_are_reported_and_nothing_is_drawn(
    figure: str, tmp_path: Path
) -> None:
    for system in SYSTEMS:
        run(tmp_path, system, [], status="oom")
    result = render(chosen(figure), load_evidence(tmp_path), tmp_path / "figures")[0]
    assert result.status == "not drawn"
    assert len(result.reason) > 10


@pytest.mark.parametrize("figure", IDS)
def test_the_needs_at_every_profile_can_be_run_and_their_studies_be_made(
    figure: str,
) -> None:
    from harness.studies.base import resolve_study

    for name in ("quick", "standard", "paper"):
        profile = load_experiment(name).model_dump()
        experiments = catalogue()[figure].experiments(profile)
        needs = catalogue()[figure].studies(profile)
        assert all(union([experiment]) for experiment in experiments)
        assert experiments or needs
        for need in needs:
            _, params = resolve_study(need)
            assert getattr(params, "dataset", None) in {None, *need.datasets}


def test_the_needs_at_quick_stay_within_their_share() -> None:
    profile = load_experiment("quick").model_dump()
    runs = union(
        [
            experiment
            for name in IDS
            for experiment in catalogue()[name].experiments(profile)
        ]
    )
    assert len(runs) <= 70


def test_the_paper_profile_has_the_full_grids() -> None:
    profile = load_experiment("paper").model_dump()
    (memory,) = catalogue()["diskgnn-fig10"].experiments(profile)
    assert {cell.settings.memory for cell in union([memory])} == set(SHARES)
    (limits,) = catalogue()["diskgnn-fig12"].experiments(profile)
    found = {cell.settings.options.get("disk_limit") for cell in union([limits])}
    assert found == {None, "none", "7x", "5x", "3x"}
    (classes,) = catalogue()["diskgnn-fig15"].experiments(profile)
    assert {cell.settings.disk_class for cell in union([classes])} == {
        "aws-nvme",
        "aws-gp3",
    }


def test_the_epoch_of_diskgnn_is_the_measure_and_preparation_is_shared_out(
    tmp_path: Path,
) -> None:
    keep_profile(tmp_path)
    for system, seconds in SYSTEMS.items():
        run(
            tmp_path,
            system,
            [seconds, seconds],
            prepared=3.0,
            made=27.0,
            options={"resample_every": 1} if system == "diskgnn" else {},
        )
    table = drawn("diskgnn-fig9", tmp_path).data.set_index("series")
    assert table.loc["diskgnn", "value"] == 1.0
    assert table.loc["ginex", "value"] == pytest.approx(5.0)
    # Preparation is for three epochs (the warm-up too) for diskgnn, and for EPOCHS for
    # ginex.
    assert table.loc["ginex", "amortised"] == pytest.approx((20 + 30 / EPOCHS) / 4)
    assert table.loc["diskgnn", "amortised"] == pytest.approx((4 + 30 / 3) / 4)
    assert table.loc["pyg+", "status"] == "not run"


def test_ablations_are_never_taken_for_the_plain_system(tmp_path: Path) -> None:
    fill_fig9(tmp_path, 1.0)
    changed: list[dict[str, Any]] = [
        {"pipeline": False},
        {"packing": "off"},
        {"packing": "individual"},
        {"host_cache": "off"},
        {"device_cache": "off"},
        {"disk_limit": "3x"},
        {"io_granularity": "4096"},
        {"resample_every": 0},
    ]
    for options in changed:
        run(tmp_path, "diskgnn", [999.0, 999.0], options=options)
    table = drawn("diskgnn-fig9", tmp_path).data
    assert table["epoch_s"].max() < 999.0


def test_the_ablation_is_over_the_last_step_beside_the_papers(tmp_path: Path) -> None:
    fill_fig18(tmp_path, 1.0)
    table = drawn("diskgnn-fig18", tmp_path).data.set_index("group")
    assert table["value"].tolist() == pytest.approx([20.0, 10.0, 5.0, 1.0])
    assert table.loc["naive", "paper"] == pytest.approx(2838.9 / 96.67)


def test_speedups_of_the_pipeline_stand_beside_the_papers(tmp_path: Path) -> None:
    fill_tab8(tmp_path, 1.0)
    table = drawn("diskgnn-tab8", tmp_path).data.set_index("memory")
    assert table["speedup"].tolist() == pytest.approx([8 / 4, 8 / 2, 8 / (4 / 3)])
    assert table.loc["30 %", "paper Friendster"] == pytest.approx(2.437, abs=0.001)


def test_preparation_is_packing_and_the_rest(tmp_path: Path) -> None:
    fill_fig17(tmp_path, 1.0)
    table = drawn("diskgnn-fig17", tmp_path).data
    sums = table.groupby("bar")["value"].sum()
    assert sums["10 %\nindividual"] == pytest.approx(14.0)
    assert sums["10 %\nbatched"] == pytest.approx(2.0)
    assert table[table["bar"] == "10 %\nbatched"]["value"].tolist() == pytest.approx(
        [1.5, 0.5]
    )


def test_stages_of_a_sequential_epoch_make_the_whole(tmp_path: Path) -> None:
    fill_fig19(tmp_path, 1.0)
    table = drawn("diskgnn-fig19", tmp_path).data
    assert dict(table.groupby("bar")["value"].sum()) == pytest.approx(SYSTEMS)
    mine = table[table["bar"] == "diskgnn"].set_index("part")["value"]
    assert mine["graph load"] == mine["feature load"] == pytest.approx(1.0)
    assert mine["graph sample"] == 0.0


def test_table_one_adds_up_and_stands_beside_the_papers(tmp_path: Path) -> None:
    fill_tab1(tmp_path, 1.0)
    table = drawn("diskgnn-tab1", tmp_path).data.set_index("measure")
    assert table.loc["end-to-end", "ginex"] == pytest.approx(2 + 3 * 20)
    assert table.loc["disk access", "diskgnn"] == pytest.approx(2.0)
    assert table.loc["test accuracy", "diskgnn"] == pytest.approx(70.0)
    assert table.loc["epoch", "diskgnn, paper"] == 76.3


def test_table_one_has_the_memory_with_which_more_systems_end_well(
    tmp_path: Path,
) -> None:
    keep_profile(tmp_path)
    for system, base in SYSTEMS.items():
        status = "oom" if system == "mariusgnn" else "ok"
        run(tmp_path, system, [base] if status == "ok" else [], status=status)
    one = drawn("diskgnn-tab1", tmp_path)
    assert one.finding.endswith("; mariusgnn runs out of memory")
    for system, base in SYSTEMS.items():
        run(tmp_path, system, [base + 1], memory="+80MiB")
    sheet = drawn("diskgnn-tab1", tmp_path)
    where = "with 64.0 MiB beyond interpreter and training"
    assert sheet.finding.endswith(f"; mariusgnn runs out of memory {where}")
    table = sheet.data.set_index("measure")
    assert {system: table.loc["epoch", system] for system in SYSTEMS} == {
        s: base + 1 for s, base in SYSTEMS.items()
    }
    assert "Memory: 80.0 MiB beyond interpreter" in sheet.caption


def test_a_missing_accuracy_leaves_a_gap_and_not_a_zero(tmp_path: Path) -> None:
    keep_profile(tmp_path)
    for system, base in SYSTEMS.items():
        run(tmp_path, system, [base])
    sheet = drawn("diskgnn-tab1", tmp_path)
    assert isinstance(sheet, Sheet)
    shown = sheet.shown.set_index("measure")
    assert shown.loc["test accuracy", "diskgnn"] == "–"
    assert "not run" in sheet.caption


def test_a_limit_that_nothing_fits_is_stated(tmp_path: Path) -> None:
    fill_search(tmp_path, 1.0)
    sheet = drawn("diskgnn-tab7", tmp_path)
    assert isinstance(sheet, Sheet)
    assert sheet.shown["heuristic amp."].tolist()[:2] == ["1.20", "does not fit"]
    assert sheet.data["speedup"].tolist()[0] == pytest.approx(300.0)


def test_the_third_hop_stands_beside_the_papers(tmp_path: Path) -> None:
    fill_space(tmp_path, 1.0)
    drawing = drawn("diskgnn-fig14", tmp_path)
    assert "The third hop takes 10 times the disk space" in drawing.finding
    assert "paper: Friendster 10,15,20 over 10,15 18.8x" in drawing.caption
    assert drawing.data[drawing.data["panel"] == "batch size"]["group"].tolist() == [
        50,
        100,
    ]


def test_shares_of_a_graph_are_in_percent_and_the_papers_follow(tmp_path: Path) -> None:
    fill_tab3(tmp_path, 1.0)
    table = drawn("diskgnn-tab3", tmp_path).data.set_index("graph")
    assert table.loc["kron", "<1 %"] == pytest.approx(30.0)
    assert table.loc["Papers100M", "<1 %"] == 43.2
    assert table.loc["Papers100M", "source"] == "paper"


PAPER_BESIDE = [
    "diskgnn-tab1",
    "diskgnn-tab3",
    "diskgnn-tab4",
    "diskgnn-tab5",
    "diskgnn-tab7",
    "diskgnn-tab8",
    "diskgnn-fig9",
    "diskgnn-fig12",
    "diskgnn-fig17",
    "diskgnn-fig18",
]


@pytest.mark.parametrize("figure", PAPER_BESIDE)
def test_a_missing_paper_value_does_not_break_a_drawing(
    figure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FILL[figure](tmp_path / "root", 1.0)
    with nothing_published(monkeypatch, tmp_path):
        assert len(drawn(figure, tmp_path / "root").data)

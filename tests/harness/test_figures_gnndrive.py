"""The figures of the GNNDrive paper: drawn from records and studies alone, the CPU
variant beside the GPU one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.compare.evidence import Evidence, load_evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.accuracy_runs import GENERATED
from harness.figures.base import Drawing, Sheet, catalogue
from harness.figures.gnndrive.grid import CPU
from harness.plan.experiment import cells, load_experiment
from harness.run.sweep import union
from tests.harness.figure_profile import keep_profile
from tests.harness.records import make_record, save
from tests.harness.study_records import fio_grid, put_study

MIB = 2**20
BASE = {"max_batches": 16}
#: Values of the axes that are not the paper's.
AXES = {
    "dims": [64, 128, 512],
    "models": ["sage", "gat"],
    "memory_factors": [2.0],
    "batch_factors": [0.5, 1.0, 2.0],
    "ranks": [1, 2, 4],
}
ON_CPU = {"device": "cpu", "device_memory_bytes": None}
IDS = [
    f"gnndrive-{name}"
    for name in (
        "fig2",
        "fig3",
        "fig8",
        "fig9",
        "fig10",
        "fig11",
        "fig12",
        "fig13",
        "fig14",
        "tab2",
        "figB1",
    )
]


def of_dim(dim: int) -> dict[str, Any]:
    """Return settings of a run in a sweep over dimensions."""
    return {**BASE, "dim": dim, "device_memory_bytes": 32 * MIB * dim // 128}


def of_size(size: int) -> dict[str, Any]:
    """Return settings of a run in a sweep over mini-batch sizes."""
    return {
        "batch_size": size,
        "max_batches": 800 // size,
        "device_memory_bytes": 64 * MIB,
    }


def fill(root: Path, factor: float = 1.0) -> None:
    """Write runs and studies from which every figure of the paper can be drawn."""
    keep_profile(root, short={"max_batches": 16}, accuracy={"epochs": 8}, **AXES)
    systems = (
        ("pyg+", 9.0 * factor),
        ("ginex", 5.0 * factor),
        ("gnndrive", 3.0 * factor),
    )
    for dim in (64, 128, 512):
        for system, base in systems:
            for model in ("sage", "gat"):
                seconds = [base * dim / 128] * 2
                save(
                    root,
                    make_record(
                        system, seconds, model=model, sample_s=base / 9, **of_dim(dim)
                    ),
                )
            save(
                root,
                make_record(
                    system,
                    [base / 9],
                    sample_s=base / 20,
                    stages="sample",
                    **of_dim(dim),
                ),
            )
        cpu = {**of_dim(dim), **ON_CPU, "memory": f"+{64 + dim // 4}MiB"}
        save(root, make_record("gnndrive", [8.0 * factor * dim / 128] * 2, **cpu))
    for system, base in systems:
        for memory in (128, 1024):
            save(
                root,
                make_record(
                    system, [base * 30 / memory], memory=f"+{memory}MiB", **of_dim(512)
                ),
            )
        for size in (25, 50, 100):
            save(root, make_record(system, [base * 50 / size], **of_size(size)))
        accuracy = [min(0.84, 0.3 * factor + 0.1 * k) for k in range(8)]
        save(root, trained(system, base, accuracy))
    save(
        root,
        make_record("in-memory", [], status="oom", memory="+128MiB", **of_dim(512)),
    )
    save(
        root,
        trained(
            "in-memory",
            0.2 * factor,
            [min(0.85, 0.3 * factor + 0.1 * k) for k in range(8)],
            memory="none",
        ),
    )
    for memory, seconds in (("+67108864", 7.0), ("+256MiB", 4.0)):
        made = make_record("mariusgnn", [seconds * factor] * 2, memory=memory, **BASE)
        for epoch in made.epochs:
            epoch.stages_s["data_prep"] = 2.5 * factor
        save(root, made)
    for cpu_run in ({}, {**ON_CPU, "memory": "+320MiB"}):
        for scale, seconds in ((1.0, 3.0), (2.0, 2.0), (4.0, 2.1)):
            run: dict[str, Any] = {
                "device_memory_bytes": 256 * MIB,
                "batch_size": 12,
                "max_batches": 67,
                **cpu_run,
            }
            save(
                root,
                make_record(
                    "gnndrive",
                    [seconds * factor],
                    options={"feature_buffer_scale": scale},
                    **run,
                ),
            )
        for ranks, seconds in ((1, 3.0), (2, 1.8)):
            memory = "+288MiB" if cpu_run else "+256MiB"
            run = {
                **BASE,
                "disk_class": "none",
                **cpu_run,
                "memory": memory,
                "ranks": ranks,
            }
            save(root, make_record("gnndrive", [seconds * factor], **run))
    put_study(root, "fio-grid", fio_grid(factor))


def trained(
    system: str, seconds: float, accuracy: list[float], memory: str = "+56MiB"
) -> Any:
    """Make a run on the CPU with test accuracy after every epoch, the warm-up first."""
    run = {
        **ON_CPU,
        "memory": memory,
        "test_nodes": 4000,
        "epochs": len(accuracy),
        "fanout": [10, 5],
        "layers": 2,
    }
    size = {"batch_size": 100, "hidden": 64, "dataset": GENERATED}
    made = make_record(system, [seconds] * (len(accuracy) - 1), **run, **size)
    for epoch, share in zip(made.epochs, accuracy, strict=True):
        epoch.test_accuracy = share
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[float, Evidence]:
    found = {}
    for factor in (1.0, 1.5):
        root = tmp_path_factory.mktemp("records")
        fill(root, factor)
        found[factor] = load_evidence(root)
    return found


def drawn(figure: str, evidence: Evidence) -> Drawing | Sheet:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    result = catalogue()[figure].draw(evidence)
    if isinstance(result, Drawing):
        result.canvas.canvas.draw()
        plt.close(result.canvas)
    return result


@pytest.mark.slow("harness/figures", "harness/compare", "harness/records")
@pytest.mark.parametrize("figure", IDS)
def test_other_records_make_another_drawing(
    figure: str, made: dict[float, Evidence]
) -> None:
    one, other = (drawn(figure, made[factor]) for factor in (1.0, 1.5))
    numbers = [
        result.data.select_dtypes("number").to_numpy().tolist()
        for result in (one, other)
    ]
    assert numbers[0] != numbers[1]
    assert len(one.caption) > 20
    assert one.runs or catalogue()[figure].studies(
        load_experiment("quick").model_dump()
    )


@pytest.mark.parametrize("figure", IDS)
def test_nothing_is_drawn_of_nothing_and_the_reason_is_stated(
    figure: str, tmp_path: Path
) -> None:
    with pytest.raises(NotDrawn) as reason:
        drawn(figure, load_evidence(tmp_path))
    assert len(str(reason.value)) > 10


@pytest.mark.parametrize("profile", ["quick", "standard", "paper"])
def test_the_papers_figures_need_valid_runs_and_at_quick_few(profile: str) -> None:
    plain = load_experiment(profile).model_dump()
    experiments = [
        experiment
        for name in IDS
        for experiment in catalogue()[name].experiments(plain)
    ]
    assert all(list(cells(experiment)) for experiment in experiments)
    if profile == "quick":
        assert len(union(experiments)) <= 90


def test_the_gpu_variant_and_the_cpu_variant_stand_side_by_side(
    made: dict[float, Evidence],
) -> None:
    for figure in ("gnndrive-fig8", "gnndrive-fig12", "gnndrive-fig13"):
        table = drawn(figure, made[1.0]).data
        assert {"gnndrive", CPU} <= set(table["system"]), figure
        ours = table[table["system"] == CPU]
        assert ours["value"].notna().all()
    assert [
        axes.get_title(loc="left") for axes in panels("gnndrive-fig11", made[1.0])
    ] == ["gnndrive", CPU]


def test_sampling_is_drawn_only_where_it_ran_alone_and_beside_other_stages(
    tmp_path: Path,
) -> None:
    for stages in ("sample", "all"):
        root = tmp_path / stages
        keep_profile(root, short=BASE, **AXES)
        for dim in (64, 128):
            save(
                root,
                make_record("ginex", [2.0], sample_s=0.5, stages=stages, **of_dim(dim)),
            )
        with pytest.raises(NotDrawn, match="sampling only beside"):
            drawn("gnndrive-fig2", load_evidence(root))


def test_the_caption_counts_the_epochs_that_have_the_drawn_stage(
    tmp_path: Path,
) -> None:
    keep_profile(tmp_path, short=BASE, **AXES)
    for dim in (64, 128):
        for stages in ("sample", "all"):
            sampled = make_record(
                "ginex", [2.0, 2.0], sample_s=0.5, stages=stages, **of_dim(dim)
            )
            sampled.epochs[-1].stages_s.pop("sample")  # sampled with the epoch before
            save(tmp_path, sampled)
    result = drawn("gnndrive-fig2", load_evidence(tmp_path))
    assert list(result.data["samples"]) == [1, 1, 1, 1]
    assert "one measured epoch a value" in result.caption


def panels(figure: str, evidence: Evidence) -> list[Any]:
    result = drawn(figure, evidence)
    assert isinstance(result, Drawing)
    return list(result.canvas.axes)


def test_a_panel_for_each_model_that_ran(made: dict[float, Evidence]) -> None:
    table = drawn("gnndrive-fig8", made[1.0]).data
    assert set(table["panel"]) == {"GraphSAGE", "GAT"}
    assert [
        axes.get_title(loc="left") for axes in panels("gnndrive-fig8", made[1.0])
    ] == ["GraphSAGE", "GAT"]


def test_other_work_on_the_processor_is_not_compared(tmp_path: Path) -> None:
    keep_profile(tmp_path, short=BASE, **AXES)
    for dim in (64, 128):
        save(tmp_path, make_record("gnndrive", [1.0], **of_dim(dim)))
        other = {**of_dim(dim), **ON_CPU, "memory": "+192MiB", "max_batches": 80}
        save(tmp_path, make_record("gnndrive", [1.0], **other))
    assert set(drawn("gnndrive-fig8", load_evidence(tmp_path)).data["system"]) == {
        "gnndrive"
    }


def test_out_of_memory_is_marked_over_the_budgets(made: dict[float, Evidence]) -> None:
    table = drawn("gnndrive-fig9", made[1.0]).data
    assert list(table[table["system"] == "in-memory"]["status"]) == ["oom"]
    assert list(table[table["system"] == "in-memory"]["value"].isna()) == [True]


def test_dimensions_are_compared_where_the_device_holds_as_many_rows(
    tmp_path: Path,
) -> None:
    keep_profile(tmp_path, short=BASE, **AXES)
    for dim in (64, 128):
        save(tmp_path, make_record("gnndrive", [1.0], **of_dim(dim)))
    save(
        tmp_path,
        make_record(
            "gnndrive", [99.0], **{**of_dim(512), "device_memory_bytes": 32 * MIB}
        ),
    )
    assert sorted(drawn("gnndrive-fig8", load_evidence(tmp_path)).data["x"]) == [
        64,
        128,
    ]


def test_epochs_over_batch_sizes_train_as_many_seed_nodes(tmp_path: Path) -> None:
    keep_profile(tmp_path, short=BASE, **AXES)
    for size in (25, 50):
        save(tmp_path, make_record("gnndrive", [1.0], **of_size(size)))
    save(
        tmp_path, make_record("gnndrive", [99.0], **{**of_size(100), "max_batches": 16})
    )
    assert sorted(drawn("gnndrive-fig10", load_evidence(tmp_path)).data["x"]) == [
        25,
        50,
    ]


def test_the_table_splits_preparation_from_training_and_has_the_papers_values(
    made: dict[float, Evidence],
) -> None:
    result = drawn("gnndrive-tab2", made[1.0])
    assert isinstance(result, Sheet)
    rows = result.data.set_index("system")
    marius = rows.loc["mariusgnn, 64.0 MiB"]
    assert marius["data preparation (s)"] + marius["training (s)"] == pytest.approx(
        marius["overall (s)"]
    )
    assert marius["preparation (%)"] == pytest.approx(100 * 2.5 / 7.0)
    assert marius["paper: preparation (s)"] == 296.35
    assert rows.loc["mariusgnn, 256.0 MiB", "paper: overall (s)"] == 292.17
    assert rows.loc["gnndrive", "paper: training (s)"] == 241.12
    assert {"gnndrive", CPU, "pyg+", "ginex"} <= set(rows.index)
    shown = result.shown.set_index("system")
    assert shown.loc["gnndrive", "data preparation (s)"] == "–"


def test_a_failed_system_stands_in_the_table_as_failed(tmp_path: Path) -> None:
    keep_profile(tmp_path, short=BASE, **AXES)
    save(tmp_path, make_record("mariusgnn", [], status="oom", **BASE))
    save(tmp_path, make_record("gnndrive", [2.0], **BASE))
    result = drawn("gnndrive-tab2", load_evidence(tmp_path))
    assert isinstance(result, Sheet)
    shown = result.shown.set_index("system")["overall (s)"]
    assert (shown["mariusgnn, 64.0 MiB"], shown["ginex"], shown["gnndrive"]) == (
        "OOM",
        "not run",
        "2.00",
    )


def test_where_mariusgnn_fails_it_is_compared_at_the_least_memory_that_it_fits(
    tmp_path: Path,
) -> None:
    keep_profile(tmp_path, short=BASE, **AXES)
    save(tmp_path, make_record("mariusgnn", [], status="oom", **BASE))
    save(tmp_path, make_record("gnndrive", [2.0], **BASE))
    for memory, marius, ours in (("+80MiB", 9.0, 3.0), ("+256MiB", 1.0, 4.0)):
        save(tmp_path, make_record("mariusgnn", [marius], **{**BASE, "memory": memory}))
        save(tmp_path, make_record("gnndrive", [ours], **{**BASE, "memory": memory}))
    result = drawn("gnndrive-tab2", load_evidence(tmp_path))
    assert isinstance(result, Sheet)
    shown = result.shown.set_index("system")
    reported = {
        name: shown.loc[name, "overall (s)"] for name in shown.index if "MiB" in name
    }
    assert reported == {
        "mariusgnn, 64.0 MiB": "OOM",
        "gnndrive, 80.0 MiB": "3.00",
        "mariusgnn, 80.0 MiB": "9.00",
        "gnndrive, 256.0 MiB": "4.00",
        "mariusgnn, 256.0 MiB": "1.00",
    }
    assert shown.loc["gnndrive", "overall (s)"] == "2.00"
    assert shown.loc["mariusgnn, 80.0 MiB", "paper: overall (s)"] == "–"
    assert result.finding == ""


def test_gnndrive_is_compared_with_the_systems_at_its_budget(
    made: dict[float, Evidence],
) -> None:
    faster = "gnndrive is 3 times as fast as pyg+, 1.7 times as ginex"
    assert (
        drawn("gnndrive-tab2", made[1.0]).finding
        == f"{faster}; mariusgnn prepares data in 36 to 62 % of its epoch"
    )


def test_buffered_and_direct_reads_are_drawn_over_threads_and_depth(
    made: dict[float, Evidence],
) -> None:
    result = drawn("gnndrive-figB1", made[1.0])
    assert set(zip(result.data["engine"], result.data["series"], strict=True)) == {
        (engine, mode)
        for engine in ("sync", "async")
        for mode in ("direct", "buffered")
    }
    assert "paper: 5.6 %" in result.caption

"""Reference results: packed whole, judged as before, drawn under their machine's name,
never pooled with one's own."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from harness.cli import main
from harness.compare.evidence import load_evidence
from harness.compare.plan import keep
from harness.figures.base import chosen
from harness.figures.render import render
from harness.plan.experiment import load_experiment
from harness.records import seal
from harness.report import readme, reference, write_report
from harness.report.reference import write_reference
from harness.results import store
from harness.results.reference import (
    ARCHIVE,
    MANIFEST,
    read_reference,
    references,
    unpacked,
)
from harness.telemetry.frame import COLUMNS, thinned
from tests.harness.records import make_record, save
from tests.harness.report_tools import HOSTS, changed
from tests.harness.test_figures_outcore import fill
from tests.harness.test_golden_records import GOLDEN, WITH_TABLES
from workloads.errors import InputError

NAME = "2-core-vm"
SAMPLES = 20


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of reference results of the golden runs, one of which has its tables,
    unpacked."""
    root = tmp_path_factory.mktemp("golden") / "results"
    out = tmp_path_factory.mktemp("reference") / NAME
    shutil.copytree(GOLDEN, root)
    keep(root, load_experiment("smoke"))
    keep(root, load_experiment("smoke").model_copy(update={"name": "mine"}))
    write_reference(root, out, samples=SAMPLES, partial=True)
    unpacked(out)
    return out


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of reference results from which outcore-frontier and outcore-roofline can
    be drawn, unpacked."""
    root = tmp_path_factory.mktemp("made")
    out = tmp_path_factory.mktemp("drawn") / NAME
    fill(root)
    shutil.rmtree(root / "studies")  # their keys are made up
    write_reference(root, out, partial=True)
    unpacked(out)
    return out


def made(root: Path, out: Path, **options: Any) -> Path:
    """Pack one run as reference results."""
    save(root, make_record("gnndrive", [1.0, 2.0]))
    write_reference(root, out, partial=True, **options)
    return out


def message(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Return exit code, output and errors of the command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0), *capsys.readouterr()


def test_records_studies_and_experiments_are_packed_as_they_are(golden: Path) -> None:
    reported = read_reference(golden)
    assert reported is not None
    assert (reported.host_class, reported.runs, reported.studies) == (
        NAME,
        len(store.run_folders(golden)),
        1,
    )
    for folder in store.run_folders(golden):
        for name in ("record.json", "stages.parquet"):
            assert (folder / name).exists() == (
                GOLDEN / "runs" / folder.name / name
            ).exists()
            if (folder / name).exists():
                assert (folder / name).read_bytes() == (
                    GOLDEN / "runs" / folder.name / name
                ).read_bytes()
        assert not (folder / "batches.parquet").exists()
        assert not (folder / "worker.log").exists()
    assert {path.name for path in (golden / "experiments").iterdir()} == {
        "smoke.json",
        "mine.json",
    }
    own, *others = reported.commands
    assert own == "outcore bench --profile quick --figures all"
    assert others == [
        "outcore bench experiments/mine.json",
        "outcore bench --profile smoke",
    ]
    assert (
        load_experiment(golden / others[0].split()[-1]).systems
        == load_experiment("smoke").systems
    )
    assert set(reported.versions) >= {"python", "torch"}
    assert sum(reported.commits.values()) == reported.runs
    assert reported.label.startswith(f"Reference machine {NAME}, 2026-11-25, commit ")


def test_runs_are_judged_as_they_were_before_their_telemetry_was_thinned(
    golden: Path,
) -> None:
    thin = golden / "runs" / WITH_TABLES.name
    for folder in store.run_folders(golden):
        one = store.read_record(folder)
        other = store.read_record(GOLDEN / "runs" / folder.name)
        assert (one.verdict, one.verdict_rules) == (other.verdict, other.verdict_rules)
    short, whole = (store.table(folder, "telemetry") for folder in (thin, WITH_TABLES))
    assert len(short) <= SAMPLES + whole["epoch"].nunique() + 1 < len(whole)
    assert list(short.columns) == list(whole.columns)
    for count in ("disk_read_bytes", "major_faults", "ctx_switches"):
        assert short[count].sum() == pytest.approx(whole[count].sum())
    note = json.loads((thin / seal.THINNED).read_text())["telemetry.parquet"]
    assert (note["rows"], note["of"]) == (len(short), len(whole))
    reported = read_reference(golden)
    assert reported is not None
    assert reported.left_out[1].endswith(
        f"telemetry of 1 runs was thinned to at most {SAMPLES} samples"
    )


@pytest.mark.parametrize("samples", [1000, SAMPLES // 2])
def test_reference_results_can_be_archived_again_with_runs_added(
    golden: Path, tmp_path: Path, samples: int
) -> None:
    root = shutil.copytree(golden, tmp_path / "root")
    out = tmp_path / NAME
    write_reference(root, out, samples=samples, partial=True)
    reported = unpacked(out)
    assert reported.left_out[1].endswith(
        f"telemetry of 1 runs was thinned to at most {samples} samples"
    )
    for folder in store.run_folders(golden):
        one, other = (
            store.read_record(place / "runs" / folder.name) for place in (out, golden)
        )
        assert (one.verdict, one.verdict_rules) == (other.verdict, other.verdict_rules)
    notes = [
        json.loads((place / "runs" / WITH_TABLES.name / seal.THINNED).read_text())
        for place in (out, golden)
    ]
    assert (
        notes[0]["telemetry.parquet"]["sealed"]
        == notes[1]["telemetry.parquet"]["sealed"]
    )


def test_a_changed_table_or_record_is_still_detected(
    golden: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(
        golden / "runs" / WITH_TABLES.name, tmp_path / "runs" / WITH_TABLES.name
    )
    table = pd.read_parquet(run / "telemetry.parquet")
    table.assign(cpu_percent=0.0).to_parquet(run / "telemetry.parquet")
    with pytest.raises(InputError, match="was changed after it was written"):
        store.table(run, "telemetry")
    (run / seal.THINNED).write_text("[]")
    with pytest.raises(InputError, match="was changed after it was written"):
        store.table(run, "telemetry")
    before = store.read_record(run)
    text = (run / "record.json").read_text()
    epoch = f'"seconds": {before.epochs[-1].seconds}'
    assert epoch in text
    (run / "record.json").write_text(text.replace(epoch, '"seconds": 0.001'))
    assert store.read_record(run).verdict == "INVALID"


def test_joined_samples_keep_sums_peaks_and_the_borders_of_epochs() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.random(100) for name in COLUMNS})
    frame["epoch"] = np.repeat([-1, 0, 1, -1], [13, 40, 40, 7])
    frame["t"] = np.arange(100) / 10
    frame.loc[50:60, "disk_latency_s"] = np.nan
    frame["psi_io"] = np.nan
    short = thinned(frame, 10)
    assert 10 <= len(short) <= 14
    assert short["epoch"].dtype == frame["epoch"].dtype
    assert list(short["epoch"][short["epoch"].diff() != 0]) == [-1, 0, 1, -1]
    for column, how in (("disk_read_bytes", "sum"), ("mem_usage", "max"), ("t", "max")):
        assert getattr(short[column], how)() == pytest.approx(
            getattr(frame[column], how)()
        )
    assert short["psi_io"].isna().all()
    assert short["cpu_percent"].iloc[0] == pytest.approx(
        frame["cpu_percent"][:10].mean()
    )
    assert thinned(frame, 100) is frame


def test_an_incomplete_sweep_is_refused_and_states_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "results"
    out = tmp_path / "reference" / NAME
    save(root, make_record("gnndrive", [1.0]))
    code, _, errors = message(
        capsys, "results", "archive", str(out), "--results-root", str(root), "-q"
    )
    assert code == 2
    assert "planned runs and studies have no record" in errors
    assert "or add --partial" in errors
    assert "the first is run of pyg+ on kron-600k" in errors
    assert errors.count("\n") == 1
    assert not out.exists()
    code, text, _ = message(
        capsys, "results", "archive", str(out), "--results-root", str(root), "--partial"
    )
    reported = read_reference(out)
    assert code == 0
    assert reported is not None
    assert f"{out}: 1 runs and 0 studies" in text
    assert (
        f"{len(reported.missing)} of {reported.planned_runs + reported.planned_studies} "
        "planned are missing" in text
    )
    assert sorted(path.name for path in out.iterdir()) == [MANIFEST, ARCHIVE]


def test_runs_of_two_hosts_are_no_reference(tmp_path: Path) -> None:
    for host in HOSTS:
        save(tmp_path, changed(make_record("gnndrive", [1.0]), environment=host))
    with pytest.raises(InputError, match="are of 2 hosts"):
        write_reference(tmp_path, tmp_path / NAME, partial=True)
    with pytest.raises(InputError, match="there is no run"):
        write_reference(tmp_path / "none", tmp_path / NAME, partial=True)
    with pytest.raises(InputError, match="names no class"):
        write_reference(tmp_path, tmp_path / "My Machine", partial=True)


def test_an_archive_too_large_for_a_repository_leaves_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = made(tmp_path / "results", tmp_path / NAME)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    monkeypatch.setattr(reference, "LIMIT", 1000)
    with pytest.raises(InputError, match="--samples 600"):
        made(tmp_path / "results", out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, "results"]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda out: (out / ARCHIVE).unlink(), "has no runs.tar.xz"),
        (
            lambda out: (out / ARCHIVE).write_bytes(b"\xfd7zXZ\0"),
            "is not the archive that reference.json names",
        ),
        (
            lambda out: (out / MANIFEST).write_text("{}"),
            "is no manifest of reference results",
        ),
        (
            lambda out: (out / MANIFEST).write_bytes(b"\xff"),
            "is no manifest of reference results",
        ),
        (lambda out: (out / MANIFEST).unlink(), "holds no reference results"),
    ],
)
def test_wrong_reference_results_are_answered_in_one_sentence(
    harm: Any, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = made(tmp_path / "results", tmp_path / NAME)
    harm(out)
    code, text, errors = message(capsys, "report", "--reference", str(tmp_path), "-q")
    assert (code, text) == (2, "")
    assert reason in errors
    assert errors.count("\n") == 1
    assert not (out / "runs").exists()
    assert not (out / "report.html").exists()


def test_an_archive_of_other_runs_than_its_manifest_counts_is_refused(
    tmp_path: Path,
) -> None:
    out = made(tmp_path / "results", tmp_path / NAME)
    content = json.loads((out / MANIFEST).read_text())
    (out / MANIFEST).write_text(json.dumps({**content, "runs": 2}))
    with pytest.raises(InputError, match="holds 1 runs and 0 studies, not the 2 and 0"):
        unpacked(out)
    assert not (out / "runs").exists()


def test_it_is_unpacked_once_and_again_for_another_archive(tmp_path: Path) -> None:
    out = made(tmp_path / "results", tmp_path / NAME)
    unpacked(out)
    (run,) = store.run_folders(out)
    (run / "mark").touch()
    unpacked(out)
    assert (run / "mark").exists()
    shutil.rmtree(run)
    unpacked(out)
    assert run.is_dir()
    made(tmp_path / "results", out)
    unpacked(out)
    assert len(store.run_folders(out)) == 2
    assert not (run / "mark").exists()


def test_every_figure_names_the_machine_and_has_the_same_data(
    drawn: Path, tmp_path: Path
) -> None:
    ids = "outcore-roofline,outcore-ssd,pagraph-tab2"
    fill(tmp_path)
    shutil.rmtree(tmp_path / "studies")
    reported = read_reference(drawn)
    assert reported is not None
    ours = render(chosen(ids), load_evidence(tmp_path), tmp_path / "figures")
    theirs = render(chosen(ids), load_evidence(drawn), tmp_path / "theirs")
    for one, other in zip(ours, theirs, strict=True):
        assert other.status == "drawn"
        assert other.caption == f"{reported.label}: {one.caption}"
        data = [
            pd.read_csv(found.files[-2 if found.files[0].suffix == ".md" else -1])
            for found in (one, other)
        ]
        assert (
            data[0]
            .drop(columns="run", errors="ignore")
            .equals(data[1].drop(columns="run", errors="ignore"))
        )
        if other.files[0].suffix == ".png":
            assert reported.label in other.files[1].read_text()
            assert reported.label not in one.files[1].read_text()


@pytest.mark.slow(
    "harness/report", "harness/figures", "harness/results", "harness/claims", seconds=45
)
def test_the_report_of_reference_results_stands_beside_the_archive_and_ones_own_shows_its_figures(
    drawn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "results" / "reference"
    folder = shutil.copytree(drawn, place / NAME)
    code, text, _ = message(capsys, "report", "--reference", str(place), "-q")
    reported = read_reference(folder)
    assert code == 0
    assert reported is not None
    lines = text.splitlines()
    assert lines[0] == reported.label
    assert lines[2] == f"report: {folder / 'report.html'}"
    assert "figures and tables drawn" in lines[1]
    assert len(lines[1]) <= 80
    assert len(lines) == 3
    page = (folder / "report.html").read_text()
    assert f"<title>{reported.label}</title>" in page
    assert "have no record" in page
    assert "needs several real GPUs" in page
    regions = re.findall(r'role="region" aria-label="([^"]*)"', page)
    assert {"outcore-training", "outcore-training, the headline"} <= set(regions)
    assert len(regions) == len(set(regions)), "each region has a name of its own"
    assert not (tmp_path / "results" / "figures").exists()
    times = {path: path.stat().st_mtime_ns for path in (folder / "figures").iterdir()}

    save(tmp_path / "results", make_record("gnndrive", [1.0], experiment="quick"))
    written = write_report(tmp_path / "results")
    assert written.runs == 1
    own = (tmp_path / "results" / "report.html").read_text()
    card = own.partition('id="figure-outcore-ssd"')[2].partition("</figure>")[0]
    assert "Not drawn" in card
    assert f"{reported.label}, never pooled" in card
    assert card.count("<img") == 1
    assert {
        path: path.stat().st_mtime_ns for path in (folder / "figures").iterdir()
    } == times
    found = json.loads(
        message(capsys, "report", "--reference", str(folder), "--json")[1]
    )["references"]
    assert [entry["reference"]["host_class"] for entry in found] == [NAME]
    assert found[0]["runs"] == reported.runs
    assert {
        path: path.stat().st_mtime_ns for path in (folder / "figures").iterdir()
    } == times
    assert (
        message(capsys, "report", "--reference", str(place), "--out", "x.html")[0] == 2
    )


def pages(tmp_path: Path) -> Path:
    """Return a checkout with the pages that reference results are written into."""
    for name in readme.PAGES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(readme.ROOT / name, tmp_path / name)
    (tmp_path / "docs" / "img").mkdir()
    return tmp_path


def with_earlier_caption(picture: Path) -> None:
    """Write a picture of the same data again, as code with other words drew it."""
    with Image.open(picture) as image:
        texts = PngInfo()
        texts.add_text("Data", image.info["Data"])
        texts.add_text("Description", "a caption in other words")
        image.save(picture, pnginfo=texts)


def kept_readme() -> str:
    return (readme.ROOT / "README.md").read_text()


def test_readme_and_pictures_are_written_and_a_difference_is_found(
    drawn: Path, tmp_path: Path
) -> None:
    checkout = pages(tmp_path)
    reported = read_reference(drawn)
    pictures = [f"docs/img/{name}.png" for name in readme.PICTURES]
    assert reported is not None
    assert readme.differing(drawn, checkout, write=True) == [*readme.PAGES, *pictures]
    assert readme.differing(drawn, checkout) == []
    text = (checkout / "README.md").read_text()
    assert reported.label in text
    assert "| budget, of the features | graph/budget | " in text
    assert "| 128.0 MiB (0.13) | – | " in text
    assert "Least for a fresh epoch: `diskgnn` at 64.0 MiB (0.066), 128.0" in text
    assert "OOM" in text
    assert "Of 21 runs 21 are `CAVEATS`." in text
    before = [
        re.sub(r"!\[.*?\]", "![]", page.partition(readme._BEGIN)[0])
        for page in (text, kept_readme())
    ]
    assert before[0] == before[1]
    assert "![At 64.0 MiB, least training time: diskgnn" in text
    (checkout / "README.md").write_text(text.replace("**3.00**", "**0.30**"))
    Image.new("RGB", (4, 4)).save(checkout / pictures[0])
    with_earlier_caption(checkout / pictures[1])
    assert readme.differing(drawn, checkout) == ["README.md", *pictures[:2]]
    (checkout / "README.md").write_text("no table")
    with pytest.raises(InputError, match=r"README.md has no place for the table"):
        readme.differing(drawn, checkout)


def test_the_check_of_the_readme_states_what_to_run(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(readme, "HERE", readme.ROOT / "results" / "nowhere")
    assert readme.main([], lines.append) == 0
    assert lines.pop().startswith("skipped: ")
    code = readme.main([str(drawn), "--check"], lines.append)
    assert code == 1
    assert lines.pop().endswith(f"differ from {drawn}: run `{readme.COMMAND}`")
    assert readme.main([str(tmp_path), "--check"], lines.append) == 2
    assert "has no reference.json" in lines.pop()


def test_readme_docs_and_pictures_show_the_reference_results() -> None:
    if not (found := references(readme.HERE)):
        pytest.skip(
            "no reference results in results/reference: README's numbers were written "
            "by hand"
        )
    assert readme.differing(found[0]) == [], f"run `{readme.COMMAND}`"

"""`outcore results export` and `import`: records as a table, whole runs as an archive, runs of several hosts merged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.common import OnResults, print_json
from harness.cli.results_filter import Wanted, say_bad, wanted_runs

if TYPE_CHECKING:
    import pandas as pd

    from harness.results.store import BadRecord


def export(
    wanted: Wanted,
    call: OnResults,
    out: Annotated[
        Path | None,
        typer.Option(help=".csv, .parquet, .json; .tar.gz, .zip with --runs; standard output as CSV without it"),
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="whole run folders, for `results import` elsewhere")] = False,
) -> None:
    """Write the records as one table, a row a run, or (--runs) whole run folders and studies as an archive."""
    from harness.results.archive import is_archive
    from workloads.errors import InputError

    bad: list[BadRecord] = []
    if runs or (out is not None and is_archive(out)):
        if out is None:
            raise InputError("--runs has no --out to write to", "name a .tar.gz or .zip")
        said = _pack(call.results_root, wanted, out, bad)
    else:
        frame = _frame(call.results_root, wanted, bad)
        if out is None:
            if call.json:
                print_json({"runs": list(frame["record"]) if len(frame) else []})
            else:
                _texts(frame).to_csv(sys.stdout, index=False)
                say_bad(bad)
            return
        _write(frame, out)
        said = {"file": str(out), "runs": len(frame)}
    if call.json:
        print_json({**said, "not_read": [entry._asdict() for entry in bad]})
        return
    if not call.quiet:
        print(f"{said.pop('file')} ({', '.join(f'{key}: {value}' for key, value in said.items())})")
    say_bad(bad)


def _pack(root: Path, wanted: Wanted, out: Path, bad: list[BadRecord]) -> dict[str, Any]:
    """Write runs as an archive; without a filter also all studies, which belong to no run."""
    from harness.records.study import STUDIES
    from harness.results.archive import STUDY_NAME, pack

    folders = [folder for folder, _ in wanted_runs(root, wanted, bad)]
    studies = sorted((root / STUDIES).glob("*.json")) if wanted.anything() else []
    studies = [path for path in studies if STUDY_NAME.fullmatch(path.name)]
    pack(root, folders, studies, out)
    return {"file": str(out), "runs": len(folders), "studies": len(studies)}


def _frame(root: Path, wanted: Wanted, bad: list[BadRecord]) -> pd.DataFrame:
    from harness.results.store import load

    frame = load(root, bad=bad)
    # Parquet would write the attributes to the file's metadata.
    frame.attrs.clear()
    columns = {
        "system": wanted.system,
        "status": wanted.status,
        "verdict": wanted.verdict,
        "config.dataset.name": wanted.dataset,
        "config.experiment": wanted.experiment,
    }
    for column, value in columns.items():
        if value is not None and len(frame):
            frame = frame[frame[column] == value]
    return frame


def _texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table without the records, and with lists and mappings as JSON: no format has to store objects."""
    text = frame.drop(columns=["record"], errors="ignore").copy()
    for column in [name for name in text.columns if text[name].dtype.kind == "O"]:
        text[column] = text[column].map(_text)
    return text


def _text(value: object) -> object:
    return value if value is None or isinstance(value, str | float) else json.dumps(value)


def _write(frame: pd.DataFrame, out: Path) -> None:
    from harness.atomic import whole_file
    from workloads.errors import InputError

    if out.suffix not in (".csv", ".parquet", ".json"):
        raise InputError(f"--out is {out}, and its kind is not known", "end it in .csv, .parquet, .json or .tar.gz")
    with whole_file(out, "the table") as partial:
        if out.suffix == ".csv":
            _texts(frame).to_csv(partial, index=False)
        elif out.suffix == ".parquet":
            _texts(frame).to_parquet(partial, index=False)
        else:
            partial.write_text(json.dumps(list(frame["record"]) if len(frame) else []), encoding="utf-8")


def import_(
    sources: Annotated[list[Path], typer.Argument(help="results roots, run folders, or archives of `export --runs`")],
    call: OnResults,
) -> None:
    """Merge runs and studies of other hosts into this results root: checked first, then all of them or none."""
    from dataclasses import asdict

    from harness.results.incoming import merge

    merged = merge(sources, call.results_root)
    if call.json:
        print_json(asdict(merged))
    elif not call.quiet:
        print(
            f"took {len(merged.runs)} runs and {len(merged.studies)} studies; "
            f"{len(merged.skipped)} stood here already with the same content"
        )
        for name in merged.kept:
            print(f"study {name} stood here already with another result, which stays")

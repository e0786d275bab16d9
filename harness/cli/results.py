"""`outcore results`: list, show, compare, export and tidy the run records."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.common import RESULTS, Json, Quiet, ResultsRoot, Verbose, print_json

app = typer.Typer(help="List, show, compare, export and tidy the run records.", no_args_is_help=True)


@app.command("list")
def list_(
    system: Annotated[str | None, typer.Option(help="only this system")] = None,
    status: Annotated[str | None, typer.Option(help="only this status")] = None,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """List the runs, oldest first."""
    from harness.results import records

    found = [
        record
        for record in records(results_root)
        if (system is None or record.system == system) and (status is None or record.status == status)
    ]
    if json_:
        keys = ("run_id", "config_hash", "system", "status", "reason", "verdict")
        print_json(
            {"runs": [{**{key: getattr(record, key) for key in keys}, "class": record.class_} for record in found]}
        )
        return
    from rich.table import Table

    from harness.cli.table import console, seconds

    table = Table("run", "dataset", "memory", "status", "verdict", "class", "epoch s")
    for record in found:
        table.add_row(
            record.run_id, record.config.dataset.name, record.config.memory, record.status, record.verdict,
            record.class_ or "–", seconds(record.summary.epoch_s),
        )  # fmt: skip
    console().print(table)


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="a run id, the beginning or end of one, or `latest`")],
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show one run: epochs, memory, verdict and the rules it bends."""
    from harness.results import find, read_record

    folder = find(results_root, run)
    record = read_record(folder)
    if json_:
        print_json(record.to_json())
        return
    from harness.cli.table import console, epoch_table, summary_lines

    out = console()
    if record.epochs:
        out.print(epoch_table(record))
    for line in [*summary_lines(record), f"folder {folder}"]:
        out.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="two runs or more")],
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Put runs beside each other; the first is the measure of the others. Says what else differs than the system."""
    from harness.results import find, read_record

    found = [read_record(find(results_root, run)) for run in runs]
    first = found[0]
    base = first.summary.epoch_s.median if first.summary.epoch_s else None
    rows: list[dict[str, Any]] = []
    for record in found:
        median = record.summary.epoch_s.median if record.summary.epoch_s else None
        rows.append(
            {
                "run_id": record.run_id,
                "system": record.system,
                "status": record.status,
                "epoch_s": median,
                "speedup": base / median if base and median else None,
                "same_batches": [e.digest for e in record.epochs] == [e.digest for e in first.epochs],
                "differs_in": differences(first.config.model_dump(), record.config.model_dump()),
            }
        )
    if json_:
        print_json({"runs": rows})
        return
    from rich.table import Table

    from harness.cli.table import console, number

    table = Table("run", "status", "epoch s", "times as fast", "same batches", "differs in")
    for row in rows:
        table.add_row(
            str(row["run_id"]), str(row["status"]), number(row["epoch_s"], ".3g"), number(row["speedup"]),
            "yes" if row["same_batches"] else "no", ", ".join(row["differs_in"]),
        )  # fmt: skip
    console().print(table)


def differences(one: dict[str, object], other: dict[str, object], prefix: str = "") -> list[str]:
    """Dotted keys in which two configurations differ, labels and rounds apart."""
    from harness.record import LABELS

    found: list[str] = []
    for key in dict.fromkeys([*one, *other]):
        a, b = one.get(key), other.get(key)
        if key in LABELS or a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{prefix}{key}.")
        else:
            found.append(f"{prefix}{key}")
    return found


@app.command()
def export(
    out: Annotated[Path | None, typer.Option(help=".csv, .parquet or .json; standard output as CSV without it")] = None,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write all records as one table, a row a run."""
    from harness.results import load
    from workloads.errors import InputError

    frame = load(results_root)
    if json_:
        print_json({"runs": list(frame["record"]) if len(frame) else []})
        return
    plain = frame.drop(columns=["record"], errors="ignore")
    text = plain.copy()
    for column in [name for name in text.columns if text[name].dtype.kind == "O"]:
        text[column] = text[column].map(lambda value: value if value is None else str(value))
    if out is None:
        text.to_csv(sys.stdout, index=False)
    elif out.suffix == ".csv":
        text.to_csv(out, index=False)
    elif out.suffix == ".parquet":
        text.to_parquet(out, index=False)
    elif out.suffix == ".json":
        out.write_text(json.dumps(list(frame["record"]) if len(frame) else []), encoding="utf-8")
    else:
        raise InputError(f"--out is {out}, and its kind is not known", "end it in .csv, .parquet or .json")


@app.command()
def gc(
    failed: Annotated[bool, typer.Option("--failed", help="remove failed runs too")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Remove half-written runs and records that a newer one of the same configuration and round replaces."""
    import shutil

    from harness.results import PARTIAL, read_record, run_folders, runs_folder

    doomed = sorted(runs_folder(results_root).glob(f"{PARTIAL}*"))
    newest: dict[tuple[str, int], Path] = {}
    for folder in run_folders(results_root):
        record = read_record(folder)
        key = (record.config_hash, record.config.round)
        if failed and record.status == "failed":
            doomed.append(folder)
            continue
        if key in newest:
            doomed.append(newest[key])
        newest[key] = folder
    if not dry_run:
        for folder in doomed:
            shutil.rmtree(folder)
    if json_:
        print_json({"removed": [folder.name for folder in doomed], "dry_run": dry_run})
    elif not quiet:
        for folder in doomed:
            print(f"{'would remove' if dry_run else 'removed'} {folder.name}")

"""`outcore results`: list, show, compare, export, import and tidy the run records."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.cli.common import RESULTS, Json, Quiet, ResultsRoot, Verbose, print_json
from harness.cli.results_filter import Dataset, Experiment, Status, System, Verdict, Wanted, say_bad, wanted_runs
from harness.cli.results_gc import gc
from harness.cli.results_show import show
from harness.cli.results_transfer import export, import_

app = typer.Typer(help="List, show, compare, export, import and tidy the run records.", no_args_is_help=True)


@app.command("list")
def list_(
    system: System = None,
    status: Status = None,
    dataset: Dataset = None,
    verdict: Verdict = None,
    experiment: Experiment = None,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """List the runs, oldest first; what cannot be read is named on stderr."""
    from harness.results.store import BadRecord

    bad: list[BadRecord] = []
    found = [
        record for _, record in wanted_runs(results_root, Wanted(system, status, dataset, verdict, experiment), bad)
    ]
    if json_:
        keys = ("run_id", "config_hash", "system", "status", "reason", "verdict", "started_at")
        runs = [
            {
                **{key: getattr(record, key) for key in keys},
                "class": record.class_,
                "dataset": record.config.dataset.name,
                "memory": record.config.memory,
                "experiment": record.config.experiment,
                "round": record.config.round,
                "epoch_s": record.summary.epoch_s.model_dump(mode="json") if record.summary.epoch_s else None,
            }
            for record in found
        ]
        print_json({"runs": runs, "not_read": [entry._asdict() for entry in bad]})
        return
    from rich.table import Table

    from harness.cli.table import seconds
    from harness.table import cell, console

    table = Table("run", "dataset", "memory", "status", "verdict", "class", "epoch s")
    for record in found:
        kind = record.class_label if record.class_ else "–"
        texts = (record.run_id, record.config.dataset.name, record.config.memory, record.status, record.verdict)
        table.add_row(*map(cell, texts), kind, cell(seconds(record.summary.epoch_s)))
    console().print(table)
    say_bad(bad)


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="two runs or more")],
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Put runs beside each other; the first is the measure of the others. Says what else differs than the system."""
    from harness.records.hosts import measured_on
    from harness.results.store import find, read_record

    found = [read_record(find(results_root, run)) for run in runs]
    first = found[0]
    base = first.summary.epoch_s.median if first.summary.epoch_s else None
    rows: list[dict[str, Any]] = []
    for record in found:
        median = record.summary.epoch_s.median if record.summary.epoch_s else None
        one, other = ({**entry.config.model_dump(), "on": measured_on(entry.to_json())} for entry in (first, record))
        if first.system != record.system:
            # Options that only one of two systems has are no difference between runs.
            both = first.config.options.keys() & record.config.options.keys()
            for content in (one, other):
                content["options"] = {key: content["options"][key] for key in both}
        rows.append(
            {
                "run_id": record.run_id,
                "system": record.system,
                "status": record.status,
                "verdict": record.verdict,
                "epoch_s": median,
                "speedup": base / median if base and median else None,
                "same_batches": [e.digest for e in record.epochs] == [e.digest for e in first.epochs],
                "differs_in": differences(one, other),
            }
        )
    if json_:
        print_json({"runs": rows})
        return
    from rich.table import Table

    from harness.table import cell, console, number

    table = Table("run", "status", "verdict", "epoch s", "times as fast", "same batches", "differs in")
    for row in rows:
        table.add_row(
            cell(row["run_id"]),
            row["status"],
            row["verdict"],
            number(row["epoch_s"], ".3g"),
            number(row["speedup"]),
            "yes" if row["same_batches"] else "no",
            cell(", ".join(row["differs_in"])),
        )
    console().print(table)


def differences(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted keys in which two configurations differ, except labels and round."""
    from harness.records.record import LABELS

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


app.command()(show)
app.command()(export)
app.command("import")(import_)
app.command()(gc)

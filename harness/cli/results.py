"""`outcore results`: list, show, compare, export, import and tidy the run records."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.cli.common import OnResults, Verbs, print_json, print_table
from harness.cli.results_filter import Wanted, say_bad, wanted_runs
from harness.cli.results_gc import gc
from harness.cli.results_show import show
from harness.cli.results_transfer import export, import_

app = Verbs(help="List, show, compare, export, import and tidy the run records.", no_args_is_help=True)


@app.verb
def list_(wanted: Wanted, call: OnResults) -> None:
    """List the runs, oldest first; what cannot be read is named on stderr."""
    from harness.results.store import BadRecord

    bad: list[BadRecord] = []
    found = [record for _, record in wanted_runs(call.results_root, wanted, bad)]
    if call.json:
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
    from harness.cli.table import seconds

    rows = [
        (
            record.run_id,
            record.config.dataset.name,
            record.config.memory,
            record.status,
            record.verdict,
            record.class_label if record.class_ else "–",
            seconds(record.summary.epoch_s),
        )
        for record in found
    ]
    print_table(("run", "dataset", "memory", "status", "verdict", "class", "epoch s"), rows)
    say_bad(bad)


@app.verb
def compare(runs: Annotated[list[str], typer.Argument(help="two runs or more")], call: OnResults) -> None:
    """Put runs beside each other; the first is the measure of the others. Says what else differs than the system."""
    from harness.records.hosts import measured_on
    from harness.results.store import find, read_record

    found = [read_record(find(call.results_root, run)) for run in runs]
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
    if call.json:
        print_json({"runs": rows})
        return
    from harness.table import number

    shown = [
        (
            row["run_id"],
            row["status"],
            row["verdict"],
            number(row["epoch_s"], ".3g"),
            number(row["speedup"]),
            "yes" if row["same_batches"] else "no",
            ", ".join(row["differs_in"]),
        )
        for row in rows
    ]
    print_table(("run", "status", "verdict", "epoch s", "times as fast", "same batches", "differs in"), shown)


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


app.verb(show)
app.verb(export)
app.verb(import_)
app.verb(gc)

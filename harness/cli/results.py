"""`outcore results`: list, show, compare, export, import, archive and tidy the run
records; add foreign times."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from harness.atomic import whole_file
from harness.cli.common import OnBoth, OnResults, Options, Verbs, takes_settings
from harness.cli.rules import read_on
from harness.cli.run import SETTINGS
from harness.cli.run_settings import differing, settings_of, text_of
from harness.cli.run_tables import (
    fresh_epoch_s,
    number,
    print_epochs,
    print_runs,
    size,
    summary_lines,
    without_time,
)
from harness.cli.table import Wide, print_lines, print_table, printable
from harness.records import record as records
from harness.records.foreign import Counter, ForeignRecord, read_foreign, write_foreign
from harness.records.hosts import host_name, measured_on
from harness.records.record import LABELS, Record
from harness.records.study import STUDIES
from harness.results.archive import STUDY_NAME, is_archive, pack
from harness.results.incoming import merge
from harness.results.reference import SAMPLES
from harness.results.store import BadRecord, find, read_record, scan, short_ids
from harness.run.places import Places
from harness.settings import RunSettings, check_settings, strict, unknown_name
from workloads.errors import InputError, require
from workloads.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import pandas as pd

    from harness.results.gc import ArtefactInfo

#: Help of an argument that names a run.
RUN = "a run id, short as in `outcore results list` or its beginning, or `latest`"

app = Verbs(
    help="List, show, compare, export, import, archive and tidy the run records; add "
    "foreign times.",
    no_args_is_help=True,
)

#: Filter -> its place in a record, also its column in a table of records; others have
#: their own name.
_PLACES = {"dataset": "config.dataset.name", "experiment": "config.experiment"}


@dataclass(frozen=True, kw_only=True)
class Wanted(Options):
    """Filter of runs; None accepts any value. Raises InputError if a status or verdict
    is unknown."""

    system: Annotated[str | None, typer.Option(help="only this system")] = None
    status: Annotated[
        str | None,
        typer.Option(help="only this status: ok, oom, timeout, unsupported, failed"),
    ] = None
    dataset: Annotated[str | None, typer.Option(help="only runs on this dataset")] = (
        None
    )
    verdict: Annotated[
        str | None,
        typer.Option(help="only this verdict: VALID, CAVEATS, SPOILT, INVALID"),
    ] = None
    experiment: Annotated[
        str | None, typer.Option(help="only runs of this experiment or profile")
    ] = None

    def __post_init__(self) -> None:
        for what, value, known in (
            ("status", self.status, records.Status),
            ("verdict", self.verdict, records.Verdict),
        ):
            if value is not None and value not in get_args(known):
                raise unknown_name(what, f"--{what} {value}", value, get_args(known))

    def given(self) -> dict[str, str]:
        """Return the place in a record of each given filter -> the accepted value."""
        return {
            _PLACES.get(name, name): value
            for name, value in vars(self).items()
            if value is not None
        }

    def runs(self, call: OnResults, bad: list[BadRecord]) -> list[tuple[Path, Record]]:
        """Return folders and records of the accepted runs, oldest first; add unreadable
        records to `bad`."""
        given = self.given()
        with call.progress() as progress:
            return [
                (folder, record)
                for folder, record in scan(call.results_root, bad, progress)
                if all(
                    attrgetter(place)(record) == value for place, value in given.items()
                )
            ]


def say_bad(bad: Sequence[BadRecord]) -> None:
    """Print one line per unreadable record on stderr."""
    for entry in bad:
        print(f"outcore: not read: {entry.reason}", file=sys.stderr)


@app.verb
def list_(wanted: Wanted, table: Wide, call: OnResults) -> None:
    """List the runs, oldest first; name unreadable ones on stderr.

    Every command that takes a run takes the short run ids of this list.

    Examples:
        outcore results list
        outcore results list --system gnndrive --verdict VALID --wide
    """
    bad: list[BadRecord] = []
    found = [record for _, record in wanted.runs(call, bad)]
    runs: list[dict[str, Any]] = []
    differs = differing([settings_of(record) for record in found])
    for record, own in zip(found, differs.rows, strict=True):
        keys = (
            "run_id",
            "config_hash",
            "system",
            "status",
            "reason",
            "verdict",
            "started_at",
        )
        run = {**{key: getattr(record, key) for key in keys}, "class": record.class_}
        run["dataset"] = record.config.dataset.name
        run |= {
            key: getattr(record.config, key)
            for key in ("memory", "experiment", "round")
        }
        run["settings"] = {**differs.usual, **own}
        run["drive"] = _disk(record).get("drive") or None
        run["host"] = host_name(record.environment) or None
        epoch_s = record.summary.epoch_s
        runs.append(
            {**run, "epoch_s": epoch_s.model_dump(mode="json") if epoch_s else None}
        )

    given = wanted.given()
    changed = list[Path]()
    foreign = [
        record
        for record in read_foreign(call.results_root, changed)
        if given.keys() <= {"system", "config.dataset.name"}
        and given.get("system", record.system) == record.system
        and given.get("config.dataset.name", record.settings.dataset)
        == record.settings.dataset
    ]

    bad += [
        BadRecord(str(path), f"{path} is damaged, or was changed after it was added")
        for path in changed
    ]

    def shown() -> None:
        short = short_ids(call.results_root)
        names = [
            record.run_id if table.wide else short[record.run_id] for record in found
        ]
        print_runs(
            [[record] for record in found],
            f"runs in {call.results_root}",
            names=names,
            wide=table.wide,
        )
        _print_drives(found, short)
        if foreign:
            _print_foreign(foreign)
        say_bad(bad)

    reported = [
        {"key": record.key, "verdict": "FOREIGN", **record.model_dump(mode="json")}
        for record in foreign
    ]
    call.emit(
        {
            "runs": runs,
            "foreign": reported,
            "not_read": [entry._asdict() for entry in bad],
        },
        shown,
    )


def _disk(record: Record) -> dict[str, Any]:
    """Return what a record holds of the disk under its data; empty without any."""
    return record.environment.get("disk") or {}


def _print_drives(found: Sequence[Record], short: Mapping[str, str]) -> None:
    """Print a table of the drives that the runs were made on, if any run records its
    drive."""
    runs: dict[str, list[Record]] = {}
    for record in found:
        runs.setdefault(str(_disk(record).get("drive") or ""), []).append(record)
    if not any(runs):
        return
    rows = []
    for drive, made in runs.items():
        disk = _disk(made[-1])
        place = (
            str(disk.get(name) or "–")
            for name in ("model", "file_system", "drive_known_by")
        )
        names = ", ".join(short[record.run_id] for record in made)
        rows.append(
            [
                printable(cell)
                for cell in (drive or "not recorded", *place, str(len(made)), names)
            ]
        )
    heads = ("drive", "model", "file system", "known by", "runs", "ids")
    print_lines("")
    print_table(heads, rows, prose=("known by", "ids"))


def _print_foreign(found: Sequence[ForeignRecord]) -> None:
    """Print the table of measurements by other code."""
    rows = []
    settings = [
        record.settings.model_dump(exclude={"dataset", "memory"}) for record in found
    ]
    differs = differing(
        [{name: text_of(value) for name, value in each.items()} for each in settings]
    )
    for record, own in zip(found, differs.texts, strict=True):
        seconds = number(records.spread(record.seconds).median, ".3g")
        place = (record.settings.dataset, record.settings.memory, seconds, "FOREIGN")
        rows.append(
            [
                printable(cell)
                for cell in (record.label, *place, own, record.how, record.host)
            ]
        )
    heads = (
        "measured by other code",
        "dataset",
        "memory",
        "epoch s",
        "verdict",
        "settings",
        "how",
        "where",
    )
    title = "not measured by Outcore: never judged, in no order, claim or gate"
    print_lines("")
    title += f", mostly {differs.mostly}" if differs.usual else ""
    hidden = () if any(differs.rows) else ("settings",)
    print_table(heads, rows, title, prose=("settings", "how", "where"), hidden=hidden)


@app.verb
@takes_settings(*SETTINGS, required=("dataset",))
def add(
    code: Annotated[str, typer.Argument(help="name of the other code, like Ginex")],
    settings: RunSettings,
    call: OnResults,
    version: Annotated[str, typer.Option(help="its version or commit")],
    seconds: Annotated[
        str, typer.Option(help="seconds of each measured epoch, like 12.1,12.4")
    ],
    how: Annotated[str, typer.Option(help="how it was measured, in a sentence")],
    host: Annotated[str, typer.Option(help="where it was measured, in words")] = "",
    counter: Annotated[
        list[str] | None, typer.Option(help="count of one epoch, like rows=1200000")
    ] = None,
) -> None:
    """Add epoch times that somebody measured with other code, in the words of `outcore
    run`.

    They are marked as foreign: listed and drawn hollow beside ours, never judged, in no
    order, claim or gate.

    Examples:
        outcore results add Ginex --version 1 --dataset mine --seconds 9 --how "..."
    """
    check_settings(settings)
    content = {
        "system": code,
        "version": version,
        "settings": settings,
        "how": how,
        "host": host,
    }
    content["seconds"] = [
        _number(part, "--seconds", seconds, "12.1,12.4") for part in seconds.split(",")
    ]
    counters: dict[str, float] = {}
    for pair in counter or []:
        name, _, text = pair.partition("=")
        if name not in get_args(Counter):
            raise unknown_name(
                "counter", f"--counter {pair!r}", name, get_args(Counter)
            )
        require(
            name not in counters, f"--counter {name} is given twice", "give each once"
        )
        counters[name] = _number(text, "--counter", pair, f"{name}=1200000")
    content["counters"] = counters
    record = strict(ForeignRecord, content, "")
    path, fresh = write_foreign(call.results_root, record)
    message = (
        f"{record.label}: {'added' if fresh else 'there already'}, {path} (remove the "
        "file to take it back)"
    )
    reported = {"key": record.key, "path": str(path), "added": fresh}
    call.emit({"foreign": reported}, [] if call.quiet else [printable(message)])


def _number(text: str, option: str, given: str, like: str) -> float:
    """Return the number that a text is; raises InputError, with the option and all that
    was given, where it is none."""
    with suppress(ValueError):
        if "_" not in text:
            return float(text)
    raise InputError(
        f"{option} is {given!r}, and {text!r} is no number", f"write it like {like}"
    )


@app.verb
def compare(
    runs: Annotated[list[str], typer.Argument(help="two runs or more")], call: OnResults
) -> None:
    """Compare runs with the first of them, and name the settings in which they differ.

    Seconds are those of an epoch with all of its work, as in every table of runs; same
    batches: in the epochs that both runs have.

    Examples:
        outcore results compare latest 20261125-051405
        outcore results compare 41cecc0e-r0 56011e98-r0 d70efb5f-r0
    """
    found = [read_record(find(call.results_root, run)) for run in runs]
    first = found[0]
    base_s = fresh_epoch_s([first])
    rows: list[dict[str, Any]] = []
    for record in found:
        epoch_s = fresh_epoch_s([record])
        one, other = (
            {**entry.config.model_dump(), "on": measured_on(entry.to_json())}
            for entry in (first, record)
        )
        if first.system != record.system:
            # Options that only one of two systems has are no difference between runs.
            both = first.config.options.keys() & record.config.options.keys()
            for content in (one, other):
                content["options"] = {key: content["options"][key] for key in both}
        row = {
            key: getattr(record, key)
            for key in ("run_id", "system", "status", "verdict")
        }
        row |= {
            "epoch_s": epoch_s,
            "speedup": base_s / epoch_s if base_s and epoch_s else None,
        }
        rows.append(
            {
                **row,
                "same_batches": _same_batches(first, record),
                "differs_in": differences(one, other),
            }
        )
    shown = []
    short = short_ids(call.results_root)
    by_id = {record.run_id: record for record in found}
    for row in rows:
        epoch = (
            without_time([by_id[row["run_id"]]])
            if row["epoch_s"] is None
            else number(row["epoch_s"], ".3g")
        )
        numbers = (epoch, number(row["speedup"]), _ANSWERS[row["same_batches"]])
        reported = (short[row["run_id"]], row["system"], row["verdict"])
        shown.append((*reported, *numbers, ", ".join(row["differs_in"])))
    heads = (
        "run",
        "system",
        "verdict",
        "epoch s",
        "times as fast",
        "same batches",
        "differs in",
    )
    call.emit({"runs": rows}, lambda: print_table(heads, shown, prose=("differs in",)))


_ANSWERS = {True: "yes", False: "no", None: "–"}


def _same_batches(one: Record, other: Record) -> bool | None:
    """Return whether two runs trained the same mini-batches in all epochs that both
    have; None: they share no epoch."""
    digests = {epoch.epoch: epoch.digest for epoch in one.epochs}
    shared = [epoch for epoch in other.epochs if epoch.epoch in digests]
    return (
        all(digests[epoch.epoch] == epoch.digest for epoch in shared)
        if shared
        else None
    )


def differences(
    one: dict[str, Any], other: dict[str, Any], prefix: str = ""
) -> list[str]:
    """Return the dotted keys in which two configurations differ, except labels and
    round."""
    found: list[str] = []
    for key in dict.fromkeys([*one, *other]):
        a = one.get(key)
        b = other.get(key)
        if key in LABELS or a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{prefix}{key}.")
        else:
            found.append(f"{prefix}{key}")
    return found


@app.verb
def show(
    run: Annotated[str, typer.Argument(help=RUN)], table: Wide, call: OnResults
) -> None:
    """Show one run: epochs, shares of stages, memory and its plan, verdict and broken
    rules.

    Examples:
        outcore results show latest
        outcore results show 41cecc0e-r0 --wide
    """
    folder = find(call.results_root, run)
    record = read_record(folder)

    def shown() -> None:
        print_epochs(record, wide=table.wide)
        if record.memory.plan:
            _print_plan(record)
        lines = [*summary_lines(record), *read_on(record), *_host_lines(record)]
        lines += [f"caveat: {caveat}" for caveat in record.caveats]
        lines += [f"{name}: {text}" for name, text in record.notes.items()]
        print_lines(*map(printable, [*lines, f"folder {folder}"]))

    call.emit(record.to_json(), shown)


def _print_plan(record: Record) -> None:
    """Print the table of planned buffers, largest first in each tier, with their share
    of the tier."""
    whole = {
        "host": record.memory.budget_bytes,
        "device": record.config.device_memory_bytes,
        "disk": None,
    }
    rows: list[tuple[str, ...]] = []
    for buffer in sorted(
        record.memory.plan,
        key=lambda entry: (list(whole).index(entry.tier), -entry.bytes),
    ):
        limit = whole[buffer.tier]
        rows.append(
            (
                buffer.name,
                buffer.tier,
                size(buffer.bytes),
                _percent(buffer.bytes, limit),
            )
        )
    for tier, limit in whole.items():
        planned = sum(
            buffer.bytes for buffer in record.memory.plan if buffer.tier == tier
        )
        if planned and limit:
            rows.append(
                (
                    f"all of {tier}",
                    tier,
                    f"{size(planned)} of {size(limit)}",
                    _percent(planned, limit),
                )
            )
    print_lines("")
    print_table(("buffer", "tier", "planned", "share of the tier"), rows, "plan")


def _percent(part: int, whole: int | None) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _host_lines(record: Record) -> list[str]:
    """Return one line on the host, its disk and the commit; empty if the host is
    unknown."""
    found = record.environment
    cpu, disk, code = (found.get(key) or {} for key in ("cpu", "disk", "code"))
    if not cpu:
        return []
    commit = str(code.get("commit") or "unknown")[:12] + (
        " with uncommitted changes" if code.get("dirty") else ""
    )
    drive = (
        f"disk {disk.get('model') or 'unknown'} "
        f"({disk.get('file_system') or 'unknown'})"
    )
    drive += f", drive {disk['drive']}" if disk.get("drive") else ""
    host = (
        f"host {host_name(found)}: {cpu.get('model')} with {cpu.get('usable')} "
        "processors"
    )
    return [f"{host}, {drive}, commit {commit}"]


@app.verb
def export(
    wanted: Wanted,
    call: OnResults,
    out: Annotated[
        Path | None,
        typer.Option(
            help=".csv, .parquet, .json; .tar.gz, .zip with --runs; standard output "
            "as CSV without it"
        ),
    ] = None,
    runs: Annotated[
        bool,
        typer.Option(
            "--runs", help="whole run folders, for `results import` elsewhere"
        ),
    ] = False,
) -> None:
    """Write the records as one table, a row a run, or (--runs) whole run folders and
    studies as an archive.

    Examples:
        outcore results export --out runs.csv
        outcore results export --runs --out runs.tar.gz --experiment quick
    """
    bad: list[BadRecord] = []
    if runs or (out is not None and is_archive(out)):
        if out is None:
            raise InputError(
                "--runs has no --out to write to", "name a .tar.gz or .zip"
            )
        folders = [folder for folder, _ in wanted.runs(call, bad)]
        # Studies belong to no run, so a filter leaves them out.
        found = (
            []
            if wanted.given()
            else sorted((call.results_root / STUDIES).glob("*.json"))
        )
        studies = [path for path in found if STUDY_NAME.fullmatch(path.name)]
        with call.working("writing the archive"):
            pack(call.results_root, folders, studies, out)
        message = {"file": str(out), "runs": len(folders), "studies": len(studies)}
    else:
        with call.progress() as progress:
            from harness.results.table import every_part, load

            frame = every_part(load(call.results_root, progress))
        # Parquet would write the attributes to the file's metadata.
        bad = frame.attrs.pop("bad")
        for column, value in wanted.given().items():
            frame = frame[frame[column] == value] if len(frame) else frame
        if out is None:
            call.emit(
                {"runs": _contents(frame)},
                lambda: _texts(frame).to_csv(sys.stdout, index=False),
            )
            say_bad([] if call.json else bad)
            return
        with call.working("writing the table"):
            _write(frame, out)
        message = {"file": str(out), "runs": len(frame)}
    counts = ", ".join(
        f"{key}: {value}" for key, value in message.items() if key != "file"
    )
    lines = [] if call.quiet else [f"{message['file']} ({counts})"]
    call.emit({**message, "not_read": [entry._asdict() for entry in bad]}, lines)
    say_bad([] if call.json else bad)


def _contents(frame: pd.DataFrame) -> list[Any]:
    return list(frame["record"]) if len(frame) else []


def _texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table without the records, and with lists and mappings as JSON: no
    format has to store objects."""
    text = frame.drop(columns=["record"], errors="ignore").copy()
    for column in [name for name in text.columns if text[name].dtype.kind == "O"]:
        text[column] = text[column].map(
            lambda value: (
                value
                if value is None or isinstance(value, str | float)
                else json.dumps(value)
            )
        )
    return text


def _write(frame: pd.DataFrame, out: Path) -> None:
    if out.suffix not in (".csv", ".parquet", ".json"):
        raise InputError(
            f"--out is {out}, and its kind is not known",
            "end it in .csv, .parquet, .json or .tar.gz",
        )
    with whole_file(out, "the table") as partial:
        if out.suffix == ".csv":
            _texts(frame).to_csv(partial, index=False)
        elif out.suffix == ".parquet":
            _texts(frame).to_parquet(partial, index=False)
        else:
            partial.write_text(json.dumps(_contents(frame)), encoding="utf-8")


@app.verb
def import_(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="results roots, run folders, or archives of `export --runs`"
        ),
    ],
    call: OnResults,
) -> None:
    """Merge runs and studies of other hosts into this results root: checked first, then
    all of them or none.

    Examples:
        outcore results import runs.tar.gz
    """
    with call.working("checking and importing"):
        merged = merge(sources, call.results_root)
    took = f"imported {len(merged.runs)} runs and {len(merged.studies)} studies; "
    lines = [
        f"{took}{len(merged.skipped)} were there already with the same content",
        *(
            f"study {name} was there already with another result, which is kept"
            for name in merged.kept
        ),
    ]
    call.emit(asdict(merged), [] if call.quiet else lines)


@app.verb
def archive(
    out: Annotated[
        Path,
        typer.Argument(
            help="folder of the reference results, named after the class of hosts"
        ),
    ],
    call: OnResults,
    samples: Annotated[
        int, typer.Option(help="most samples of telemetry of a run", show_default=True)
    ] = SAMPLES,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="even if planned runs or studies are missing"),
    ] = False,
) -> None:
    """Pack one host's whole bench as reference results: all figures of `quick`, and
    every other experiment in the root.

    Examples:
        outcore results archive results/reference/2-core-vm
    """
    from harness.report.reference import write_reference

    with call.working("packing") as progress:
        written = write_reference(
            call.results_root, out, samples=samples, partial=partial, progress=progress
        )
    counts = (
        f"{written.runs} runs and {written.studies} studies, "
        f"{format_bytes(written.bytes)}"
    )
    lines = [f"{out}: {counts}", *(f"left out: {what}" for what in written.left_out)]
    if written.missing:
        planned = written.planned_runs + written.planned_studies
        lines.append(
            f"{len(written.missing)} of {planned} planned are missing, the first is "
            f"{written.missing[0]}"
        )
    call.emit(
        written.model_dump(mode="json"),
        lambda: print_lines(*([] if call.quiet else lines)),
    )


@app.verb
def gc(
    call: OnBoth,
    failed: Annotated[
        bool, typer.Option("--failed", help="remove failed runs too")
    ] = False,
    damaged: Annotated[
        bool,
        typer.Option("--damaged", help="remove runs whose record cannot be read too"),
    ] = False,
    artefacts: Annotated[
        bool, typer.Option("--artefacts", help="remove all artefacts of systems too")
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(help="with --artefacts: keep those used last, up to 4GiB"),
    ] = None,
    unused_days: Annotated[
        float | None,
        typer.Option(help="with --artefacts: only those not used for as long"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="list the files, remove none")
    ] = False,
) -> None:
    """Remove half-written and replaced runs and figure files of no figure; failed and
    damaged runs where asked.

    Examples:
        outcore results gc --dry-run
        outcore results gc --artefacts --keep 4GiB
    """
    from harness.figures.base import catalogue
    from harness.results.gc import doomed, remove

    if not artefacts and (keep is not None or unused_days is not None):
        raise InputError(
            "--keep and --unused-days are about artefacts", "add --artefacts"
        )
    root = call.results_root
    with call.working("tidying"):
        prepared = (
            _artefacts(Places.of(call.data_root), keep, unused_days, dry_run=dry_run)
            if artefacts
            else []
        )
        found = doomed(root, catalogue(), failed=failed, damaged=damaged)
        if not dry_run:
            remove(root, found)
    did = "would remove" if dry_run else "removed"
    paths = [
        entry.path.relative_to(root) if entry.path.is_relative_to(root) else entry.path
        for entry in found
    ]
    lines = [
        f"{did} {path}: {entry.why}" for path, entry in zip(paths, found, strict=True)
    ]
    lines += [
        f"{did} artefact {info.system}/{info.key}: {format_bytes(info.bytes)}"
        for info in prepared
    ]
    content = {
        "removed": [entry.path.name for entry in found],
        "why": [{"name": entry.path.name, "why": entry.why} for entry in found],
        "artefacts": [
            {"system": info.system, "name": info.key, "bytes": info.bytes}
            for info in prepared
        ],
        "dry_run": dry_run,
    }
    call.emit(content, [] if call.quiet else lines)


def _artefacts(
    places: Places, keep: str | None, days: float | None, *, dry_run: bool
) -> list[ArtefactInfo]:
    """Remove artefacts, except those of running systems, and return them; with
    `dry_run`, only list them."""
    from harness.results.gc import list_artefacts, remove_artefacts, stale

    found = list_artefacts(places.artefacts)
    if keep is not None or days is not None:
        found = stale(
            found,
            keep_bytes=None if keep is None else parse_bytes(keep, "--keep"),
            older_than_s=None if days is None else days * 86_400,
        )
    return found if dry_run else remove_artefacts(found)

"""Baselines: results of a commit's runs on one machine, kept for trends and for
comparisons with a results root."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from harness.cache import digest_of
from harness.records.code import Made, from_same_code
from harness.records.hosts import host_fingerprint
from harness.records.record import Record
from harness.regress.decision import Comparison, Rules
from harness.regress.git import Repository
from harness.regress.judge import compare
from harness.regress.samples import ConfigSamples, cells_of, fingerprints
from harness.regress.store import Store
from harness.results import store as results
from harness.settings import Strict
from workloads.errors import InputError

SCHEMA = 1
# Number of newest entries in a baseline: sessions differ more than runs of one session.
NEWEST = 20


class Entry(Strict):
    """Results of one commit on one machine in one session."""

    schema_version: int = SCHEMA
    host: str = Field(pattern=r"^[0-9a-f]{12}$")
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    committed_at: int
    recorded_at: int
    subject: str = ""
    cells: list[ConfigSamples]

    def cell(self, key: str) -> ConfigSamples | None:
        """Return the cell of a key; None if the entry lacks it."""
        return next((cell for cell in self.cells if cell.key == key), None)


@dataclass(frozen=True)
class History:
    """Entries in the order of their commits, oldest first; `notes` count entries and
    runs that were left out."""

    entries: list[Entry]
    notes: list[str] = field(default_factory=list)

    def of(self, host: str) -> list[Entry]:
        """Return the entries of one machine."""
        return [entry for entry in self.entries if entry.host == host]


def record(
    records: Sequence[Record], store: Store, repository: Repository
) -> list[str]:
    """Write runs as baselines, an entry per commit and machine; raise InputError,
    before any, if a run lacks either."""
    kept = []
    for (commit, host), runs in _by_commit(records).items():
        entry = _entry(commit, host, runs, repository)
        text = (
            json.dumps(entry.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"
        )
        runs_digest = digest_of([run.run_id for run in runs])[:8]
        kept.append(store.write(f"{host}/{commit[:16]}-{runs_digest}.json", text))
    return kept


def with_runs(
    history: History, records: Sequence[Record], repository: Repository | None
) -> History:
    """Return the history with runs that it lacks added as entries per commit and
    machine; no file is written.

    A note counts the runs that cannot be added: uncommitted changes, no commit or no
    machine.
    """
    held = {
        run.run_id
        for entry in history.entries
        for cell in entry.cells
        for run in cell.runs
    }
    left_out: list[str] = []
    groups = _by_commit([run for run in records if run.run_id not in held], left_out)
    entries = [
        _entry(commit, host, runs, repository)
        for (commit, host), runs in groups.items()
    ]
    notes = (
        [f"{len(left_out)} runs are no part of the history, like: {left_out[0]}"]
        if left_out
        else []
    )
    return History(
        _ordered([*history.entries, *entries], repository), [*history.notes, *notes]
    )


def _by_commit(
    records: Sequence[Record], left_out: list[str] | None = None
) -> dict[tuple[str, str], list[Record]]:
    """Group runs by (commit, machine); add the reasons of runs without one to
    `left_out`, else raise InputError."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for run in records:
        code = run.environment.get("code") or {}
        host = host_fingerprint(run.environment)
        commit = code.get("commit")
        if host and commit and not code.get("dirty"):
            groups.setdefault((commit, host), []).append(run)
            continue
        fault = InputError(
            f"run {run.run_id} names no machine that it was made on", "run it again"
        )
        if not commit or code.get("dirty"):
            message = (
                f"run {run.run_id} was made "
                f"{'from changed files' if commit else 'outside a git checkout'}"
            )
            fault = InputError(
                f"{message}, so no commit stands for it", "commit, run it again, record"
            )
        if left_out is None:
            raise fault
        left_out.append(str(fault))
    return groups


def _entry(
    commit: str, host: str, runs: Sequence[Record], repository: Repository | None
) -> Entry:
    """Make an entry with the commit's date and subject; without the commit, the date is
    that of its first run."""
    there = (
        repository is not None
        and repository.maybe("cat-file", "-e", f"{commit}^{{commit}}") is not None
    )
    known = repository if there else None
    dates = [
        datetime.fromisoformat(run.started_at).timestamp()
        for run in runs
        if run.started_at
    ]
    return Entry(
        host=host,
        commit=commit,
        recorded_at=int(time.time()),
        committed_at=known.committed_at(commit)
        if known
        else int(min(dates, default=0)),
        subject=known.line(commit).partition(" ")[2] if known else "",
        cells=list(cells_of(runs).values()),
    )


def load(store: Store, repository: Repository | None = None) -> History:
    """Read every valid entry, in the order of commits; commits unknown to the
    repository come last, by date."""
    found: list[Entry] = []
    bad: list[str] = []
    for name in store.names():
        try:
            entry = Entry.model_validate_json(store.read(name))
            if entry.schema_version != SCHEMA:
                raise InputError(
                    f"it has schema {entry.schema_version}, this version reads {SCHEMA}"
                )
            if not name.startswith(f"{entry.host}/{entry.commit[:16]}-"):
                raise InputError("it is of another commit or machine than its name has")
            found.append(entry)
        except (InputError, ValidationError) as error:
            bad.append(f"{name} ({str(error).splitlines()[0]})")
    notes = (
        [
            f"{len(bad)} entries of the history cannot be read and were left out, like "
            f"{bad[0]}"
        ]
        if bad
        else []
    )
    return History(_ordered(found, repository), notes)


def _ordered(entries: Sequence[Entry], repository: Repository | None) -> list[Entry]:
    """Sort by ancestry, not by date: one machine's wrong clock would reorder the
    history."""
    place = (
        repository.order([entry.commit for entry in entries])
        if repository and entries
        else {}
    )
    last = len(place)
    return sorted(
        entries,
        key=lambda entry: (
            place.get(entry.commit, last),
            entry.committed_at,
            entry.recorded_at,
        ),
    )


def compare_folders(base: Path, head: Path, rules: Rules | None = None) -> Comparison:
    """Compare the runs of two results roots cell by cell, unpaired; raise InputError if
    a root has no readable run."""
    notes: list[str] = []
    before, after = (_newest_runs(root, notes) for root in (base, head))
    hosts = [fingerprints(side) for side in (before, after)]
    differ = hosts[0] != hosts[1]
    why = (
        "made on another machine, or on several" if differ or len(hosts[0]) > 1 else ""
    )
    if why:
        notes.append(
            f"times are not compared: the runs were {why}; exact counters do not "
            "depend on the machine"
        )
    found = compare(
        cells_of(before), cells_of(after), rules, paired=False, exact_only=why
    )
    return replace(found, base=str(base), head=str(head), notes=notes)


def compare_history(
    head: Path, history: History, rules: Rules | None = None
) -> Comparison:
    """Compare runs with the baselines of their machine or, without any, their exact
    facts with another machine's.

    Baselines of the runs' own commit are left out. Raises InputError for no runs or
    several machines.
    """
    notes: list[str] = []
    after = _newest_runs(head, notes)
    hosts = fingerprints(after)
    if len(hosts) > 1:
        raise InputError(
            f"the runs under {head} were made on {len(hosts)} machines",
            "keep one results root a machine",
        )
    commits = {
        str((record.environment.get("code") or {}).get("commit") or "")
        for record in after
    }
    others = [
        entry
        for entry in history.entries
        if len(commits) > 1 or entry.commit not in commits
    ]
    chosen = [entry for entry in others if entry.host in hosts]
    why = ""
    if others and not chosen:
        chosen = [entry for entry in others if entry.host == others[-1].host]
        why = "no baseline of this machine: only exact facts, which do not depend on it"
    cells = cells_of(after)
    base = {key: cell for key in cells if (cell := _merged(chosen, key)) is not None}
    if base and len(base) < len(cells):
        notes.append(
            f"{len(cells) - len(base)} of {len(cells)} cells have no baseline yet"
        )
    notes += [*history.notes, *([why] if why else [])]
    if not chosen:
        notes.append("there is no baseline yet: keep one with `outcore regress record`")
    made = compare(
        base, {key: cells[key] for key in base}, rules, paired=False, exact_only=why
    )
    name = (
        f"{chosen[-1].commit[:12]} and before, on {chosen[-1].host}"
        if chosen
        else "no baseline"
    )
    details = {"baselines": {} if why else epochs_of(chosen)}
    return replace(made, base=name, head=str(head), notes=notes, details=details)


def epochs_of(entries: Sequence[Entry]) -> dict[str, list[float]]:
    """Return label of a cell -> its epoch time in each of the newest entries, in
    seconds, oldest first."""
    found: dict[str, list[float]] = {}
    for entry in entries:
        for cell in entry.cells:
            if "epoch" in cell.medians:
                found.setdefault(cell.label, []).append(cell.medians["epoch"])
    return {label: values[-NEWEST:] for label, values in found.items()}


def _merged(entries: Sequence[Entry], key: str) -> ConfigSamples | None:
    """Merge a cell's newest entries: one sample per entry with its medians and the
    newest entry's exact facts."""
    found = [cell for entry in entries if (cell := entry.cell(key)) is not None][
        -NEWEST:
    ]
    if not found:
        return None
    last = found[-1].runs[-1]
    runs = [
        replace(last, run_id=f"entry {index}", noisy=cell.medians)
        for index, cell in enumerate(found)
    ]
    return replace(found[-1], runs=runs)


def _newest_runs(root: Path, notes: list[str]) -> list[Record]:
    """Return a root's runs of the newest code on each machine: no comparison spans a
    change of the measuring code."""
    found = read_runs(root, notes)
    kept = of_newest_code(found)
    if len(kept) < len(found):
        notes.append(
            f"{root}: {len(found) - len(kept)} runs of older code were left out"
        )
    return kept


def of_newest_code(records: Sequence[Record]) -> list[Record]:
    """Return the comparable runs: those of the newest code on each machine
    (`harness.records.code.from_same_code`)."""
    made = [
        Made(
            host_fingerprint(r.environment),
            r.system,
            r.code,
            r.run_id,
            r.config.sampler,
        )
        for r in records
    ]
    return [
        run for run, wanted in zip(records, from_same_code(made), strict=True) if wanted
    ]


def read_runs(root: Path, notes: list[str]) -> list[Record]:
    """Return the readable runs of a results root, with a note on the others; raise
    InputError if there are none."""
    bad: list[results.BadRecord] = []
    found = list(results.records(root, bad))
    if bad:
        notes.append(
            f"{root}: {len(bad)} records cannot be read and were left out, like "
            f"{bad[0].reason}"
        )
    if not found:
        raise InputError(
            f"there are no runs under {results.runs_folder(root)}",
            "run `outcore bench` first",
        )
    return found

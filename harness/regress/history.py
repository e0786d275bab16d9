"""Baselines: results of a commit's runs on one machine, kept for later comparisons and for trends."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import Field, ValidationError

from harness.records.record import Record
from harness.regress.git import Repository
from harness.regress.samples import ConfigSamples, RunSample, cells_of, fingerprints
from harness.regress.store import Store
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
    """Entries in the order of their commits, oldest first; `notes` count entries and runs that were left out."""

    entries: list[Entry]
    notes: list[str] = field(default_factory=list)

    def of(self, host: str) -> list[Entry]:
        """Return the entries of one machine."""
        return [entry for entry in self.entries if entry.host == host]


def record(records: Sequence[Record], store: Store, repository: Repository) -> list[str]:
    """Write runs as baselines, an entry per commit and machine; raise InputError, before any, if a run lacks either."""
    kept = []
    for (commit, host), runs in _by_commit(records).items():
        entry = _entry(commit, host, runs, repository)
        text = json.dumps(entry.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"
        runs_digest = hashlib.sha256(json.dumps([run.run_id for run in runs]).encode()).hexdigest()[:8]
        kept.append(store.write(f"{host}/{commit[:16]}-{runs_digest}.json", text))
    return kept


def with_runs(history: History, records: Sequence[Record], repository: Repository | None) -> History:
    """Return the history with runs that it lacks added as entries per commit and machine; no file is written.

    A note counts the runs that cannot be added: uncommitted changes, no commit or no machine.
    """
    held = {run.run_id for entry in history.entries for cell in entry.cells for run in cell.runs}
    left_out: list[str] = []
    groups = _by_commit([run for run in records if run.run_id not in held], left_out)
    entries = [_entry(commit, host, runs, repository) for (commit, host), runs in groups.items()]
    notes = [f"{len(left_out)} runs are no part of the history, like: {left_out[0]}"] if left_out else []
    return History(_ordered([*history.entries, *entries], repository), [*history.notes, *notes])


def _by_commit(records: Sequence[Record], left_out: list[str] | None = None) -> dict[tuple[str, str], list[Record]]:
    """Group runs by (commit, machine); add the reasons of runs without one to `left_out`, else raise InputError."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for run in records:
        try:
            groups.setdefault(_stands_for(run), []).append(run)
        except InputError as error:
            if left_out is None:
                raise
            left_out.append(str(error))
    return groups


def _stands_for(run: Record) -> tuple[str, str]:
    """Return (commit, machine) of a run; raise InputError if it has uncommitted changes or lacks one of the two."""
    code = run.environment.get("code") or {}
    commit, host = code.get("commit"), next(iter(fingerprints([run])))
    if not commit or code.get("dirty"):
        why = "from changed files" if commit else "outside a git checkout"
        raise InputError(f"run {run.run_id} was made {why}, so no commit stands for it", "commit, run it again, record")
    if not host:
        raise InputError(f"run {run.run_id} does not say on which machine it was made", "run it again")
    return commit, host


def _entry(commit: str, host: str, runs: Sequence[Record], repository: Repository | None) -> Entry:
    """Make an entry with the commit's date and subject; without the commit, the date is that of its first run."""
    there = repository is not None and repository.maybe("cat-file", "-e", f"{commit}^{{commit}}") is not None
    known = repository if there else None
    dates = [datetime.fromisoformat(run.started_at).timestamp() for run in runs if run.started_at]
    return Entry(
        host=host,
        commit=commit,
        recorded_at=int(time.time()),
        committed_at=known.committed_at(commit) if known else int(min(dates, default=0)),
        subject=known.line(commit).partition(" ")[2] if known else "",
        cells=list(cells_of(runs).values()),
    )


def load(store: Store, repository: Repository | None = None) -> History:
    """Read every valid entry, in the order of commits; commits unknown to the repository come last, by date."""
    found: list[Entry] = []
    bad: list[str] = []
    for name in store.names():
        try:
            entry = Entry.model_validate_json(store.read(name))
            if entry.schema_version != SCHEMA:
                raise InputError(f"it has schema {entry.schema_version}, this version reads {SCHEMA}")
            if not name.startswith(f"{entry.host}/{entry.commit[:16]}-"):
                raise InputError("it is of another commit or machine than its name says")
        except (InputError, ValidationError) as error:
            bad.append(f"{name} ({str(error).splitlines()[0]})")
            continue
        found.append(entry)
    notes = [f"{len(bad)} entries of the history cannot be read and were left out, like {bad[0]}"] if bad else []
    return History(_ordered(found, repository), notes)


def _ordered(entries: Sequence[Entry], repository: Repository | None) -> list[Entry]:
    """Sort by ancestry, not by date: one machine's wrong clock would reorder the history."""
    place = repository.order([entry.commit for entry in entries]) if repository and entries else {}
    last = len(place)
    return sorted(entries, key=lambda entry: (place.get(entry.commit, last), entry.committed_at, entry.recorded_at))


@dataclass(frozen=True)
class Baseline:
    """Reference of a comparison. `exact_only`: reason why times are not compared; empty if they are."""

    cells: dict[str, ConfigSamples]
    name: str
    exact_only: str = ""
    notes: list[str] = field(default_factory=list)


def baseline(history: History, host: str, keys: Sequence[str], commit: str = "") -> Baseline:
    """Return a machine's baseline; without one, the exact facts of another machine's; without any, no cells.

    Args:
        host: fingerprint of the machine.
        keys: keys of the cells to return.
        commit: commit of the compared runs, whose own entries are left out.
    """
    others = [entry for entry in history.entries if entry.commit != commit]
    own = [entry for entry in others if entry.host == host]
    chosen, why = own, ""
    if not own and others:
        chosen = [entry for entry in others if entry.host == others[-1].host]
        why = "no baseline of this machine: only exact facts, which do not depend on it"
    notes = [*history.notes, *([why] if why else [])]
    if not chosen:
        notes.append("there is no baseline yet: keep one with `outcore regress record`")
        return Baseline({}, "no baseline", notes=notes)
    cells = {key: cell for key in keys if (cell := _merged(chosen, key)) is not None}
    newest = chosen[-1]
    return Baseline(cells, f"{newest.commit[:12]} and before, on {newest.host}", why, notes)


def _merged(entries: Sequence[Entry], key: str) -> ConfigSamples | None:
    """Merge a cell's newest entries: one sample per entry with its medians and the newest entry's exact facts."""
    found = [cell for entry in entries if (cell := entry.cell(key)) is not None][-NEWEST:]
    if not found:
        return None
    newest = found[-1]
    last = newest.runs[-1]
    runs = [
        RunSample(f"entry {index}", last.status, last.reason, last.verdict, last.exact, cell.medians, last.stages)
        for index, cell in enumerate(found)
    ]
    return replace(newest, runs=runs)

"""Outcomes of honest runs: kept in a file from call to call, and held against the
promises of `honest_runs.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.records.record import COUNTED, Record

#: A run is off its time above this ratio to the fastest quiet run of its setting.
OFF = 1.3
#: Most quiet runs that may be SPOILT, as a share.
MOST_SPOILT = 0.02

_COUNTERS = {
    "seconds",
    "warmup",
    "user_s",
    "host_user_s",
    "system_s",
    "host_system_s",
    "waited_s",
    "stolen_s",
}


@dataclass(frozen=True)
class Outcome:
    """One run, or the refusal of its setting.

    Attributes:
        number, attempt, label: drawn setting, and its name for a reader.
        load, repeat: kind of load beside the run (empty: quiet), and number of its
            repetition.
        refused: reason why the system or the host refuses the setting; empty for a run.
        epoch_s: seconds of each + epoch; None without one.
        duration_s: seconds of the whole run.
        broken, noise: details of the rules that the run breaks, and of those on other
            programs, by name.
        epochs: times and waiting of each epoch, as in the record.
    """

    number: int
    attempt: int
    label: str
    load: str = ""
    repeat: int = 0
    refused: str = ""
    status: str = ""
    verdict: str = ""
    reason: str = ""
    run_id: str = ""
    epoch_s: float | None = None
    duration_s: float = 0.0
    broken: dict[str, str] = field(default_factory=dict)
    noise: dict[str, str] = field(default_factory=dict)
    epochs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def setting(self) -> tuple[int, int]:
        """Identity of the setting."""
        return self.number, self.attempt


def facts_of(record: Record) -> dict[str, Any]:
    """Return the parts of a record that an outcome keeps."""
    rules = record.verdict_rules
    return {
        "status": record.status,
        "verdict": record.verdict,
        "reason": record.reason,
        "run_id": record.run_id,
        "epoch_s": record.summary.fresh_epoch_s,
        "duration_s": record.duration_s,
        "broken": {rule.name: rule.detail for rule in rules if not rule.ok},
        "noise": {rule.name: rule.detail for rule in rules if rule.rule == "16"},
        "epochs": [epoch.model_dump(include=_COUNTERS) for epoch in record.epochs],
    }


class Book:
    """Outcomes of all calls, one a line of a file, so that a call that is ended loses
    at most the run under way."""

    def __init__(self, file: Path) -> None:
        self._file = file
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        self.outcomes = [Outcome(**json.loads(line)) for line in lines]

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.outcomes.append(outcome)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")

    def has_run(self, number: int, load: str, repeat: int) -> bool:
        """Return whether a run of a drawn setting was made."""
        wanted = (number, load, repeat)
        return any(
            (run.number, run.load, run.repeat) == wanted
            for run in self.outcomes
            if not run.refused
        )

    def attempt(self, number: int) -> int:
        """Return the draw of a number to run: that of its runs, or the first one that
        was not refused."""
        drawn = [outcome for outcome in self.outcomes if outcome.number == number]
        made = [outcome.attempt for outcome in drawn if not outcome.refused]
        refused = [outcome.attempt + 1 for outcome in drawn]
        return max(made or refused, default=0)


@dataclass
class Promises:
    """Runs held against the promises.

    Attributes:
        invalid, failed: runs that are INVALID, and runs that did not end well.
        ratios: ratio of a run's epoch to that of the fastest quiet run of its setting,
            by the run's id.
        off: runs whose ratio is above `OFF` and that are not SPOILT, the slowest first.
        off_spoilt: number of runs whose ratio is above `OFF` and that are SPOILT.
        quiet, loaded: number of quiet runs, and of runs beside load.
        quiet_spoilt, loaded_spoilt: numbers of them that are SPOILT.
        unpaired: number of runs whose setting has no quiet run that counts.
        refused: number of refused settings.
    """

    invalid: list[Outcome] = field(default_factory=list)
    failed: list[Outcome] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    off: list[Outcome] = field(default_factory=list)
    off_spoilt: int = 0
    quiet: int = 0
    loaded: int = 0
    quiet_spoilt: int = 0
    loaded_spoilt: int = 0
    unpaired: int = 0
    refused: int = 0

    @property
    def kept(self) -> bool:
        """Whether all promises hold."""
        return (
            not self.invalid
            and not self.failed
            and not self.off
            and self.quiet_spoilt <= MOST_SPOILT * self.quiet
        )


def judge(outcomes: Iterable[Outcome]) -> Promises:
    """Hold outcomes against the promises."""
    found = Promises()
    runs = []
    for outcome in outcomes:
        if outcome.refused:
            found.refused += 1
        else:
            runs.append(outcome)
    fastest = _fastest_quiet(runs)
    for run in runs:
        _count(found, run)
        _place(found, run, fastest.get(run.setting))
    found.off.sort(key=lambda run: found.ratios[run.run_id], reverse=True)
    return found


def _count(found: Promises, run: Outcome) -> None:
    """Count a run, and whether it is SPOILT."""
    spoilt = run.verdict == "SPOILT"
    if run.load:
        found.loaded += 1
        found.loaded_spoilt += spoilt
    else:
        found.quiet += 1
        found.quiet_spoilt += spoilt


def _place(found: Promises, run: Outcome, fastest_s: float | None) -> None:
    """Place a run among those that break a promise, given the seconds of its setting's
    fastest quiet run."""
    if run.status != "ok":
        found.failed.append(run)
        return
    if run.verdict == "INVALID":
        found.invalid.append(run)
    if run.epoch_s is None or fastest_s is None:
        found.unpaired += 1
        return
    ratio = found.ratios[run.run_id] = run.epoch_s / fastest_s
    if ratio > OFF and run.verdict == "SPOILT":
        found.off_spoilt += 1
    elif ratio > OFF:
        found.off.append(run)


def _fastest_quiet(runs: Iterable[Outcome]) -> dict[tuple[int, int], float]:
    """Return the seconds of the fastest quiet run that counts, by setting."""
    found: dict[tuple[int, int], float] = {}
    for run in runs:
        if not run.load and run.verdict in COUNTED and run.epoch_s is not None:
            found[run.setting] = min(run.epoch_s, found.get(run.setting, run.epoch_s))
    return found

"""Filter of runs: options that several `results` verbs share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import Options

if TYPE_CHECKING:
    from harness.records.record import Record
    from harness.results.store import BadRecord


@dataclass(frozen=True, kw_only=True)
class Wanted(Options):
    """Filter of runs; None accepts any value.

    Raises:
        InputError: unknown status or verdict.
    """

    system: Annotated[str | None, typer.Option(help="only this system")] = None
    status: Annotated[str | None, typer.Option(help="only this status: ok, oom, timeout, unsupported, failed")] = None
    dataset: Annotated[str | None, typer.Option(help="only runs on this dataset")] = None
    verdict: Annotated[str | None, typer.Option(help="only this verdict: VALID, CAVEATS, SPOILT, INVALID")] = None
    experiment: Annotated[str | None, typer.Option(help="only runs of this experiment or profile")] = None

    def __post_init__(self) -> None:
        from typing import get_args

        from harness.records import record
        from harness.settings import unknown_name

        for what, value, known in (("status", self.status, record.Status), ("verdict", self.verdict, record.Verdict)):
            if value is not None and value not in get_args(known):
                raise unknown_name(what, f"--{what} {value}", value, get_args(known))

    def anything(self) -> bool:
        """Return whether the filter accepts every run."""
        return self == Wanted()

    def __contains__(self, record: Record) -> bool:
        config = record.config
        pairs = (
            (self.system, record.system),
            (self.status, record.status),
            (self.dataset, config.dataset.name),
            (self.verdict, record.verdict),
            (self.experiment, config.experiment),
        )
        return all(wanted is None or wanted == found for wanted, found in pairs)


def wanted_runs(root: Path, wanted: Wanted, bad: list[BadRecord] | None = None) -> list[tuple[Path, Record]]:
    """Return folders and records of the accepted runs, oldest first; add unreadable records to `bad`."""
    from harness.results.store import scan

    return [(folder, record) for folder, record in scan(root, bad) if record in wanted]


def say_bad(bad: Sequence[BadRecord]) -> None:
    """Print one line per unreadable record on stderr."""
    for entry in bad:
        print(f"outcore: not read: {entry.reason}", file=sys.stderr)

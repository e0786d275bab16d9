"""Which runs the `results` verbs are about: options that several of them share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.record import Record
    from harness.results import BadRecord

System = Annotated[str | None, typer.Option(help="only this system")]
Status = Annotated[str | None, typer.Option(help="only this status: ok, oom, timeout, unsupported, failed")]
Dataset = Annotated[str | None, typer.Option(help="only runs on this dataset")]
Verdict = Annotated[str | None, typer.Option(help="only this verdict: VALID, CAVEATS, SPOILT, INVALID")]
Experiment = Annotated[str | None, typer.Option(help="only runs of this experiment or profile")]


@dataclass(frozen=True)
class Wanted:
    """Runs that are asked for; None takes any.

    Raises:
        InputError: a status or verdict that does not exist.
    """

    system: str | None = None
    status: str | None = None
    dataset: str | None = None
    verdict: str | None = None
    experiment: str | None = None

    def __post_init__(self) -> None:
        from typing import get_args

        from harness import record
        from harness.settings import unknown_name

        for what, value, known in (("status", self.status, record.Status), ("verdict", self.verdict, record.Verdict)):
            if value is not None and value not in get_args(known):
                raise unknown_name(what, f"--{what} {value}", value, get_args(known))

    def anything(self) -> bool:
        """Whether nothing is asked for, and so every run is."""
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
    """Folders and records of the runs that are asked for, oldest first; what cannot be read is added to `bad`."""
    from harness.results import scan

    return [(folder, record) for folder, record in scan(root, bad) if record in wanted]


def say_bad(bad: Sequence[BadRecord]) -> None:
    """What could not be read, on stderr, a line each."""
    for entry in bad:
        print(f"outcore: not read: {entry.reason}", file=sys.stderr)

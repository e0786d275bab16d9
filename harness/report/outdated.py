"""Marks on a report and on figures that are older than the records beside them; nothing
is removed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.atomic import whole_file
from harness.progress import Notice, silent
from harness.report.write import NAME

MARK = (
    '<p class="outdated" role="note">Out of date: runs, studies or figures in '
    "this folder are newer than this report. "
    "<code>outcore report</code> writes it again.</p>"
)
# Figures whose names a terminal's line has.
_NAMED = 4


@dataclass(frozen=True)
class Outdated:
    """The report, where it is out of date, and the ids of the figures that are."""

    report: Path | None
    figures: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for `--json`."""
        return {
            "report": None if self.report is None else str(self.report),
            "figures": self.figures,
        }

    def lines(self, root: Path) -> list[str]:
        """Return a line for the terminal that names what is out of date, and the
        command that renews it."""
        parts = [] if self.report is None else [str(self.report)]
        count = len(self.figures)
        if count:
            named = ", ".join(
                [*self.figures[:_NAMED], "…"] if count > _NAMED else self.figures
            )
            parts.append(
                f"{count} figure{'s' if count > 1 else ''} in {root / 'figures'} "
                f"({named})"
            )
        return (
            [f"out of date: {' and '.join(parts)}; `outcore report` renews them"]
            if parts
            else []
        )


def is_current(report: Path, root: Path) -> bool:
    """Return whether the report is there, and newer than every record, study and figure
    of the results root."""
    parts = [root / "runs", root / "studies", *(root / "figures").glob("*.json")]
    newest = max(
        (part.stat().st_mtime_ns for part in parts if part.exists()), default=0
    )
    return report.is_file() and report.stat().st_mtime_ns >= newest


def mark_outdated(root: Path, progress: Notice = silent) -> Outdated:
    """Mark the report and the figures of a results root that show other records than it
    has now.

    A figure's mark stands in its JSON, the report's at the top of its page.

    Raises:
        DataIOError: the disk is full; InputError: the report cannot be written.
    """
    report = root / NAME
    figures = root / "figures"
    old_report = report.is_file() and not is_current(report, root)
    if old_report:
        _mark_report(report)
    old_figures: list[str] = []
    if any(figures.glob("*.json")):
        from harness.compare.evidence import load_evidence
        from harness.figures.base import catalogue
        from harness.figures.render import render

        looked_at = render(
            list(catalogue().values()),
            load_evidence(root, progress),
            figures,
            draw=False,
        )
        old_figures = [one.id for one in looked_at if one.outdated]
    return Outdated(report if old_report else None, old_figures)


def _mark_report(report: Path) -> None:
    """Put the mark at the top of a report's page; its time of writing stays, so that it
    is still out of date."""
    text = report.read_text(encoding="utf-8", errors="replace")
    if MARK in text:
        return
    before = report.stat()
    with whole_file(report, "the report") as file:
        file.write_text(text.replace("<body>", f"<body>\n{MARK}", 1), encoding="utf-8")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

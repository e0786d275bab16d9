"""Writing the report: read, draw stale figures, judge, and replace the page and the
folder beside it as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from harness.atomic import whole_file
from harness.compare.evidence import load_evidence
from harness.compare.plan import value_at
from harness.figures.base import catalogue
from harness.figures.render import Rendered, render
from harness.plan.experiment import PROFILES
from harness.progress import Notice, silent
from harness.report.beside import (
    folder_of,
    put_in_place,
    remove_former,
    write_pictures,
    write_plotly,
    write_runs,
)
from harness.report.gallery import gallery, judge
from harness.report.headline import headline
from harness.report.page import page
from harness.report.runs import foreign_table, host_of, table_of
from harness.report.standings import RankedSetting, settings_of
from harness.results.reference import FOLDER, read_reference, references
from workloads.arraytypes import JsonDict
from workloads.errors import InputError
from workloads.tempfolder import TemporaryFolder

NAME = "report.html"


@dataclass(frozen=True)
class Written:
    """The written report: the page, the folder beside it, the page's bytes and counts
    of its parts; `judged`: claims with a verdict."""

    path: Path
    folder: Path
    size: int
    runs: int
    unreadable: int
    figures: int
    not_drawn: int
    claims: int
    judged: int
    timelines: int


def write_report(
    root: Path, out: Path | None = None, *, draw: bool = True, progress: Notice = silent
) -> Written:
    """Write the report of a results root to `out` (default: `<root>/report.html`), and
    its pictures and pages of runs into the folder beside it (`report_files`).

    Each writing has a subfolder of its own, so that a page never shows the pictures of
    another; the former one is removed once the new page is in place.

    Stale figures are drawn anew; without `draw` their files stay, marked as out of
    date, and the report shows none of them beside newer records. Figures of reference
    results in the root are shown beside the same figures of the root's own runs.

    Raises:
        InputError: `out` is a folder, or a manifest of reference results is invalid.
        DataIOError: the file cannot be written; no partial file is left.
    """
    out = out or root / NAME
    if out.is_dir():
        raise InputError(
            f"--out is {out}, a folder", f"name the file, like {out / NAME}"
        )
    evidence = load_evidence(root, progress)
    records = evidence.records
    folders = evidence.folders
    bad = evidence.runs.attrs["bad"]
    rendered = render(
        list(catalogue().values()),
        evidence,
        root / "figures",
        draw=draw,
        progress=progress,
    )
    board = judge(evidence, progress)
    progress("writing the report")
    # The results root relative to the report's folder, as an address.
    beside = quote(os.path.relpath(root.resolve(), out.resolve().parent))
    reference = read_reference(root)
    entries = gallery(rendered, board, beside, references(root / FOLDER))
    settings = settings_of(records, [path.stem for path in PROFILES.glob("*.yaml")])
    # Names the folder, and lets the page run its own scripts and no others.
    token = secrets.token_hex(16)
    files = folder_of(out)
    place = files / token
    text = page(
        token=token,
        files=quote(f"{files.name}/{token}"),
        reference=reference,
        headline=headline(settings, records),
        board=board,
        entries=entries,
        runs=table_of(records),
        counts=_counts(records),
        unreadable=bad,
        first=_first(settings),
        foreign=foreign_table(evidence.foreign),
        written=f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}",
    )
    with (
        whole_file(out, "the report") as file,
        TemporaryFolder(out.parent, files.name) as stage,
    ):
        size = file.write_bytes(text.encode("utf-8", "replace"))
        write_plotly(stage)
        write_pictures(entries, stage)
        shown = _shown(rendered, settings)
        runs_address = f"{beside}/runs"
        timelines = write_runs(records, folders, runs_address, shown, stage, progress)
        put_in_place(stage, place)
    remove_former(place)
    drawn = sum(entry.drawn for entry in entries)
    judged = len(board.judged.claims) if board.judged else 0
    counts = (drawn, len(entries) - drawn, len(board.claims), judged, timelines)
    return Written(out, files, size, len(records), len(bad), *counts)


def _counts(records: Sequence[JsonDict]) -> JsonDict:
    """Return numbers of runs: by verdict, without a result, on emulated devices; of
    hosts, devices and commits."""
    devices = [record["config"]["device"] for record in records]
    codes = [
        str(value_at(record, "environment.code.commit") or "unknown")
        for record in records
    ]
    commits = Counter(commit[:12] for commit in codes)
    return {
        "runs": len(records),
        "verdicts": Counter(record["verdict"] for record in records),
        "failed": sum(record["status"] != "ok" for record in records),
        "hosts": len(set(map(host_of, records))),
        "devices": len(set(devices)),
        "emulated": sum(device.startswith("emulated:") for device in devices),
        "commits": commits.most_common(3),
    }


def _shown(rendered: Sequence[Rendered], settings: Sequence[RankedSetting]) -> set[str]:
    """Return the runs whose timelines are shown: those of the headline and of each
    figure."""
    found = {run for one in rendered if one.status == "drawn" for run in one.runs}
    for setting in settings[:1]:
        found |= {standing.record["run_id"] for standing in setting.standings}
    return found


def _first(settings: Sequence[RankedSetting]) -> JsonDict:
    """Return the filters of the table of runs that show the headline's setting."""
    for setting in settings:
        if setting.measured:
            shared = setting.shared
            same = {name: shared[name] for name in ("model", "memory", "device")}
            host = shared["host"] or "unknown"
            return {
                "dataset": shared["dataset"]["name"],
                **same,
                "disk": shared["disk_class"],
                "host": host,
            }
    return {}

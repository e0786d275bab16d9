"""Writing the report: read, draw stale figures, judge, thin out, and replace the file
as a whole or not at all."""

from __future__ import annotations

import itertools
import os
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
from harness.progress import Notice, silent, tracked
from harness.report.gallery import GalleryEntry, gallery, judge
from harness.report.headline import headline
from harness.report.page import own_scripts, page
from harness.report.runs import (
    Pool,
    details_of,
    foreign_table,
    host_of,
    over_time,
    packed,
    table_of,
)
from harness.report.standings import RankedSetting, settings_of
from harness.results.reference import FOLDER, read_reference, references
from workloads.arraytypes import JsonDict
from workloads.errors import InputError

NAME = "report.html"
# Bytes of a file that can still be sent; the rest of the data stays in the files beside
# it.
LIMIT = 14_500_000
# Bytes of `LIMIT` for the timelines, and for the page's own text.
TIMELINES = 5_000_000
TEXT = 400_000


@dataclass(frozen=True)
class Written:
    """The written report: path, bytes and counts of its parts; `judged`: claims with a
    verdict."""

    path: Path
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
    """Write the report of a results root to `out` (default: `<root>/report.html`).

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
    runs = table_of(records)
    fixed = TEXT + len(str(runs["rows"]))
    fixed += sum(map(len, [*own_scripts(), *runs["texts"]])) + sum(
        map(_image_bytes, entries)
    )
    wanted = _wanted(rendered, settings)
    details, kept = _details(records, folders, beside, wanted, LIMIT - fixed)
    room = min(TIMELINES, LIMIT - fixed - len(details))
    timelines, crowded = _timelines(records, folders, wanted, room, progress)
    text = page(
        reference=reference,
        headline=headline(settings, records),
        board=board,
        entries=entries,
        runs=runs,
        counts=_counts(records),
        unreadable=bad,
        undetailed=len(records) - kept,
        crowded=crowded,
        first=_first(settings),
        foreign=foreign_table(evidence.foreign),
        details=details,
        timelines=timelines,
        written=f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}",
    )
    with whole_file(out, "the report") as file:
        size = file.write_bytes(text.encode("utf-8", "replace"))
    drawn = sum(entry.drawn for entry in entries)
    judged = len(board.judged.claims) if board.judged else 0
    counts = (drawn, len(entries) - drawn, len(board.claims), judged, len(timelines))
    return Written(out, size, len(records), len(bad), *counts)


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


def _image_bytes(entry: GalleryEntry) -> int:
    return len(entry.image) + sum(map(_image_bytes, entry.others))


def _wanted(
    rendered: Sequence[Rendered], settings: Sequence[RankedSetting]
) -> list[str]:
    """Return the runs whose timelines are shown: those of the headline, then those of
    each figure in turn."""
    first = [
        standing.record["run_id"]
        for setting in settings[:1]
        for standing in setting.standings
    ]
    queues = [list(one.runs) for one in rendered if one.status == "drawn"]
    turns = (
        run
        for turn in itertools.zip_longest(*queues)
        for run in turn
        if run is not None
    )
    return list(dict.fromkeys([*first, *turns]))


def _details(
    records: Sequence[JsonDict],
    folders: JsonDict,
    beside: str,
    wanted: Sequence[str],
    room: int,
) -> tuple[str, int]:
    """Pack the details of all runs, or of the drawn ones where all do not fit; return
    them with the number of runs."""
    drawn = [record for record in records if record["run_id"] in wanted]
    for chosen in (records, drawn, []):
        pool = Pool()
        found = {}
        for record in chosen:
            run = record["run_id"]
            found[run] = details_of(
                record, Path(folders[run]), f"{beside}/runs/{quote(run)}", pool
            )
        packs = packed({"pool": pool.values, "runs": found})
        if len(packs) <= room:
            break
    return packs, len(chosen)


def _timelines(
    records: Sequence[JsonDict],
    folders: JsonDict,
    wanted: Sequence[str],
    room: int,
    progress: Notice,
) -> tuple[JsonDict, int]:
    """Pack timelines by run; return them with the number of runs that did not fit."""
    by_id = {record["run_id"]: record for record in records}
    found: JsonDict = {}
    known = [run for run in wanted if run in by_id]
    for number, run in enumerate(tracked(progress, known, "packing timelines", "runs")):
        lines = over_time(Path(folders[run]), by_id[run])
        if lines is None:
            continue
        text = packed(lines)
        room -= len(text) + len(run) + 6
        if room < 0:
            return found, len(known) - number
        found[run] = text
    return found, 0


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

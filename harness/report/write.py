"""Writing the report: read, draw stale figures, judge, thin out, and replace the file as a whole or not at all."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from harness.atomic import whole_file
from harness.compare.evidence import load_evidence
from harness.compare.plan import Plain, value_at
from harness.figures.base import catalogue
from harness.figures.render import Rendered, render
from harness.plan.experiment import PROFILES
from harness.progress import tracked
from harness.report.gallery import GalleryEntry, gallery, judge
from harness.report.headline import headline
from harness.report.page import own_scripts, page
from harness.report.runs import Pool, details_of, foreign_table, host_of, over_time, packed, table_of
from harness.report.standings import RankedSetting, settings_of
from harness.results.reference import FOLDER, read_reference, references
from workloads.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

NAME = "report.html"
# Bytes of a file that can still be sent; the rest of the data stays in the files beside it.
LIMIT = 14_500_000
# Bytes of `LIMIT` for the timelines, and for the page's own text.
TIMELINES = 5_000_000
TEXT = 400_000
# Unreadable records whose reasons are shown.
REASONS = 20


@dataclass(frozen=True)
class Written:
    """The written report: path, bytes and counts of its parts; `judged`: claims with a verdict."""

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
    root: Path, out: Path | None = None, *, draw: bool = True, progress: Callable[[str], None] = lambda text: None
) -> Written:
    """Write the report of a results root to `out` (default: `<root>/report.html`).

    Stale figures are drawn anew; without `draw` their files stay, marked as out of date, and the report shows none of
    them beside newer records. Figures of reference results in the root are shown beside the same figures of the root's
    own runs.

    Raises:
        InputError: `out` is a folder, or a manifest of reference results is invalid.
        DataIOError: the file cannot be written; no partial file is left.
    """
    out = Path(out) if out is not None else Path(root) / NAME
    if out.is_dir():
        raise InputError(f"--out is {out}, a folder", f"name the file, like {out / NAME}")
    evidence = load_evidence(root, progress)
    records, folders = evidence.records, evidence.folders
    bad = list(evidence.runs.attrs.get("bad", []))
    rendered = render(list(catalogue().values()), evidence, Path(root) / "figures", draw=draw, progress=progress)
    board = judge(evidence, progress)
    progress("writing the report")
    # The results root relative to the report's folder, as an address.
    beside = quote(os.path.relpath(Path(root).resolve(), out.resolve().parent).replace(os.sep, "/"))
    reference = read_reference(Path(root))
    entries = gallery(rendered, board, beside, references(Path(root) / FOLDER))
    settings = settings_of(records, [path.stem for path in PROFILES.glob("*.yaml")])
    fixed = sum(len(script) for script in own_scripts()) + sum(map(_image_bytes, entries)) + TEXT
    runs = table_of(records)
    fixed += len(str(runs["rows"])) + sum(map(len, runs["texts"]))
    wanted = _wanted(rendered, settings)
    details, kept = _details(records, folders, beside, wanted, LIMIT - fixed)
    room = min(TIMELINES, LIMIT - fixed - len(details))
    timelines, crowded = _timelines(records, folders, wanted, room, progress)
    text = page(
        title=reference.label if reference else "Outcore report",
        reference=reference,
        headline=headline(settings, records),
        board=board,
        entries=entries,
        runs=runs,
        counts=_counts(evidence.runs),
        unreadable_count=len(bad),
        undetailed=len(records) - kept,
        shown=len(timelines),
        crowded=crowded,
        unreadable=[(Path(one.path).name, one.reason) for one in bad[:REASONS]],
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


def _counts(runs: pd.DataFrame) -> Plain:
    """Return numbers of runs: by verdict, without a result, on emulated devices; of hosts, devices and commits."""
    if runs.empty:
        return {"runs": 0, "verdicts": {}, "failed": 0, "hosts": 0, "devices": 0, "emulated": 0, "commits": []}
    commits = runs["record"].map(lambda record: str(value_at(record, "environment.code.commit") or "unknown")[:12])
    return {
        "runs": len(runs),
        "verdicts": runs["verdict"].value_counts().to_dict(),
        "failed": int((runs["status"] != "ok").sum()),
        "hosts": runs["record"].map(host_of).nunique(),
        "devices": runs["config.device"].nunique(),
        "emulated": int(runs["config.device"].str.startswith("emulated:").sum()),
        "commits": list(commits.value_counts().head(3).items()),
    }


def _image_bytes(entry: GalleryEntry) -> int:
    return len(entry.image) + sum(map(_image_bytes, entry.others))


def _wanted(rendered: Sequence[Rendered], settings: Sequence[RankedSetting]) -> list[str]:
    """Return the runs whose timelines are shown: those of the headline, then those of each figure in turn."""
    first = [standing.record["run_id"] for setting in settings[:1] for standing in setting.standings]
    queues = [list(one.runs) for one in rendered if one.status == "drawn"]
    turns = (run for turn in itertools.zip_longest(*queues) for run in turn if run is not None)
    return list(dict.fromkeys([*first, *turns]))


def _details(
    records: Sequence[Plain], folders: Plain, beside: str, wanted: Sequence[str], room: int
) -> tuple[str, int]:
    """Pack the details of all runs, or of the drawn ones where all do not fit; return them with the number of runs."""
    packs = ""
    for chosen in (records, [record for record in records if record["run_id"] in set(wanted)], []):
        pool, found = Pool(), {}
        for record in chosen:
            run = record["run_id"]
            found[run] = details_of(record, Path(folders[run]), f"{beside}/runs/{quote(str(run))}", pool)
        packs = packed({"pool": pool.values, "runs": found})
        if len(packs) <= room:
            return packs, len(chosen)
    return packs, 0


def _timelines(
    records: Sequence[Plain], folders: Plain, wanted: Sequence[str], room: int, progress: Callable[[str], None]
) -> tuple[Plain, int]:
    """Pack timelines by run; return them with the number of runs that did not fit."""
    by_id = {record["run_id"]: record for record in records}
    found: Plain = {}
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


def _first(settings: Sequence[RankedSetting]) -> Plain:
    told = [setting for setting in settings if setting.measured]
    if not told:
        return {}
    shared = told[0].shared
    same = {key: shared[key] for key in ("model", "memory", "device")}
    place = {"disk": shared["disk_class"], "host": shared["host"] or "unknown"}
    return {"dataset": shared["dataset"]["name"], **same, **place}

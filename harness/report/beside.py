"""The folder beside the page: pictures, the plotting library and a script for each run,
which the page loads as its reader comes to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from harness.progress import Notice, tracked
from harness.report.gallery import GalleryEntry
from harness.report.runs import details_of, over_time, packed
from workloads.arraytypes import JsonDict

#: The plotting library in the folder, and the subfolder with a script for each run.
PLOTLY = "plotly.min.js"
RUNS = "runs"
#: Bits of a folder that everyone may read; a temporary folder is its owner's alone.
_SHARED = 0o755


def folder_of(page: Path) -> Path:
    """Return the folder beside a page: `report_files` beside `report.html`."""
    return page.with_name(f"{page.stem}_files")


def write_plotly(folder: Path) -> None:
    """Write the plotting library into a folder."""
    from plotly.offline import get_plotlyjs

    (folder / PLOTLY).write_text(get_plotlyjs(), encoding="utf-8")


def write_pictures(entries: Sequence[GalleryEntry], folder: Path) -> None:
    """Copy the pictures of figures, and of the reference results beside them."""
    for entry in _with_others(entries):
        if entry.picture is None:
            continue
        copy = folder / entry.image
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(entry.picture, copy)


def _with_others(entries: Sequence[GalleryEntry]) -> Iterator[GalleryEntry]:
    for entry in entries:
        yield entry
        yield from entry.others


def write_runs(
    records: Sequence[JsonDict],
    folders: JsonDict,
    runs_address: str,
    shown: Container[str],
    out: Path,
    progress: Notice,
) -> int:
    """Write a script for each run, with its details and, for the runs in `shown`, its
    timelines; return the number of runs with timelines.

    Args:
        folders: folder of each run, by id.
        runs_address: address of the runs' folders, relative to the page.
        out: folder beside the page.
    """
    place = out / RUNS
    place.mkdir()
    timelines = 0
    for record in tracked(progress, records, "writing the pages of runs", "runs"):
        run = record["run_id"]
        folder = Path(folders[run])
        details = details_of(record, folder, f"{runs_address}/{quote(run)}")
        moving = over_time(folder, record) if run in shown else None
        timelines += moving is not None
        text = packed({"details": details, "moving": moving})
        script = f"Report.receive({json.dumps(run)}, {json.dumps(text)});\n"
        (place / f"{run}.js").write_text(script, encoding="utf-8")
    return timelines


def put_in_place(stage: Path, place: Path) -> None:
    """Rename a finished folder to its place, and let everyone read it."""
    stage.chmod(_SHARED)
    place.parent.mkdir(exist_ok=True)
    stage.rename(place)


def remove_former(place: Path) -> None:
    """Remove the folders of former pages beside `place`; other files stay."""
    for other in place.parent.iterdir():
        if other != place and (other / PLOTLY).is_file():
            shutil.rmtree(other, ignore_errors=True)

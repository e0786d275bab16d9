"""Report of a drive comparison: one page as HTML and, where a Chromium prints it, as
PDF; its figures and tables."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.atomic import whole_file
from harness.drives.compare import as_dict
from harness.drives.comparison import DriveCell, DriveComparison, DriveSide
from harness.drives.panels import panel_inches, panels_of
from harness.drives.printing import printed
from harness.figures.draw import style
from harness.results.table import each
from workloads.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

TEMPLATES = Path(__file__).parent / "templates"
NAME = "ssd-report"
#: Columns of the tables: the part of a drive or a cell, its format and a factor;
#: `wide`: not in a narrow terminal.
COLUMNS = Path(__file__).with_name("columns.csv")
DRIVES = "Drives, by fio"
CLASSES = "Classes, by their limits"
CELLS = "Systems on drives"
#: Inches of a panel's height.
_HEIGHT = 2.6
# Drives whose epochs differ by a smaller factor are the same for a system.
SAME = 1.05


@dataclass(frozen=True)
class DriveTable:
    """Table as text: title, column heads, rows; `more`: heads that a narrow terminal
    leaves out."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: tuple[str, ...] = ()


def tables(comparison: DriveComparison) -> list[DriveTable]:
    """Return the tables of drives by fio, of classes by their limits, and of systems on
    drives; none without rows."""
    drives = [_facts(side) for side in comparison.sides if side.device.drive]
    classes = [_facts(side) for side in comparison.sides if not side.device.drive]
    cells = [vars(cell) | _texts(cell) for cell in comparison.cells]
    found = {DRIVES: drives, CLASSES: classes, CELLS: cells}
    return [_tabulate(title, rows) for title, rows in found.items() if rows]


def _tabulate(title: str, rows: Iterable[Mapping[str, Any]]) -> DriveTable:
    """Return parts of drives or cells as a table with the columns of `columns.csv`."""
    every = pd.read_csv(COLUMNS, keep_default_na=False).replace({"factor": {"": 1}})
    columns = list(each(every[every["table"] == title]))
    shown = []
    for row in rows:
        texts = [
            _shown(row[column.part], column.format, float(column.factor))
            for column in columns
        ]
        shown.append(tuple(texts))
    heads = tuple(column.head for column in columns)
    more = tuple(column.head for column in columns if column.wide)
    return DriveTable(title, heads, tuple(shown), more)


def _shown(value: Any, form: str = "", factor: float = 1.0) -> str:
    """Return a value times `factor` in a format; a text as it is, a dash for None."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value * factor:{form}}"


def sentences(comparison: DriveComparison) -> list[str]:
    """Return one sentence per system on how its epoch time differs between drives."""
    predicted = comparison.table.set_index(["device", "system"])["predicted"]
    texts = []
    for system, ratio, fastest, slowest in comparison.growth():
        guess = (
            " (predicted)"
            if predicted[fastest, system] or predicted[slowest, system]
            else ""
        )
        if ratio < SAME:
            texts.append(f"{system}: the same on every drive ({ratio:.2f}x).")
        else:
            texts.append(
                f"{system}: {_times(ratio)} as long on {slowest} as on "
                f"{fastest}{guess}."
            )
    return texts


def write_page(comparison: DriveComparison, folder: Path) -> list[Path]:
    """Write `ssd-report.html`, `.json`, `.pdf` (where this host has a Chromium), and
    `.png`, `.svg`, `.csv` of each panel; return their paths. Raises DataIOError: the
    folder cannot be written; no file is left half-written."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")
    files: dict[str, bytes] = {}
    size = (panel_inches(comparison), _HEIGHT)
    with matplotlib.rc_context(fname=style.SHEET):
        for name, draw in panels_of(comparison):
            canvas, axes = plt.subplots(figsize=size, constrained_layout=True)
            files[f"ssd-{name}.csv"] = (
                draw(comparison, axes).to_csv(index=False).encode()
            )
            for kind in ("png", "svg"):
                files[f"ssd-{name}.{kind}"] = _picture(canvas, kind)
            plt.close(canvas)
    files[f"{NAME}.html"] = _html(comparison, files)
    if sheet := printed(files[f"{NAME}.html"]):
        files[f"{NAME}.pdf"] = sheet
    files[f"{NAME}.json"] = json.dumps(as_dict(comparison), indent=1).encode()
    for name, content in files.items():
        with whole_file(folder / name, "the report") as partial:
            partial.write_bytes(content)
    return [folder / name for name in files]


def _html(comparison: DriveComparison, files: Mapping[str, bytes]) -> bytes:
    """Return the page, with the PNG files of the panels inside."""
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    pictures = {
        name: base64.b64encode(files[f"ssd-{name}.png"]).decode()
        for name, _ in panels_of(comparison)
    }
    text = environment.get_template("page.html").render(
        title=_title(comparison),
        workload=_workload(comparison),
        sentences=sentences(comparison),
        tables=tables(comparison),
        pictures=pictures,
        wide=panel_inches(comparison) > style.COLUMN_INCHES,
        notes=comparison.notes,
    )
    return text.encode()


def _facts(side: DriveSide) -> dict[str, Any]:
    """Return a drive's figures and texts."""
    price = f"{side.price.currency}{side.price.per_tb:,.0f}" if side.price else None
    facts = {"name": side.device.name, "price": price, **side.figures}
    if drive := side.device.drive:
        parts = [drive.identity.model, drive.identity.link or drive.identity.bus]
        held = f", inside the limits of {drive.disk_class}" if drive.disk_class else ""
        facts["model"] = " ".join(filter(None, parts)) + held
    return facts


def _texts(cell: DriveCell) -> dict[str, str | None]:
    """Return the texts of a cell whose columns are more than a number."""
    interval = None
    share = None
    if cell.low is not None and cell.high is not None:
        interval = (
            f"{cell.low:.3g}–{cell.high:.3g}" if cell.high > cell.low else "one epoch"
        )
    if cell.device_share is not None:
        above = f" ({cell.above})" if cell.above else ""
        share = f"{100 * cell.device_share:.0f} %{above}"
    how = f"predicted ({cell.bound})" if cell.predicted else f"measured, {cell.verdict}"
    size = format_bytes(cell.request_bytes) if cell.request_bytes else None
    return {"interval": interval, "how": how, "mean_read": size, "share": share}


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"


def _picture(canvas: Canvas, kind: str) -> bytes:
    buffer = io.BytesIO()
    # No date inside, so that the same comparison gives the same bytes.
    metadata = {"Date": None} if kind == "svg" else {}
    canvas.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def _title(comparison: DriveComparison) -> str:
    return f"SSDs compared: {', '.join(side.device.name for side in comparison.sides)}"


def _workload(comparison: DriveComparison) -> str:
    if comparison.workload:
        return f"Workload: {comparison.workload}."
    return f"No epochs: compared by {comparison.known_by} alone."

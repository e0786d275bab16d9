"""Report of a drive comparison: one page as HTML and PDF, and its figures and tables as files."""

from __future__ import annotations

import base64
import io
import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.atomic import whole_file
from harness.drives.compare import as_dict
from harness.drives.comparison import DriveCell, DriveComparison, DriveSide
from harness.drives.panels import panels_of
from harness.figures.draw import style
from harness.results.table import each
from workloads.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

TEMPLATES = Path(__file__).parent / "templates"
NAME = "ssd-report"
#: Columns of the tables: the part of a drive or a cell, its format and a factor; `wide`: not in a narrow terminal.
COLUMNS = Path(__file__).with_name("columns.csv")
DRIVES, CLASSES, CELLS = "Drives, by fio", "Classes, by their limits", "Systems on drives"
#: Inches of a sheet and of a panel; characters in a line of notes.
_A4 = (8.27, 11.69)
_PANEL = (style.COLUMN_INCHES, 2.6)
_NOTE_WIDTH = 140
# Drives whose epochs differ by a smaller factor are the same for a system.
SAME = 1.05


@dataclass(frozen=True)
class DriveTable:
    """Table as text: title, column heads, rows; `more`: heads that a narrow terminal leaves out."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: tuple[str, ...] = ()


def tables(comparison: DriveComparison) -> list[DriveTable]:
    """Return the tables of drives by fio, of classes by their limits, and of systems on drives; none without rows."""
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
        texts = [_shown(row[column.part], column.format, float(column.factor)) for column in columns]
        shown.append(tuple(texts))
    heads = tuple(column.head for column in columns)
    more = tuple(column.head for column in columns if column.wide)
    return DriveTable(title, heads, tuple(shown), more)


def _shown(value: Any, form: str = "", factor: float = 1.0) -> str:
    """Return a value times `factor` in a format; a text as it is, a dash for None."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value * factor:{form}}"


def matrix(comparison: DriveComparison) -> DriveTable:
    """Tabulate epoch seconds by system and drive, the slowest drive over the fastest, and read amplification."""
    growth = {system: _times(ratio) for system, ratio, *_ in comparison.growth()}
    drives = [side.device.name for side in comparison.sides]
    table = comparison.table
    table["shown"] = table["epoch_s"].map("{:.3g}".format) + table["predicted"].map({True: " P", False: ""})
    seconds = table.pivot(index="system", columns="device", values="shown").reindex(columns=drives).fillna("–")
    amplification = table.groupby("system")["read_amplification"].first()
    rows = []
    for system in comparison.systems:
        rows.append((system, *seconds.loc[system], growth.get(system, "–"), _shown(amplification[system], ".2f")))
    heads = ("system", *drives, "slowest / fastest", "read ampl.")
    return DriveTable("Epoch seconds (P: predicted)", heads, tuple(rows))


def sentences(comparison: DriveComparison) -> list[str]:
    """Return one sentence per system on how its epoch time differs between drives."""
    predicted = comparison.table.set_index(["device", "system"])["predicted"]
    texts = []
    for system, ratio, fastest, slowest in comparison.growth():
        guess = " (predicted)" if predicted[fastest, system] or predicted[slowest, system] else ""
        if ratio < SAME:
            texts.append(f"{system}: the same on every drive ({ratio:.2f}x).")
        else:
            texts.append(f"{system}: {_times(ratio)} as long on {slowest} as on {fastest}{guess}.")
    return texts


def write_page(comparison: DriveComparison, folder: Path) -> list[Path]:
    """Write `ssd-report.html`, `.pdf`, `.json`, and `.png`, `.svg`, `.csv` of each panel; return their paths. Raises
    DataIOError: the folder cannot be written; no file is left half-written."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")
    files: dict[str, bytes] = {}
    with matplotlib.rc_context(fname=style.SHEET):
        for name, draw in panels_of(comparison):
            canvas, axes = plt.subplots(figsize=_PANEL, constrained_layout=True)
            files[f"ssd-{name}.csv"] = draw(comparison, axes).to_csv(index=False).encode()
            for kind in ("png", "svg"):
                files[f"ssd-{name}.{kind}"] = _picture(canvas, kind)
            plt.close(canvas)
        page = _pdf(comparison)
        files[f"{NAME}.pdf"] = _picture(page, "pdf", Title=_title(comparison))
        plt.close(page)
    files[f"{NAME}.html"] = _html(comparison, files)
    files[f"{NAME}.json"] = json.dumps(as_dict(comparison), indent=1).encode()
    for name, content in files.items():
        with whole_file(folder / name, "the report") as partial:
            partial.write_bytes(content)
    return [folder / name for name in files]


def _html(comparison: DriveComparison, files: Mapping[str, bytes]) -> bytes:
    """Return the page, with the PNG files of the panels inside."""
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    pictures = {name: base64.b64encode(files[f"ssd-{name}.png"]).decode() for name, _ in panels_of(comparison)}
    text = environment.get_template("page.html").render(
        title=_title(comparison),
        workload=_workload(comparison),
        sentences=sentences(comparison),
        tables=tables(comparison),
        pictures=pictures,
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
    interval, share = None, None
    if cell.low is not None and cell.high is not None:
        interval = f"{cell.low:.3g}–{cell.high:.3g}" if cell.high > cell.low else "one epoch"
    if cell.device_share is not None:
        above = f" ({cell.above})" if cell.above else ""
        share = f"{100 * cell.device_share:.0f} %{above}"
    how = f"predicted ({cell.bound})" if cell.predicted else f"measured, {cell.verdict}"
    size = format_bytes(cell.request_bytes) if cell.request_bytes else None
    return {"interval": interval, "how": how, "mean_read": size, "share": share}


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"


def _picture(canvas: Canvas, kind: str, **metadata: str) -> bytes:
    buffer = io.BytesIO()
    # No date inside, so that the same comparison gives the same bytes.
    dates: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    canvas.savefig(buffer, format=kind, metadata=dates[kind] | metadata)
    return buffer.getvalue()


def _title(comparison: DriveComparison) -> str:
    return f"SSDs compared: {', '.join(side.device.name for side in comparison.sides)}"


def _workload(comparison: DriveComparison) -> str:
    if comparison.workload:
        return f"Workload: {comparison.workload}."
    return f"No epochs: compared by {comparison.known_by} alone."


def _pdf(comparison: DriveComparison) -> Canvas:
    """Draw one sheet of A4: title, tables as text, panels, notes."""
    import matplotlib.pyplot as plt

    page = plt.figure(figsize=_A4)
    title = textwrap.fill(_title(comparison), 78)
    page.text(0.06, 0.965, title, fontsize=13, weight="bold", va="top")
    top = 0.965 - 0.022 * len(title.splitlines())
    text = [_workload(comparison)]
    shown = [table for table in tables(comparison) if table.title != CELLS]
    if comparison.cells:
        shown.append(matrix(comparison))
    for table in shown:
        rows = pd.DataFrame(table.rows, columns=[f"  {head}" for head in table.heads])
        text += ["", table.title, rows.to_string(index=False)]
    top = _write(page, top, "\n".join(text), size=4.8, family="monospace")
    notes = "\n".join(textwrap.fill(note, _NOTE_WIDTH) for note in comparison.notes)
    bottom = 0.055 + 0.011 * len(notes.splitlines())
    _write(page, bottom, notes, size=5.8)
    highest = max(top - 0.03, bottom + 0.2)
    grid = page.add_gridspec(2, 2, left=0.09, right=0.97, top=highest, bottom=bottom + 0.075, hspace=0.62, wspace=0.24)
    for number, (_, draw) in enumerate(panels_of(comparison)):
        draw(comparison, page.add_subplot(grid[number]))
    return page


def _write(page: Canvas, top: float, text: str, *, size: float, **look: Any) -> float:
    """Write lines below `top`; return their lower edge as a share of the page's height."""
    page.text(0.06, top, text, fontsize=size, va="top", **look)
    return top - 0.00185 * size * len(text.splitlines())

"""Report of a drive comparison: one page as HTML and PDF, and its figures and tables as files."""

from __future__ import annotations

import base64
import io
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.atomic import whole_file
from harness.drives.compare import DriveCell, DriveComparison, DriveSide, as_dict
from harness.drives.panels import panels_of
from workloads.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

TEMPLATES = Path(__file__).parent / "templates"
NAME = "ssd-report"
DRIVES, CLASSES, CELLS = "Drives, by fio", "Classes, by their limits", "Systems on drives"
_A4 = (8.27, 11.69)
_LINES = 118


@dataclass(frozen=True)
class DriveTable:
    """Table as text: title, column heads, rows; `more`: heads that a narrow terminal leaves out."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: tuple[str, ...] = ()


def tables(comparison: DriveComparison) -> list[DriveTable]:
    """Return the tables of drives by fio, of classes by their limits, and of systems on drives; none without rows."""
    measured = [side for side in comparison.sides if side.device.drive]
    limits = [side for side in comparison.sides if not side.device.drive]
    parts: list[tuple[str, Mapping[str, Callable[[Any], str]], Sequence[Any]]] = [
        (DRIVES, _DRIVES, measured),
        (CLASSES, _CLASSES, limits),
        (CELLS, _CELLS, comparison.cells),
    ]
    return [
        DriveTable(
            title,
            tuple(columns),
            tuple(tuple(text(entry) for text in columns.values()) for entry in entries),
            tuple(head for head in columns if head in _MORE),
        )
        for title, columns, entries in parts
        if entries
    ]


def matrix(comparison: DriveComparison) -> DriveTable:
    """Tabulate epoch seconds by system and drive, the slowest drive over the fastest, and read amplification."""
    growth = {system: _times(ratio) for system, ratio, *_ in comparison.growth()}
    rows = []
    for system in comparison.systems:
        cells = [comparison.cell(side.device.name, system) for side in comparison.sides]
        shown = [f"{cell.epoch_s:.3g}{' P' if cell.predicted else ''}" if cell else "–" for cell in cells]
        amplification = next((cell.read_amplification for cell in cells if cell and cell.read_amplification), None)
        rows.append((system, *shown, growth.get(system, "–"), _scaled(amplification, 1, ".2f")))
    heads = ("system", *(side.device.name for side in comparison.sides), "slowest / fastest", "read ampl.")
    return DriveTable("Epoch seconds (P: predicted)", heads, tuple(rows))


def sentences(comparison: DriveComparison) -> list[str]:
    """Return one sentence per system on how its epoch time differs between drives."""
    said = []
    for system, ratio, fastest, slowest in comparison.growth():
        if ratio < 1.05:
            said.append(f"{system}: the same on every drive ({ratio:.2f}x).")
        else:
            ends = (comparison.cell(fastest, system), comparison.cell(slowest, system))
            guess = " (predicted)" if any(cell and cell.predicted for cell in ends) else ""
            said.append(f"{system}: {_times(ratio)} as long on {slowest} as on {fastest}{guess}.")
    return said


def write_page(comparison: DriveComparison, folder: Path) -> list[Path]:
    """Write `ssd-report.html`, `.pdf`, `.json`, and `.png`, `.svg`, `.csv` of each panel; return their paths. Raises
    DataIOError: the folder cannot be written; no file is left half-written."""
    import jinja2
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from harness.figures.draw import style

    files: dict[str, bytes] = {}
    panels = panels_of(comparison)
    with plt.rc_context(style.RC):
        for name, draw in panels:
            canvas, axes = plt.subplots(figsize=(style.PAGE_INCHES / 2 + 0.6, 2.7), constrained_layout=True)
            data = draw(comparison, axes)
            files |= {f"ssd-{name}.{kind}": _picture(canvas, kind) for kind in ("png", "svg")}
            files[f"ssd-{name}.csv"] = data.to_csv(index=False).encode()
            plt.close(canvas)
        page = _pdf(comparison)
        files[f"{NAME}.pdf"] = _picture(page, "pdf")
        plt.close(page)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    html = environment.get_template("page.html").render(
        title=_title(comparison),
        workload=_workload(comparison),
        sentences=sentences(comparison),
        tables=tables(comparison),
        pictures=[(name, base64.b64encode(files[f"ssd-{name}.png"]).decode()) for name, _ in panels],
        notes=comparison.notes,
    )
    files[f"{NAME}.html"] = html.encode()
    files[f"{NAME}.json"] = json.dumps(as_dict(comparison), indent=1).encode()
    for name, content in files.items():
        with whole_file(folder / name, "the report") as partial:
            partial.write_bytes(content)
    return [folder / name for name in files]


def _figure(name: str, form: str = ",.0f", factor: float = 1) -> Callable[[DriveSide], str]:
    return lambda side: _scaled(side.figures[name], factor, form)


def _model(side: DriveSide) -> str:
    drive = side.device.drive
    if drive is None:
        return "limits of a class"
    who = drive.identity
    model = " ".join(part for part in (who.model, who.link or who.bus) if part)
    return f"{model}, inside the limits of {drive.disk_class}" if drive.disk_class else model


def _interval(cell: DriveCell) -> str:
    if cell.low is None or cell.high is None:
        return "–"
    return f"{cell.low:.3g}–{cell.high:.3g}" if cell.high > cell.low else "one epoch"


# Columns by head: text of a drive, and of a system on a drive.
_DRIVES: dict[str, Callable[[DriveSide], str]] = {
    "drive": lambda side: side.device.name,
    "model": _model,
    "512 B reads/s": _figure("randread_512_iops"),
    "4 KiB reads/s": _figure("randread_4k_iops"),
    "64 KiB reads/s": _figure("randread_64k_iops"),
    "1 MiB MB/s": _figure("seqread_bytes_per_s", factor=1e-6),
    "p50 µs": _figure("latency_1_p50_s", factor=1e6),
    "p99 µs": _figure("latency_1_p99_s", factor=1e6),
    "p99.9 µs (64)": _figure("latency_64_p999_s", factor=1e6),
    "CPU µs/read": _figure("cpu_s_per_read", ".1f", 1e6),
    "price of 1 TB": lambda side: f"{side.price.currency}{side.price.per_tb:,.0f}" if side.price else "–",
}
# Limits have no latency and cost no processor time.
_LIMITED = ("drive", "512 B reads/s", "4 KiB reads/s", "64 KiB reads/s", "1 MiB MB/s", "price of 1 TB")
_CLASSES = {"class" if head == "drive" else head: _DRIVES[head] for head in _LIMITED}
_CELLS: dict[str, Callable[[DriveCell], str]] = {
    "drive": lambda cell: cell.device,
    "system": lambda cell: cell.system,
    "epoch s": lambda cell: f"{cell.epoch_s:.3g}",
    "interval": _interval,
    "how": lambda cell: f"predicted ({cell.bound})" if cell.predicted else f"measured, {cell.verdict}",
    "reads/s": lambda cell: _scaled(cell.reads_per_s, 1, ",.0f"),
    "MB/s": lambda cell: _scaled(cell.bytes_per_s, 1e-6, ",.0f"),
    "mean read": lambda cell: format_bytes(cell.request_bytes) if cell.request_bytes else "–",
    "of the drive": lambda cell: _scaled(cell.device_share, 100, ".0f", " %") + (f" ({cell.above})" * bool(cell.above)),
    "ampl.": lambda cell: _scaled(cell.read_amplification, 1, ".2f"),
    "epochs/h per price": lambda cell: _scaled(cell.per_price, 1, ".3g"),
}

_MORE = {"64 KiB reads/s", "p50 µs", "p99.9 µs (64)", "CPU µs/read"}
_MORE |= {"reads/s", "MB/s", "mean read", "ampl.", "epochs/h per price"}


def _scaled(value: float | None, factor: float, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value * factor:{form}}{unit}"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"


def _picture(canvas: Canvas, kind: str) -> bytes:
    buffer = io.BytesIO()
    # No date inside, so that the same comparison gives the same bytes.
    dates: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    canvas.savefig(buffer, format=kind, metadata=dates[kind])
    return buffer.getvalue()


def _title(comparison: DriveComparison) -> str:
    return f"SSDs compared: {', '.join(side.device.name for side in comparison.sides)}"


def _workload(comparison: DriveComparison) -> str:
    if comparison.workload:
        return f"Workload: {comparison.workload}."
    return f"No epochs: compared by {comparison.known_by} alone."


def _pdf(comparison: DriveComparison) -> Canvas:
    import matplotlib.pyplot as plt

    page = plt.figure(figsize=_A4)
    top = 0.965
    for line in textwrap.wrap(_title(comparison), 78):
        page.text(0.06, top, line, fontsize=13, weight="bold", va="top")
        top -= 0.022
    words = [_workload(comparison)]
    top = _write(page, top - 0.002, words, size=7.5)
    shown = [table for table in tables(comparison) if table.title != CELLS]
    shown += [matrix(comparison)] if comparison.cells else []
    for table in shown:
        top = _table(page, top - 0.006, table)
    notes_height = 0.012 * sum(len(textwrap.wrap(note, _LINES + 22)) for note in comparison.notes) + 0.02
    drawings = panels_of(comparison)
    bottom = 0.035 + notes_height
    highest, lowest = max(top - 0.03, bottom + 0.2), bottom + 0.075
    rows = -(-len(drawings) // 2)
    grid = page.add_gridspec(rows, 2, left=0.09, right=0.97, top=highest, bottom=lowest, hspace=0.62, wspace=0.24)
    for index, (_, draw) in enumerate(drawings):
        draw(comparison, page.add_subplot(grid[index // 2, index % 2]))
    _write(page, bottom, comparison.notes, size=5.8, width=_LINES + 22)
    return page


def _write(page: Canvas, top: float, lines: Sequence[str], *, size: float, width: int = _LINES) -> float:
    step = size * 0.00175
    for line in lines:
        for part in textwrap.wrap(line, width):
            page.text(0.06, top, part, fontsize=size, va="top")
            top -= step
    return top


def _table(page: Canvas, top: float, table: DriveTable) -> float:
    """Draw a table below `top`; return its lower edge as a share of the page's height."""
    from matplotlib.transforms import Bbox

    height = 0.0135 * (len(table.rows) + 1)
    page.text(0.06, top, table.title, fontsize=8.5, weight="bold", va="top")
    axes = page.add_axes((0.06, top - 0.018 - height, 0.9, height))
    axes.axis("off")
    drawn = axes.table(
        cellText=[list(row) for row in table.rows],
        colLabels=list(table.heads),
        bbox=Bbox.unit(),
        cellLoc="right",
        edges="horizontal",
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(5.6)
    drawn.auto_set_column_width(list(range(len(table.heads))))
    for (row, column), cell in drawn.get_celld().items():
        cell.set_linewidth(0.4)
        cell.PAD = 0.03
        if column < 2:
            cell.get_text().set_horizontalalignment("left")
        if row == 0:
            cell.get_text().set_fontweight("bold")
    return top - 0.018 - height - 0.008

"""A figure as a declaration: id, paper, the runs it needs, and the drawing from run records alone."""

from __future__ import annotations

import copy
import importlib
import pkgutil
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from harness.figures import style
from harness.figures.query import Group, NotDrawn, Point, caveats
from workloads.errors import InputError, OutcoreError
from workloads.units import format_bytes, format_count, parse_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Plain = dict[str, Any]


@dataclass(frozen=True)
class Drawing:
    """What a figure drew: the canvas, the table behind it, and its caption."""

    canvas: Canvas
    data: pd.DataFrame
    caption: str


@dataclass(frozen=True)
class Figure:
    """One figure of the catalogue.

    Attributes:
        id: as in `outcore figures ID`.
        paper: the paper, or `outcore`.
        title: what it shows.
        needs: from a bench profile (plain data of an experiment) to the experiment whose runs it is drawn from.
        draw: from `harness.results.load()` to a drawing; raises NotDrawn with the reason.
        headline: drawn from the runs of the default bench alone.
    """

    id: str
    paper: str
    title: str
    needs: Callable[[Plain], Plain]
    draw: Callable[[pd.DataFrame], Drawing]
    headline: bool = False


@dataclass(frozen=True)
class Rendered:
    """What became of one figure: files, or the reason why not."""

    id: str
    status: Literal["drawn", "not drawn"]
    reason: str = ""
    files: list[Path] = field(default_factory=list)


_FIGURES: dict[str, Figure] = {}


def register(figure: Figure) -> Figure:
    """Add a figure to the catalogue."""
    _FIGURES[figure.id] = figure
    return figure


def catalogue() -> dict[str, Figure]:
    """Every figure, by id: each module of this folder that registers one."""
    package = importlib.import_module("harness.figures")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"harness.figures.{module.name}")
    return dict(sorted(_FIGURES.items()))


def chosen(names: str) -> list[Figure]:
    """Figures from `headline`, `all` or a list of ids.

    Raises:
        InputError: an id does not exist; names the nearest.
    """
    from harness.experiment import unknown_name

    known = catalogue()
    if names == "all":
        return list(known.values())
    if names == "headline":
        return [figure for figure in known.values() if figure.headline]
    result = []
    for name in [part.strip() for part in names.split(",") if part.strip()]:
        if name not in known:
            raise unknown_name("figure", f"figure {name!r}", name, list(known))
        result.append(known[name])
    if not result:
        raise InputError("no figure is named", "use headline, all or ids of `outcore figures --list`")
    return result


def render(figures: list[Figure], frame: pd.DataFrame, out: Path) -> list[Rendered]:
    """Draw figures as PNG (200 dpi), SVG and the CSV of what is drawn, into `out`; never raises for missing runs."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    out.mkdir(parents=True, exist_ok=True)
    rendered = []
    for figure in figures:
        try:
            with mpl.rc_context(style.RC):
                drawing = figure.draw(frame)
                files = [out / f"{figure.id}.{kind}" for kind in ("png", "svg", "csv")]
                metadata = {"Title": f"{figure.id}: {figure.title}", "Description": drawing.caption}
                drawing.canvas.savefig(files[0], bbox_inches="tight", metadata=metadata)
                drawing.canvas.savefig(files[1], bbox_inches="tight", metadata={**metadata, "Date": None})
                plt.close(drawing.canvas)
            drawing.data.to_csv(files[2], index=False)
            rendered.append(Rendered(figure.id, "drawn", files=files))
        except NotDrawn as reason:
            rendered.append(Rendered(figure.id, "not drawn", str(reason)))
        except OutcoreError as error:
            rendered.append(Rendered(figure.id, "not drawn", str(error)))
    return rendered


def caption(group: Group, points: list[Point] | None = None, extra: str = "") -> str:
    """Setting, device and caveats of what is drawn, as every figure carries them."""
    points = points if points is not None else group.points
    config = points[0].record["config"]
    shared = group.shared
    data = config["dataset"]
    kinds = sorted({str(point.record.get("class")) for point in points if point.record.get("class")})
    parts = [
        (f"{data['name']}: " if "dataset" in shared else "")
        + f"{format_count(data['num_nodes'])} nodes, {format_count(data['num_edges'])} edges",
        f"{config['model']}, {config['layers']} layers, fan-out {','.join(map(str, config['fanout']))}",
    ]
    if "batch_size" in shared:
        parts.append(f"batch {config['batch_size']}")
    device = config["device"]
    memory = config.get("device_memory_bytes")
    emulated = device.startswith("emulated:")
    named = f"EMULATED device {device.removeprefix('emulated:')}" if emulated else f"device {device}"
    parts.append(named + (f" ({format_bytes(memory)})" if memory else ""))
    if "memory" in shared:
        parts.append("no memory cap" if config["memory"] == "none" else f"memory {describe_memory(config['memory'])}")
    parts.append(f"isolation {config['isolation']}")
    parts.append("bare device" if config["disk_class"] == "none" else f"SSD class {config['disk_class']}")
    if kinds:
        parts.append(" and ".join(kinds))
    measured = [point.samples for point in points if point.samples]
    if measured:
        kind = {"bootstrap95": "95 % interval", "range": "range"}
        marks = sorted({kind[point.interval_kind] for point in points if point.interval_kind})
        least, most = min(measured), max(measured)
        epochs = "1 epoch" if most == 1 else f"{least} epochs" if least == most else f"{least}–{most} epochs"
        parts.append(f"median and {' / '.join(marks)} of {epochs}")
    if extra:
        parts.append(extra)
    if group.invalid:
        parts.append(f"{group.invalid} invalid runs left out")
    bent = caveats(points)
    if bent:
        parts.append("CAVEATS: " + "; ".join(bent))
    return "; ".join(parts) + "."


def describe_memory(text: str) -> str:
    """`+64MiB` as `floor + 64 MiB`, `0.25x` as a share of the features."""
    if text.startswith("+"):
        return f"floor + {format_bytes(parse_bytes(text[1:]))}"
    return f"floor + {text} of the features" if text.endswith("x") else f"cap {text}"


def add_caption(canvas: Canvas, text: str, *, bottom: float = 0.0) -> None:
    """Write the caption under the axes, wrapped to the figure's width."""
    width = int(canvas.get_size_inches()[0] * 25)
    canvas.text(0.01, bottom - 0.02, textwrap.fill(text, width), va="top", ha="left", fontsize=5.6, color="#333333")


def plain_log(axis: Any) -> None:
    """Ticks of a log axis at 1, 2 and 5 times powers of ten, as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def with_dims(profile: Plain, dims: list[int]) -> tuple[Plain, list[str]]:
    """A profile whose dataset is made once for each feature dimension; returns it and the datasets' names."""
    changed = copy.deepcopy(profile)
    name = changed["run"]["dataset"]
    recipe = changed["datasets"][name]
    names = []
    for dim in dims:
        own = name if dim == recipe.get("dim", 128) else f"{name}-d{dim}"
        changed["datasets"][own] = {**recipe, "dim": dim}
        names.append(own)
    return changed, names


def wide_device(profile: Plain) -> Plain:
    """A profile for sweeps up to dimension 512: device memory that holds the same rows at four times the width."""
    memory = profile["run"].get("device_memory")
    if memory is None:
        return profile
    return {**profile, "run": {**profile["run"], "device_memory": 4 * parse_bytes(memory)}}


def only_systems(profile: Plain, names: list[str]) -> list[Any]:
    """The profile's entries of the systems that are named and installed, one each (the first: the capped one)."""
    from systems.registry import names as installed

    found: dict[str, Any] = {}
    for entry in profile["systems"]:
        own = entry if isinstance(entry, str) else entry["name"]
        if own in names:
            found.setdefault(own, entry)
    for name in names:
        if name not in found and name in installed():
            found[name] = name
    return [found[name] for name in names if name in found]


def unlabelled(config: Mapping[str, Any]) -> bool:
    """Whether a run trains all stages: the common filter of epoch-time figures."""
    return bool(config["stages"] == "all")

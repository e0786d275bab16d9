"""Captions: setting, device, caveats and omissions, in the same words under every
figure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.compare.epochs import part_of_epoch, part_of_epochs
from harness.compare.sizes import sizes_of
from harness.compare.verdicts import uncounted_text
from harness.figures.draw.caveats import caveats
from harness.figures.draw.style import LEAST_POINTS, SOFT
from harness.figures.draw.words import sentences
from harness.records.study import StudyRecord
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes, format_count, parse_bytes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

    from harness.compare.cells import Cells

#: Lines of the sentence above a figure.
MOST_LINES = 6
_EPOCH = re.compile(r"\bepochs?\b", re.IGNORECASE)


def caption(
    cells: Cells, rows: pd.DataFrame, extra: str = "", *, bars: bool = False
) -> str:
    """Return the caption of runs in three sentences: workload, place, and what a reader
    must know besides.

    Args:
        rows: drawn rows of `Cells.medians`.
        extra: clauses of the figure.
        bars: whether the drawing shows intervals.
    """
    records = list(rows.record)
    away = cells.elsewhere
    runs = "run" if away == 1 else "runs"
    left_out = [
        f"{uncounted_text(cells.uncounted.values())} left out"
        if cells.uncounted
        else "",
        f"{away} {runs} of other hosts or devices left out" if away else "",
    ]
    notes = _clauses(extra, *left_out, caveats(records))
    return sentences(_workload(cells, rows), _place(cells, rows, bars), notes)


def _workload(cells: Cells, rows: pd.DataFrame) -> str:
    """Return the sentence on model and graph of the drawn rows."""
    records = list(rows.record)
    config = records[0]["config"]
    data = config["dataset"]
    size = graph_size(data["num_nodes"], data["num_edges"])
    own = "dataset" in cells.shared
    graph = f"{data['name']} ({size})" if own else f"graphs of {size}"
    sizes = [f"{config['layers']} layers", f"fan-out {_each(records, 'fanout')}"]
    if "batch_size" in cells.shared:
        sizes.append(f"batch {config['batch_size']}")
    part = part_of(rows)
    trained = f", the {part} of an epoch" if part else ""
    model = _each(records, "model")
    return f"Trains {model} ({', '.join(sizes)}) on {graph}{trained}"


def _place(cells: Cells, rows: pd.DataFrame, bars: bool) -> str:
    """Return the sentence on device, memory and disk of the drawn rows, and on the
    epochs behind each value."""
    records = list(rows.record)
    config = records[0]["config"]
    own_bytes = config.get("device_memory_bytes")
    name = config["device"]
    device = f"device {name}".replace("device emulated:", "EMULATED device ")
    memory = config["memory"]
    shared = "memory" in cells.shared
    capped = f"memory {describe_memory(memory)}"
    if memory == "none":
        capped = "no memory cap"
    classes = _each(records, "disk_class")
    host = records[0]["environment"].get("host_label")
    return ", ".join(
        filter(
            None,
            [
                f"{device} ({format_bytes(own_bytes)})" if own_bytes else device,
                capped if shared else "",
                "no isolation" if config["isolation"] == "none" else "",
                f"host {host}" if host else "",
                "bare device" if classes == "none" else f"SSD class {classes}",
                sizes_of(records),
                _medians(rows, bars),
            ],
        )
    )


def _clauses(*parts: str) -> str:
    """Return the clauses that are not empty, joined as in one sentence."""
    return "; ".join(filter(None, parts))


def part_of(rows: pd.DataFrame) -> str:
    """Return the part of an epoch behind rows of `Cells.medians`, as
    `part_of_epochs`."""
    return part_of_epochs(
        record["config"] for record in rows.record if isinstance(record, dict)
    )


def part_of_study(record: StudyRecord) -> str:
    """Return the part of an epoch behind a study; empty for a whole one, and for a
    study without mini-batches."""
    if "batch_size" not in record.params:
        return ""
    dataset = record.dataset.model_dump() if record.dataset else None
    return part_of_epoch({**record.params, "dataset": dataset})


def labelled(text: str, part: str, joint: str = "\n") -> str:
    """Return a label with the part of an epoch after `joint`, if there is one and the
    label speaks of an epoch."""
    return f"{text}{joint}{part}" if part and _EPOCH.search(text) else text


def name_part(canvas: Canvas, part: str) -> None:
    """Write the part of an epoch that was trained under each axis label, else each
    title, that speaks of an epoch."""
    for axes in canvas.axes:
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_text(labelled(label.get_text(), part))
        # A panel beside another one may leave the label of their common axis to it.
        beside = axes.get_shared_y_axes().get_siblings(axes)
        labels = [axes.get_xlabel(), *(other.get_ylabel() for other in beside)]
        if not any(map(_EPOCH.search, labels)):
            axes.set_title(labelled(axes.get_title(loc="left"), part), loc="left")


def _medians(rows: pd.DataFrame, bars: bool) -> str:
    """Return the number of epochs behind the drawn values, and the kind of their
    intervals where the drawing shows them; empty without epochs."""
    measured = rows[rows.samples > 0]
    if measured.empty:
        return ""
    least = int(measured.samples.min())
    most = int(measured.samples.max())
    if most == 1:
        return "one measured epoch a value"
    epochs = f"{most} epochs" if least == most else f"{least} to {most} epochs"
    if not bars:
        return f"medians of {epochs}"
    several = measured[measured.samples > 1]
    kinds = {"bootstrap95": "95 % interval", "range": "range"}
    marks = " or ".join(sorted({kinds[kind] for kind in several.interval}))
    return f"median and {marks} of {epochs}"


def graph_size(nodes: int, edges: int) -> str:
    """Return numbers of nodes and edges as text, like `2M nodes, 40M edges`."""
    return f"{format_count(nodes)} nodes, {format_count(edges)} edges"


def _each(records: Sequence[JsonDict], key: str) -> str:
    """Return the value of a setting, or all its values where the drawn runs differ."""
    found = [record["config"][key] for record in records]
    shown = [
        ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for value in found
    ]
    return " and ".join(dict.fromkeys(shown))


def describe_memory(text: str) -> str:
    """Return `+64MiB` as `64 MiB beyond interpreter and training`, `0.25x` as a share
    of the features, any other cap as `cap` and its text."""
    beyond = "beyond interpreter and training"
    if text.startswith("+"):
        return f"{format_bytes(parse_bytes(text[1:]))} {beyond}"
    if text.endswith("x"):
        return f"of {float(text[:-1]):.0%} of the features {beyond}".replace("%", " %")
    return f"cap {text}"


def add_caption(canvas: Canvas, text: str, *, bottom: float = 0.0) -> None:
    """Write the caption under the axes, wrapped to the figure's width."""
    width = int(canvas.get_size_inches()[0] * 20)
    look: dict[str, Any] = {
        "va": "top",
        "ha": "left",
        "fontsize": LEAST_POINTS,
        "color": SOFT,
    }
    canvas.text(0.01, bottom - 0.02, textwrap.fill(text, width), **look)


def add_finding(canvas: Canvas, text: str) -> None:
    """Write what a figure shows above its panels and legend, wrapped to the figure's
    width."""
    if not text:
        return
    if layout := canvas.get_layout_engine():
        layout.execute(canvas)
        canvas.set_layout_engine("none")
    for legend in canvas.legends:
        # Legends would move to the upper edge of the file, which is that of the
        # finding.
        legend.set_bbox_to_anchor((0, 0, 1, 1), canvas.transFigure)
    width, height = canvas.get_size_inches()
    wrapped = textwrap.wrap(
        _unbroken(text),
        int(width * 13),
        max_lines=MOST_LINES,
        placeholder=" …",
        break_on_hyphens=False,
    )
    lines = "\n".join(wrapped)
    look: dict[str, Any] = {
        "fontsize": 8.5,
        "fontweight": "bold",
        "va": "bottom",
        "ha": "left",
    }
    canvas.text(0.01, 1 + 0.06 / height, lines, **look)


def _unbroken(text: str) -> str:
    """Return a text with no-break spaces between a number and its unit, and between a
    name and its share."""
    with_unit = re.sub(r"(?<=\d) (?=(?:%|times|s|[KMG]i?B)\b|%)", "\u00a0", text)
    return re.sub(r" (?=[\d.,]+\u00a0%)", "\u00a0", with_unit)


def study_caption(record: StudyRecord, extra: str = "") -> str:
    """Return dataset, parameters and kind of a study, in the words of `caption`."""
    data = record.dataset
    params = record.params
    if data is None:
        return sentences("Measured on the bare device", extra)
    size = graph_size(data.num_nodes, data.num_edges)
    shape = [f"dim {data.dim}"]
    if "fanout" in params:
        shape.append(f"fan-out {','.join(map(str, params['fanout']))}")
    if "batch_size" in params:
        shape.append(f"batch {params['batch_size']}")
    batches = part_of_study(record) or "mini-batches"
    made = f"Counted from the {batches}" if "batch_size" in params else "Computed"
    how = f"{made} on {data.name} ({size}, {', '.join(shape)}), not timed"
    return sentences(how, extra)


def dataset_name(record: StudyRecord) -> str:
    """Return the name of a study's dataset; empty where it has none."""
    return record.dataset.name if record.dataset else ""


def row_texts(
    rows: pd.DataFrame, text: str, joint: str = ", ", before: str = ""
) -> str:
    """Return `text` for each row, joined, and `before` in front of the first; empty
    without rows.

    The names of columns stand in `text` in braces.
    """
    texts = [text.format_map(row) for row in rows.to_dict("records")]
    return before + joint.join(texts) if texts else ""


def left_out(drawn: Sequence[Any], full: Sequence[Any], what: str) -> str:
    """Return the sentence of a reduced grid: drawn values of all values; empty where
    none is left out."""
    reduced = (
        f"reduced grid: {what} {', '.join(map(str, drawn))} of "
        f"{', '.join(map(str, full))}"
    )
    return reduced if any(value not in drawn for value in full) else ""

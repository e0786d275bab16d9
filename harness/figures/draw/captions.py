"""Captions: setting, device, caveats and omissions, in the same words under every figure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.compare.epochs import part_of_epoch, part_of_epochs
from harness.compare.plan import Plain
from harness.compare.points import Group, Point, uncounted_text
from harness.records.record import class_of
from harness.records.study import StudyRecord
from workloads.units import format_bytes, format_count, parse_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_EPOCH = re.compile(r"\bepochs?\b", re.IGNORECASE)
#: Origin of a figure's values: runs, a study, or the caption itself.
Source = Group | StudyRecord | str


def caption(group: Group, points: list[Point] | None = None, extra: str = "") -> str:
    """Return setting, device and caveats of the drawn points (by default all of the group), with `extra` text."""
    points = points if points is not None else group.points
    config, shared = points[0].record["config"], group.shared
    data, device, memory = config["dataset"], config["device"], config.get("device_memory_bytes")
    emulated = device.startswith("emulated:")
    named = f"EMULATED device {device.removeprefix('emulated:')}" if emulated else f"device {device}"
    part = part_of(group, points)
    classes, away = _each(points, "disk_class"), group.elsewhere
    bent = dict.fromkeys(rule for point in points for rule in broken_rules(point.record))
    return _sentence(
        (f"{data['name']}: " if "dataset" in shared else "") + graph_size(data["num_nodes"], data["num_edges"]),
        f"{_each(points, 'model')}, {config['layers']} layers, fan-out {_each(points, 'fanout')}",
        f"batch {config['batch_size']}" if "batch_size" in shared else "",
        f"epochs of the {part}" if part else "",
        named + (f" ({format_bytes(memory)})" if memory else ""),
        _memory(config["memory"]) if "memory" in shared else "",
        f"isolation {config['isolation']}",
        "bare device" if classes == "none" else f"SSD class {classes}",
        " and ".join(sorted({class_of(point.record) for point in points if point.record.get("class")})),
        _medians(points),
        extra,
        f"{uncounted_text(group.uncounted.values())} left out" if group.uncounted else "",
        f"{away} run{'s' * (away != 1)} of other hosts or devices left out" if away else "",
        f"CAVEATS: {'; '.join(bent)}" if bent else "",
    )


def part_of(source: Source, points: Sequence[Point] | None = None) -> str:
    """Return the part of an epoch behind a figure, as `part_of_epochs`; `points`: by default all of a group."""
    if isinstance(source, StudyRecord):
        dataset = source.dataset.model_dump() if source.dataset else None
        return part_of_epoch({**source.params, "dataset": dataset}) if "batch_size" in source.params else ""
    if isinstance(source, str):
        return ""
    shown = source.points if points is None else points
    return part_of_epochs(point.record["config"] for point in shown if point.record)


def labelled(text: str, part: str, joint: str = "\n") -> str:
    """Return a label with the part of an epoch after `joint`, if there is one and the label speaks of an epoch."""
    return f"{text}{joint}{part}" if part and _EPOCH.search(text) else text


def name_part(canvas: Canvas, part: str) -> None:
    """Write the part of an epoch that was trained under each axis label, else each title, that speaks of an epoch."""
    for axes in canvas.axes:
        labels = [axes.xaxis.label, axes.yaxis.label]
        for label in labels:
            label.set_text(labelled(label.get_text(), part))
        if not any(_EPOCH.search(label.get_text()) for label in labels):
            axes.set_title(labelled(axes.get_title(loc="left"), part), loc="left")


def _medians(points: Sequence[Point]) -> str:
    """Return the number of epochs behind the points' medians, and the kind of their intervals; empty without epochs."""
    measured = [point.samples for point in points if point.samples]
    if not measured:
        return ""
    kind = {"bootstrap95": "95 % interval", "range": "range"}
    marks = sorted({kind[point.interval_kind] for point in points if point.interval_kind})
    least, most = min(measured), max(measured)
    epochs = "1 epoch" if most == 1 else f"{least} epochs" if least == most else f"{least}–{most} epochs"
    return f"median and {' / '.join(marks)} of {epochs}"


def _memory(text: str) -> str:
    return "no memory cap" if text == "none" else f"memory {describe_memory(text)}"


def _sentence(*parts: str) -> str:
    return "; ".join(filter(None, parts)) + "."


def graph_size(nodes: int, edges: int) -> str:
    """Return numbers of nodes and edges as text, like `2M nodes, 40M edges`."""
    return f"{format_count(nodes)} nodes, {format_count(edges)} edges"


def caption_of(source: Source, *notes: str, points: list[Point] | None = None) -> str:
    """Return the caption of runs or of a study with the notes that are not empty; a text is a caption itself."""
    if isinstance(source, str):
        return source
    extra = "; ".join(filter(None, notes))
    return caption(source, points, extra) if isinstance(source, Group) else study_caption(source, extra)


def _each(points: Sequence[Point], key: str) -> str:
    """Return the value of a setting, or all its values where the drawn runs differ."""
    found = [point.record["config"][key] for point in points]
    shown = [",".join(map(str, value)) if isinstance(value, list) else str(value) for value in found]
    return " and ".join(dict.fromkeys(shown))


def describe_memory(text: str) -> str:
    """Return `+64MiB` as `floor + 64 MiB`, `0.25x` as a share of the features, any other cap as `cap` and its text."""
    if text.startswith("+"):
        return f"floor + {format_bytes(parse_bytes(text[1:]))}"
    return f"floor + {text} of the features" if text.endswith("x") else f"cap {text}"


def add_caption(canvas: Canvas, text: str, *, bottom: float = 0.0) -> None:
    """Write the caption under the axes, wrapped to the figure's width."""
    width = int(canvas.get_size_inches()[0] * 25)
    canvas.text(0.01, bottom - 0.02, textwrap.fill(text, width), va="top", ha="left", fontsize=5.6, color="#333333")


def study_caption(record: StudyRecord, extra: str = "") -> str:
    """Return dataset, parameters and kind of a study, in the words of `caption`."""
    data, params = record.dataset, record.params
    how = "computed from the mini-batches, no timing" if "batch_size" in params else "computed, no timing"
    return _sentence(
        f"{data.name}: {graph_size(data.num_nodes, data.num_edges)}, dim {data.dim}" if data else "",
        f"fan-out {','.join(map(str, params['fanout']))}" if "fanout" in params else "",
        f"batch {params['batch_size']}" if "batch_size" in params else "",
        part_of(record),
        how if data else "bare device",
        extra,
    )


def dataset_name(record: StudyRecord) -> str:
    """Return the name of a study's dataset; empty where it has none."""
    return record.dataset.name if record.dataset else ""


def left_out(drawn: Sequence[Any], full: Sequence[Any], what: str) -> str:
    """Return the sentence of a reduced grid: drawn values of all values; empty where none is left out."""
    reduced = f"reduced grid: {what} {', '.join(map(str, drawn))} of {', '.join(map(str, full))}"
    return reduced if any(value not in drawn for value in full) else ""


def broken_rules(record: Plain) -> list[str]:
    """Return the names of the rules that a run breaks."""
    broken = [outcome for outcome in record.get("verdict_rules", []) if not outcome["ok"]]
    return [f"rule {outcome['rule']} {outcome['name'].replace('_', ' ')}" for outcome in broken]

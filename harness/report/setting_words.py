"""Settings of compared runs and lists of names in words; texts of settings differ where
the settings do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.compare.comparable import SAME_EXPERIMENT
from harness.compare.epochs import part_of_epoch
from harness.figures.draw.captions import describe_memory, graph_size
from harness.records.record import RunConfig
from workloads.arraytypes import JsonDict
from workloads.errors import InputError
from workloads.units import format_bytes

# Settings with a phrase of their own.
_PHRASED = frozenset(
    "dataset model layers fanout batch_size max_batches sampler ranks".split()
)
_PHRASED |= {"device", "device_memory_bytes", "memory", "disk_class"}
# Whether a backend enforces a cap, and which (`isolation`), is a caveat of the run.
_NAMED = SAME_EXPERIMENT - _PHRASED - {"isolation"}
_DEFAULTS: JsonDict = {
    name: field.get_default() for name, field in RunConfig.model_fields.items()
}
# Names of settings as a reader says them.
_NAMES = {
    "hidden": "hidden width",
    "test_nodes": "test nodes",
    "warmup": "warm-up epochs",
}


def listed(names: Iterable[str]) -> str:
    """Join names as a sentence does: `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def in_words(shared: JsonDict) -> str:
    """Return a shared setting in words, parts joined by semicolons.

    Args:
        shared: settings of one experiment, with the place of its runs
            (`harness.compare.comparable.shared_setting`).

    Returns:
        The workload, budget and drive, then each further setting that differs from its
        default, by name.
    """
    data = shared["dataset"]
    device = str(shared["device"])
    memory = shared.get("device_memory_bytes")
    emulated = device.startswith("emulated:")
    named = f"EMULATED {device.removeprefix('emulated:')}" if emulated else device
    part = part_of_epoch(shared)
    parts = [
        f"{data['name']} ({graph_size(data['num_nodes'], data['num_edges'])}, "
        f"{data['dim']} {data['dtype']} features)",
        f"{shared['model']} of {shared['layers']} layers",
        f"fan-out {','.join(map(str, shared['fanout']))}",
        f"batch {shared['batch_size']}" + (f", {part} of an epoch" if part else ""),
        f"device {named}" + (f" with {format_bytes(memory)}" if memory else ""),
        "no memory cap"
        if shared["memory"] == "none"
        else f"memory {_memory(shared['memory'])}",
        "bare SSD"
        if shared["disk_class"] == "none"
        else f"SSD class {shared['disk_class']}",
    ]
    if shared.get("sampler", "neighbor") != "neighbor":
        parts.insert(2, f"{shared['sampler']} sampling")
    if shared.get("ranks", 1) != 1:
        parts.append(f"{shared['ranks']} processes")
    parts += _changed(shared)
    if shared.get("host"):
        parts.append(f"host {shared['host']}")
    return "; ".join(parts)


def _changed(shared: JsonDict) -> list[str]:
    """Return each setting without a phrase that differs from its default, like `hidden
    width 64` or `shuffle off`."""
    found = []
    for name, default in _DEFAULTS.items():
        if name in _NAMED and shared.get(name, default) != default:
            message = _NAMES.get(name, name.replace("_", " "))
            found.append(f"{message} {_value(shared[name])}")
    return found


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _memory(text: str) -> str:
    """Return `describe_memory` of a setting, or the text itself where it is no size (an
    imported record)."""
    try:
        return describe_memory(text)
    except InputError:
        return text

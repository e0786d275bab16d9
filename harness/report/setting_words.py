"""A setting of compared runs in words: texts differ where the settings do."""

from __future__ import annotations

from typing import Any

from harness.compare.comparable import SAME_EXPERIMENT
from harness.compare.epochs import part_of_epoch
from harness.compare.plan import Plain
from harness.figures.draw.captions import describe_memory, graph_size
from harness.records.record import RunConfig
from workloads.errors import InputError
from workloads.units import format_bytes

# Settings with a phrase of their own.
_WORKLOAD = frozenset("dataset model layers fanout batch_size max_batches sampler ranks".split())
_PHRASED = _WORKLOAD | {"device", "device_memory_bytes", "memory", "disk_class"}
# Whether a backend enforces a cap, and which, is a caveat of the run.
_ELSEWHERE = frozenset({"isolation"})
_DEFAULTS: Plain = {name: field.get_default() for name, field in RunConfig.model_fields.items()}
# Names of settings as a reader says them.
_NAMES = {"hidden": "hidden width", "test_nodes": "test nodes", "warmup": "warm-up epochs"}


def in_words(shared: Plain) -> str:
    """Return a shared setting in words, parts joined by semicolons.

    Args:
        shared: settings of one experiment, with the place of its runs (`harness.compare.comparable.shared_setting`).

    Returns:
        The workload, budget and drive, then each further setting that differs from its default, by name.
    """
    data, device = shared["dataset"], str(shared["device"])
    memory = shared.get("device_memory_bytes")
    emulated = device.startswith("emulated:")
    named = f"EMULATED {device.removeprefix('emulated:')}" if emulated else device
    part = part_of_epoch(shared)
    parts = [
        f"{data['name']} ({graph_size(data['num_nodes'], data['num_edges'])}, {data['dim']} {data['dtype']} features)",
        f"{shared['model']} of {shared['layers']} layers",
        f"fan-out {','.join(map(str, shared['fanout']))}",
        f"batch {shared['batch_size']}" + (f", {part} of an epoch" if part else ""),
        f"device {named}" + (f" with {format_bytes(memory)}" if memory else ""),
        "no memory cap" if shared["memory"] == "none" else f"memory {_memory(shared['memory'])}",
        "bare SSD" if shared["disk_class"] == "none" else f"SSD class {shared['disk_class']}",
    ]
    if shared.get("sampler", "neighbor") != "neighbor":
        parts.insert(2, f"{shared['sampler']} sampling")
    if shared.get("ranks", 1) != 1:
        parts.append(f"{shared['ranks']} processes")
    parts += _changed(shared)
    if shared.get("host"):
        parts.append(f"host {shared['host']}")
    return "; ".join(parts)


def _changed(shared: Plain) -> list[str]:
    """Return each setting without a phrase that differs from its default, like `hidden width 64` or `shuffle off`."""
    names = [name for name in _DEFAULTS if name in SAME_EXPERIMENT - _PHRASED - _ELSEWHERE and name in shared]
    return [f"{_name(name)} {_value(shared[name])}" for name in names if shared[name] != _DEFAULTS[name]]


def _name(setting: str) -> str:
    return _NAMES.get(setting, setting.replace("_", " "))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _memory(text: str) -> str:
    """Return `describe_memory` of a setting, or the text itself where it is no size (an imported record)."""
    try:
        return describe_memory(text)
    except InputError:
        return text

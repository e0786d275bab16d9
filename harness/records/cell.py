"""Identity of a run's planned cell: which runs measure the same thing, whoever planned
them and wherever they ran."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field

from harness.records.seal import content_digest
from harness.settings import SharedSettings, Strict, canonical_memory
from workloads.errors import InputError

# Memory has several notations.
_SETTINGS = tuple(
    name for name in SharedSettings.model_fields if name not in ("memory", "options")
)


class Cell(Strict):
    """The cell of an experiment that a run measures.

    Attributes:
        experiment: name of the experiment; empty for a single run.
        axes: values of the experiment's grid at this cell, by setting; empty in records
            of older versions.
        system, options: name of the system, and its options with every default filled
            in.
        key: identity of what is measured (`cell_key`), equal for equal cells of
            different experiments.
    """

    experiment: str = ""
    axes: dict[str, Any] = Field(default_factory=dict)
    system: str
    options: dict[str, Any] = Field(default_factory=dict)
    key: str


def cell_key(
    system: str,
    dataset: str,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    layers: int | None = None,
    device_memory_bytes: int | None = None,
) -> str:
    """Return 16 hex digits over what a run measures, without regard to who planned it,
    its round, host or isolation.

    Args:
        system, dataset: names of the system and of the dataset.
        settings: settings shared by experiments and records, by name
            (`SharedSettings`).
        options: options of the system, complete.
        layers: layers of the model; None: one for each hop of the fan-out.
        device_memory_bytes: bytes of the device tier; None: the device's own memory.
    """
    memory = str(settings["memory"])
    with suppress(InputError):  # an imported record may hold any text
        memory = canonical_memory(memory)
    found = {
        "system": system,
        "dataset": dataset,
        "memory": memory,
        "layers": layers or len(settings["fanout"]),
    }
    found |= {"device_memory_bytes": device_memory_bytes, "options": options}
    return content_digest(found | {name: settings[name] for name in _SETTINGS}, 16)

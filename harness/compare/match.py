"""From a planned run to its records: settings and options are compared by value, not by notation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.compare.comparable import complete_options
from harness.compare.plan import Plain
from harness.settings import SharedSettings, canonical_memory
from workloads.errors import InputError
from workloads.units import parse_bytes

if TYPE_CHECKING:
    from harness.plan.experiment import PlannedRun

# Memory and options have several notations.
_SAME = tuple(name for name in SharedSettings.model_fields if name not in ("memory", "options"))


class Index:
    """Run records (plain data) by system, settings and options."""

    def __init__(self, records: Iterable[Plain]) -> None:
        self._records: dict[str, list[Plain]] = {}
        for record in records:
            config = record["config"]
            key = _key(record["system"], config["dataset"]["name"], config["device_memory_bytes"], config)
            self._records.setdefault(key, []).append(record)

    def of(self, run: PlannedRun) -> list[Plain]:
        """Return the records of a planned run, oldest first; an option that the run omits must have its default."""
        settings = run.settings
        device = None if settings.device_memory is None else parse_bytes(settings.device_memory)
        key = _key(run.system, str(settings.dataset), device, settings.model_dump())
        asked, whole = settings.options, complete_options(run.system, settings.options)
        return [record for record in self._records.get(key, []) if _answers(record["config"]["options"], asked, whole)]


def _key(system: str, dataset: str, device_memory: int | None, settings: Mapping[str, Any]) -> str:
    memory = str(settings["memory"])
    try:
        memory = canonical_memory(memory)
    except InputError:  # an imported record may hold any text: it matches no planned run
        pass
    return repr([system, dataset, device_memory, memory, *(settings[name] for name in _SAME)])


def _answers(held: Mapping[str, Any], asked: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Return whether options of a record have every value that was asked for, and defaults where none was."""
    found = {name: _plain(value) for name, value in held.items()}
    return all(name in found and found[name] == _plain(value) for name, value in asked.items()) and all(
        name not in whole or _plain(whole[name]) == value for name, value in found.items()
    )


def _plain(value: Any) -> Any:
    """Return sizes given as text in bytes, as records keep them, and sequences as lists."""
    if isinstance(value, str):
        try:
            return parse_bytes(value)
        except InputError:
            return value
    return list(value) if isinstance(value, Sequence) else value

"""Which runs are comparable: three views of a run's settings, each derived from the settings' roles.

The same experiment: runs of different systems whose times may be ranked. The same cell: runs that repeat one planned
measurement (`harness/records/cell.py`). The same reads: runs that read the same bytes, on whatever drive. A planned run
is matched with its records by the values of settings and options, not by their notation.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.compare.newest import without_replaced
from harness.compare.plan import Plain
from harness.records.cell import cell_key
from harness.records.hosts import measured_on
from harness.records.record import RunConfig
from harness.settings import SharedSettings, canonical_memory, complete_options, of_role
from workloads.errors import InputError
from workloads.units import parse_bytes

if TYPE_CHECKING:
    from harness.plan.experiment import PlannedRun
    from harness.settings import RunSettings

#: Settings that are equal in two runs of the same experiment.
SAME_EXPERIMENT = frozenset(of_role(RunConfig, "workload", "budget", "place", "length"))
#: Settings that are equal in two runs with the same reads.
SAME_READS = frozenset(of_role(RunConfig, "system", "workload", "budget", "repeat"))
# Facts of the place that follow from a setting: they may differ where that setting may.
_LENGTH = frozenset(of_role(RunConfig, "length"))
_MADE_OF = {"limits": "disk_class", "accelerator": "device"}


def shared_setting(record: Mapping[str, Any], free: Collection[str] = ()) -> Plain:
    """Return the settings of a run's experiment without `free` ones, with the place of the run (`measured_on`)."""
    found = {key: value for key, value in record["config"].items() if key in SAME_EXPERIMENT and key not in free}
    place = measured_on(record)
    return {**found, **{name: value for name, value in place.items() if _MADE_OF.get(name) not in free}}


def comparable(records: Iterable[Plain], free: Collection[str] = ()) -> list[tuple[Plain, list[Plain]]]:
    """Return each shared setting with its runs, in their order; `free`: further keys of the configuration that vary."""
    found: dict[str, tuple[Plain, list[Plain]]] = {}
    for record in without_replaced(records):
        shared = shared_setting(record, free)
        found.setdefault(json.dumps(shared, sort_keys=True, default=str), (shared, []))[1].append(record)
    return list(found.values())


def workload_key(config: RunConfig, free: Collection[str] = ()) -> str:
    """Return a text that is equal for runs with the same reads, on whatever drive; `free`: further keys that differ."""
    return json.dumps(config.model_dump(mode="json", include={*SAME_READS} - {*free}), sort_keys=True)


def differing_options(system: str, options: Mapping[str, Any]) -> int:
    """Return the number of options that differ from the system's defaults.

    Of a system's option sets in one setting the one with the fewest stands for it, so that an ablation does not while
    the system itself was run; records of other settings have no say.
    """
    defaults = complete_options(system, {})
    return sum(defaults.get(key) != options.get(key) for key in {*defaults, *options})


# Memory and options have several notations.
_SAME = tuple(name for name in SharedSettings.model_fields if name not in ("memory", "options"))


class Index:
    """Run records (plain data) by system, settings and options, without replaced ones."""

    def __init__(self, records: Iterable[Plain]) -> None:
        self._records: dict[str, list[Plain]] = {}
        for record in without_replaced(records):
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


def side_by_side(settings: RunSettings) -> str:
    """Return a text that is equal for settings whose epoch times may be drawn side by side, whatever the system."""
    dataset = Path(str(settings.dataset)).name
    device_bytes = None if settings.device_memory is None else parse_bytes(settings.device_memory)
    return _side_by_side(dataset, settings.model_dump(mode="json"), settings.layers, device_bytes)


def side_by_side_of(record: Plain) -> str:
    """Return the `side_by_side` of a run's settings."""
    config = record["config"]
    return _side_by_side(config["dataset"]["name"], config, config["layers"], config["device_memory_bytes"])


def _side_by_side(dataset: str, settings: Mapping[str, Any], layers: int | None, device_bytes: int | None) -> str:
    # A measurement by other code has its own length and repetitions.
    kept = {name: value if name in SAME_EXPERIMENT - _LENGTH else None for name, value in settings.items()}
    return cell_key("", dataset, kept, {}, layers=layers, device_memory_bytes=device_bytes)


def _key(system: str, dataset: str, device_memory: int | None, settings: Mapping[str, Any]) -> str:
    memory = str(settings["memory"])
    with suppress(InputError):  # an imported record may hold any text: it matches no planned run
        memory = canonical_memory(memory)
    return repr([system, dataset, device_memory, memory, *(settings[name] for name in _SAME)])


def _answers(held: Mapping[str, Any], asked: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Return whether options of a record have every value that was asked for, and defaults where none was."""
    found = {name: _plain(value) for name, value in held.items()}
    # An option has several notations (`false` is `off`), of which `whole` has the one of records.
    wanted = {name: whole.get(name, value) for name, value in asked.items()}
    return all(name in found and found[name] == _plain(value) for name, value in wanted.items()) and all(
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

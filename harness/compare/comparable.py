"""Which runs are comparable: three views of a run's settings, each derived from the
settings' roles.

The same experiment: runs of different systems whose times may be ranked. The same cell:
runs that repeat one planned measurement (`harness/records/cell.py`). The same reads:
runs that read the same bytes, on whatever drive. A planned run is matched with its
records by the values of settings and options, not by their notation.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.records.cell import cell_key
from harness.records.hosts import measured_on
from harness.records.record import RunConfig
from harness.results.newest import without_replaced
from harness.settings import complete_options, of_role
from workloads.arraytypes import JsonDict
from workloads.units import parse_bytes

if TYPE_CHECKING:
    from harness.settings import RunSettings

#: Settings that are equal in two runs of the same experiment.
SAME_EXPERIMENT = frozenset(of_role(RunConfig, "workload", "budget", "place", "length"))
#: Settings that are equal in two runs with the same reads.
SAME_READS = frozenset(of_role(RunConfig, "system", "workload", "budget", "repeat"))
# Facts of the place that follow from a setting: they may differ where that setting may.
_LENGTH = frozenset(of_role(RunConfig, "length"))
_MADE_OF = {"limits": "disk_class", "accelerator": "device"}


def shared_setting(record: Mapping[str, Any], free: Collection[str] = ()) -> JsonDict:
    """Return the settings of a run's experiment without `free` ones, with the place of
    the run (`measured_on`)."""
    found = {
        key: value
        for key, value in record["config"].items()
        if key in SAME_EXPERIMENT and key not in free
    }
    place = measured_on(record)
    return {
        **found,
        **{
            name: value
            for name, value in place.items()
            if _MADE_OF.get(name) not in free
        },
    }


def comparable(
    records: Iterable[JsonDict], free: Collection[str] = ()
) -> list[tuple[JsonDict, list[JsonDict]]]:
    """Return each shared setting with its runs, in their order; `free`: further keys of
    the configuration that vary."""
    found: dict[str, tuple[JsonDict, list[JsonDict]]] = {}
    for record in without_replaced(records):
        shared = shared_setting(record, free)
        found.setdefault(json.dumps(shared, sort_keys=True, default=str), (shared, []))[
            1
        ].append(record)
    return list(found.values())


def workload_key(config: RunConfig, free: Collection[str] = ()) -> str:
    """Return a text that is equal for runs with the same reads, on whatever drive;
    `free`: further keys that differ."""
    return json.dumps(
        config.model_dump(mode="json", include={*SAME_READS} - {*free}), sort_keys=True
    )


def differing_options(system: str, options: Mapping[str, Any]) -> int:
    """Return the number of options that differ from the system's defaults.

    Of a system's option sets in one setting the one with the fewest stands for it, so
    that an ablation does not while the system itself was run; records of other settings
    have no say.
    """
    defaults = complete_options(system, {})
    return sum(defaults.get(key) != options.get(key) for key in {*defaults, *options})


def side_by_side(settings: RunSettings) -> str:
    """Return a text that is equal for settings whose epoch times may be drawn side by
    side, whatever the system."""
    dataset = Path(str(settings.dataset)).name
    device_bytes = (
        None if settings.device_memory is None else parse_bytes(settings.device_memory)
    )
    return _side_by_side(
        dataset, settings.model_dump(mode="json"), settings.layers, device_bytes
    )


def side_by_side_of(record: JsonDict) -> str:
    """Return the `side_by_side` of a run's settings."""
    config = record["config"]
    return _side_by_side(
        config["dataset"]["name"],
        config,
        config["layers"],
        config["device_memory_bytes"],
    )


def _side_by_side(
    dataset: str,
    settings: Mapping[str, Any],
    layers: int | None,
    device_bytes: int | None,
) -> str:
    # A measurement by other code has its own length and repetitions.
    kept = {
        name: value if name in SAME_EXPERIMENT - _LENGTH else None
        for name, value in settings.items()
    }
    return cell_key(
        "", dataset, kept, {}, layers=layers, device_memory_bytes=device_bytes
    )

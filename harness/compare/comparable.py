"""Which runs are comparable: equal in every setting and place but the system, its options and bookkeeping."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.compare.plan import Plain
from harness.records.hosts import measured_on
from harness.records.record import LABELS, RunConfig
from workloads.errors import OutcoreError

#: Keys of a configuration that may differ between two runs that are compared.
FREE = {"system", "options", "experiment", "figure_tags", "round", "timeout_s", "keep_order", "verify", "cores", "seed"}
#: Keys that do not change a system's reads: a drive and the enforcement of its limits, the length of a run, its labels.
ELSEWHERE = {*LABELS, "disk_class", "isolation", "epochs", "warmup", "timeout_s", "verify", "test_nodes"}
# Facts of the place that follow from a setting: they may differ where that setting may.
_MADE_OF = {"limits": "disk_class", "accelerator": "device"}


def shared_setting(record: Mapping[str, Any], free: Collection[str] = ()) -> Plain:
    """Return a run's configuration without `FREE` and `free` keys, with the place of the run (`measured_on`)."""
    found = {key: value for key, value in record["config"].items() if key not in FREE and key not in free}
    place = measured_on(record)
    return {**found, **{name: value for name, value in place.items() if _MADE_OF.get(name) not in free}}


@dataclass(frozen=True)
class Comparable:
    """Runs with one `shared_setting`, in the order in which they were given."""

    shared: Plain
    records: list[Plain]


def comparable(records: Iterable[Plain], free: Collection[str] = ()) -> list[Comparable]:
    """Group runs by their shared setting; `free`: further keys of the configuration that may differ in a group."""
    found: dict[str, Comparable] = {}
    for record in records:
        shared = shared_setting(record, free)
        key = json.dumps(shared, sort_keys=True, default=str)
        found.setdefault(key, Comparable(shared, [])).records.append(record)
    return list(found.values())


def workload_key(config: RunConfig, free: Collection[str] = ()) -> str:
    """Return a text that is equal for runs with the same reads, on whatever drive; `free`: further keys that differ."""
    return json.dumps(config.model_dump(mode="json", exclude={*ELSEWHERE, *free}), sort_keys=True)


def differing_options(system: str, options: Mapping[str, Any]) -> int:
    """Return the number of options that differ from the system's defaults.

    Of a system's option sets in one setting the one with the fewest stands for it, so that an ablation does not while
    the system itself was run; records of other settings have no say.
    """
    defaults = complete_options(system, {})
    return sum(defaults.get(key) != options.get(key) for key in {*defaults, *options})


def complete_options(system: str, options: Mapping[str, Any]) -> Plain:
    """Return options with every default filled in; those of a system that is not installed here as they are."""
    from harness.settings import check_options

    try:
        return dict(check_options(system, dict(options)))
    except OutcoreError:
        return dict(options)

"""The settings that two compared runs must share: all but the system, its own options and bookkeeping."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from harness.records.hosts import measured_on

#: Keys of a configuration that may differ between two runs that are compared.
FREE = {"system", "options", "experiment", "figure_tags", "round", "timeout_s", "keep_order", "verify", "cores", "seed"}
# Facts of the place that follow from a setting: they may differ where that setting may.
_MADE_OF = {"limits": "disk_class", "accelerator": "device"}


def shared_setting(record: Mapping[str, Any], free: Collection[str] = ()) -> dict[str, Any]:
    """Return a run's configuration without `FREE` and `free` keys, with the place of the run (`measured_on`)."""
    found = {key: value for key, value in record["config"].items() if key not in FREE and key not in free}
    place = measured_on(record)
    return {**found, **{name: value for name, value in place.items() if _MADE_OF.get(name) not in free}}


def setting_key(record: Mapping[str, Any], free: Collection[str] = ()) -> str:
    """Return `shared_setting` as JSON text, equal for equal settings."""
    return json.dumps(shared_setting(record, free), sort_keys=True, default=str)

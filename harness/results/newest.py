"""Which runs count for a planned cell: of each round the newest run that counts,
whichever command made it.

A run made again (`outcore bench --fresh`, or `outcore run` of the same settings)
replaces the earlier one in tables, sentences, figures and claims alike; `outcore
results list` still has both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from harness.records.hosts import measured_on
from harness.records.record import COUNTED, LABELS
from workloads.arraytypes import JsonDict

# Settings beside the labels in which a run and its repetition may differ: neither
# changes the measurement.
_BOOKKEEPING = (set(LABELS) | {"timeout_s"}) - {"round"}


def without_replaced(records: Iterable[JsonDict]) -> list[JsonDict]:
    """Return the records (plain data) that no newer run of the same settings, round and
    place replaces, in their order.

    A newer run that does not count (failed, INVALID, SPOILT) replaces none that does.
    """
    given = list(records)
    repeated: dict[str, list[JsonDict]] = {}
    for record in given:
        repeated.setdefault(_identity(record), []).append(record)
    standing = {id(_standing(runs)) for runs in repeated.values()}
    return [record for record in given if id(record) in standing]


def _standing(runs: list[JsonDict]) -> JsonDict:
    """Return the newest of the runs that count; without one, the newest of all."""
    if len(runs) == 1:
        return runs[0]
    counting = [run for run in runs if _counts(run)]
    return max(counting or runs, key=lambda run: str(run["run_id"]))


def _counts(record: Mapping[str, Any]) -> bool:
    return record["verdict"] in COUNTED and record["status"] != "failed"


def _identity(record: Mapping[str, Any]) -> str:
    """Return a text that is equal for a run and its repetitions: all settings, the
    round, and the place of the run."""
    settings = {
        name: value
        for name, value in record["config"].items()
        if name not in _BOOKKEEPING
    }
    return json.dumps([settings, measured_on(record)], sort_keys=True, default=str)

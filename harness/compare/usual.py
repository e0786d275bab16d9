"""The usual options of each system among some records, so that an ablation never stands for the system."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from workloads.errors import OutcoreError

Plain = dict[str, Any]


class Usual:
    """For each system the option set with the fewest differences from its defaults, whatever its number of records."""

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        held: dict[str, set[str]] = {}
        for record in records:
            text = json.dumps(record["config"]["options"], sort_keys=True)
            held.setdefault(record["system"], set()).add(text)
        self._base: dict[str, Plain] = {}
        for system, texts in held.items():
            defaults = _defaults(system)
            # The text breaks ties, so that the result does not depend on the order of the records.
            self._base[system] = min(
                (json.loads(text) for text in sorted(texts)), key=lambda options: _differing(options, defaults)
            )

    def differing(self, system: str, options: Mapping[str, Any]) -> int:
        """Return the number of options that differ from the system's usual ones; 0 for a system without records."""
        base = self._base.get(system)
        return 0 if base is None else _differing(options, base)


def _differing(options: Mapping[str, Any], base: Mapping[str, Any]) -> int:
    return sum(base.get(key) != options.get(key) for key in {*base, *options})


def _defaults(system: str) -> Plain:
    from harness.plan.experiment import check_options

    try:
        return dict(check_options(system, {}))
    except OutcoreError:  # a system that is not installed here
        return {}

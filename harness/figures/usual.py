"""Which options of a system are its usual ones in some records, so that an ablation never stands for the system."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Plain = dict[str, Any]


class Usual:
    """The option set that most records of each system have.

    Args:
        records: run records as plain data.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        counts: dict[str, Counter[str]] = {}
        for record in records:
            text = json.dumps(record["config"]["options"], sort_keys=True)
            counts.setdefault(record["system"], Counter())[text] += 1
        # The text breaks ties, so that the answer does not depend on the order of the records.
        self._base: dict[str, Plain] = {
            system: json.loads(max(found.items(), key=lambda entry: (entry[1], entry[0]))[0])
            for system, found in counts.items()
        }

    def strangeness(self, system: str, options: Mapping[str, Any]) -> int:
        """In how many options this differs from the system's usual ones; 0 for a system without records."""
        base = self._base.get(system)
        if base is None:
            return 0
        return sum(base.get(key) != options.get(key) for key in {*base, *options})

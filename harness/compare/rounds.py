"""All rounds of one run: samples over their measured epochs, and the newest, which stands for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.compare.plan import Plain

#: Function from one measured epoch to a number; None where the epoch does not have it.
Value = Callable[[Mapping[str, Any]], float | None]
#: Function from one record to numbers.
Samples = Callable[[Plain], list[float]]


def measured_epochs(record: Mapping[str, Any]) -> list[Plain]:
    """Return the epochs of a run after its warm-up."""
    return [epoch for epoch in record["epochs"] if not epoch["warmup"]]


def preparation_s(record: Mapping[str, Any]) -> float:
    """Return seconds of preprocessing, whether this run or an earlier one spent them."""
    spent = record.get("preprocess") or {}
    return float(spent.get("seconds") or 0.0) + float(spent.get("made_s") or 0.0)


def of_epochs(value: Value) -> Samples:
    """Return a function for a value of each measured epoch that has it."""
    return lambda record: [number for epoch in measured_epochs(record) if (number := value(epoch)) is not None]


@dataclass(frozen=True)
class Rounds:
    """The records of one system in one setting, at least one."""

    records: list[Plain]

    @property
    def newest(self) -> Plain:
        """Newest run, which stands for all."""
        return max(self.records, key=lambda record: str(record["run_id"]))

    @property
    def runs(self) -> list[str]:
        """Run ids, oldest first."""
        return sorted(str(record["run_id"]) for record in self.records)

    @property
    def without(self) -> str:
        """Reason why there are no samples: the newest run's status, or `not measured`."""
        return "not measured" if self.newest["status"] == "ok" else str(self.newest["status"])

    @property
    def verdict(self) -> str:
        """`CAVEATS` where one of the runs has caveats, else `VALID`."""
        return "CAVEATS" if any(record["verdict"] == "CAVEATS" for record in self.records) else "VALID"

    def samples(self, values: Samples) -> list[float]:
        """Return the numbers of every run that ended well."""
        return [number for record in self.records if record["status"] == "ok" for number in values(record)]

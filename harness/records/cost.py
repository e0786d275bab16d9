"""Cost of a training of E epochs: T(E) = once + first + E x (each + epoch) (rules 14 and 15)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from harness.records.record import COUNTED


@dataclass(frozen=True)
class TrainingCost:
    """The four terms of T(E), in seconds, as metrics of a run's summary hold them (`harness/judge/metrics.py`).

    Attributes:
        once_s: offline work whatever the number of epochs (rankings, partitions, tables), whichever run spent it.
        first_s: surplus of the warm-up epochs over the mean of the measured ones.
        each_s: offline work that one fresh epoch needs, such as sampling and packing it beforehand.
        mean_epoch_s: mean of the measured epochs, without the offline work within them.
    """

    once_s: float
    first_s: float
    each_s: float
    mean_epoch_s: float

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TrainingCost | None:
        """Return the cost of a run (plain data); None where no epoch was measured."""
        summary = record.get("summary") or {}
        terms = {field.name: summary.get(field.name) for field in fields(cls)}
        if any(term is None for term in terms.values()):
            return None
        return cls(**{name: float(term) for name, term in terms.items() if term is not None})

    @classmethod
    def of_runs(cls, records: Sequence[Mapping[str, Any]]) -> TrainingCost | None:
        """Return the cost over all rounds of a run: medians of the offline terms, and the mean of all epochs.

        Args:
            records: runs (plain data); those that do not count or did not end well are left out.

        Returns:
            None where no epoch was measured.
        """
        known = [(record, cls.of(record)) for record in records if _is_timed(record)]
        costs = [cost for _, cost in known if cost is not None]
        epochs_s = [seconds for record, _ in known for seconds in online_epochs_s(record)]
        if not costs or not epochs_s:
            return None
        return cls(
            once_s=statistics.median(cost.once_s for cost in costs),
            first_s=statistics.median(cost.first_s for cost in costs),
            each_s=statistics.median(cost.each_s for cost in costs),
            mean_epoch_s=statistics.fmean(epochs_s),
        )

    @property
    def fresh_epoch_s(self) -> float:
        """Seconds of an epoch with all of its work: `each` and `epoch`."""
        return self.each_s + self.mean_epoch_s

    @property
    def before_s(self) -> float:
        """Seconds that a training spends once: `once` and `first`."""
        return self.once_s + self.first_s

    def total_s(self, epochs: int) -> float:
        """Return T(E): the seconds of a training of `epochs` epochs."""
        return self.before_s + epochs * self.fresh_epoch_s

    def share_s(self, epochs: int) -> float:
        """Return T(E) / E: the seconds of an epoch with its share of what is spent once."""
        return self.total_s(epochs) / max(1, epochs)

    def ahead_from(self, other: TrainingCost) -> int | None:
        """Return the least number of epochs from which on this training takes less time than `other`; None: never."""
        saved = other.fresh_epoch_s - self.fresh_epoch_s
        more = self.before_s - other.before_s
        if saved <= 0:
            return 1 if saved == 0 and more < 0 else None
        return max(1, math.floor(more / saved) + 1)


def online_epochs_s(record: Mapping[str, Any]) -> list[float]:
    """Return the seconds of a run's measured epochs (plain data) without the offline work within them."""
    measured = [epoch for epoch in record["epochs"] if not epoch["warmup"]]
    return [float(epoch["seconds"]) - float((epoch.get("offline") or {}).get("seconds", 0.0)) for epoch in measured]


def fresh_epochs_s(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the seconds of every measured epoch that counts, with all of its work (`each` added)."""
    cost = TrainingCost.of_runs(records)
    each_s = cost.each_s if cost else 0.0
    timed = [record for record in records if _is_timed(record)]
    return [each_s + seconds for record in timed for seconds in online_epochs_s(record)]


def _is_timed(record: Mapping[str, Any]) -> bool:
    return record["status"] == "ok" and record["verdict"] in COUNTED


def episode_epochs(record: Mapping[str, Any]) -> int:
    """Return the number of epochs whose offline work a run (plain data) did together; 0 without such work.

    Epochs of an episode share work, such as one pass over the features, so `each` falls with this number and foretells
    only trainings in episodes of this length.
    """
    offline = (record.get("preprocess") or {}).get("offline") or {}
    return int(offline.get("epochs", 0))


def leading(costs: Mapping[str, TrainingCost]) -> Iterator[tuple[str, int]]:
    """Yield each system whose training takes the least time for some numbers of epochs, with the first of these.

    Systems take turns as the number of epochs grows: each next one spends more once and less for an epoch.
    """
    if not costs:
        return
    first = 1
    leader = min(costs, key=lambda system: (costs[system].total_s(1), costs[system].fresh_epoch_s, system))
    yield leader, first
    while True:
        turns = []
        for system, cost in costs.items():
            ahead = cost.ahead_from(costs[leader])
            if ahead is not None and cost.fresh_epoch_s < costs[leader].fresh_epoch_s:
                turn = max(ahead, first + 1)
                # Of several that pass the leader at the same number of epochs the one with the least time is next.
                turns.append((turn, cost.total_s(turn), cost.fresh_epoch_s, system))
        if not turns:
            return
        first, _, _, leader = min(turns)
        yield leader, first


def leaders(costs: Mapping[str, TrainingCost]) -> str:
    """Return the systems that are ahead by number of epochs in words: `a for 1 to 7 epochs, b from 8 epochs on`."""
    turns = list(leading(costs))
    ends = [first - 1 for _, first in turns[1:]]
    parts = [f"{system} {_epochs(first, last)}" for (system, first), last in zip(turns, [*ends, None], strict=True)]
    return ", ".join(parts)


def _epochs(first: int, last: int | None) -> str:
    """Return a range of numbers of epochs in words; `last` None: without end."""
    if last is None:
        return f"from {first:,} epochs on" if first > 1 else "for any number of epochs"
    if first == last:
        return "for 1 epoch" if first == 1 else f"for {first:,} epochs"
    return f"for {first:,} to {last:,} epochs"

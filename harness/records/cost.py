"""Cost of a training of E epochs: T(E) = once + first + E x (each + epoch) (rules 14
and 15).

Epochs whose offline work is done together may share a part of it, such as one pass over
the features. `each` holds an epoch's share of it in an episode as long as the run's,
and systems are ranked by that; T(E) counts it once, since a training of E epochs
prepares all of them together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from harness.records.record import COUNTED
from workloads.units import format_bytes


@dataclass(frozen=True)
class TrainingCost:
    """The terms of T(E), in seconds, as metrics of a run's summary hold them
    (`harness/judge/metrics.py`).

    Attributes:
        once_s: offline work whatever the number of epochs (rankings, partitions,
            tables), whichever run spent it.
        first_s: surplus of the warm-up epochs over the mean of the measured ones.
        each_s: offline work that one fresh epoch needs, such as sampling and packing it
            beforehand, in episodes as long as the run's.
        mean_epoch_s: mean of the measured epochs, without the offline work within them.
        shared_s: offline work that epochs share, however many are prepared together.
        shared_each_s: the part of `each_s` that is an epoch's share of it.
    """

    once_s: float
    first_s: float
    each_s: float
    mean_epoch_s: float
    shared_s: float = 0.0
    shared_each_s: float = 0.0

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TrainingCost | None:
        """Return the cost of a run (plain data); None where no epoch was measured."""
        summary = record.get("summary") or {}
        if summary.get("mean_epoch_s") is None:
            return None
        known = {
            name: summary.get(name) for name in (field.name for field in fields(cls))
        }
        return cls(
            **{name: float(term) for name, term in known.items() if term is not None}
        )

    @classmethod
    def of_runs(cls, records: Sequence[Mapping[str, Any]]) -> TrainingCost | None:
        """Return the cost over all rounds of a run: medians of the offline terms, and
        the mean of all epochs.

        Args:
            records: runs (plain data); those that do not count or did not end well are
                left out.

        Returns:
            None where no epoch was measured.
        """
        known = [(record, cls.of(record)) for record in records if _is_timed(record)]
        costs = [cost for _, cost in known if cost is not None]
        epochs_s = [
            seconds for record, _ in known for seconds in online_epochs_s(record)
        ]
        if not costs or not epochs_s:
            return None
        return cls(
            once_s=statistics.median(cost.once_s for cost in costs),
            first_s=statistics.median(cost.first_s for cost in costs),
            each_s=statistics.median(cost.each_s for cost in costs),
            mean_epoch_s=statistics.fmean(epochs_s),
            shared_s=statistics.median(cost.shared_s for cost in costs),
            shared_each_s=statistics.median(cost.shared_each_s for cost in costs),
        )

    @property
    def fresh_epoch_s(self) -> float:
        """Seconds of an epoch with all of its work: `each` and `epoch`."""
        return self.each_s + self.mean_epoch_s

    @property
    def before_s(self) -> float:
        """Seconds that a training spends once: `once` and `first`."""
        return self.once_s + self.first_s

    @property
    def begin_s(self) -> float:
        """Seconds of a training that do not depend on its number of epochs: `once`,
        `first` and `shared`."""
        return self.before_s + self.shared_s

    @property
    def further_epoch_s(self) -> float:
        """Seconds that a further epoch adds to a training."""
        return self.fresh_epoch_s - self.shared_each_s

    def total_s(self, epochs: int) -> float:
        """Return T(E): the seconds of a training of `epochs` epochs."""
        return self.begin_s + epochs * self.further_epoch_s

    def share_s(self, epochs: int) -> float:
        """Return T(E) / E: the seconds of an epoch with its share of what is spent
        once."""
        return self.total_s(epochs) / max(1, epochs)

    def ahead_from(self, other: TrainingCost) -> int | None:
        """Return the least number of epochs from which on this training takes less time
        than `other`; None: never."""
        saved = other.further_epoch_s - self.further_epoch_s
        more = self.begin_s - other.begin_s
        if saved <= 0:
            return 1 if saved == 0 and more < 0 else None
        return max(1, math.floor(more / saved) + 1)


def online_epochs_s(record: Mapping[str, Any]) -> list[float]:
    """Return the seconds of a run's measured epochs (plain data) without the offline
    work within them."""
    measured = [epoch for epoch in record["epochs"] if not epoch["warmup"]]
    return [
        float(epoch["seconds"])
        - float((epoch.get("offline") or {}).get("seconds", 0.0))
        for epoch in measured
    ]


def fresh_epochs_s(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the seconds of every measured epoch that counts, with all of its work
    (`each` added)."""
    cost = TrainingCost.of_runs(records)
    each_s = cost.each_s if cost else 0.0
    timed = [record for record in records if _is_timed(record)]
    return [each_s + seconds for record in timed for seconds in online_epochs_s(record)]


def _is_timed(record: Mapping[str, Any]) -> bool:
    return record["status"] == "ok" and record["verdict"] in COUNTED


def episode_epochs(record: Mapping[str, Any]) -> int:
    """Return the number of epochs whose offline work a run (plain data) did together; 0
    without such work."""
    offline = (record.get("preprocess") or {}).get("offline") or {}
    return int(offline.get("epochs", 0))


def shared_work(record: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the offline work that a run (plain data) did for several
    epochs together; none without."""
    count = episode_epochs(record)
    if count == 0:
        return []
    together = (
        f"{record['config']['system']} did the offline work of {count} epochs together"
    )
    cost = TrainingCost.of(record)
    if cost is None or cost.shared_s == 0:
        return [
            f"{together}. Work that they share was not measured: beyond {count} epochs "
            "its T(E) is an upper estimate."
        ]
    return [
        f"{together} and wrote {written_together(record)} for them: by its own measure "
        f"they share {cost.shared_s:.3g} s of {count * cost.each_s:.3g} s, and T(E) "
        "counts these once. A training of more epochs needs disk for more."
    ]


def written_together(record: Mapping[str, Any]) -> str:
    """Return the bytes, formatted, that a run (plain data) wrote in the offline work of
    several epochs together."""
    offline = record["preprocess"]["offline"]
    return format_bytes(offline["bytes_written"] + offline["made_bytes_written"])


def leading(costs: Mapping[str, TrainingCost]) -> Iterator[tuple[str, int]]:
    """Yield each system whose training takes the least time for some numbers of epochs,
    with the first of these.

    Systems take turns as the number of epochs grows: each next one spends more once and
    less for an epoch.
    """
    if not costs:
        return
    first = 1
    leader = min(
        costs,
        key=lambda system: (
            costs[system].total_s(1),
            costs[system].further_epoch_s,
            system,
        ),
    )
    yield leader, first
    while True:
        turns = []
        for system, cost in costs.items():
            ahead = cost.ahead_from(costs[leader])
            if (
                ahead is not None
                and cost.further_epoch_s < costs[leader].further_epoch_s
            ):
                turn = max(ahead, first + 1)
                # Of several that pass the leader at the same number of epochs the one
                # with the least time is next.
                turns.append((turn, cost.total_s(turn), cost.further_epoch_s, system))
        if not turns:
            return
        first, _, _, leader = min(turns)
        yield leader, first


def leaders(costs: Mapping[str, TrainingCost]) -> str:
    """Return the systems that are ahead by number of epochs in words: `a for 1 to 7
    epochs, b from 8 epochs on`."""
    turns = list(leading(costs))
    ends = [first - 1 for _, first in turns[1:]]
    parts = [
        f"{system} {_epochs(first, last)}"
        for (system, first), last in zip(turns, [*ends, None], strict=True)
    ]
    return ", ".join(parts)


def _epochs(first: int, last: int | None) -> str:
    """Return a range of numbers of epochs in words; `last` None: without end."""
    if last is None:
        return f"from {first:,} epochs on" if first > 1 else "for any number of epochs"
    if first == last:
        return "for 1 epoch" if first == 1 else f"for {first:,} epochs"
    return f"for {first:,} to {last:,} epochs"

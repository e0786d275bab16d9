"""Notes of a run beside its counters: chosen strategies, predicted seconds, the last group's hits and passes."""

from __future__ import annotations

from systems.outcore.group import Group


class Report:
    """Collector of a run's notes, group by group."""

    def __init__(self) -> None:
        self._last: Group | None = None
        self._strategies: list[str] = []
        self._epochs: dict[int, float] = {}

    def prepared(self, group: Group) -> None:
        """Note a group that is about to train."""
        self._last = group
        self._strategies.append(group.strategy)

    def trained(self, group: Group, seconds: float) -> None:
        """Note the seconds in which a group was trained."""
        group.seconds["train"] = seconds

    def epoch(self, number: int, seconds: float) -> None:
        """Note the seconds of a finished epoch."""
        self._epochs[number] = seconds

    def notes(self) -> dict[str, str]:
        """Return the notes for the run's record."""
        if self._last is None:
            return {}
        group = self._last
        found = {
            "strategy": ", ".join(f"{name} {self._strategies.count(name)}" for name in sorted(set(self._strategies))),
            "last_group": f"{group.uses} uses, {group.hits} hits, {group.carried} of them from the group before",
            "prepared_s": f"{group.seconds.get('prepare', 0.0):.3f}",
            "passes": str(group.pack.passes),
        }
        if group.prediction is not None:
            seconds = {name: value for name, value in vars(group.prediction).items() if isinstance(value, float)}
            found["predicted_s"] = ", ".join(f"{name} {value:.3f}" for name, value in seconds.items())
            found["gap"] = f"{group.gap_bytes} bytes"
        return found

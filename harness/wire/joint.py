"""Joint channel of a run's ranks: rank 0 talks to the orchestrator for all ranks, after all have reached a point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from harness.records.record import PlannedBuffer
    from harness.wire.protocol import Channel, Event
    from workloads.ranks import RankGroup

T = TypeVar("T")


class Joint:
    """Channel of a worker that may be one rank of several.

    Args:
        channel: channel to the orchestrator; ranks other than 0 use it only to report a failure.
        group: group of the ranks; None for a single rank.
    """

    def __init__(self, channel: Channel, group: RankGroup | None) -> None:
        self.group = group
        self.rank = group.rank if group is not None else 0
        self.world = group.world if group is not None else 1
        self._channel = channel

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, by rank."""
        return [value] if self.group is None else self.group.gather(value)

    def send(self, event: Event) -> None:
        """Send an event from rank 0; do nothing on other ranks, whose values rank 0 has from `gather`."""
        if self.rank == 0:
            self._channel.send(event)

    def gate(self, at: str, more: int = 0) -> bytes:
        """Wait with all ranks at gate `at` until the orchestrator opens it; return the `more` bytes that follow."""
        if self.group is not None:
            self.group.barrier()
        behind = self._channel.gate(at, more) if self.rank == 0 else b""
        return self.gather(behind)[0]


def merged_plan(plans: Iterable[Iterable[PlannedBuffer]]) -> list[PlannedBuffer]:
    """Merge the plans of all ranks: sum the bytes of buffers with the same name and tier."""
    found: dict[tuple[str, str], PlannedBuffer] = {}
    for item in (item for plan in plans for item in plan):
        kept = found.get((item.name, item.tier))
        total = item.bytes + (kept.bytes if kept is not None else 0)
        found[item.name, item.tier] = item.model_copy(update={"bytes": total})
    return list(found.values())


def summed(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Add the counters of all ranks, mappings by key; None for a counter that no rank has."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part[name] for part in parts if part.get(name) is not None]
        if values and isinstance(values[0], Mapping):
            found[name] = summed(values)
        else:
            found[name] = sum(values) if values else None
    return found

"""One voice for the ranks of a run: rank 0 talks to the orchestrator, for all of them, once all have come so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from harness.protocol import Channel, Event
    from harness.record import PlannedBuffer
    from workloads.ranks import RankGroup

T = TypeVar("T")


class Joint:
    """The channel of a worker that may be one of several.

    Args:
        channel: to the orchestrator; only rank 0 uses it, except to say why it fails.
        group: the ranks; None in a run of one.
    """

    def __init__(self, channel: Channel, group: RankGroup | None) -> None:
        self.group = group
        self.rank = group.rank if group is not None else 0
        self.world = group.world if group is not None else 1
        self._channel = channel

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank."""
        return [value] if self.group is None else self.group.gather(value)

    def send(self, event: Event) -> None:
        """Rank 0 sends it; the others said their part in `gather`."""
        if self.rank == 0:
            self._channel.send(event)

    def gate(self, at: str, more: int = 0) -> bytes:
        """Stand still, all ranks together, until the orchestrator says go; every rank gets the `more` bytes behind."""
        if self.group is not None:
            self.group.barrier()
        behind = self._channel.gate(at, more) if self.rank == 0 else b""
        return self.gather(behind)[0]


def merged_plan(plans: Iterable[Iterable[PlannedBuffer]]) -> list[PlannedBuffer]:
    """The buffers of all ranks, those of one name and tier together."""
    found: dict[tuple[str, str], PlannedBuffer] = {}
    for item in (item for plan in plans for item in plan):
        kept = found.get((item.name, item.tier))
        total = item.bytes + (kept.bytes if kept is not None else 0)
        found[item.name, item.tier] = item.model_copy(update={"bytes": total})
    return list(found.values())


def summed(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Counters of all ranks: numbers are added, mappings by key; None where no rank knows."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part[name] for part in parts if part.get(name) is not None]
        if values and isinstance(values[0], Mapping):
            found[name] = summed(values)
        else:
            found[name] = sum(values) if values else None
    return found

"""A path: the parts of a system in the order in which a mini-batch passes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from systems.parts.cache import Cache
from systems.parts.copy import Copy
from systems.parts.part import Part, Site
from systems.parts.rows import Rows
from systems.parts.sample import Sample
from systems.parts.tier import ChangingCache
from workloads.errors import require


@dataclass(frozen=True)
class Path:
    """Data path of a system, from neighbour lists to the trainer.

    Attributes:
        sample: which mini-batches, from which graph.
        rows: how missing rows are read.
        copy: how rows reach the trainer.
        tiers: caches that are looked up first, the nearest to the trainer first: at
            most one that is filled once and lies in front of the copy's buffers, then
            those whose rows change.
        window: sampled mini-batches that `rows` is shown before the present one is
            read (`Rows.coming`).
        fix: remedy for a plan that does not fit, as a command.
    """

    sample: Sample
    rows: Rows
    copy: Copy
    tiers: Sequence[Cache | ChangingCache] = ()
    window: int = 0
    fix: str = "raise memory, or lower batch size or fan-out"

    @property
    def cache(self) -> Cache | None:
        """The cache in front of the copy's buffers, or None."""
        first = self.tiers[0] if self.tiers else None
        return first if isinstance(first, Cache) else None

    @property
    def changing(self) -> list[ChangingCache]:
        """The caches whose rows change, the nearest first."""
        return [tier for tier in self.tiers if isinstance(tier, ChangingCache)]

    def parts(self, *, sampling_only: bool = False) -> list[Part]:
        """List the parts, and inside them theirs, each once and in the order of
        preparation: rows are ranked first."""
        outer = (
            [self.sample]
            if sampling_only
            else [self.sample, *self.tiers, self.rows, self.copy]
        )
        return list(dict.fromkeys(part for one in outer for part in _inside(one)))

    def join(self, site: Site) -> None:
        """Give every part its site, and the site what its parts need to know of each
        other."""
        self._check(site.name)
        for part in self.parts():
            part.site = site
        site.bounds = self.sample.bounds(site.workload)
        site.table = self.rows.table
        site.in_flight = self.copy.in_flight + self.window
        site.maps_rows = self.rows.mapped and not site.sampling_only
        site.lends = self.rows.lends
        site.cached = self.cache is not None
        site.aggregated = self.rows.source.aggregated
        site.buffer_bytes = self.copy.buffer_bytes

    def _check(self, name: str) -> None:
        """Refuse tiers that cannot stand behind each other. Raises InputError."""
        static = len(self.tiers) - len(self.changing)
        message = f"{name} has {static} caches that are filled once"
        require(
            static <= 1 and (not static or self.cache is not None),
            message,
            "give at most one, as the first tier",
        )
        names = [tier.name for tier in self.changing]
        require(
            len(set(names)) == len(names),
            f"{name} has two tiers named {names[:1]}",
            "name them apart",
        )
        inline = type(self.sample).__name__
        require(
            not (self.window and self.sample.inline),
            f"{name}: a window needs mini-batches sampled ahead, which {inline} does "
            "not do",
            "leave window out",
        )
        rows = type(self.rows).__name__
        message = (
            f"{name}: a cache that changes needs rows read one by one, which {rows} "
            "does not"
        )
        require(not names or self.rows.reads_places, message, "use rows=DirectRows(…)")


def _inside(part: Part) -> Iterator[Part]:
    for inner in part.inner():
        yield from _inside(inner)
    yield part

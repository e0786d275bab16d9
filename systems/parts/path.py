"""A path: the parts of a system in the order in which a mini-batch passes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from systems.parts.cache import Cache
from systems.parts.copy import Copy
from systems.parts.part import Part, Site
from systems.parts.rows import Rows
from systems.parts.sample import Sample
from workloads.errors import require


@dataclass(frozen=True)
class Path:
    """Data path of a system, from neighbour lists to the trainer.

    Attributes:
        sample: which mini-batches, from which graph.
        rows: how missing rows are read.
        copy: how rows reach the trainer.
        tiers: caches that are looked up first; at most one so far.
        fix: remedy for a plan that does not fit, as a command.
    """

    sample: Sample
    rows: Rows
    copy: Copy
    tiers: Sequence[Cache] = ()
    fix: str = "raise memory, or lower batch size or fan-out"

    @property
    def cache(self) -> Cache | None:
        """The path's cache, or None."""
        return self.tiers[0] if self.tiers else None

    def parts(self, *, sampling_only: bool = False) -> list[Part]:
        """List the parts, and inside them theirs, each once and in the order of preparation: rows are ranked first."""
        outer = [self.sample] if sampling_only else [self.sample, *self.tiers, self.rows, self.copy]
        return list(dict.fromkeys(part for one in outer for part in _inside(one)))

    def join(self, site: Site) -> None:
        """Give every part its site, and the site what its parts need to know of each other."""
        require(len(self.tiers) <= 1, f"{site.name} has {len(self.tiers)} caches", "give at most one")
        for part in self.parts():
            part.site = site
        site.bounds = self.sample.bounds(site.workload)
        site.table = self.rows.table
        site.in_flight = self.copy.in_flight
        site.maps_rows = self.rows.mapped and not site.sampling_only
        site.lends = self.rows.lends
        site.cached = bool(self.tiers)
        site.aggregated = self.rows.source.aggregated
        site.buffer_bytes = self.copy.buffer_bytes


def _inside(part: Part) -> Iterator[Part]:
    for inner in part.inner():
        yield from _inside(inner)
    yield part

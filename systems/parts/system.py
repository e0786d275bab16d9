"""The base of systems made of parts: planning, preparation, epochs and counters of a
path."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from systems.engine.io.row_reads import RowTable
from systems.engine.io.tally import Tally
from systems.engine.pipeline import Pipeline
from systems.interface import (
    Batch,
    Counters,
    Facts,
    Forecast,
    Options,
    PartUse,
    Plan,
    System,
    Trace,
)
from systems.parts.loop import Loop
from systems.parts.options import HostOptions, SamplingOptions, dgl_samples
from systems.parts.part import Part, Site
from systems.parts.path import Path
from systems.parts.sample import Ids
from systems.parts.sizes import PAGE_CACHE, Need, Sizes, divide
from systems.parts.tier import Chain
from systems.parts.uses import names_of, uses_of
from workloads.errors import BudgetError
from workloads.sampling.make import make_seed_plan


@dataclass(frozen=True)
class Planned:
    """A path with its site, its parts, their sizes, and the chain of its caches that
    change."""

    path: Path
    site: Site
    parts: Sequence[Part]
    sizes: Sizes
    chain: Chain


class PathSystem(System):
    """System whose data path is a list of parts: a concrete one writes `path` and
    nothing else.

    The base owns threads, tables, stages, plan, counters and errors. `path` is called
    anew for each candidate of the options left at `auto`, so it only makes parts.
    """

    _planned: Planned | None = None
    _pipeline: Pipeline | None = None
    _is_open = False

    @abstractmethod
    def path(self) -> Path:
        """Return the system's path under `self.options`; nothing is allocated or
        read."""

    @property
    def workers(self) -> int:
        """Threads that sample, a mini-batch each: the option's, or one for each
        core."""
        options: SamplingOptions = self.options  # type: ignore[assignment]
        return options.sampling_workers or self.runtime.cores

    @classmethod
    def is_faithful(cls, options: Options) -> bool:
        """Return whether the workload's sampler draws the mini-batches, and the system
        keeps them."""
        return cls.info.faithful and not dgl_samples(options)

    @classmethod
    def loads_everything(cls, options: Options) -> bool:
        """Return whether the whole table is loaded into host memory: where `host_store`
        is `memory`."""
        return isinstance(options, HostOptions) and options.host_store == "memory"

    def planned(self) -> Planned:
        """Return the path, its parts and their sizes, planned once.

        Raises:
            BudgetError: a buffer does not fit.
        """
        if self._planned is None:
            automatic = "sampling_workers" in self._left_to_plan()
            self._planned = self.fit(self._divide)
            more = self._planned.path.sample.more_workers()
            if automatic and more > self._planned.path.sample.workers:
                self._replan(sampling_workers=more)
        return self._planned

    def _left_to_plan(self) -> list[str]:
        """List the automatic options that the user left to the plan."""
        names = type(self.options).automatic(self.runtime.cores)
        return [name for name in names if not getattr(self.options, name)]

    def _replan(self, **options: int) -> None:
        """Plan with other options; keep the earlier plan if they do not fit."""
        before = self.options
        self.options = before.model_copy(update=options)
        try:
            self._planned = self._divide()
        except BudgetError:
            self.options = before

    def fixed_bytes(self, path: Path) -> int:
        """Return the host bytes of a path's buffers that have one size."""
        site = self._joined(path)
        needs = [
            need
            for part in path.parts(sampling_only=site.sampling_only)
            for need in part.needs()
        ]
        sizes = [
            need.bytes
            for need in needs
            if isinstance(need, Need) and need.tier == "host" and not need.grows
        ]
        return sum(sizes)

    def _joined(self, path: Path) -> Site:
        site = Site.of(self)
        path.join(site)
        return site

    def _divide(self) -> Planned:
        path = self.path()
        site = self._joined(path)
        parts = path.parts(sampling_only=site.sampling_only)
        for part in parts:
            part.check()
        needs = [need for part in parts for need in part.needs()]
        site.sizes = divide(self.info.name, needs, site.limits, path.fix)
        return Planned(path, site, parts, site.sizes, Chain(path.changing, path.rows))

    def plan(self) -> Plan:
        """Plan every buffer of the parts."""
        return self.planned().sizes.plan

    def chosen(self) -> dict[str, int | str]:
        """Return the values of options left at `auto`: those that fit, and those that
        the parts decide."""
        found = super().chosen()
        for part in self.planned().parts:
            found.update(part.chosen())
        return found

    def prepare(self) -> None:
        """Prepare the parts' artefacts, then open the parts; a cache may be filled
        after the first mini-batch."""
        self.plan()
        planned = self.planned()
        self._tally = Tally()
        if not planned.site.sampling_only:
            # Also where an artefact made of the features is reused: a damaged dataset
            # is reported, not trained on.
            RowTable.of(self.workload.dataset).check()
        for part in planned.parts:
            part.prepared.clear()
            part.prepare()
        planned.site.table = planned.path.rows.table
        for part in planned.parts:
            part.open()
        if not planned.site.sampling_only:
            self._fill(planned, late=False)
        self._is_open = True

    def _fill(self, planned: Planned, *, late: bool) -> None:
        """Fill the cache and make room for it in front of the copy's buffers, unless
        that comes later."""
        path = planned.path
        cache = path.cache
        if cache is None or cache.late != late:
            if not late:
                path.copy.front(0)
            return
        chosen = cache.choose()
        if late and not len(chosen):
            return
        front = path.copy.front(len(chosen))
        cache.fill(chosen, front, path.rows)

    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield the mini-batches of epoch `k`, in the seed plan's order; errors of any
        thread are raised here."""
        if not self._is_open:
            raise RuntimeError("prepare() comes before epoch()")
        self._tally.restart()
        for part in self.planned().parts:
            part.begin(k)
        return self._epoch(k, make_seed_plan(self.workload).batches(k))

    def _epoch(self, k: int, seeds: Sequence[Ids]) -> Iterator[Batch]:
        planned = self.planned()
        cache = planned.path.cache
        first = 0
        if cache is not None and cache.late and not planned.site.sampling_only:
            # The first mini-batch alone shows how much memory training takes.
            yield from self._run(k, 0, seeds[:1])
            with self.clock.stage("data_prep"):
                self._fill(planned, late=True)
            first = 1
        yield from self._run(k, first, seeds[first:])

    def _run(self, k: int, first: int, seeds: Sequence[Ids]) -> Iterator[Batch]:
        planned = self.planned()
        with Pipeline(self.info.name) as pipe:
            self._pipeline = pipe
            loop = Loop(
                planned.path,
                planned.site,
                self._tally,
                pipe,
                k,
                first,
                seeds,
                planned.chain,
            )
            yield from loop.batches()

    def counters(self) -> Counters:
        """Return rows, hits, misses and reads as the base counted them, and the counts
        that parts observed."""
        if not self._is_open:
            return Counters()
        planned = self.planned()
        path = planned.path
        tally = self._tally
        found = path.rows.found
        missed = tally["misses"]
        loaded = tally["loaded"]
        hits: dict[str, int] = {}
        if path.cache is not None or path.copy.near == "device":
            hits[path.copy.near] = tally["rows"] - loaded
        if path.changing:
            hits["host"] = hits.get("host", 0) + loaded - missed
        if found:
            hits["host"] = hits.get("host", 0) + found
        if path.rows.tier:
            hits[path.rows.tier] = hits.get(path.rows.tier, 0) + missed
        observed: dict[str, float] = {}
        for part in planned.parts:
            observed.update(part.observed())
        return tally.counters(
            path.rows.queue_depth,
            rows=tally["rows"],
            hits=hits,
            misses=0 if path.rows.tier else missed - found,
            bytes_loaded=loaded * planned.site.table.row_bytes
            if path.copy.counts_loaded
            else 0,
            observed=observed,
        )

    def files(self) -> list[FilePath]:
        """List the files of prepared artefacts, which the run reads."""
        parts = self._planned.parts if self._planned is not None else ()
        return [file for part in parts for made in part.prepared for file in made.files]

    def data_path(self) -> list[PartUse]:
        """List the parts of the path, with buffers and counts once an epoch began."""
        planned = self.planned()
        if not self._is_open:
            return names_of(planned.parts)
        row_bytes = planned.site.table.row_bytes
        return uses_of(planned.path, planned.parts, self._tally, row_bytes)

    def facts(self) -> Facts:
        """Return the parts' facts, and whether all artefacts were found."""
        parts = self.planned().parts
        found: dict[str, Any] = {}
        for part in parts:
            found.update(part.facts())
        prepared = [made for part in parts for made in part.prepared]
        if prepared:
            found["prepared_reused"] = all(made.reused for made in prepared)
        return Facts(**found)

    def notes(self) -> dict[str, str]:
        """Return the facts as text, and the parts' remarks."""
        found = self.facts().notes()
        for part in self.planned().parts:
            found.update(part.notes())
        return found

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast | None:
        """Forecast the reads of the path's rows beside its cache."""
        path = self.planned().path
        page_cache_bytes = self.unplanned_bytes() + self.plan().bytes_of(PAGE_CACHE)
        if path.changing:
            in_memory = path.sample.topology.in_memory
            return self.planned().chain.forecast(
                trace, None if in_memory else page_cache_bytes
            )
        cached_bytes = sum(cache.nbytes for cache in path.tiers)
        return path.rows.forecast(trace, cached_bytes, page_cache_bytes)

    def close(self) -> None:
        """End the threads, then close the parts, the last one first."""
        pipeline = self._pipeline
        self._pipeline = None
        if pipeline is not None:
            pipeline.close()
        self._is_open = False
        if self._planned is not None:
            for part in reversed(self._planned.parts):
                part.close()

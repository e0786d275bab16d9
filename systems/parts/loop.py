"""The threads of a path: sample, extract, transfer, joined by bounded channels; the
same for every system of parts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from systems.engine.cache.static_cache import Lookup, look_up
from systems.engine.io.reader import ReadStats
from systems.engine.io.tally import Tally
from systems.engine.pipeline import Channel, Pipeline, Turnstile
from systems.interface import Batch
from systems.parts.copy import Load
from systems.parts.part import Site
from systems.parts.path import Path
from systems.parts.sample import Ids
from systems.parts.tier import Chain
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import check_size


@dataclass
class Loop:
    """One run over some of an epoch's mini-batches.

    Samplers work in parallel and their mini-batches are put back in order. Extractors
    take the memory of their mini-batches in order, since a later one must not hold what
    an earlier one waits for. Meanwhile the previous mini-batch is transferred, and the
    one before it is trained.

    Attributes:
        tally: counts of the epoch: `rows`, `loaded` (rows that the cache in front of
            the buffers misses), `misses` (rows that no cache holds), hits by the name
            of a cache that changes, and reads.
        first: number of the first mini-batch.
        seeds: seed nodes of each, int64 [n].
        chain: the path's caches whose rows change.
    """

    path: Path
    site: Site
    tally: Tally
    pipe: Pipeline
    epoch: int
    first: int
    seeds: Sequence[Ids]
    chain: Chain

    def batches(self) -> Iterator[Batch]:
        """Yield the mini-batches in the seed plan's order; errors of any thread are
        raised here."""
        self.tally.add(self.path.sample.start(self.epoch))
        if self.site.sampling_only:
            for sampled in self.pipe.results(self._sampled()):
                yield Batch(sampled, None)
            return
        self.path.copy.start(self.pipe)
        self.path.rows.start(self.first, self.seeds)
        self.chain.start(self.pipe)
        self._turnstile = self.pipe.turnstile()
        yield from self.pipe.results(self._loaded(self._source()))

    def _source(self) -> Channel[SampledBatch] | Iterable[Any]:
        """Return the sampled mini-batches in order; seed nodes where the thread that
        extracts draws too."""
        if self.path.sample.inline:
            return self.seeds
        sampled = self._sampled()
        return self._windowed(sampled) if self.path.window else sampled

    def _sampled(self) -> Channel[SampledBatch]:
        sample = self.path.sample
        sampled: Channel[SampledBatch] = self.pipe.channel(sample.waiting, ordered=True)
        self.pipe.stage("sample", sample.workers, self._draw, self.seeds, sampled)
        return sampled

    def _windowed(self, sampled: Channel[SampledBatch]) -> Iterator[SampledBatch]:
        """Yield each mini-batch once the rows have seen `window` mini-batches behind
        it."""
        held: deque[SampledBatch] = deque()
        for batch in sampled.items():
            self.path.rows.coming(batch)
            held.append(batch)
            if len(held) > self.path.window:
                yield held.popleft()
        yield from held

    def _loaded(self, source: Channel[Any] | Iterable[Any]) -> Channel[Batch]:
        """Start the threads that extract and transfer, and return the channel of
        finished mini-batches."""
        pipe = self.pipe
        copy = self.path.copy
        ready: Channel[Batch] = pipe.channel(copy.extractors, ordered=True)
        if not copy.moves:
            pipe.stage("extract", copy.extractors, self._extract, source, ready)
            return ready
        extracted: Channel[Load] = pipe.channel(copy.extractors, ordered=True)
        pipe.stage("extract", copy.extractors, self._extract, source, extracted)
        transferred: Channel[Batch] = pipe.channel(1)
        pipe.stage("transfer", 1, self._move, extracted, transferred)
        return transferred

    def _draw(self, number: int, seeds: Ids) -> SampledBatch:
        index = self.first + number
        with self.site.clock.stage("sample", index):
            return self.path.sample.draw(self.epoch, index, seeds)

    def _extract(self, number: int, item: SampledBatch | Ids) -> Any:
        """Read the rows of one mini-batch that no cache holds; return its `Load`, or
        the finished `Batch` where no thread of its own moves it."""
        path = self.path
        clock = self.site.clock
        place = self._take(number)
        sampled = item if isinstance(item, SampledBatch) else self._draw(number, item)
        check_size(sampled, self.site.bounds.max_nodes)
        ids = sampled.nodes if sampled.local is None else sampled.local
        load = Load(sampled, place, self._look_up(ids))
        missing = ids[load.found.misses]
        room = path.copy.room(load)
        reads: ReadStats | None = None
        hits: dict[str, int] = {}
        misses = len(missing)
        if path.rows.assembles:
            with clock.stage("assemble", sampled.index):
                path.rows.assemble(sampled, missing)
        if path.rows.reads:
            with clock.stage("extract", sampled.index):
                if path.changing:
                    assert room is not None
                    load.rows = room
                    reads, hits, misses = self.chain.read(number, missing, room)
                else:
                    load.rows, reads = path.rows.read(sampled, missing, room)
                path.copy.settle(load)
        self.tally.add(
            reads, rows=sampled.num_nodes, loaded=len(missing), misses=misses, **hits
        )
        return load if path.copy.moves else self._move(number, load)

    def _take(self, number: int) -> object:
        turnstile: Turnstile = self._turnstile
        with turnstile.turn(number):
            return self.path.copy.take()

    def _look_up(self, ids: Ids) -> Lookup:
        cache = self.path.cache
        if cache is not None:
            return cache.look_up(ids)
        return look_up(None, ids)

    def _move(self, number: int, load: Load) -> Batch:
        batch = self.path.copy.move(load)
        batch.first_layer_aggregated = self.site.aggregated
        return batch

"""Trace of a workload's epochs, independent of the system: uses of each feature row, topology pages and digests.

The mini-batches are sampled again outside the cap, one after the other, and none is kept: memory is four bytes a node
and one a page of the graph beside the sampler's own, however many rows an epoch uses. Nothing here is timed. Sampling
an epoch again may take longer than a run, so each workload is sampled once and each epoch cached at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
from pydantic import TypeAdapter

from harness.cache import Cache, fingerprint
from harness.records.record import RunConfig
from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import EpochDigest, feature_digest, structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

PAGE_BYTES = 4096
# Nodes processed together, so that arrays derived from one over all nodes stay small.
_CHUNK = 1 << 20
# Settings that decide the nodes of an epoch's mini-batches; the code is part of every fingerprint.
_KEYS = ("layers", "sampler", "fanout", "replace", "shuffle", "batch_size", "max_batches", "ranks", "seed")
# Traces known to this process, since rules and metrics of a run ask repeatedly, with or without a cache.
_KNOWN: dict[str, EpochTrace] = {}


@dataclass(frozen=True)
class EpochTrace:
    """One epoch of a workload, over all ranks.

    Attributes:
        steps, ranks: training steps, and ranks that step together with one mini-batch each.
        uses: pairs of k and the number of rows that k mini-batches use, ascending by k from 1.
        topology_pages: touched pages of the `indices` file: exact for neighbour lists within two pages, an upper bound
            (at most the draws) for longer ones.
        digest: structure digest that every faithful system must report.
    """

    epoch: int
    steps: int
    ranks: int
    uses: tuple[tuple[int, int], ...]
    topology_pages: int
    digest: str

    @property
    def unique_rows(self) -> int:
        """Number of distinct feature rows used."""
        return sum(rows for _, rows in self.uses)

    def used_bytes(self, row_bytes: int) -> int:
        """Return the bytes of the used rows and topology pages."""
        return self.unique_rows * row_bytes + self.topology_pages * PAGE_BYTES

    def least_bytes(self, row_bytes: int, memory_bytes: int) -> int:
        """Return the bytes of rows that every system with this memory reads (docs/frontier.md, the lower bound).

        In any order of the mini-batches, a row used by k of them is used in at least k / j of the windows of j
        mini-batches, and a window reads all rows it uses except those in memory at its start.
        """
        times = np.array([count for count, _ in self.uses], dtype=np.int64)
        rows = np.array([count for _, count in self.uses], dtype=np.int64)
        least = 0
        for windows, length in _windows(self.steps) if self.uses else ():
            needed = int((-(-times // (length * self.ranks)) * rows).sum())
            least = max(least, needed * row_bytes - windows * memory_bytes)
        return least


def _windows(steps: int) -> Iterator[tuple[int, int]]:
    """Yield (windows, steps of each but the last) for each number of windows, with the shortest windows."""
    length = 1
    while length < steps:
        windows = -(-steps // length)
        yield windows, length
        length = -(-steps // (windows - 1))
    yield 1, steps


class _PagesTouched:
    def __init__(self, indptr: npt.NDArray[np.int64], item_bytes: int) -> None:
        self._indptr, self._item_bytes = indptr, item_bytes
        self._pages = np.zeros(int(indptr[-1]) * item_bytes // PAGE_BYTES + 2, dtype=bool)
        # Lists that may span three pages, fewer than there are pages, and the number of draws from each.
        found = [np.empty(0, dtype=np.int64)]
        for begin in range(0, len(indptr) - 1, _CHUNK):
            degrees = np.diff(indptr[begin : begin + _CHUNK + 1])
            found.append(begin + np.flatnonzero(degrees * item_bytes > PAGE_BYTES))
        self._long = np.concatenate(found)
        self._draws = np.zeros(len(self._long), dtype=np.int64)

    def add(self, batch: SampledBatch) -> None:
        for block in batch.blocks:
            nodes = batch.nodes[: block.num_dst]
            start, end = self._indptr[nodes], self._indptr[nodes + 1]
            some = end > start
            first = start[some] * self._item_bytes // PAGE_BYTES
            last = (end[some] * self._item_bytes - 1) // PAGE_BYTES
            short = last - first <= 1
            self._pages[first[short]] = True
            self._pages[last[short]] = True
            # Nodes are unique within a block.
            self._draws[np.searchsorted(self._long, nodes[some][~short])] += np.diff(block.indptr)[some][~short]

    def total(self) -> int:
        spans = (self._indptr[self._long + 1] - self._indptr[self._long]) * self._item_bytes
        return int(self._pages.sum()) + int(np.minimum(self._draws, spans // PAGE_BYTES + 1).sum())


def batches_of(workload: Workload, epoch: int) -> Iterator[SampledBatch]:
    """Sample every mini-batch of an epoch again, those of all ranks step by step."""
    ranks = [replace(workload, rank=rank) for rank in range(workload.world)]
    indptr, labels = workload.dataset.load("indptr"), workload.dataset.load("labels")
    samplers = [make_sampler(rank, indptr=indptr, labels=labels) for rank in ranks]
    steps = zip(*(make_seed_plan(rank).batches(epoch) for rank in ranks), strict=True)
    for index, step in enumerate(steps):
        for sampler, seeds in zip(samplers, step, strict=True):
            yield sampler.sample(epoch, index, seeds)


def trace_epochs(workload: Workload, epochs: Sequence[int]) -> Iterator[EpochTrace]:
    """Yield the trace of each of the `epochs` from mini-batches sampled again."""
    indptr = workload.dataset.load("indptr")
    _read_graph_ahead(workload, len(epochs))
    for epoch in epochs:
        touched = _PagesTouched(indptr, workload.dataset.index_dtype.itemsize)
        uses = np.zeros(workload.dataset.num_nodes, dtype=np.uint32)
        digest = EpochDigest()
        steps = 0
        for batch in batches_of(workload, epoch):
            touched.add(batch)
            digest.add(structure_digest(batch))
            uses[batch.nodes] += np.uint32(1)
            steps = batch.index + 1
        yield EpochTrace(epoch, steps, workload.world, _histogram(uses), touched.total(), digest.hexdigest())


def _read_graph_ahead(workload: Workload, epochs: int) -> None:
    """Read the neighbour lists into the page cache in one pass, if sampling would read most of them page by page.

    Runs evict the graph, and a page fault for each list took ten times as long as sampling itself.
    """
    batches = make_seed_plan(workload).num_batches * workload.world * epochs
    lists, reached = 0, workload.sampler.batch_size
    for fanout in workload.sampler.fanout:
        lists += reached
        reached *= fanout if fanout >= 0 else workload.dataset.num_nodes
    file = workload.dataset.file("indices")
    size = file.stat().st_size
    if size > psutil.virtual_memory().available // 4 or batches * lists * PAGE_BYTES < size:
        return
    with file.open("rb", buffering=0) as stream:
        while stream.read(8 << 20):
            pass


def _histogram(uses: npt.NDArray[np.uint32]) -> tuple[tuple[int, int], ...]:
    """Return (value, number of nodes with it) for all values but zero, ascending."""
    counts = np.zeros(int(uses.max(initial=0)) + 1, dtype=np.int64)
    for begin in range(0, len(uses), _CHUNK):
        counts += np.bincount(uses[begin : begin + _CHUNK], minlength=len(counts))
    return tuple((int(value), int(counts[value])) for value in np.flatnonzero(counts) if value)


_TRACE = TypeAdapter(EpochTrace)


class TraceFacts:
    """Traces of a run's workload by epoch, read from the cache or derived on demand."""

    def __init__(self, workload: Workload, config: RunConfig, cache: Cache | None) -> None:
        own = f"{workload.dataset.fingerprint}/{workload.partition or ''}/{workload.rank}/{workload.world}"
        self.workload, self.config, self._cache = workload, config, cache
        self._own = f"{fingerprint(config, _KEYS)}/{own}"

    def epoch(self, epoch: int) -> EpochTrace:
        """Return the trace of one epoch; if it is unknown, sample all unknown epochs of the run again."""
        if (found := self._kept(epoch)) is not None:
            return found
        missing = [entry for entry in range(self.config.epochs) if self._kept(entry) is None]
        for found in trace_epochs(self.workload, missing if epoch in missing else [epoch]):
            _KNOWN[self._key(found.epoch)] = found
            if self._cache is not None:
                self._cache.put("trace", self._key(found.epoch), asdict(found))
        return _KNOWN[self._key(epoch)]

    def epochs(self) -> list[EpochTrace]:
        """Return the traces of all epochs, in order."""
        return [self.epoch(epoch) for epoch in range(self.config.epochs)]

    def feature_digest(
        self, epoch: int, rows: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]], most_bytes: int
    ) -> str | None:
        """Return the digest over an epoch's feature rows that every faithful system must report.

        `rows` reads rows of the dataset; return None if the mini-batches together use more than `most_bytes` of them.
        """
        dataset = self.workload.dataset
        uses = sum(times * count for times, count in self.epoch(epoch).uses)
        if uses * dataset.dim * dataset.feature_dtype.itemsize > most_bytes:
            return None
        key = hashlib.sha256(f"{self._key(epoch)}/features".encode()).hexdigest()[:16]
        kept = self._cache.get("features", key) if self._cache is not None else None
        if kept is None:
            digest = EpochDigest()
            for batch in batches_of(self.workload, epoch):
                digest.add(feature_digest(batch, rows(batch.nodes)))
            kept = {"digest": digest.hexdigest()}
            if self._cache is not None:
                self._cache.put("features", key, kept)
        return str(kept["digest"])

    def _kept(self, epoch: int) -> EpochTrace | None:
        key = self._key(epoch)
        if key not in _KNOWN and self._cache is not None and (kept := self._cache.get("trace", key)) is not None:
            try:
                _KNOWN[key] = _TRACE.validate_python(kept)
            except ValueError:
                return None  # damaged: sampled again
        return _KNOWN.get(key)

    def _key(self, epoch: int) -> str:
        return hashlib.sha256(f"{self._own}/{epoch}".encode()).hexdigest()[:16]

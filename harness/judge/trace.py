"""Trace of a workload's epochs (uses of rows, topology pages, digests), and the check
of a run's rows (rule 26).

The mini-batches are sampled again outside the cap, one after the other, and none is
kept: memory is four bytes a node and one a page of the graph beside the sampler's own,
however many rows an epoch uses. Nothing here is timed. Sampling an epoch again may take
longer than a run, so each workload is sampled once and each epoch cached at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
from pydantic import TypeAdapter

from harness.cache import Cache, fingerprint
from harness.foreign import is_foreign
from harness.foreign.systems import expands_of
from harness.records.code import code_of_sampler
from harness.records.record import FeatureCheck, RunConfig
from harness.wire.protocol import EpochDone
from harness.wire.spots import ROWS, VALUES, Spot, chosen, positions, rows_digest
from workloads.dataset import Dataset
from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import EpochDigest, feature_digest, structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler
from workloads.sampling.once import drawn_batches
from workloads.workload import Workload

PAGE_BYTES = 4096
# A warm-up epoch with more bytes of feature rows than this is checked by its spots
# only.
WHOLE_BYTES = 8 << 30
# Neighbour lists up to this size are read whole: single pages, however few, would each
# wait for the disk.
_IN_MEMORY_BYTES = 2 << 30
# The lists of the dataset that was checked last, since the runs of a series use one
# dataset.
_KEPT: dict[tuple[str, int], dict[str, Any]] = {}
# Nodes processed together, so that arrays derived from one over all nodes stay small.
_CHUNK = 1 << 20
# Settings that decide the nodes of an epoch's mini-batches; the code is part of every
# fingerprint.
_KEYS = (
    "layers",
    "sampler",
    "fanout",
    "replace",
    "shuffle",
    "batch_size",
    "max_batches",
    "ranks",
    "seed",
)


@dataclass(frozen=True)
class EpochTrace:
    """One epoch of a workload, over all ranks.

    Attributes:
        steps, ranks: training steps, and ranks that step together with one mini-batch
            each.
        uses: pairs of k and the number of rows that k mini-batches use, ascending by k
            from 1.
        topology_pages: touched pages of the `indices` file: exact for neighbour lists
            within two pages, an upper bound (at most the draws) for longer ones.
        digest: structure digest that every faithful system must report.
        edges: sampled edges of all mini-batches.
        spread: standard deviations of the epoch's nodes and edges, from those between
            its full mini-batches.
    """

    epoch: int
    steps: int
    ranks: int
    uses: tuple[tuple[int, int], ...]
    topology_pages: int
    digest: str
    edges: int = 0
    spread: tuple[float, float] = (0.0, 0.0)

    @property
    def nodes(self) -> int:
        """Number of nodes of all mini-batches, one for each use of a row."""
        return sum(times * rows for times, rows in self.uses)

    @property
    def unique_rows(self) -> int:
        """Number of distinct feature rows used."""
        return sum(rows for _, rows in self.uses)

    def used_bytes(self, row_bytes: int) -> int:
        """Return the bytes of the used rows and topology pages."""
        return self.unique_rows * row_bytes + self.topology_pages * PAGE_BYTES

    def least_bytes(self, row_bytes: int, memory_bytes: int) -> int:
        """Return the bytes of rows that every system with this memory reads
        (docs/frontier.md, the lower bound).

        In any order of the mini-batches, a row used by k of them is used in at least k
        / j of the windows of j mini-batches, and a window reads all rows it uses except
        those in memory at its start.
        """
        times, rows = np.array(self.uses, dtype=np.int64).reshape(-1, 2).T
        least = 0
        for windows, length in _windows(self.steps) if self.uses else ():
            needed = int((-(-times // (length * self.ranks)) * rows).sum())
            least = max(least, needed * row_bytes - windows * memory_bytes)
        return least


def _windows(steps: int) -> Iterator[tuple[int, int]]:
    """Yield (windows, steps of each but the last) for each number of windows, with the
    shortest windows."""
    length = 1
    while length < steps:
        windows = -(-steps // length)
        yield windows, length
        length = -(-steps // (windows - 1))
    yield 1, steps


class _PagesTouched:
    def __init__(self, indptr: npt.NDArray[np.int64], item_bytes: int) -> None:
        self._indptr = indptr
        self._item_bytes = item_bytes
        self._pages = np.zeros(
            int(indptr[-1]) * item_bytes // PAGE_BYTES + 2, dtype=bool
        )
        # Lists that may span three pages, fewer than there are pages, and the number of
        # draws from each.
        found = [np.empty(0, dtype=np.int64)]
        for begin in range(0, len(indptr) - 1, _CHUNK):
            degrees = np.diff(indptr[begin : begin + _CHUNK + 1])
            found.append(begin + np.flatnonzero(degrees * item_bytes > PAGE_BYTES))
        self._long = np.concatenate(found)
        self._draws = np.zeros(len(self._long), dtype=np.int64)

    def add(self, batch: SampledBatch) -> None:
        for block in batch.blocks:
            nodes = batch.nodes[: block.num_dst]
            start = self._indptr[nodes]
            end = self._indptr[nodes + 1]
            some = end > start
            first = start[some] * self._item_bytes // PAGE_BYTES
            last = (end[some] * self._item_bytes - 1) // PAGE_BYTES
            short = last - first <= 1
            self._pages[first[short]] = True
            self._pages[last[short]] = True
            # Nodes are unique within a block.
            self._draws[np.searchsorted(self._long, nodes[some][~short])] += np.diff(
                block.indptr
            )[some][~short]

    def total(self) -> int:
        spans = (
            self._indptr[self._long + 1] - self._indptr[self._long]
        ) * self._item_bytes
        return int(self._pages.sum()) + int(
            np.minimum(self._draws, spans // PAGE_BYTES + 1).sum()
        )


def batches_of(workload: Workload, epoch: int) -> Iterator[SampledBatch]:
    """Sample every mini-batch of an epoch again, those of all ranks step by step."""
    ranks = [replace(workload, rank=rank) for rank in range(workload.world)]
    indptr = workload.dataset.load("indptr")
    labels = workload.dataset.load("labels")
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
        sizes = []
        for batch in batches_of(workload, epoch):
            touched.add(batch)
            digest.add(structure_digest(batch))
            uses[batch.nodes] += np.uint32(1)
            steps = batch.index + 1
            sizes.append((batch.num_seeds, batch.num_nodes, batch.num_edges))
        counted = _histogram(uses), touched.total(), digest.hexdigest()
        yield EpochTrace(
            epoch, steps, workload.world, *counted, *_edges_and_spread(sizes)
        )


def trace_once(workload: Workload, epoch: int) -> EpochTrace:
    """Return the trace of an epoch whose hops expand no node twice
    (`workloads.sampling.once`), without pages of the graph and without a digest, since
    such mini-batches are not the workload's."""
    uses = np.zeros(workload.dataset.num_nodes, dtype=np.uint32)
    sizes = []
    _read_graph_ahead(workload, 1)
    arrays = workload.dataset.load("indptr"), workload.dataset.memmap("indices")
    for batch in drawn_batches(workload, epoch, "new", *arrays):
        uses[batch.nodes] += np.uint32(1)
        sizes.append((len(batch.seeds), len(batch.nodes), batch.edges))
    steps = make_seed_plan(workload).num_batches
    counted = (_histogram(uses), 0, "")
    return EpochTrace(epoch, steps, workload.world, *counted, *_edges_and_spread(sizes))


def _edges_and_spread(
    sizes: Sequence[tuple[int, int, int]],
) -> tuple[int, tuple[float, float]]:
    """Return the edges of an epoch and its spread, from seed nodes, nodes and edges of
    each mini-batch."""
    found = np.array(sizes, dtype=np.float64).reshape(-1, 3)
    full = found[found[:, 0] == found[:, 0].max(initial=0), 1:]
    nodes, edges = (
        full.std(0, ddof=1) * len(found) ** 0.5 if len(full) > 1 else (0.0, 0.0)
    )
    return int(found[:, 2].sum()), (float(nodes), float(edges))


def _read_graph_ahead(workload: Workload, epochs: int) -> None:
    """Read the neighbour lists into the page cache in one pass, if sampling would read
    most of them page by page.

    Runs evict the graph, and a page fault for each list took ten times as long as
    sampling itself.
    """
    batches = make_seed_plan(workload).num_batches * workload.world * epochs
    lists = 0
    reached = workload.sampler.batch_size
    for fanout in workload.sampler.fanout:
        lists += reached
        reached *= fanout if fanout >= 0 else workload.dataset.num_nodes
    file = workload.dataset.file("indices")
    size = file.stat().st_size
    if (
        size > psutil.virtual_memory().available // 4
        or batches * lists * PAGE_BYTES < size
    ):
        return
    with file.open("rb", buffering=0) as stream:
        while stream.read(8 << 20):
            pass


def _histogram(uses: npt.NDArray[np.uint32]) -> tuple[tuple[int, int], ...]:
    """Return (value, number of nodes with it) for all values but zero, ascending."""
    counts = np.zeros(int(uses.max(initial=0)) + 1, dtype=np.int64)
    for begin in range(0, len(uses), _CHUNK):
        counts += np.bincount(uses[begin : begin + _CHUNK], minlength=len(counts))
    return tuple(
        (int(value), int(counts[value])) for value in np.flatnonzero(counts) if value
    )


_TRACE = TypeAdapter(EpochTrace)


class TraceFacts:
    """Traces of a run's workload by epoch, read from the cache or derived on demand."""

    def __init__(self, workload: Workload, config: RunConfig, cache: Cache) -> None:
        partition = f"{workload.dataset.fingerprint}/{workload.partition or ''}"
        own = f"{partition}/{workload.rank}/{workload.world}"
        self.workload = workload
        self.config = config
        self._cache = cache
        self._own = (
            f"{fingerprint(config, _KEYS)}{code_of_sampler(config.sampler)}/{own}"
        )
        self._known: dict[int | str, EpochTrace] = {}

    def epoch(self, epoch: int) -> EpochTrace:
        """Return the trace of one epoch; if it is unknown, sample all unknown epochs of
        the run again."""
        if self._kept(epoch) is None:
            missing = [
                entry
                for entry in range(self.config.epochs)
                if self._kept(entry) is None
            ]
            for found in trace_epochs(
                self.workload, missing if epoch in missing else [epoch]
            ):
                self._keep(found.epoch, found)
        return self._known[epoch]

    def epochs(self) -> list[EpochTrace]:
        """Return the traces of all epochs, in order."""
        return [self.epoch(epoch) for epoch in range(self.config.epochs)]

    def drawn(self, epoch: int) -> EpochTrace:
        """Return the trace of an epoch as the run's system draws: that of a foreign one
        that expands a node once is another than the workload's."""
        if expands_of(self.config.system) == "all":
            return self.epoch(epoch)
        once = f"{epoch}/once"
        if self._kept(once) is None:
            self._keep(once, trace_once(self.workload, epoch))
        return self._known[once]

    def feature_digest(
        self,
        epoch: int,
        rows: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]],
        most_bytes: int,
    ) -> str | None:
        """Return the digest over an epoch's feature rows that every faithful system
        must report.

        `rows` reads rows of the dataset; return None if the mini-batches together use
        more than `most_bytes` of them.
        """
        dataset = self.workload.dataset
        if self.epoch(epoch).nodes * dataset.row_bytes > most_bytes:
            return None
        # A dataset that was made again with another salt is the same workload with
        # other rows.
        key = self._key(f"{epoch}/features/{dataset.content}")
        if (kept := self._cache.get("features", key)) is None:
            digest = EpochDigest()
            for batch in batches_of(self.workload, epoch):
                digest.add(feature_digest(batch, rows(batch.nodes)))
            kept = {"digest": digest.hexdigest()}
            self._cache.put("features", key, kept)
        return str(kept["digest"])

    def _kept(self, name: int | str) -> EpochTrace | None:
        """Return a trace by its epoch or name; None: it is in no cache, or damaged
        there."""
        if name not in self._known:
            with suppress(ValueError):
                self._known[name] = _TRACE.validate_python(
                    self._cache.get("trace", self._key(name))
                )
        return self._known.get(name)

    def _keep(self, name: int | str, found: EpochTrace) -> None:
        self._known[name] = found
        self._cache.put("trace", self._key(name), asdict(found))

    def _key(self, name: int | str) -> str:
        return hashlib.sha256(f"{self._own}/{name}".encode()).hexdigest()[:16]


def check_features(
    trace: TraceFacts,
    faithful: bool,
    epochs: Sequence[EpochDone],
    spots: Mapping[int, Sequence[Spot]],
    nonces: Mapping[int, bytes],
    sizes: Mapping[tuple[int, int], int],
) -> tuple[list[FeatureCheck], str]:
    """Return the checks made, and the reason why an epoch has none; empty if all epochs
    have one.

    Args:
        trace: trace of the run's workload.
        faithful: whether the mini-batches have to equal the workload's; if not, rows
            are compared by the nodes that the worker reports.
        epochs: epochs as the worker reported them; the first one's `feature_digest` is
            compared if it is a warm-up.
        spots, nonces: feature rows reported for spot checks, and the number that
            decides the rows, by epoch.
        sizes: number of nodes of each reported mini-batch, by epoch and number.
    """
    workload = trace.workload
    config = trace.config
    if config.stages == "sample" or not epochs:
        return [], ""
    found: list[FeatureCheck] = []
    reader = _Reader(workload)
    first = epochs[0]
    if faithful and config.ranks == 1 and first.feature_digest and config.warmup:
        table = workload.dataset.memmap("features")
        wanted = trace.feature_digest(
            first.epoch, lambda nodes: np.asarray(table[nodes]), WHOLE_BYTES
        )
        if wanted is not None:
            ok = wanted == first.feature_digest
            detail = "" if ok else "the rows of its mini-batches are not the dataset's"
            found.append(
                FeatureCheck(epoch=first.epoch, whole=True, ok=ok, detail=detail)
            )
    changed = "its rows changed during its training step"
    found += [
        FeatureCheck(epoch=one.epoch, batch=at, ok=False, detail=changed)
        for one in epochs
        for at in one.changed
    ]
    for epoch in (entry.epoch for entry in epochs):
        stated = {spot.batch: spot for spot in spots.get(epoch, ())}
        if epoch in nonces and (stated or not is_foreign(config.system)):
            reported = {
                batch: nodes for (of, batch), nodes in sizes.items() if of == epoch
            }
            found += _spots(
                epoch, nonces[epoch], stated, None if faithful else reported, reader
            )
    checked = {check.epoch for check in found}
    left = [str(epoch.epoch) for epoch in epochs if epoch.epoch not in checked]
    return found, f"no row was checked in epoch {', '.join(left)}" if left else ""


def _spots(
    epoch: int,
    nonce: bytes,
    stated: Mapping[int, Spot],
    sizes: Mapping[int, int] | None,
    reader: _Reader,
) -> Iterator[FeatureCheck]:
    """Check the spots of one epoch; a chosen mini-batch that is not reported counts as
    wrong. `sizes`: of a system that draws its own mini-batches, number of nodes of
    each, by number; their count has its own rule."""
    world = len(reader.plans)
    for index in sorted(chosen(nonce, epoch, reader.plans[0].num_batches)):
        for rank in range(world):
            number = index * world + rank
            if sizes is not None and number not in sizes:
                continue
            spot = stated.get(number)
            detail = "the worker did not report its rows"
            nodes = np.empty(0, dtype=np.int64)
            if spot is not None:
                nodes = np.array(spot.nodes, dtype=np.int64)
                if sizes is None:
                    batch = reader.batch(epoch, index, rank)
                    nodes = batch[positions(nonce, epoch, index, len(batch))]
                    detail = _compare(spot, nodes, reader)
                else:
                    detail = _odd_nodes(nodes, sizes[number], reader) or _compare(
                        spot, nodes, reader
                    )
            yield FeatureCheck(
                epoch=epoch, batch=number, rows=len(nodes), ok=not detail, detail=detail
            )


def _odd_nodes(nodes: npt.NDArray[np.int64], size: int, reader: _Reader) -> str:
    """Return what is wrong with the nodes that a system reported for its own
    mini-batch; empty if nothing is."""
    wanted = min(ROWS, size)
    if len(nodes) != wanted:
        return f"{len(nodes)} rows were reported of the {wanted} that the check draws"
    if len(np.unique(nodes)) != wanted:
        return "a node was reported twice"
    most = reader.dataset.num_nodes
    return (
        f"node {nodes.max()} was reported of a graph of {most}"
        if wanted and nodes.max() >= most
        else ""
    )


def _compare(spot: Spot, nodes: npt.NDArray[np.int64], reader: _Reader) -> str:
    if len(spot.nodes) != len(nodes) or list(spot.nodes) != nodes.tolist():
        return "its nodes are not the mini-batch's"
    if not spot.values:
        return (
            ""
            if spot.digest == rows_digest(nodes, reader.rows(nodes))
            else "its rows are not the dataset's"
        )
    wanted = reader.aggregates(nodes[:VALUES])
    values = np.array(spot.values, dtype=np.float64)
    tolerance = 2e-3 if reader.dataset.feature_dtype == np.float16 else 1e-5
    if values.shape == wanted.shape and np.allclose(
        values, wanted, rtol=tolerance, atol=tolerance
    ):
        return ""
    return "its aggregated rows are not the dataset's"


class _Reader:
    """Reference for the run's checks: mini-batches sampled again, feature rows by
    direct reads."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.dataset = workload.dataset
        self._ranks = [replace(workload, rank=rank) for rank in range(workload.world)]
        self.plans = [make_seed_plan(rank) for rank in self._ranks]

    @cached_property
    def _samplers(self) -> list[NeighborSampler]:
        held = (
            _lists(self.dataset)
            if self.dataset.topology_bytes <= _IN_MEMORY_BYTES
            else {}
        )
        return [make_sampler(rank, **held) for rank in self._ranks]

    def batch(self, epoch: int, index: int, rank: int) -> npt.NDArray[np.int64]:
        """Return the nodes of one mini-batch."""
        seeds = self.plans[rank].batches(epoch)[index]
        return np.asarray(self._samplers[rank].sample(epoch, index, seeds).nodes)

    def rows(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Read feature rows [k, dim] past the page cache."""
        from systems.engine.io.reader import RowReader
        from systems.engine.io.row_reads import RowTable

        table = RowTable.of(self.dataset)
        out = np.empty((len(nodes), table.dim), dtype=table.dtype)
        with RowReader(table.path, **table.place, depth=64) as reader:
            reader.read(nodes, out)
        return out

    def aggregates(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the first layer's aggregates over all in-neighbours, [k, width]."""
        from workloads.models import first_layer_rows

        data = self.dataset
        arrays = data.memmap("indptr"), data.memmap("indices"), data.memmap("features")
        return np.asarray(first_layer_rows(self._workload.model, *arrays, nodes))


def _lists(dataset: Dataset) -> dict[str, Any]:
    key = (dataset.fingerprint, dataset.topology_bytes)
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = {
            "indptr": dataset.load("indptr"),
            "indices": dataset.load("indices"),
        }
    return _KEPT[key]

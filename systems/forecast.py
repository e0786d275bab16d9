"""Forecasts of a system's reads from a trace of mini-batches, without running the
system.

Cache contents follow each system's own rule (Belady, most accesses, least recently
used); the kernel's page cache is modelled as S3-FIFO. A forecast counts the second
epoch of the trace, after the first epoch warmed the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workloads.sampling.distinct import distinct

if TYPE_CHECKING:
    from workloads.workload import Workload

PAGE = 4096
_SEQUENTIAL = 1 << 20
_PAGE_CACHE = "s3-fifo"

Nodes = npt.NDArray[np.uint32]
Reads = dict[int, float]
"""Request bytes -> number of requests."""
Spread = tuple[float, float]
EXACT: Spread = (1.0, 1.0)


@dataclass
class Forecast:
    """Counters that a system expects of the trace's second epoch, and of its
    preparation.

    Attributes:
        reads: reads of the epoch.
        why: reason for the reads, as text for a reader.
        rows_copied: feature rows copied to the device, where it has its own memory.
        prepare_reads: reads and writes of the offline work that a training does once.
        each_reads: reads and writes of the offline work that each epoch needs
            (`System.prepare_epochs`).
        each_s: seconds of that work beside these.
    """

    reads: Reads
    why: str
    rows_copied: float = 0.0
    prepare_reads: Reads = field(default_factory=dict)
    each_reads: Reads = field(default_factory=dict)
    each_s: float = 0.0


@dataclass
class Trace:
    """Mini-batches of the first two epochs: the first warm a cache, the second are
    counted.

    Attributes:
        workload, whole: workload cut to the sampled mini-batches, and the complete one.
        num_batches: mini-batches of a whole epoch.
        nodes: uint32, unique nodes of each mini-batch, the first epoch's before the
            second's.
        pages: uint32, unique pages of `indices` that sampling each mini-batch touches.
        hop_pages: uint32, the same pages by hop in the order of the blocks, the seed
            nodes' hop last.
        train_s: seconds of each mini-batch's training step alone.
        edges, nbytes: edges of each mini-batch's blocks, and bytes of its arrays.
        sample_s: mean processor seconds of sampling a mini-batch.
        train_spread, sample_spread: least and greatest measurement of both, as
            multiples of them.
        rounds: measurements of the training step; 0: modelled.
        others_cpu: share of all processors' time that others took meanwhile.
        graph_bytes: mean bytes of a sampled mini-batch.
        hot: function from a count to the ids of the most popular nodes, where
            popularity is known; else None.
    """

    workload: Workload
    whole: Workload
    num_batches: int
    nodes: list[Nodes] = field(default_factory=list)
    pages: list[Nodes] = field(default_factory=list)
    hop_pages: list[list[Nodes]] = field(default_factory=list)
    train_s: list[float] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    sample_s: float = 0.0
    train_spread: Spread = EXACT
    sample_spread: Spread = EXACT
    rounds: int = 0
    others_cpu: float = 0.0
    graph_bytes: float = 0.0
    hot: Callable[[int], npt.NDArray[np.int64]] | None = None

    @property
    def sampled(self) -> int:
        """Mini-batches of one epoch that were sampled."""
        return len(self.nodes) // 2

    @property
    def scale(self) -> float:
        """Factor from the sampled mini-batches of an epoch to the whole epoch."""
        return self.num_batches / max(1, self.sampled)

    @property
    def counted(self) -> list[Nodes]:
        """Nodes of the second epoch's mini-batches, whose reads are counted."""
        return self.nodes[self.sampled :]

    @property
    def accesses(self) -> int:
        """Feature rows of the counted mini-batches."""
        return sum(len(nodes) for nodes in self.counted)

    @property
    def rows(self) -> float:
        """Feature rows accessed in a whole epoch."""
        return self.scale * self.accesses

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a feature row."""
        dataset = self.workload.dataset
        return int(dataset.row_bytes)

    def epoch_s(self) -> float:
        """Return the seconds of a whole epoch's training steps."""
        return self.scale * sum(self.train_s[self.sampled :])

    def read_of(self, rows: float, block_bytes: int) -> Reads:
        """Return the reads of `rows` rows, each by itself and in whole logical
        blocks."""
        row = self.row_bytes
        return {
            -(-row // block_bytes) * block_bytes
            + (block_bytes if row % block_bytes else 0): float(rows)
        }

    def row_misses(self, policy: str, capacity: int) -> int:
        """Count the misses of a cache of `capacity` rows, which starts with the most
        popular rows if these are known.

        `policy` is as in `misses`.
        """
        nodes = self.workload.dataset.num_nodes
        hot = (
            []
            if self.hot is None
            else [self.hot(min(capacity, nodes)).astype(np.uint32)]
        )
        return misses(
            policy, [*hot, *self.nodes], nodes, capacity, warm=len(hot) + self.sampled
        )

    def hottest(self, rows: int) -> npt.NDArray[np.bool_]:
        """Return bool [N]: the `rows` most accessed nodes, by `hot` or else by the
        trace."""
        held = np.zeros(self.workload.dataset.num_nodes, dtype=bool)
        if self.hot is not None:
            held[self.hot(rows)] = True
            return held
        counts = np.zeros(len(held), dtype=np.int32)
        for nodes in self.nodes:
            counts[nodes] += 1
        rows = min(rows, int(np.count_nonzero(counts)))
        if rows:
            held[np.argpartition(counts, len(counts) - rows)[len(counts) - rows :]] = (
                True
            )
        return held

    def missed(self, held: npt.NDArray[np.bool_]) -> int:
        """Count the accesses to rows outside `held`, bool [N]."""
        return sum(int(np.count_nonzero(~held[nodes])) for nodes in self.counted)

    def hit_rate(self, missed: float) -> str:
        """Return the per cent of the accesses that do not miss, as text."""
        return f"{100 * (self.accesses - missed) / max(1.0, self.accesses):.0f} %"

    def graph_pages(self, cache_bytes: int) -> float:
        """Count the pages of `indices` that sampling reads with `cache_bytes` of page
        cache."""
        pages = self.workload.dataset.topology_bytes // PAGE + 2
        return misses(_PAGE_CACHE, self.pages, pages, cache_bytes // PAGE)

    def pieces_by_hop(self, group: int, piece_bytes: int = PAGE) -> list[float]:
        """Estimate the pieces of `indices` that a pass for each hop of a group of
        mini-batches reads, by hop."""
        whole = self.hop_pages[self.sampled :]
        most = self.workload.dataset.topology_bytes / piece_bytes + 1
        hops = range(len(self.hop_pages[0]))
        return [
            self._touched(
                [pages[hop] // (piece_bytes // PAGE) for pages in whole], most, group
            )
            for hop in hops
        ]

    def row_pieces(self, group: int, piece_bytes: int) -> float:
        """Estimate the pieces of the feature table that hold rows of a group of
        mini-batches."""
        rows = max(1, piece_bytes // self.row_bytes)
        return self._touched(
            [nodes // rows for nodes in self.counted],
            self.workload.dataset.num_nodes / rows + 1,
            group,
        )

    def _touched(self, pieces: list[Nodes], most: float, group: int) -> float:
        size = max(1, min(group, len(pieces)))
        parts = [
            pieces[begin : begin + size]
            for begin in range(0, len(pieces) - size + 1, size)
        ]
        seen = (
            sum(len(distinct(np.concatenate(part))) for part in parts)
            / len(parts)
            / most
        )
        # Mini-batches leave a share of the pieces untouched; n times as many leave the
        # n-th power of that share.
        return most * float(
            1.0 - max(0.0, 1.0 - seen) ** (min(group, self.num_batches) / size)
        )

    def mapped_pages(self, cache_bytes: int) -> float:
        """Count the pages read where graph and features are memory-mapped and share the
        page cache."""
        begin = self.workload.dataset.topology_bytes // PAGE + 2
        ids = begin + self.workload.dataset.feature_bytes // PAGE + 2
        both = zip(self.pages, self.nodes, strict=True)
        parts = [
            np.concatenate([pages, self._feature_pages(nodes) + np.uint32(begin)])
            for pages, nodes in both
        ]
        return misses(_PAGE_CACHE, parts, ids, cache_bytes // PAGE)

    def _feature_pages(self, nodes: Nodes) -> Nodes:
        first = nodes.astype(np.int64) * self.row_bytes // PAGE
        last = ((nodes.astype(np.int64) + 1) * self.row_bytes - 1) // PAGE
        width = int((last - first).max(initial=0)) + 1
        every = np.concatenate(
            [np.minimum(first + step, last) for step in range(width)]
        )
        return distinct(every).astype(np.uint32)

    def with_sampling(
        self, reads: Reads, cache_bytes: int, why: str, rows_copied: float
    ) -> Forecast:
        """Return the forecast of row reads with the pages that online sampling reads
        beside them."""
        pages = self.graph_pages(cache_bytes)
        reads = {**reads, PAGE: reads.get(PAGE, 0.0) + pages}
        return Forecast(
            reads,
            f"{why}; {pages / max(1, self.sampled):.0f} graph pages a mini-batch",
            rows_copied,
        )

    def resident(self, cached_rows: int = 0) -> Forecast:
        """Return the forecast of a system that loads all data once and caches
        `cached_rows` rows on the device."""
        dataset = self.workload.dataset
        loaded = sequential(dataset.feature_bytes + dataset.topology_bytes)
        copied = self.missed(self.hottest(cached_rows))
        return Forecast(
            {}, "reads everything once, then nothing", copied, prepare_reads=loaded
        )


def sequential(nbytes: float) -> Reads:
    """Return the reads of `nbytes` bytes in order."""
    return {_SEQUENTIAL: nbytes / _SEQUENTIAL}


def misses(
    policy: str, parts: list[Nodes], ids: int, capacity: int, *, warm: int | None = None
) -> int:
    """Count the misses of a cache of `capacity` ids over the later `parts`, after the
    first `warm` parts warmed it.

    Args:
        policy: name in `systems.engine.cache.policies.DYNAMIC`.
        parts: ids below `ids`, unique in each part.
        warm: number of warming parts; None: half of the parts.
    """
    from systems import _native

    half = len(parts) // 2 if warm is None else warm
    size = np.array([max(0, capacity)], dtype=np.int64)
    begins = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(
        np.int64
    )
    every = (
        np.concatenate(parts).astype(np.uint32)
        if parts
        else np.empty(0, dtype=np.uint32)
    )
    before = begins[: half + 1]
    first = _native.policy_misses(policy, every[: before[-1]], before, ids, size, 1)
    return int(_native.policy_misses(policy, every, begins, ids, size, 1)[0] - first[0])

"""Division of memory between a neighbour cache and a feature cache, by simulation on
the run's own first epoch.

More neighbour lists in memory save page faults of sampling, more feature rows save
reads. The mini-batches of the first epoch are sampled once; for each candidate split,
the misses of both caches are counted: row reads exactly as the reader would submit
them, list pages by a model of the page cache in its steady state (the epoch's second
round). The candidate whose reads take the least device time wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.cache.neighbour_cache import choose
from systems.engine.io.reader import RowReader
from systems.engine.rank.ranking import top
from systems.forecast import misses
from systems.interface import DiskProfile
from workloads.errors import require
from workloads.sampling.batch import SampledBatch
from workloads.sampling.distinct import distinct
from workloads.workload import Workload

PAGE_BYTES = 4096
_MOST_CANDIDATES = 8
# Like the kernel's two lists, it evicts single-use pages soon and keeps reused ones.
_PAGE_POLICY = "s3-fifo"

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Candidate:
    """A candidate split of the memory.

    Attributes:
        list_entries: entries of the neighbour cache (see `neighbour_cache.choose`).
        rows: rows of the feature cache, of highest out-degree.
        page_cache_bytes: bytes left for pages of `indices`.
    """

    name: str
    list_entries: int
    rows: int
    page_cache_bytes: int


@dataclass
class SplitForecast:
    """Predicted reads of an epoch with a candidate's caches.

    Attributes:
        rows: feature rows requested.
        row_misses: requested rows not in the feature cache.
        requests_by_size: number of reads of missed rows by request bytes.
        bytes_read: bytes of the reads of missed rows.
        list_reads: non-empty neighbour lists requested.
        list_hits: requested lists in the neighbour cache.
        page_accesses: pages of uncached lists, each once a mini-batch.
        page_misses: accessed pages read from disk in an epoch after the first.
        seconds: device time of all reads, or None without a profile.
    """

    name: str
    rows: int = 0
    row_misses: int = 0
    requests_by_size: dict[int, int] = field(default_factory=dict)
    bytes_read: int = 0
    list_reads: int = 0
    list_hits: int = 0
    page_accesses: int = 0
    page_misses: int = 0
    seconds: float | None = None

    @property
    def cost(self) -> float:
        """Predicted seconds; without a profile, the number of reads."""
        reads = self.page_misses + sum(self.requests_by_size.values())
        return float(reads) if self.seconds is None else self.seconds

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for an artefact's facts."""
        return {
            **asdict(self),
            "requests_by_size": {
                str(k): v for k, v in sorted(self.requests_by_size.items())
            },
        }


def scratch_bytes(workload: Workload, most_accesses: int) -> int:
    """Return the bytes of a forecast beside `indptr`, the reader and the current
    mini-batch."""
    nodes = workload.dataset.num_nodes
    pages = workload.dataset.topology_bytes // PAGE_BYTES + 2
    return 18 * nodes + 24 * pages + 16 * most_accesses


def forecast(
    workload: Workload,
    candidates: Sequence[Candidate],
    batches: Iterable[SampledBatch],
    *,
    indptr: Ids,
    degrees: npt.NDArray[Any],
    reader: RowReader,
    disk: DiskProfile,
    most_accesses: int = 1 << 24,
) -> list[SplitForecast]:
    """Predict each candidate's reads for these mini-batches.

    Args:
        batches: an epoch, or its beginning; stops once `most_accesses` are recorded.
        indptr: int64 [N + 1].
        degrees: [N], out-degrees, by which rows are cached.
        reader: reader of missed rows, used only for its counts.
        most_accesses: page accesses that may be recorded over all candidates, 4 bytes
            each.

    Raises:
        InputError: more than eight candidates, or none.
    """
    require(
        1 <= len(candidates) <= _MOST_CANDIDATES,
        f"{len(candidates)} candidates",
        f"give 1 to {_MOST_CANDIDATES}",
    )
    lists, rows = _cached(candidates, indptr, degrees)
    found = [SplitForecast(candidate.name) for candidate in candidates]
    pages: list[list[npt.NDArray[np.uint32]]] = [[] for _ in candidates]
    recorded = 0
    for batch in batches:
        nodes, touched = touched_pages(workload, batch, indptr)
        asked = np.concatenate([batch.nodes[: block.num_dst] for block in batch.blocks])
        asked = asked[indptr[asked + 1] > indptr[asked]]
        for number, result in enumerate(found):
            bit = np.uint8(1 << number)
            missed = batch.nodes[rows[batch.nodes] & bit == 0]
            reads = reader.counts_of(missed)
            result.rows += batch.num_nodes
            result.row_misses += len(missed)
            result.bytes_read += reads.bytes_read
            for size, count in reads.requests_by_size.items():
                result.requests_by_size[size] = (
                    result.requests_by_size.get(size, 0) + count
                )
            result.list_reads += len(asked)
            result.list_hits += int(np.count_nonzero(lists[asked] & bit))
            pages[number].append(
                distinct(touched[lists[nodes] & bit == 0]).astype(np.uint32)
            )
            recorded += len(pages[number][-1])
        if recorded > most_accesses:
            break
    num_pages = workload.dataset.topology_bytes // PAGE_BYTES + 2
    for candidate, result, parts in zip(candidates, found, pages, strict=True):
        result.page_accesses = sum(len(part) for part in parts)
        # An epoch after one that warmed the cache.
        result.page_misses = misses(
            _PAGE_POLICY,
            [*parts, *parts],
            num_pages,
            candidate.page_cache_bytes // PAGE_BYTES,
        )
        if disk.points:
            result.seconds = device_seconds(result, disk)
    return found


def best(forecasts: Sequence[SplitForecast]) -> int:
    """Return the index of the forecast of least cost, the first of equal ones."""
    return min(range(len(forecasts)), key=lambda index: forecasts[index].cost)


def device_seconds(result: SplitForecast, disk: DiskProfile) -> float:
    """Predict the device time of a forecast's reads by the disk profile."""
    reads = dict(result.requests_by_size)
    reads[PAGE_BYTES] = reads.get(PAGE_BYTES, 0) + result.page_misses
    return disk.seconds(reads)


def disk_class(disk: DiskProfile) -> list[int]:
    """Return a coarse key of a disk: random rates by size, rounded to powers of two.

    Repeated profiles differ slightly in their rates; the chosen setting must not change
    with them.
    """
    return [
        part
        for size, rate in disk.random_rates().items()
        for part in (size, round(np.log2(max(1.0, rate))))
    ]


def _cached(
    candidates: Sequence[Candidate], indptr: Ids, degrees: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return, per node, one bit a candidate: whether its list is cached, and whether
    its row is."""
    lists, rows = (np.zeros(len(degrees), dtype=np.uint8) for _ in range(2))
    ranking = top(degrees, max(candidate.rows for candidate in candidates))
    for number, candidate in enumerate(candidates):
        bit = np.uint8(1 << number)
        if candidate.list_entries:
            lists[choose(indptr, degrees, candidate.list_entries)] |= bit
        rows[ranking[: candidate.rows]] |= bit
    return lists, rows


def touched_pages(
    workload: Workload, batch: SampledBatch, indptr: Ids
) -> tuple[Ids, Ids]:
    """Return the pages of `indices` that sampling this mini-batch touches, and for each
    page the node of its list.

    A list on two pages counts both; a longer one counts as many as entries were drawn,
    evenly spread, since the drawn entries are not recorded.
    """
    item = workload.dataset.index_dtype.itemsize
    nodes = np.concatenate([batch.nodes[: block.num_dst] for block in batch.blocks])
    draws = np.concatenate([np.diff(block.indptr) for block in batch.blocks])
    some = draws > 0
    nodes = nodes[some]
    draws = draws[some]
    first = indptr[nodes] * item // PAGE_BYTES
    span = (indptr[nodes + 1] * item - 1) // PAGE_BYTES - first + 1
    count = np.where(span <= 2, span, np.minimum(draws, span))
    which = np.repeat(np.arange(len(nodes)), count)
    within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    return nodes[which], first[which] + within * span[which] // count[which]

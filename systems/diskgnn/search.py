"""Search for the split of the disk between packed chunks and disk caches (Section 5.1).

Eq. 2 of the paper: the fewest bytes read that the disk-space limit allows. The
heuristic fixes the threshold at 2 and takes the least segment length that fits, from
one pass that counts rows; brute-force measures every candidate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.diskgnn.layout import ColdSamples, Placement, Shape, segments
from systems.diskgnn.ranking import Ids
from systems.engine.io.arrays import as_ids
from systems.engine.io.reader import Granularity, ReadStats
from workloads.direct_files import padded
from workloads.errors import BudgetError
from workloads.units import format_bytes

Where = npt.NDArray[np.int32]
#: Counts the reads of single rows, ascending, without reading them.
Simulate = Callable[[Ids], ReadStats]


@dataclass(frozen=True)
class ShapeCost:
    """Predicted cost of a shape.

    Attributes:
        disk_bytes: most bytes on disk of everything packed.
        read_bytes: bytes read for feature rows, over all mini-batches once.
        useful_bytes: bytes of the wanted rows.
    """

    shape: Shape
    disk_bytes: int
    read_bytes: int = 0
    useful_bytes: int = 0

    @property
    def read_amplification(self) -> float:
        """Bytes read for each byte wanted."""
        return self.read_bytes / self.useful_bytes if self.useful_bytes else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "read_amplification": self.read_amplification}


@dataclass(frozen=True)
class BatchReads:
    """Bytes of feature rows that one mini-batch reads from disk.

    Attributes:
        read_bytes: bytes read for packed rows and for rows of the disk cache.
        useful_bytes: bytes of the wanted rows.
        cache_read_bytes, cache_useful_bytes: parts of `read_bytes` and `useful_bytes`
            from the disk cache.
    """

    read_bytes: int
    useful_bytes: int
    cache_read_bytes: int
    cache_useful_bytes: int


@dataclass(frozen=True)
class Space:
    """Disk space of an episode.

    Attributes:
        fixed_bytes: bytes that every shape takes: samples, address tables, memory
            caches, padding.
        limit: most bytes in all; None: no limit.
    """

    row_bytes: int
    fixed_bytes: int
    limit: int | None

    def of(self, rows: int) -> int:
        """Return the bytes with `rows` rows in chunks and disk caches together."""
        return self.fixed_bytes + rows * self.row_bytes

    def fits(self, rows: int) -> bool:
        """Return whether `rows` rows in chunks and disk caches are within the limit."""
        return self.limit is None or self.of(rows) <= self.limit


def rows_by_segment(samples: ColdSamples, last: Where) -> Ids:
    """Count the rows on disk for every segment length at threshold 2 in one pass: int64
    [batches + 1], entry 0 unused.

    A row is stored once more for each mini-batch that uses it, unless the last
    mini-batch that used it is in the same segment.

    Args:
        last: int32 [N] of zeros, working memory; not zeros afterwards.
    """
    count = len(samples)
    lengths = np.arange(1, count + 1, dtype=np.int64)
    rows = np.zeros(count + 1, dtype=np.int64)
    for batch in range(count):
        nodes = samples.nodes(batch)
        before = np.bincount(last[nodes], minlength=batch + 1)[1:]
        shared_from = np.concatenate([np.cumsum(before[::-1])[::-1], [0]])
        rows[1:] += len(nodes) - shared_from[batch // lengths * lengths]
        last[nodes] = batch + 1
    return rows


def rows_of(samples: ColdSamples, shape: Shape, where: Where) -> int:
    """Count the rows on disk for any shape in one pass; `where` as in
    `layout.segments`."""
    total = 0
    for first in range(0, len(samples), shape.segment):
        members = range(first, min(first + shape.segment, len(samples)))
        for batch in members:
            where[samples.nodes(batch)] += 1
        for batch in members:
            nodes = samples.nodes(batch)
            times = where[nodes]
            total += int(np.count_nonzero(times >= shape.threshold)) + int(
                times[times < shape.threshold].sum()
            )
            where[nodes] = 0
    return total


@dataclass(eq=False)
class Search:
    """Search for the shape of the disk caches of some samples.

    Attributes:
        where: int32 [N] of zeros, working memory.
        simulate: counts reads from the disk cache.
        max_segment: longest segment that memory can order.
        seconds: seconds that searching took so far.
    """

    samples: ColdSamples
    space: Space
    where: Where
    _: KW_ONLY
    simulate: Simulate
    hashes: int
    seed: int
    max_segment: int
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.max_segment = max(1, min(self.max_segment, len(self.samples)))

    def heuristic(self, threshold: int = 2) -> ShapeCost:
        """Return the prediction for the least segment length that fits the limit.

        Raises:
            BudgetError: no length fits; names the least limit that would suffice.
        """
        start = time.perf_counter()
        by_length = self._rows(threshold)
        fitting = [
            length for length in sorted(by_length) if self.space.fits(by_length[length])
        ]
        self.seconds += time.perf_counter() - start
        if not fitting:
            raise self._too_small(min(by_length.values()))
        return ShapeCost(
            Shape(fitting[0], threshold), self.space.of(by_length[fitting[0]])
        )

    def _rows(self, threshold: int) -> dict[int, int]:
        lengths = range(1, self.max_segment + 1)
        if threshold == 2:
            rows = rows_by_segment(self.samples, self.where)
            self.where.fill(0)
            return {length: int(rows[length]) for length in lengths}
        return {
            length: rows_of(self.samples, Shape(length, threshold), self.where)
            for length in lengths
        }

    def fixed(self, shape: Shape) -> ShapeCost:
        """Return the prediction for a shape that the user chose.

        Raises:
            BudgetError: it does not fit the limit.
        """
        rows = rows_of(self.samples, shape, self.where)
        if not self.space.fits(rows):
            raise self._too_small(rows)
        return ShapeCost(shape, self.space.of(rows))

    def brute_force(self, points: int) -> ShapeCost:
        """Return the prediction that reads least, of `points` segment lengths x
        thresholds and the heuristic's."""
        best = self.measure(self.heuristic())
        start = time.perf_counter()
        step = max(1, self.max_segment // points)
        for length in range(1, self.max_segment + 1, step):
            for threshold in _thresholds(length):
                shape = Shape(length, threshold)
                rows = rows_of(self.samples, shape, self.where)
                if self.space.fits(rows):
                    found = self.measure(ShapeCost(shape, self.space.of(rows)))
                    best = min(
                        best, found, key=lambda cost: (cost.read_bytes, cost.disk_bytes)
                    )
        self.seconds += time.perf_counter() - start
        return best

    def measure(self, prediction: ShapeCost) -> ShapeCost:
        """Return the prediction with its bytes read, measured by building its disk
        caches."""
        read = useful = 0
        for batch in self.reads(prediction.shape):
            read = read + batch.read_bytes
            useful = useful + batch.useful_bytes
        return ShapeCost(prediction.shape, prediction.disk_bytes, read, useful)

    def reads(self, shape: Shape) -> Iterator[BatchReads]:
        """Yield the bytes that each mini-batch reads with the disk caches of `shape`,
        in order."""
        for _, placements in segments(
            self.samples, shape, self.where, hashes=self.hashes, seed=self.seed
        ):
            for placement in placements:
                single = (
                    self.simulate(placement.rows)
                    if len(placement.rows)
                    else ReadStats()
                )
                read, useful = feature_reads(placement, self.space.row_bytes, single)
                yield BatchReads(
                    read,
                    useful,
                    single.bytes_read,
                    len(placement.rows) * self.space.row_bytes,
                )

    def _too_small(self, rows: int) -> BudgetError:
        least = self.space.of(rows)
        limit = self.space.limit or 0
        return BudgetError(
            f"diskgnn: packed chunks and disk caches of {len(self.samples)} "
            f"mini-batches need at least {format_bytes(least)} ({least} bytes) on "
            f"disk, the disk-space limit is {format_bytes(limit)}",
            f"raise disk_limit to {least}, raise memory so that more rows are cached, "
            "or lower episode or epochs",
        )


def feature_reads(
    placement: Placement, row_bytes: int, single: ReadStats
) -> tuple[int, int]:
    """Return the bytes read for a mini-batch's rows, with `single` the reads one by
    one, and the bytes wanted."""
    packed = padded(len(placement.packed) * row_bytes)
    return packed + single.bytes_read, (
        len(placement.packed) + len(placement.rows)
    ) * row_bytes


def _thresholds(length: int) -> Iterable[int]:
    threshold = 2
    while threshold <= max(2, length):
        yield threshold
        threshold += max(1, threshold // 2)


def simulate_reads(
    rows: Ids,
    *,
    row_bytes: int,
    num_rows: int,
    file_bytes: int | None = None,
    data_offset: int = 0,
    granularity: Granularity = "logical",
    logical_bytes: int = 512,
    merge: bool = True,
    max_request_bytes: int = 131072,
    merge_gap_bytes: int = 0,
) -> ReadStats:
    """Return the exact counts of `RowReader.read(rows)` on a file with this layout,
    without reading.

    Args:
        rows: int64 [n], rows of the file.
        file_bytes: size of the file; None: that of a `.rows` file, whole pages.
        logical_bytes: the device's logical block (`RowReader.block_bytes`).

    Raises:
        IndexError: a row does not exist.
    """
    whole = data_offset + padded(num_rows * row_bytes)
    counts = _native.plan_reads(
        as_ids(rows),
        data_offset=data_offset,
        num_rows=num_rows,
        row_bytes=row_bytes,
        file_bytes=whole if file_bytes is None else file_bytes,
        block_bytes=max(logical_bytes, 4096 if granularity == "4096" else 0),
        merge=merge,
        max_request_bytes=max_request_bytes,
        merge_gap_bytes=merge_gap_bytes,
    )
    return ReadStats(**counts)

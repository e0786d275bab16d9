"""Cost model: seconds of each strategy of a group, from the device's profile and exact
counts; the cheapest is chosen.

`choice.py` asks this model which of graph and rows stay in memory, before the first
epoch. Each group asks again how its rows are read.

The seconds are the device's alone: no time of the run itself is used, so a busy machine
chooses as a quiet one does. Four strategies: rows read online in the order in which
mini-batches are drawn; rows read one by one and kept by Belady's rule; chunks packed
once and replayed; and chunks distributed by one pass over the table.

A pass joins rows where the gap between them costs less than another request. The best
gap depends on how the wanted rows lie: where an SSD class limits requests and bytes
separately, the best gap uses up both limits together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from systems.interface import DiskProfile
from workloads.sampling.distinct import distinct

_GAP_WITHOUT_PROFILE = 64 << 10
_BLOCK = 512
_MIB = 1 << 20
# Requests for rows do not cross the end of a region.
REGION_BYTES = 1 << 20
_GAPS = (*range(0, 16 << 10, _BLOCK), *(16 << 10 << step for step in range(7)))
_NEAR = 1.1
# Rows that are sampled to find the gaps between them.
_SAMPLE_ROWS = 1 << 14

Ids = npt.NDArray[np.int64]
#: (rows of a region, `every`) -> ids of all mini-batches' misses in about one of
#: `every` regions.
Sample = Callable[[int, int], Ids]


@dataclass(frozen=True)
class TablePass:
    """Requests of one pass over the feature table, and the bytes that they read.

    Attributes:
        gap_bytes: longest run of unwanted bytes that is read to save a request.
    """

    gap_bytes: int
    requests: float
    nbytes: float

    def reads(self) -> dict[int, float]:
        """Return request bytes -> number of requests, all of the mean size."""
        return (
            {max(1, round(self.nbytes / self.requests)): self.requests}
            if self.requests
            else {}
        )


@dataclass(frozen=True)
class GroupSeconds:
    """Predicted seconds of one group of mini-batches, its graph included where its
    reads are known.

    Attributes:
        distribute: seconds of one pass over the table, with the misses written to
            chunks and read back.
        single: seconds with each miss read by itself.
        online: seconds with each use of a row read by itself, as without a cache.
        replay: seconds with the misses read from existing chunks, without the graph.
        table_pass: pass of `distribute`.
    """

    distribute: float
    single: float
    online: float
    replay: float
    table_pass: TablePass


def expected_passes(rows: float, num_rows: int, row_bytes: int) -> Iterator[TablePass]:
    """Yield the pass for each gap over `rows` uses of rows at random places of the
    table."""
    if rows <= 0:
        return
    unique = num_rows * -math.expm1(-rows / num_rows)
    share = min(1.0, unique / num_rows)
    for gap in _GAPS:
        longest = gap // row_bytes
        apart = (1.0 - share) ** (longest + 1)
        # The number of unwanted rows between two wanted ones is geometric; gaps up to
        # the longest are read.
        joined = 0.0
        if share < 1.0:
            joined = (
                (1.0 - share)
                / share
                * (1.0 - (1.0 - share) ** longest * (1.0 + longest * share))
            )
        requests = min(unique, unique * apart + num_rows * row_bytes / REGION_BYTES)
        yield TablePass(
            gap, requests, min(num_rows, unique * (1.0 + joined)) * row_bytes
        )


def passes_of(sampled: Sample, misses: int, row_bytes: int) -> Iterator[TablePass]:
    """Yield the pass for each gap over the wanted rows, extrapolated from sampled
    regions of the table."""
    region_rows = max(1, REGION_BYTES // row_bytes)
    rows = sampled(region_rows, max(1, misses // _SAMPLE_ROWS))
    if not len(rows):
        return
    scale = misses / len(rows)
    found = distinct(rows)
    inside = np.diff(found // region_rows) == 0
    gaps = np.sort((np.diff(found) - 1)[inside] * row_bytes)
    sums = np.concatenate([[0], np.cumsum(gaps)])
    for gap in _GAPS:
        joined = int(np.searchsorted(gaps, gap, side="right"))
        yield TablePass(
            gap,
            scale * (len(found) - joined),
            scale * (len(found) * row_bytes + float(sums[joined])),
        )


def predict(
    profile: DiskProfile,
    *,
    uses: int,
    misses: int,
    row_bytes: int,
    table_bytes: int,
    block_bytes: int = _BLOCK,
    sampled: Sample | None = None,
    beside: Mapping[int, float] | None = None,
) -> GroupSeconds | None:
    """Predict the seconds of each strategy for a group's rows; None where the profile
    lacks rates.

    Args:
        profile: rates of the device.
        uses: rows that the group's mini-batches use.
        misses: uses whose row is not in memory.
        block_bytes: block size to which single-row reads are rounded up.
        sampled: ids of the misses in sampled regions of the table; None: misses lie at
            random.
        beside: other reads of the group (its graph), request bytes -> number.
    """
    rate = profile.sequential_bytes_per_s()
    if rate <= 0 or not any(point.pattern == "random" for point in profile.points):
        return None
    size = -(-row_bytes // block_bytes) * block_bytes
    moved = misses * row_bytes / rate
    others = dict(beside or {})
    back = {_MIB: misses * row_bytes / _MIB}
    found = list(passes_of(sampled, misses, row_bytes)) if sampled is not None else []
    if not found:
        found = list(expected_passes(misses, table_bytes // row_bytes, row_bytes))
    found.append(TablePass(table_bytes, table_bytes / _MIB, table_bytes))
    # With `distribute`, the graph is read with the device to itself, and the pass runs
    # beside the chunk reads of the group before. With `single`, the group's rows are
    # read beside the next group's graph.
    graph = profile.seconds(others)
    # A bare device takes reads and writes in turn; under an SSD class they share one
    # budget where its drive has one.
    shared = (
        {_MIB: profile.write_cost * back[_MIB]}
        if profile.limited and profile.write_cost
        else {}
    )
    times = [profile.seconds(_sum(_sum(back, shared), made.reads())) for made in found]
    # The longest of the gaps within a tenth of the least time: fewer requests take less
    # of the processors and, under an SSD class, of the disk itself, which the profile's
    # rates at full depth do not count.
    best = max(at for at, time in enumerate(times) if time <= _NEAR * min(times))
    seconds = graph + times[best]
    written = (
        0.0 if shared else moved if not profile.limited else max(0.0, moved - seconds)
    )
    single, online = (
        profile.seconds(_sum(others, {size: count})) for count in (misses, uses)
    )
    return GroupSeconds(seconds + written, single, online, moved, found[best])


def _sum(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    found = dict(first)
    for size, count in second.items():
        found[size] = found.get(size, 0.0) + count
    return found


def gap_bytes(profile: DiskProfile) -> int:
    """Return the bytes that the device streams in the time of one random 4 KiB read:
    longer gaps are worth a request.

    An SSD class limits requests and bytes separately, so a request costs nothing while
    bytes are the bottleneck: there a quarter of these bytes.
    """
    rate = profile.sequential_bytes_per_s()
    if rate <= 0 or not any(point.pattern == "random" for point in profile.points):
        return _GAP_WITHOUT_PROFILE
    return int(
        rate
        * profile.request_seconds(4096)
        / (4 if all(profile.limited or (0.0,)) else 1)
    )

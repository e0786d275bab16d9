"""What each strategy takes of the device's time, by its profile and exact counts, and what the device has to wait for
the processor meanwhile, as this host took it: the least is chosen.

Four strategies (issue: the frontier): rows read online in the order in which mini-batches are drawn; read one by one
with Belady's choice of what is kept; packed once and replayed; and distributed by one pass over the table.

A pass joins rows whose gap is worth less than a request. Which gap that is depends on how the wanted rows lie: where a
class of SSD counts requests and bytes each by itself, both run out together with the right one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from systems.interface import DiskProfile

_GAP_WITHOUT_PROFILE = 64 << 10
_BLOCK = 512
_MIB = 1 << 20
# A request for rows ends with its region.
REGION_BYTES = 1 << 20
_GAPS = (*range(0, 16 << 10, _BLOCK), *(16 << 10 << step for step in range(7)))
# Rows that are looked at for how they lie.
_SAMPLE_ROWS = 1 << 14

Ids = npt.NDArray[np.int64]
#: Rows of a region and `every` -> the rows that miss, of every mini-batch, in about one of `every` regions.
Sample = Callable[[int, int], Ids]


@dataclass(frozen=True)
class TablePass:
    """One pass over the feature table.

    Attributes:
        gap_bytes: unwanted bytes that are read rather than begin another request.
        requests: of the pass, and
        nbytes: that they read.
    """

    gap_bytes: int
    requests: float
    nbytes: float

    def reads(self) -> dict[int, float]:
        """Request bytes -> how many, all of the mean size."""
        return {max(1, round(self.nbytes / self.requests)): self.requests} if self.requests else {}


@dataclass(frozen=True)
class Prediction:
    """Seconds of one group of mini-batches, its graph included where that is known.

    Attributes:
        distribute: one pass over the table, the misses written and read back.
        single: each miss read by itself.
        online: each use of a row read by itself, as without a cache.
        replay: the misses read from chunks that are there already, and no graph.
        table_pass: the pass of `distribute`.
    """

    distribute: float
    single: float
    online: float
    replay: float
    table_pass: TablePass = field(default=TablePass(0, 0, 0))


def expected_passes(rows: float, num_rows: int, row_bytes: int) -> Iterator[TablePass]:
    """Passes with each gap, if the wanted rows lie at random in the table; `rows` of them, some more than once."""
    if rows <= 0:
        return
    unique = num_rows * -math.expm1(-rows / num_rows)
    share = min(1.0, unique / num_rows)
    for gap in _GAPS:
        longest = gap // row_bytes
        apart = (1.0 - share) ** (longest + 1)
        # Unwanted rows between two wanted ones are geometrically many; gaps up to the longest are read.
        joined = 0.0
        if share < 1.0:
            joined = (1.0 - share) / share * (1.0 - (1.0 - share) ** longest * (1.0 + longest * share))
        requests = min(unique, unique * apart + num_rows * row_bytes / REGION_BYTES)
        yield TablePass(gap, requests, min(num_rows, unique * (1.0 + joined)) * row_bytes)


def passes_of(sampled: Sample, misses: int, row_bytes: int) -> Iterator[TablePass]:
    """Passes with each gap over the rows that are wanted, by those in some regions of the table."""
    region_rows = max(1, REGION_BYTES // row_bytes)
    rows = sampled(region_rows, max(1, misses // _SAMPLE_ROWS))
    if not len(rows):
        return
    scale = misses / len(rows)
    found = np.unique(rows)
    inside = np.diff(found // region_rows) == 0
    gaps = np.sort((np.diff(found) - 1)[inside] * row_bytes)
    sums = np.concatenate([[0], np.cumsum(gaps)])
    for gap in _GAPS:
        joined = int(np.searchsorted(gaps, gap, side="right"))
        yield TablePass(gap, scale * (len(found) - joined), scale * (len(found) * row_bytes + float(sums[joined])))


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
    planned_s: float = 0.0,
    written_s: float = 0.0,
) -> Prediction | None:
    """Seconds that it takes to bring the rows of a group; None: the profile does not say.

    Args:
        uses: rows asked for, over its mini-batches.
        misses: of them not in memory.
        block_bytes: what single-row reads are rounded to.
        sampled: the rows that miss, of every mini-batch, in some regions of the table; as if all lay at random where
            they are not known yet.
        beside: what else is read for the group, request bytes -> how many (its graph).
        planned_s: of the processor, to find where rows lie, and
        written_s: to write the mini-batches, as this group took them: what the device waits for.
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
    # A group's graph is read with the device to itself; during the pass the group before reads its chunks, or, when the
    # next one's graph is read, its single rows.
    graph = profile.seconds(others)
    # On a bare device reads and writes take turns. Under a class they use up one budget where its drive has one.
    shared = {_MIB: profile.write_cost * back[_MIB]} if profile.limited and profile.write_cost else {}
    times = [graph + profile.seconds(_sum(_sum(back, shared), made.reads())) for made in found]
    # Of gaps that differ by next to nothing the longest, which has the fewest requests.
    best = max(at for at, time in enumerate(times) if time <= 1.01 * min(times))
    written = 0.0 if shared else moved if not profile.limited else max(0.0, moved - times[best])
    single, online = (profile.seconds(_sum(others, {size: count})) for count in (misses, uses))
    # Slots are planned while the group before reads its chunks; single reads take longer than that.
    waits = written_s + max(0.0, planned_s - profile.seconds(back))
    return Prediction(times[best] + written + waits, single + written_s, online, moved, found[best])


def _sum(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    found = dict(first)
    for size, count in second.items():
        found[size] = found.get(size, 0.0) + count
    return found


def gap_bytes(profile: DiskProfile) -> int:
    """Bytes that the device streams in the time of one random read of a page: larger gaps are worth a request.

    A class of SSD counts requests and bytes each by itself, so that a request costs nothing while bytes take longer;
    there a quarter of it.
    """
    rate = profile.sequential_bytes_per_s()
    if rate <= 0 or not any(point.pattern == "random" for point in profile.points):
        return _GAP_WITHOUT_PROFILE
    return int(rate * profile.request_seconds(4096) / (4 if all(profile.limited or (0.0,)) else 1))

"""What each strategy takes of the device's time, by its profile and exact counts: the least is chosen.

Four strategies (issue: the frontier): rows read online in the order in which mini-batches are drawn; read one by one
with Belady's choice of what is kept; packed once and replayed; and distributed by one pass over the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from systems.interface import DiskProfile

_GAP_WITHOUT_PROFILE = 64 << 10
_BLOCK = 512


@dataclass(frozen=True)
class Prediction:
    """Seconds of the device for one group of mini-batches; None: the profile does not say.

    Attributes:
        distribute: one pass over the table, the misses written and read back.
        single: each miss read by itself.
        online: each use of a row read by itself, as without a cache.
        replay: the misses read from chunks that are there already.
    """

    distribute: float
    single: float
    online: float
    replay: float


def predict(
    profile: DiskProfile, *, uses: int, misses: int, row_bytes: int, table_bytes: int, block_bytes: int = _BLOCK
) -> Prediction | None:
    """Seconds that the device needs to bring the rows of a group.

    Args:
        uses: rows asked for, over its mini-batches.
        misses: of them not in memory.
        block_bytes: what single-row reads are rounded to.
    """
    rate = profile.sequential_bytes_per_s()
    if rate <= 0 or not any(point.pattern == "random" for point in profile.points):
        return None
    size = -(-row_bytes // block_bytes) * block_bytes
    one = profile.request_seconds(size)
    moved = misses * row_bytes / rate
    return Prediction(table_bytes / rate + 2 * moved, misses * one, uses * one, moved)


def gap_bytes(profile: DiskProfile) -> int:
    """Bytes that the device streams in the time of one random read of a page: larger gaps are worth a request.

    A class of SSD counts requests and bytes each by itself, so that a request costs nothing while bytes take longer;
    there a quarter of it.
    """
    rate = profile.sequential_bytes_per_s()
    if rate <= 0 or not any(point.pattern == "random" for point in profile.points):
        return _GAP_WITHOUT_PROFILE
    return int(rate * profile.request_seconds(4096) / (4 if all(profile.limited or (0.0,)) else 1))

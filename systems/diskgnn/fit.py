"""Exact sizes of DiskGNN's levels and buffers once rows are ranked: the most cached rows beside the buffers."""

from __future__ import annotations

from dataclasses import dataclass

from systems.diskgnn.planner import FIX, NAME, DiskGnnSizes
from systems.diskgnn.ranking import MissCurve
from systems.diskgnn.structure import Levels
from workloads.direct_files import padded
from workloads.errors import BudgetError

_ROUNDS = 4


@dataclass(frozen=True)
class Fit:
    """Exact sizes of an episode.

    Attributes:
        levels: rows held in memory.
        buffers: mini-batches' buffers in the table.
        buffer_rows: rows of each buffer.
        staging: staging buffers.
        staging_rows: rows of each staging buffer.
    """

    levels: Levels
    buffers: int
    buffer_rows: int
    staging: int
    staging_rows: int


def fit(sizes: DiskGnnSizes, curve: MissCurve) -> Fit:
    """Compute exact sizes: the most cached rows that leave space for the buffers of the neediest mini-batch.

    More buffers are taken only where they leave half of the rows to the cache.

    Raises:
        BudgetError: not even one mini-batch fits (an epoch larger than all that the bounds come from).
    """
    if not sizes.on_device:
        rows, padding, align = sizes.table_rows, sizes.padding, sizes.align
        direct, buffers = _best(
            curve, rows, sizes.direct_rows, sizes.buffers, padding, align, 0, sizes.ahead_rows, sizes.graphs
        )
        if direct < 0:
            raise _no_room("table", sizes.table_rows, curve)
        return Fit(Levels(direct, 0), buffers, padded(max(1, curve.at(direct) + padding), align), 0, 0)
    found = _fit_beside(sizes, curve, 0)
    # Rows in the host cache need no space in the device's buffers, and the space saved caches more rows: iterate.
    for _ in range(_ROUNDS):
        better = _fit_beside(sizes, curve, found.levels.host)
        if better.levels.host < found.levels.host:
            break  # its device buffers rely on the larger host cache of the last round
        found = better
    return found


def _fit_beside(sizes: DiskGnnSizes, curve: MissCurve, held: int) -> Fit:
    """Compute exact sizes on a device and beside it, where the host caches at least `held` rows in the end."""
    direct, buffers = _best(curve, sizes.table_rows, sizes.direct_rows, sizes.buffers, 0, 1, held, 0, sizes.graphs)
    if direct < 0:
        raise _no_room("table", sizes.table_rows, curve)
    most = sizes.graphs - buffers
    host, staging = _best(
        curve, sizes.host_rows, sizes.host_cache_rows, sizes.staging, sizes.padding, 1, direct, sizes.ahead_rows, most
    )
    if host < 0:
        raise _no_room("staging buffers", sizes.host_rows, curve)
    left = curve.at(direct + host)
    return Fit(Levels(direct, host), buffers, max(1, left), staging, max(1, left + sizes.padding))


def _best(
    curve: MissCurve,
    rows: int,
    wanted: int | None,
    usual: int,
    padding: int,
    align: int,
    offset: int,
    ahead_rows: int,
    most: int,
) -> tuple[int, int]:
    """Return the number of cached rows and of buffers; (-1, 1) where not even one buffer fits.

    Half of the rows may go to the usual number of buffers. Where mini-batches are small, more of them are requested at
    a time to keep the disk busy: up to `ahead_rows` rows in all, within a sixth of the rows.
    """
    for buffers in range(max(usual, most), 0, -1):
        found = curve.largest_cache(rows, buffers, padding, align, offset)
        # A buffer has a row even where no mini-batch needs one.
        found = min(found, rows - buffers * padded(max(1, padding), align))
        if found < 0:
            continue
        cached = found if wanted is None else min(found, wanted)
        taken = buffers * padded(max(1, curve.at(offset + cached) + padding), align)
        if padded(cached, align) + taken > rows and buffers > 1:
            continue  # a smaller cache than fits misses more, so its buffers need more rows
        if buffers > usual and (taken > rows // 6 or taken > max(1, ahead_rows)):
            continue
        if buffers == 1 or 2 * taken <= rows or cached == wanted:
            return cached, buffers
    return -1, 1


def _no_room(what: str, rows: int, curve: MissCurve) -> BudgetError:
    return BudgetError(
        f"{NAME}: {what} of {rows} rows cannot hold the largest mini-batch ({int(curve.misses[0])} rows)", FIX
    )

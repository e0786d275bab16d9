"""Exact sizes of an episode's levels and buffers, once its rows are ranked."""

from __future__ import annotations

from dataclasses import dataclass

from systems.diskgnn.layout import Levels
from systems.diskgnn.options import NAME
from systems.diskgnn.ranking import MissCurve
from systems.diskgnn.sizes import FIX, DiskGnnSizes
from workloads.direct_files import padded
from workloads.errors import BudgetError

_ROUNDS = 4


@dataclass(frozen=True)
class Fit:
    """Exact sizes of an episode.

    Attributes:
        levels: rows held in memory.
        buffers, buffer_rows: mini-batches' buffers in the table, and rows of each.
        staging, staging_rows: staging buffers, and rows of each.
    """

    levels: Levels
    buffers: int
    buffer_rows: int
    staging: int
    staging_rows: int


def fit(sizes: DiskGnnSizes, curve: MissCurve) -> Fit:
    """Compute exact sizes: the most cached rows that leave space for the buffers of the
    neediest mini-batch.

    More buffers are taken only where they leave half of the rows to the cache.

    Raises:
        BudgetError: not even one mini-batch fits (an epoch larger than all that the
            bounds come from).
    """
    if not sizes.on_device:
        return _fit_on_host(sizes, curve)
    found = _fit_beside(sizes, curve, 0)
    # Rows in the host cache need no space in the device's buffers, and the space saved
    # caches more rows: iterate.
    for _ in range(_ROUNDS):
        better = _fit_beside(sizes, curve, found.levels.host)
        if better.levels.host < found.levels.host:
            break  # its device buffers rely on the larger host cache of the last round
        found = better
    return found


def _fit_on_host(sizes: DiskGnnSizes, curve: MissCurve) -> Fit:
    """Compute exact sizes where host memory is the device's."""
    table = _Table(
        "table",
        curve,
        sizes.table_rows,
        sizes.direct_rows,
        sizes.buffers,
        sizes.graphs,
        padding=sizes.padding,
        ahead_rows=sizes.ahead_rows,
        align=sizes.align,
    )
    direct, buffers = table.best()
    return Fit(Levels(direct, 0), buffers, table.buffer_rows(direct), 0, 0)


def _fit_beside(sizes: DiskGnnSizes, curve: MissCurve, held: int) -> Fit:
    """Compute exact sizes on a device and beside it, where the host caches at least
    `held` rows in the end."""
    table = _Table(
        "table",
        curve,
        sizes.table_rows,
        sizes.direct_rows,
        sizes.buffers,
        sizes.graphs,
        elsewhere=held,
    )
    direct, buffers = table.best()
    beside = _Table(
        "staging buffers",
        curve,
        sizes.host_rows,
        sizes.host_cache_rows,
        sizes.staging,
        sizes.graphs - buffers,
        elsewhere=direct,
        padding=sizes.padding,
        ahead_rows=sizes.ahead_rows,
        align=sizes.align,
    )
    host, staging = beside.best()
    left = curve.at(direct + host)
    staging_rows = max(1, left + sizes.padding)
    return Fit(Levels(direct, host), buffers, max(1, left), staging, staging_rows)


@dataclass(frozen=True)
class _Table:
    """Memory that a cache and the buffers of mini-batches divide.

    Attributes:
        name: name in errors.
        rows: rows of the memory.
        wanted: cached rows that the user asks for; None: as many as fit.
        usual: buffers that may take half of the rows.
        most: buffers where mini-batches are small, which keep the disk busy.
        elsewhere: hotter rows that another memory caches.
        padding: rows that each buffer needs on top of its mini-batch's.
        ahead_rows: most rows of more buffers than usual.
        align: multiple of rows at which each buffer begins.
    """

    name: str
    curve: MissCurve
    rows: int
    wanted: int | None
    usual: int
    most: int
    elsewhere: int = 0
    padding: int = 0
    ahead_rows: int = 0
    align: int = 1

    def best(self) -> tuple[int, int]:
        """Return the number of cached rows and of buffers.

        Raises:
            BudgetError: not even one mini-batch fits.
        """
        for buffers in range(max(self.usual, self.most), 0, -1):
            cached = self._cached(buffers)
            if cached is not None and self._is_good(cached, buffers):
                return cached, buffers
        largest = int(self.curve.misses[0])
        raise BudgetError(
            f"{NAME}: {self.name} of {self.rows} rows cannot hold the largest "
            f"mini-batch ({largest} rows)",
            FIX,
        )

    def buffer_rows(self, cached: int) -> int:
        """Return the rows of a buffer for the misses beside `cached` rows; one where
        no mini-batch needs any."""
        misses = self.curve.at(self.elsewhere + cached)
        return padded(max(1, misses + self.padding), self.align)

    def _cached(self, buffers: int) -> int | None:
        """Return the most rows cached beside so many buffers; None: these do not
        fit."""
        found = self.curve.largest_cache(
            self.rows, buffers, self.padding, self.align, self.elsewhere
        )
        least_buffer = padded(max(1, self.padding), self.align)
        found = min(found, self.rows - buffers * least_buffer)
        if found < 0:
            return None
        return found if self.wanted is None else min(found, self.wanted)

    def _is_good(self, cached: int, buffers: int) -> bool:
        taken = buffers * self.buffer_rows(cached)
        too_long = padded(cached, self.align) + taken > self.rows
        if too_long and buffers > 1:
            # A smaller cache than fits misses more, so its buffers need more rows.
            return False
        most_taken = min(self.rows // 6, max(1, self.ahead_rows))
        if buffers > self.usual and taken > most_taken:
            return False
        return buffers == 1 or 2 * taken <= self.rows or cached == self.wanted

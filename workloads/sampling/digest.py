"""Digests of a system's mini-batches: XXH3-64 of a batch's structure, of its feature
rows, and of an epoch.

Equal digests mean equal bytes, so two faithful systems on one workload must agree.
Integers are hashed in little-endian order with the shapes before the data, so that no
two structures share a byte string.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import xxhash

from workloads import _native
from workloads.arraytypes import Array, DType, IntegerArray
from workloads.errors import InputError, require
from workloads.sampling.batch import SampledBatch

# Fits a processor's own cache and any budget: rows of a device or of a split table are
# copied.
_CHUNK_BYTES = 256 << 10


def structure_digest(batch: SampledBatch) -> int:
    """Return the XXH3-64 over the epoch, index, nodes, blocks and labels of a batch, in
    [0, 2^64)."""
    return _native.structure_digest(
        batch.epoch,
        batch.index,
        batch.num_seeds,
        batch.nodes,
        batch.blocks,
        batch.labels,
    )


def feature_digest(
    batch: SampledBatch, table: Array, rows: IntegerArray | None = None
) -> int:
    """Return the XXH3-64 over the feature rows of a batch in the order of its nodes, in
    [0, 2^64).

    `table` is float32 or float16 [m, D], and `rows` [num_nodes] the row of `table` that
    holds `batch.nodes[i]` (the alias list; None: row i). Reads chunks of about 256 KiB,
    so it needs no second copy of the rows. Raises InputError where the table or `rows`
    cannot hold the batch.
    """
    count = batch.num_nodes
    if table.ndim != 2 or table.dtype not in (np.float32, np.float16):
        fault = f"the feature table is {table.dtype} {list(table.shape)}"
        raise InputError(fault, "give float32 or float16 [m, D]")
    if rows is None and len(table) < count:
        fault = f"the feature table has {len(table)} rows for {count} nodes"
        raise InputError(fault, "give one for each node")
    if rows is not None:
        check_alias(rows, count, len(table))
    gathered: Array | None = None

    def take(first: int, last: int) -> Array:
        nonlocal gathered
        if rows is None:
            return table[first:last]
        if gathered is None:
            # the first chunk is the longest
            gathered = np.empty((last - first, table.shape[1]), dtype=table.dtype)
        # Rows are in range, as checked above; with mode="clip" numpy writes into `out`
        # without a copy of its own.
        return np.take(
            table, rows[first:last], axis=0, out=gathered[: last - first], mode="clip"
        )

    return rows_digest(batch, table.shape[1], table.dtype, take)


def check_alias(rows: IntegerArray, count: int, slots: int) -> None:
    """Check that an alias list names a row of a table with `slots` rows for each of
    `count` nodes; raises InputError if not."""
    fault = f"there are {len(rows)} alias rows for {count} nodes"
    require(len(rows) == count, fault, "give one for each node")
    if count and (int(rows.min()) < 0 or int(rows.max()) >= slots):
        fault = (
            f"alias rows run from {rows.min()} to {rows.max()} in a table of {slots}"
        )
        raise InputError(fault, "give rows of the table")


def rows_digest(
    batch: SampledBatch, dim: int, dtype: DType, take: Callable[[int, int], Array]
) -> int:
    """Return the XXH3-64 over the feature rows of a batch that a function gives, in [0,
    2^64).

    Args:
        batch: mini-batch that fixes the number and order of the rows.
        dim: number of feature columns.
        dtype: float32 or float16.
        take: `take(first, last)` gives the rows of `batch.nodes[first:last]`, [last -
            first, dim].
    """
    count = batch.num_nodes
    digest = xxhash.xxh3_64()
    digest.update(_words(batch.epoch, batch.index, count, dim, dtype.itemsize))
    chunk = max(1, _CHUNK_BYTES // max(1, dim * dtype.itemsize))
    for first in range(0, count, chunk):
        _update(
            digest,
            take(first, min(first + chunk, count)),
            "<f4" if dtype == np.float32 else "<f2",
        )
    return digest.intdigest()


class EpochDigest:
    """Digest of an epoch, which does not depend on the order in which its batches
    finish."""

    def __init__(self) -> None:
        self._sum = 0
        self.count = 0

    def add(self, digest: int) -> None:
        """Add one batch's digest (a sum modulo 2^64; a batch's own number is part of
        its digest)."""
        self._sum = (self._sum + digest) % (1 << 64)
        self.count += 1

    def join(self, other: EpochDigest) -> None:
        """Add all batches of another digest."""
        self._sum = (self._sum + other._sum) % (1 << 64)
        self.count += other.count

    def hexdigest(self) -> str:
        """Return `xxh3:` and 16 hexadecimal digits."""
        return f"xxh3:{self._sum:016x}"


def _words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _update(digest: xxhash.xxh3_64, array: Array, dtype: str) -> None:
    contiguous = np.ascontiguousarray(array, dtype=dtype)
    if contiguous.size:
        digest.update(contiguous.data)

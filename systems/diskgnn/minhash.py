"""The order of a segment's disk cache, and the read cost of its rows (DiskGNN, Section 5.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.arrays import Array, as_ids
from systems.engine.io.reader import Granularity, ReadStats
from workloads.direct_files import padded


def minhash_order(lists: Sequence[Array], *, hashes: int = 2, seed: int) -> NDArray[np.int64]:
    """Order ids so that rows accessed by the same mini-batches lie together on disk.

    A row's minhash is the least number that a random permutation of the segment's mini-batches gives to a mini-batch
    that accesses it; two rows share it with the probability that their sets of mini-batches are alike (Algorithm 1).

    Args:
        lists: for each mini-batch of the segment, int64 ids of the disk cache that it accesses, unique.
        hashes: permutations; ties of the first are ordered by the next, at last by id. 0: by id (no reordering).

    Returns:
        int64 [n]: every id that occurs, once.
    """
    arrays = [as_ids(one) for one in lists]
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(one) for one in arrays], out=offsets[1:])
    ids = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
    return _native.minhash_order(ids, offsets, hashes, seed % 2**64)


def simulate_reads(
    rows: Array,
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
    """Return the exact counts of `RowReader.read(rows)` on a file with this layout, without reading.

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

"""Stream of large direct reads over a file's range; the queue stays full from the first byte to the last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from systems.engine.io.arrays import Array, as_rows
from systems.engine.io.reader import Mode, ReadStats, RowReader
from workloads.errors import InputError


def stream(
    path: Path | str,
    offset: int,
    nbytes: int,
    buffer: Array | torch.Tensor,
    *,
    request_bytes: int = 1 << 20,
    depth: int = 16,
    mode: Mode = "auto",
    stats: ReadStats | None = None,
    only: NDArray[np.int64] | None = None,
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Read bytes `[offset, offset + nbytes)` in pieces of `request_bytes`, in the order in which they complete.

    Unlike calls of `RowReader.read_range`, between which the device's queue runs empty, later pieces are in flight
    while the caller works on one; a buffer of twice `depth` pieces keeps the queue full.

    Args:
        buffer: contiguous host memory of at least one piece; read into directly if it is page-aligned and `offset` is a
            multiple of 4096.
        stats: filled if given.
        only: int64 [k], ascending numbers of the wanted pieces; None: all. The short rest of a range counts as one.

    Yields:
        (offset in the file, uint8 view of the buffer), valid until the next step.

    Raises:
        DataIOError: the device failed or the file ends before the range; names file and offset.
        InputError: the buffer holds less than a piece.
    """
    flat = as_rows(buffer, 1).reshape(-1)
    if flat.nbytes < min(request_bytes, nbytes):
        raise InputError(f"the buffer has {flat.nbytes} bytes, a piece has {request_bytes}", "raise the buffer")
    whole = nbytes // request_bytes
    wanted = np.arange(whole) if only is None else only[only < whole]
    with RowReader(
        path,
        data_offset=offset,
        num_rows=whole,
        row_bytes=request_bytes,
        depth=depth,
        merge=False,
        max_request_bytes=request_bytes,
        mode=mode,
        threads=depth,
        register_buffers=False,  # only unaligned reads pass through the reader's own buffer
        buffer_bytes=8 * (1 << (request_bytes - 1).bit_length()),
    ) as reader:
        for group in reader.read_groups(wanted, flat, 1, stats):
            yield offset + int(wanted[group.positions[0]]) * request_bytes, group.rows[0]
            group.release()
        rest = nbytes - whole * request_bytes
        if rest and (only is None or whole in only):
            read = reader.read_range(offset + whole * request_bytes, rest, flat, request_bytes=request_bytes)
            if stats is not None:
                stats.add(read)
            yield offset + whole * request_bytes, flat[:rest]

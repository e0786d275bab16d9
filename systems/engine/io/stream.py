"""Streams of large direct reads over a file's range; the queue stays full from the
first byte to the last.

`stream` yields pieces as they complete, which suffices for counting; `ordered_stream`
yields them in file order, for a sum whose result must not depend on the disk. Its two
readers alternate, so that the last requests of one overlap the first of the other.
"""

from __future__ import annotations

import math
import queue
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from systems.engine.io.arrays import Array, as_rows
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import Mode, ReadStats, RowReader
from workloads.dataset import Dataset, Part
from workloads.direct_files import PAGE
from workloads.errors import require

REQUEST_BYTES = 512 << 10
_LEAST_REQUEST_BYTES = (
    16 << 10
)  # least size of a reader's own buffer, whatever the piece
_READERS = 2
_DEPTH = 16


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
    """Read bytes `[offset, offset + nbytes)` in pieces of `request_bytes`, in the order
    in which they complete.

    Unlike calls of `RowReader.read_range`, between which the device's queue runs empty,
    later pieces are in flight while the caller works on one; a buffer of twice `depth`
    pieces keeps the queue full.

    Args:
        buffer: contiguous host memory of at least one piece; read into directly if it
            is page-aligned and `offset` is a multiple of 4096.
        stats: filled if given.
        only: int64 [k], ascending numbers of the wanted pieces; None: all. The short
            rest of a range counts as one.

    Yields:
        (offset in the file, uint8 view of the buffer), valid until the next step.

    Raises:
        DataIOError: the device failed or the file ends before the range; names file and
            offset.
        InputError: the buffer holds less than a piece.
    """
    flat = as_rows(buffer, 1).reshape(-1)
    enough = flat.nbytes >= min(request_bytes, nbytes)
    require(
        enough,
        f"the buffer has {flat.nbytes} bytes, a piece has {request_bytes}",
        "raise the buffer",
    )
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
        # Only unaligned reads pass through the reader's own buffer.
        register_buffers=False,
        buffer_bytes=8 * (1 << (request_bytes - 1).bit_length()),
    ) as reader:
        for group in reader.read_groups(wanted, flat, 1, stats):
            yield (
                offset + int(wanted[group.positions[0]]) * request_bytes,
                group.rows[0],
            )
            group.release()
        rest = nbytes - whole * request_bytes
        if rest and (only is None or whole in only):
            read = reader.read_range(
                offset + whole * request_bytes, rest, flat, request_bytes=request_bytes
            )
            if stats is not None:
                stats.add(read)
            yield offset + whole * request_bytes, flat[:rest]


@dataclass
class OrderedReads:
    """Counts of the reads of ordered streams; the same on every machine."""

    requests: int = 0
    bytes_read: int = 0


def ordered_stream_bytes(piece_bytes: int) -> int:
    """Return the host memory of an ordered stream: a piece in use, one per reader in
    flight, the readers' buffers."""
    return (_READERS + 1) * piece_bytes + _READERS * 2 * _request_bytes(piece_bytes)


def whole_rows(piece_bytes: int, row_bytes: int) -> int:
    """Return the rows of a piece of about `piece_bytes`; if enough fit, whole pages,
    which are read without a copy."""
    rows = max(1, piece_bytes // row_bytes)
    step = PAGE // math.gcd(PAGE, row_bytes)
    return rows // step * step or rows


def ordered_stream(
    path: Path | str,
    offset: int,
    nbytes: int,
    *,
    piece_bytes: int,
    reads: OrderedReads | None = None,
) -> Generator[tuple[int, NDArray[np.uint8]], None, None]:
    """Yield bytes `[offset, offset + nbytes)` of the file, first to last, in pieces of
    `piece_bytes`.

    Args:
        offset: any offset; a multiple of 4096 avoids a copy.
        piece_bytes: any size; whole pieces of a multiple of 4096 are read without a
            copy.
        reads: counts to add to, if given.

    Yields:
        (offset in the file, uint8 view), valid until the next step.

    Raises:
        DataIOError: the device failed or the file ends before the range; names file and
            offset.
    """
    if nbytes <= 0:
        return
    request = _request_bytes(piece_bytes)
    free: queue.SimpleQueue[tuple[RowReader, NDArray[np.uint8]]] = queue.SimpleQueue()
    # Whole pieces bypass the readers' own buffers.
    own: dict[str, Any] = {
        "max_request_bytes": request,
        "register_buffers": False,
        "buffer_bytes": 2 * request,
    }
    readers = [
        RowReader(
            path, data_offset=offset, num_rows=0, row_bytes=PAGE, depth=_DEPTH, **own
        )
        for _ in range(_READERS)
    ]
    # Each reader is queued with its target buffer; the third buffer is the one in use.
    places = [aligned_empty(min(piece_bytes, nbytes)) for _ in range(_READERS + 1)]
    for reader, place in zip(readers, places, strict=False):
        free.put((reader, place))
    spare = places[_READERS]

    def read(begin: int) -> tuple[RowReader, NDArray[np.uint8], int, int]:
        reader, place = free.get()
        size = min(piece_bytes, offset + nbytes - begin)
        stats = reader.read_range(begin, size, place, request_bytes=request)
        if reads is not None:
            reads.requests += stats.requests
            reads.bytes_read += stats.bytes_read
        return reader, place, begin, size

    begins = iter(range(offset, offset + nbytes, piece_bytes))
    waiting: deque[Future[tuple[RowReader, NDArray[np.uint8], int, int]]] = deque()
    with ThreadPoolExecutor(_READERS, thread_name_prefix="ordered-stream") as pool:
        try:
            for _, begin in zip(range(_READERS), begins, strict=False):
                waiting.append(pool.submit(read, begin))
            while waiting:
                reader, place, at, size = waiting.popleft().result()
                free.put((reader, spare))
                spare = place
                following = next(begins, None)
                if following is not None:
                    waiting.append(pool.submit(read, following))
                yield at, place[:size]
        finally:
            for future in waiting:
                future.cancel()
            pool.shutdown(wait=True, cancel_futures=True)
            for reader in readers:
                reader.close()


def ordered_part(
    dataset: Dataset,
    part: Part,
    *,
    piece_bytes: int,
    begin: int = 0,
    end: int | None = None,
    reads: OrderedReads | None = None,
) -> Generator[tuple[int, NDArray[Any]], None, None]:
    """Yield (number of the first value, values) of a part of a dataset, in order, in
    pieces of `piece_bytes`.

    Args:
        begin, end: range in bytes of the part; None: to its end.
    """
    entry = dataset.manifest.files[part]
    dtype = np.dtype(dataset.manifest.files[part].dtype)
    nbytes = (math.prod(entry.shape) * dtype.itemsize if end is None else end) - begin
    pieces = ordered_stream(
        dataset.file(part),
        entry.data_offset + begin,
        nbytes,
        piece_bytes=piece_bytes,
        reads=reads,
    )
    with closing(pieces):
        for at, piece in pieces:
            yield (at - entry.data_offset) // dtype.itemsize, piece.view(dtype)


def edge_runs(
    dataset: Dataset,
    indptr: NDArray[np.int64],
    piece_bytes: int,
    reads: OrderedReads | None = None,
) -> Iterator[tuple[NDArray[np.int64], int, int, NDArray[Any]]]:
    """Yield pieces of the edges: bounds of their lists, first node, first edge,
    sources.

    Args:
        indptr: int64 [N + 1], mapped or in memory.
    """
    for first, sources in ordered_part(
        dataset, "indices", piece_bytes=piece_bytes, reads=reads
    ):
        # First list that overlaps the piece, and end of those that begin before its
        # end.
        low = int(np.searchsorted(indptr, first, side="right")) - 1
        high = int(np.searchsorted(indptr, first + len(sources), side="left"))
        yield np.array(indptr[low : high + 1]), low, first, sources


def _request_bytes(piece_bytes: int) -> int:
    return max(_LEAST_REQUEST_BYTES, min(REQUEST_BYTES, piece_bytes))

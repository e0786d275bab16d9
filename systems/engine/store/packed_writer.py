"""The writer of a packed store: mini-batches are laid out as they arrive, then all
features are packed at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from systems.engine.io.arrays import Array, as_ids
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import Mode
from systems.engine.io.row_reads import RowTable
from systems.engine.store.packed_layout import VERSION, lay_out, piece_rows
from systems.engine.store.packing import (
    PackJob,
    PackOptions,
    PackStats,
    least_memory,
    pack_batched,
    pack_individually,
)
from workloads.direct_files import io_errors, open_direct, padded, write_at
from workloads.errors import require

_COLUMNS = ("offset", "num_rows", "structure_bytes", "structure_digest")


class PackedWriter:
    """Writer of a folder: `append` mini-batches, `add_rows` files, then `pack` once.

    The folder is unreadable until `pack` returns; a writer that closes or fails earlier
    removes its files. Memory: one mini-batch's arrays while appending, `memory_bytes`
    while packing.

    Args:
        folder: existing folder; files of the same names are overwritten.
        memory_bytes: memory of packing, at least `least_bytes`; more gives larger
            partitions and writes, fewer passes.
        threads: threads that gather and write.
        request_bytes: bytes of a read that streams the table.
        mode: as in `RowReader`.
    """

    def __init__(
        self,
        folder: Path,
        table: RowTable,
        *,
        memory_bytes: int,
        threads: int = 16,
        request_bytes: int = 1 << 20,
        depth: int = 16,
        mode: Mode = "auto",
    ) -> None:
        self._folder = folder
        self._table = table
        self._options = PackOptions(memory_bytes, threads, request_bytes, depth, mode)
        self._job = PackJob(folder / "packed.ids.tmp", [folder / "packed.bin"])
        self._written = [self._job.spool, self._job.files[0], folder / "packed.npz"]
        self._open = True
        self._end = 0
        self._columns: dict[str, list[int]] = {name: [] for name in _COLUMNS}
        self._chunk_of: list[int] = []
        self._rows: dict[str, tuple[int, list[int]]] = {}
        self._buffer = np.empty(0, np.uint8)
        for path in self._written:
            path.unlink(missing_ok=True)
        self._handle = open_direct(
            self._job.files[0], os.O_RDWR | os.O_CREAT | os.O_TRUNC
        )

    @staticmethod
    def least_bytes(*, row_bytes: int, longest: int, threads: int = 16) -> int:
        """Return the smallest `memory_bytes` for mini-batches of at most `longest`
        packed rows."""
        return least_memory(
            row_bytes, [longest, piece_rows(row_bytes)], PackOptions(0, threads)
        )

    def append(self, ids: Array, arrays: Mapping[str, Array]) -> None:
        """Append a mini-batch: write its arrays and reserve disk space for its
        features.

        Args:
            ids: int64 [n], ascending and unique: its packed row k is row `ids[k]` of
                the table.
            arrays: its other data; C-contiguous, of plain dtypes.

        Raises:
            DataIOError: the disk is full or failed.
            InputError: ids do not ascend, or exceed the table.
        """
        wanted = self._checked(ids)
        require(
            (wanted[1:] > wanted[:-1]).all(),
            "the packed ids of a mini-batch must ascend",
            "sort them",
        )
        header, starts, nbytes = lay_out(arrays)
        features = padded(len(wanted) * self._table.row_bytes)
        if self._buffer.nbytes < nbytes:
            self._buffer = aligned_empty(nbytes)
        region = self._buffer[:nbytes]
        region[:] = 0
        region[: len(header)] = np.frombuffer(header, np.uint8)
        for start, array in zip(starts, arrays.values(), strict=True):
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            region[start : start + flat.nbytes] = flat
        with self._cleaned():
            self._reserve(
                self._handle, self._job.files[0], self._end, features + nbytes
            )
            write_at(self._handle, region, self._end + features, self._job.files[0])
            self._chunk_of.append(self._spooled(0, self._end, wanted))
        values = (self._end, len(wanted), nbytes, xxhash.xxh3_64_intdigest(region.data))
        for name, value in zip(_COLUMNS, values, strict=True):
            self._columns[name].append(value)
        self._end += features + nbytes

    def add_rows(self, name: str, ids: Array) -> None:
        """Add a file `<name>.rows` whose row k is row `ids[k]` of the table, without a
        header.

        Args:
            ids: int64 [n], any order, repeated or not; ascending ids need no second
                pass over the file.

        Raises:
            DataIOError: the disk is full or failed.
            InputError: the name exists, or an id exceeds the table.
        """
        wanted = self._checked(ids)
        require(
            name not in self._rows,
            f"there are rows named {name} already",
            "use another name",
        )
        path = self._folder / f"{name}.rows"
        self._written.append(path)
        self._job.files.append(path)
        number = len(self._job.files) - 1
        row_bytes = self._table.row_bytes
        with self._cleaned():
            handle = open_direct(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                self._reserve(handle, path, 0, padded(len(wanted) * row_bytes))
            finally:
                os.close(handle)
            step = piece_rows(row_bytes)
            firsts = range(0, len(wanted), step)
            pieces = [
                self._spooled(number, first * row_bytes, wanted[first : first + step])
                for first in firsts
            ]
        self._rows[name] = (len(wanted), pieces)

    def pack(
        self,
        method: Literal["batched", "individual"] = "batched",
        done: Callable[[float], None] = lambda share: None,
    ) -> PackStats:
        """Pack all features, write the index and close the writer; `done` receives the
        completed share.

        Raises:
            DataIOError: a read or write failed, or the disk is full; all files are
                removed.
            BudgetError: `memory_bytes` is less than `least_bytes`.
        """
        self._buffer = np.empty(0, np.uint8)
        with self._cleaned():
            run = pack_batched if method == "batched" else pack_individually
            start = time.perf_counter()
            stats, digests = run(self._table, self._job, self._options, done)
            stats.seconds = time.perf_counter() - start
            index: dict[str, Any] = {
                "version": np.int64(VERSION),
                "row_bytes": np.int64(self._table.row_bytes),
            }
            index["feature_digest"] = digests[self._chunk_of]
            for name, values in self._columns.items():
                index[name] = np.array(
                    values, np.uint64 if name == "structure_digest" else np.int64
                )
            for name, (count, pieces) in self._rows.items():
                index[f"rows_{name}"] = np.int64(count)
                index[f"digests_{name}"] = digests[pieces]
            path = self._folder / "packed.npz"
            with io_errors(path, writing=True), path.open("wb") as file:
                np.savez(file, allow_pickle=False, **index)
        self._finish(keep=True)
        return stats

    def close(self) -> None:
        """Discard a store that was not packed. May be called more than once."""
        self._finish(keep=False)

    def __enter__(self) -> PackedWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _checked(self, ids: Array) -> NDArray[np.int64]:
        if not self._open:
            raise ValueError("the writer is closed")
        wanted = as_ids(ids)
        inside = not len(wanted) or (
            wanted.min() >= 0 and wanted.max() < self._table.num_rows
        )
        require(
            inside,
            f"an id to be packed is not in [0, {self._table.num_rows})",
            "report this",
        )
        return wanted

    def _spooled(self, file: int, offset: int, ids: NDArray[np.int64]) -> int:
        with io_errors(self._job.spool, writing=True):
            return self._job.add(file, offset, ids)

    @staticmethod
    def _reserve(handle: int, path: Path, offset: int, nbytes: int) -> None:
        """Reserve disk space: a full disk fails now, and the file has few fragments."""
        if nbytes:
            with io_errors(path, offset, writing=True):
                os.posix_fallocate(handle, offset, nbytes)

    @contextmanager
    def _cleaned(self) -> Iterator[None]:
        """Close the writer, which removes its files, if the body fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _finish(self, *, keep: bool) -> None:
        if not self._open:
            return
        self._open = False
        os.close(self._handle)
        for path in self._written[:1] if keep else self._written:
            path.unlink(missing_ok=True)

"""Sampled mini-batches on disk: written as they are sampled, read back whole, or their node ids alone.

Used for Ginex's runtime files (`ids` and `adj` of a superbatch, Section 3.1) and DiskGNN's offline samples. Node ids
and index pointers take 4 bytes each on disk if they fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.io.regions import Bytes, Index, RegionReader, RegionWriter, region_bytes
from workloads.direct_files import PAGE, padded
from workloads.sampling.batch import Block, SampledBatch

_NARROW = 1 << 32
# Header fields of a mini-batch: epoch, index, seeds, edge reads, list reads, list hits, width of ids, blocks.
_FIELDS = 8
_BLOCK_FIELDS = 4


@dataclass(frozen=True)
class BatchIndex:
    """Index of the mini-batches in a file.

    Attributes:
        entries: structured array, `regions.ENTRY`; `count` is the number of nodes.
    """

    entries: Index

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Offsets in the file, int64 [batches], in bytes, multiples of 4096."""
        return np.asarray(self.entries["offset"], dtype=np.int64)

    @property
    def num_nodes(self) -> npt.NDArray[np.int64]:
        """Nodes of each mini-batch, int64 [batches]."""
        return np.asarray(self.entries["count"], dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        if not len(self.entries):
            return 0
        last = self.entries[-1]
        return int(last["offset"]) + padded(region_bytes(last))


class BatchWriter:
    """Writer that appends mini-batches to a file, by one thread at a time.

    Args:
        path: output file, replaced if it exists.
        budget_bytes: most bytes of the file; None: unlimited.
        fix: user's remedy for a full budget or disk.
        reuse: overwrite an existing file in place; see `RegionWriter`.

    Raises:
        DataIOError: the file cannot be created.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        budget_bytes: int | None = None,
        fix: str = "make room on that disk or lower the mini-batches kept",
        reuse: bool = False,
    ) -> None:
        self._regions = RegionWriter(path, budget_bytes=budget_bytes, fix=fix, reuse=reuse)

    @property
    def nbytes(self) -> int:
        """Bytes written so far."""
        return self._regions.nbytes

    @property
    def memory_bytes(self) -> int:
        """Bytes of the writer's buffer."""
        return self._regions.memory_bytes

    def append(self, batch: SampledBatch) -> None:
        """Write one mini-batch.

        Raises:
            BudgetError: the file would exceed its budget.
            DataIOError: the disk is full or fails; names file and offset. The file is removed.
        """
        wide = len(batch.nodes) > 0 and int(batch.nodes.max()) >= _NARROW
        nodes = batch.nodes if wide else batch.nodes.astype(np.uint32)
        fields = [
            batch.epoch,
            batch.index,
            batch.num_seeds,
            batch.edge_reads,
            batch.list_reads,
            batch.list_hits,
            nodes.itemsize,
            len(batch.blocks),
        ]
        arrays: list[npt.NDArray[Any]] = [batch.labels.astype(np.int64, copy=False)]
        for block in batch.blocks:
            indptr = block.indptr if block.num_edges >= _NARROW else block.indptr.astype(np.uint32)
            fields += [block.num_src, block.num_dst, block.num_edges, indptr.itemsize]
            arrays += [_whole(indptr), _whole(block.indices)]
        self._regions.append(nodes, [np.array(fields, dtype=np.int64), *arrays], batch.num_nodes)

    def room(self, nbytes: int) -> Bytes:
        """Return memory in which a caller lays mini-batches out in the format of `append`; see `RegionWriter`."""
        return self._regions.room(nbytes)

    def append_made(self, made: Sequence[tuple[int, int, int]]) -> None:
        """Write mini-batches laid out in `room`: (bytes of node ids, bytes of the rest, number of nodes) of each.

        Raises:
            BudgetError, DataIOError: as `append`.
        """
        self._regions.append_made(made)

    def close(self, *, save_index: bool = True, sync: bool = True) -> BatchIndex:
        """Flush the file to disk, and save its index beside it (for `BatchReader`) unless the caller keeps it.

        Args:
            sync: False for files that need not survive a crash of the machine.

        Raises:
            DataIOError: the disk is full or fails.
        """
        return BatchIndex(self._regions.close(save_index=save_index, sync=sync))

    def abandon(self) -> None:
        """Close and remove the file; a no-op if it is closed already."""
        self._regions.abandon()

    @staticmethod
    def bound_bytes(sampled_bytes: int, blocks: int) -> int:
        """Return the most bytes on disk of a mini-batch whose arrays take `sampled_bytes` in memory."""
        return padded(sampled_bytes + 8 * (_FIELDS + _BLOCK_FIELDS * blocks) + 16 * (blocks + 1)) + PAGE


class BatchReader:
    """Reader of stored mini-batches, for any number of threads at once.

    Args:
        path: file of a `BatchWriter`.
        index: result of `BatchWriter.close`; None: the index saved beside the file.

    Raises:
        DataIOError: file or index cannot be opened, or the index is damaged.
    """

    def __init__(self, path: Path | str, *, index: BatchIndex | None = None) -> None:
        entries = None if index is None else index.entries
        self._regions = RegionReader(path, index=entries, what="batch")
        self.index = BatchIndex(self._regions.index)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def memory_bytes(self) -> int:
        """Bytes that reading the largest mini-batch takes: its region, and the arrays widened from it."""
        return 3 * self._regions.largest_bytes

    def nbytes_of(self, i: int) -> int:
        """Return the bytes that reading mini-batch `i` requests from the disk."""
        return self._regions.nbytes_of(i)

    def read(self, i: int) -> SampledBatch:
        """Return the `i`-th mini-batch, identical to the one written.

        Raises:
            DataIOError: the device failed, the file ends early or the batch is damaged; names file, offset and batch.
        """
        head, body = self._regions.read(i)
        fields = body[: 8 * _FIELDS].view(np.int64).tolist()
        epoch, index, seeds, edge_reads, list_reads, list_hits, width, count = fields
        shapes = (
            body[8 * _FIELDS : 8 * (_FIELDS + _BLOCK_FIELDS * count)]
            .view(np.int64)
            .reshape(count, _BLOCK_FIELDS)
            .tolist()
        )
        at = 8 * (_FIELDS + _BLOCK_FIELDS * count)
        labels = body[at : at + 8 * seeds].view(np.int64)
        at += 8 * seeds
        blocks = []
        for num_src, num_dst, num_edges, itemsize in shapes:
            indptr = _ids(body[at : at + itemsize * (num_dst + 1)], itemsize)
            at += padded(itemsize * (num_dst + 1), 8)
            indices = body[at : at + 4 * num_edges].view(np.int32)
            at += padded(4 * num_edges, 8)
            blocks.append(Block(indptr, indices, num_src, num_dst))
        return SampledBatch(
            epoch, index, _ids(head, width), seeds, tuple(blocks), labels, edge_reads, list_reads, list_hits
        )

    def nodes(self, i: int) -> npt.NDArray[np.int64]:
        """Return the node ids of the `i`-th mini-batch alone, int64 [num_nodes]; raises as `read`."""
        head = self._regions.head(i)
        return _ids(head, head.nbytes // max(1, int(self.index.num_nodes[i])))

    def close(self) -> None:
        """Close the file. May be called more than once."""
        self._regions.close()


def _ids(data: Bytes, width: int) -> npt.NDArray[np.int64]:
    return data.view(np.int64) if width == 8 else data.view(np.uint32).astype(np.int64)


def _whole(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Pad the array with zeros to a multiple of 8 bytes."""
    short = -array.nbytes % 8 // array.itemsize
    return np.concatenate([array, np.zeros(short, dtype=array.dtype)]) if short else array

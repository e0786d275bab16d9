"""Sampled mini-batches on disk: written as they are sampled, read back whole, or their
node ids alone.

Used for Ginex's runtime files (`ids` and `adj` of a superbatch, Section 3.1) and
DiskGNN's offline samples. Node ids and index pointers take 4 bytes each on disk if they
fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.io.regions import Bytes, RegionReader, RegionWriter
from workloads.direct_files import PAGE, padded
from workloads.sampling.batch import Block, SampledBatch

_NARROW = 1 << 32
# Header fields of a mini-batch: epoch, index, seeds, edge reads, list reads, list hits,
# width of ids, blocks.
_FIELDS = 8
_BLOCK_FIELDS = 4


class BatchWriter(RegionWriter):
    """Writer that appends mini-batches to a file, by one thread at a time; `count` of
    an entry is their nodes.

    Other code may lay mini-batches out in the format of `append`, in the memory of
    `room`, and write them by `append_made`: (bytes of node ids, bytes of the rest,
    number of nodes) of each.
    """

    def append(self, batch: SampledBatch) -> None:
        """Write one mini-batch.

        Raises:
            BudgetError: the file would exceed its budget.
            DataIOError: the disk is full or fails; names file and offset. The file is
                removed.
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
        ]
        fields += [nodes.itemsize, len(batch.blocks)]
        arrays: list[npt.NDArray[Any]] = [batch.labels.astype(np.int64, copy=False)]
        for block in batch.blocks:
            indptr = (
                block.indptr
                if block.num_edges >= _NARROW
                else block.indptr.astype(np.uint32)
            )
            fields += [block.num_src, block.num_dst, block.num_edges, indptr.itemsize]
            arrays += [_whole(indptr), _whole(block.indices)]
        self.append_region(
            nodes, [np.array(fields, dtype=np.int64), *arrays], batch.num_nodes
        )

    @staticmethod
    def bound_bytes(sampled_bytes: int, blocks: int) -> int:
        """Return the most bytes on disk of a mini-batch whose arrays take
        `sampled_bytes` in memory."""
        return (
            padded(
                sampled_bytes
                + 8 * (_FIELDS + _BLOCK_FIELDS * blocks)
                + 16 * (blocks + 1)
            )
            + PAGE
        )


class BatchReader(RegionReader):
    """Reader of the mini-batches that a `BatchWriter` stored, for any number of threads
    at once."""

    _what = "batch"

    def read(self, i: int) -> SampledBatch:
        """Return the `i`-th mini-batch, identical to the one written.

        Raises:
            DataIOError: the device failed, the file ends early or the batch is damaged;
                names file, offset and batch.
        """
        head, body = self.read_region(i)
        fields = body[: 8 * _FIELDS].view(np.int64).tolist()
        epoch, index, seeds, edge_reads, list_reads, list_hits, width, count = fields
        at = 8 * (_FIELDS + _BLOCK_FIELDS * count)
        shapes = (
            body[8 * _FIELDS : at].view(np.int64).reshape(count, _BLOCK_FIELDS).tolist()
        )
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
            epoch,
            index,
            _ids(head, width),
            seeds,
            tuple(blocks),
            labels,
            edge_reads,
            list_reads,
            list_hits,
        )

    def nodes(self, i: int) -> npt.NDArray[np.int64]:
        """Return the node ids of the `i`-th mini-batch alone, int64 [num_nodes]; raises
        as `read`."""
        head = self.head(i)
        return _ids(head, head.nbytes // max(1, int(self.index.counts[i])))


def _ids(data: Bytes, width: int) -> npt.NDArray[np.int64]:
    return data.view(np.int64) if width == 8 else data.view(np.uint32).astype(np.int64)


def _whole(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Pad the array with zeros to a multiple of 8 bytes."""
    short = -array.nbytes % 8 // array.itemsize
    return (
        np.concatenate([array, np.zeros(short, dtype=array.dtype)]) if short else array
    )

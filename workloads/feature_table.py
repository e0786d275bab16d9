"""Split feature table: hot rows in device memory, the others in host memory that the
device reads itself.

As in data tiering (Section 4 of its paper) and DGL's UVA mode, a host row crosses the
bus when a kernel reads it (zero-copy), without a copy by the processor beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workloads import _native
from workloads.arraytypes import Array
from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import check_alias, feature_digest, rows_digest

_PIECE_BYTES = 2 << 20
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class SplitTable:
    """Feature table in two parts: row `r` is `device[r]` for `r < len(device)`, else
    `host[r - len(device)]`."""

    device: Tensor  # [d, dim] in the accelerator's memory; d may be 0
    # [h, dim] in host memory: pinned and mapped on `cuda` (`Accelerator.host_buffer`)
    host: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """ArrayShape of the whole table: (rows of both parts, dim)."""
        return self.device.shape[0] + self.host.shape[0], self.host.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Element type of both parts."""
        return self.host.dtype

    def split(self, rows: Tensor) -> tuple[int, int]:
        """Count the `rows` (int64 [n] on the host) on the device and in host memory."""
        cut = self.device.shape[0]
        on_device = _native.count_below(rows.numpy(), cut) if cut else 0
        return on_device, int(rows.shape[0]) - on_device

    def take(self, rows: Tensor) -> Tensor:
        """Gather `rows` (int64 [n] on the host) into one host tensor [n, dim], on the
        processor, in pieces."""
        result = torch.empty(rows.shape[0], self.host.shape[1], dtype=self.dtype)
        step = max(1, _PIECE_BYTES // max(1, self.host.shape[1] * self.dtype.itemsize))
        for first in range(0, len(rows), step):
            last = first + step
            gather_parts(self.device, self.host, rows[first:last], result[first:last])
        return result


def gather_parts(device: Tensor, host: Tensor, rows: Tensor, out: Tensor) -> None:
    """Gather `rows` (int64 [n] on the host) of a split table into `out` [n, dim],
    wherever that lies."""
    cut = device.shape[0]
    on_device = rows < cut
    for part, chosen, first in ((device, on_device, 0), (host, ~on_device, cut)):
        places = chosen.nonzero().squeeze(1)
        if len(places):
            own_rows = (rows[places] - first).to(part.device, non_blocking=True)
            picked = torch.index_select(part, 0, own_rows).to(out.device)
            targets = places.to(out.device, non_blocking=True)
            out.index_copy_(0, targets, picked)


Table = Tensor | SplitTable


def fault_in(table: Tensor, rows: Tensor | None, count: int) -> None:
    """Read an element of every page of a mini-batch's rows in host memory, so that rows
    of a mapped file are read.

    `table`: [m, dim]; `rows`: int64 [n], rows of the table; None: its first `count`.
    """
    page = max(1, _PAGE_BYTES // table.element_size())
    for columns in (table[:, ::page], table[:, -1:]):
        if rows is None:
            columns[:count].contiguous()
        else:
            torch.index_select(columns, 0, rows)


def batch_feature_digest(
    batch: SampledBatch, table: Table, rows: Tensor | None = None
) -> int:
    """Return the `feature_digest` of a mini-batch whose rows lie on the host, on the
    device or on both.

    `table` is [slots, dim] float32 or float16 on any device, or a split table; `rows`
    is int64 [num_nodes], the table row of each node (None: node i is row i). Raises
    InputError where the table or `rows` cannot hold the batch.
    """
    if isinstance(table, Tensor) and table.device.type == "cpu":
        alias = None if rows is None else rows.cpu().numpy()
        return feature_digest(batch, table.numpy(), alias)
    there = torch.arange(batch.num_nodes) if rows is None else rows.cpu()
    check_alias(there.numpy(), batch.num_nodes, table.shape[0])

    def take(first: int, last: int) -> Array:
        part = there[first:last]
        if isinstance(table, SplitTable):
            return table.take(part).numpy()
        picked = torch.index_select(table, 0, part.to(table.device))
        return np.asarray(picked.cpu().numpy())

    dtype = np.dtype(str(table.dtype).removeprefix("torch."))
    return rows_digest(batch, table.shape[1], dtype, take)

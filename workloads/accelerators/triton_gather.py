"""Triton kernel that gathers rows of a table split between two memories in one pass.
Imported only on CUDA devices."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Widest piece of a row and bytes of rows that one program copies: 8 KiB are four loads
# of 16 bytes for each of 128 threads, enough in flight for the bus. The interpreter of
# Triton runs a program at a time.
_MOST_COLUMNS = 1024
_PROGRAM_BYTES = 8192
_MOST_ROWS = 64
_THREAD_BYTES = 64  # bytes that a thread copies
# Rows read at random from more host memory than a device translates at once arrive
# slowly: on an H200, rows of 512 bytes from 1 GiB at 0.93 of the bus's rate, from 2 GiB
# at 0.52. Programs of one region start before those of the next.
_REGION_BYTES = 256 << 20
_MOST_REGIONS = 64


@triton.jit(
    do_not_specialize=["count", "cut", "region_rows"],
    do_not_specialize_on_alignment=["device_rows", "host_rows", "rows", "out"],
)
def gather_kernel(
    device_rows,
    host_rows,
    rows,
    out,
    count,
    cut,
    region_rows,
    words: tl.constexpr,
    rows_each: tl.constexpr,
    columns: tl.constexpr,
    aligned: tl.constexpr,
):
    """Copy `rows_each` rows of `words` words from the part in which each lies; program
    (i, c, r) copies `columns` of them, and only rows of the host's region r, of
    `region_rows` rows (region 0: those on the device too).

    `aligned` promises that every row of every table begins at a multiple of 16 bytes:
    each thread then loads 16 bytes.
    """
    place = tl.program_id(0).to(tl.int64) * rows_each + tl.arange(0, rows_each)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    column = tl.max_contiguous(tl.multiple_of(column, columns), columns)
    row = tl.load(rows + place, mask=place < count, other=0)
    on_device = row < cut
    region = tl.program_id(2).to(tl.int64) * region_rows
    there = (row - cut >= region) & (row - cut < region + region_rows)
    wanted = (place < count) & (there | (on_device & (region == 0)))
    inside = wanted[:, None] & (column < words)[None, :]
    own = device_rows + (row[:, None] * words + column[None, :])
    far = host_rows + ((row - cut)[:, None] * words + column[None, :])
    to = out + (place[:, None] * words + column[None, :])
    if aligned:
        own = tl.max_contiguous(tl.multiple_of(own, (1, 16)), (1, columns))
        far = tl.max_contiguous(tl.multiple_of(far, (1, 16)), (1, columns))
        to = tl.max_contiguous(tl.multiple_of(to, (1, 16)), (1, columns))
    near = tl.load(own, mask=inside & on_device[:, None], other=0)
    values = tl.load(far, mask=inside & (row >= cut)[:, None], other=0)
    tl.store(to, tl.where(on_device[:, None], near, values), mask=inside)


def gather_rows(
    device_rows: Tensor, host_rows: Tensor, rows: Tensor, out: Tensor
) -> None:
    """Gather rows of a split table into the first rows of `out`, on the current device
    and stream.

    Args:
        device_rows, host_rows: [d, dim] and [h, dim], contiguous; row r is
            `device_rows[r]`, or `host_rows[r - d]` past its end. `host_rows` is host
            memory as the device sees it (`CudaAccelerator.map_host`).
        rows: int64 [n] on the device.
        out: [m, dim] on the device, contiguous.
    """
    count = rows.shape[0]
    row_bytes = out.shape[1] * out.element_size()
    if not count or not row_bytes:
        return
    # Rows are copied as whole words, whatever their type.
    word = torch.int32 if row_bytes % 4 == 0 else torch.int16
    tables = [table.view(word) for table in (device_rows, host_rows, out)]
    words = row_bytes // word.itemsize
    columns = min(_MOST_COLUMNS, triton.next_power_of_2(words))
    rows_each = max(1, min(_MOST_ROWS, _PROGRAM_BYTES // (columns * word.itemsize)))
    regions = max(1, min(_MOST_REGIONS, triton.cdiv(host_rows.nbytes, _REGION_BYTES)))
    region_rows = max(1, triton.cdiv(host_rows.shape[0], regions))
    row_programs = triton.cdiv(count, rows_each)
    column_programs = triton.cdiv(words, columns)
    program_bytes = rows_each * columns * word.itemsize
    warps = program_bytes // (32 * _THREAD_BYTES)
    aligned = row_bytes % 16 == 0
    aligned = aligned and all(table.data_ptr() % 16 == 0 for table in tables)
    device_part, host_part, target = tables
    gather_kernel[(row_programs, column_programs, regions)](
        device_part,
        host_part,
        rows,
        target,
        count,
        device_rows.shape[0],
        region_rows,
        words=words,
        rows_each=rows_each,
        columns=columns,
        aligned=aligned,
        num_warps=max(1, min(8, warps)),
    )

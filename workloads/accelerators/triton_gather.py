"""Triton kernel of `cuda.gather_split`: one pass over a split table. Imported only where Triton is installed."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gather_kernel(device_rows, host_rows, rows, out, cut, dim, columns: tl.constexpr):
    """Copy columns c of `rows[i]` in program (i, c): a whole row by consecutive loads, from one of the two parts."""
    place = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    inside = column < dim
    row = tl.load(rows + place)
    if row < cut:
        values = tl.load(device_rows + row * dim + column, mask=inside)
    else:
        values = tl.load(host_rows + (row - cut) * dim + column, mask=inside)
    tl.store(out + place * dim + column, values, mask=inside)

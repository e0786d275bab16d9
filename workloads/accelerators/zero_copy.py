"""Gather of split-table rows on a CUDA device: hot rows from device memory, the others from host memory.

The host part is pinned and mapped, so the device's own loads fetch it over the bus row by row (zero-copy; data tiering,
section 4). With Triton one kernel reads both parts, each row by whole, aligned, consecutive loads; without it torch's
`index_select` runs once for each part.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from workloads.feature_table import gather_parts

# Most columns that a program copies at once: a warp's 32 loads of 16 bytes are 512 bytes.
_MAX_COLUMNS = 1024


def gather_split(device_rows: torch.Tensor, host_rows: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Gather rows of a split table: row r is `device_rows[r]`, or `host_rows[r - len(device_rows)]` past its end.

    `device_rows` is [d, dim] in device memory (d may be 0), `host_rows` [h, dim] mapped by `CudaAccelerator.map_host`,
    and `rows` int64 [n] on the host. Returns [n, dim] in device memory, on the current stream.
    """
    kernel = _kernel() if host_rows.is_cuda else None
    dim = host_rows.shape[1]
    out = torch.empty(rows.shape[0], dim, dtype=host_rows.dtype, device=host_rows.device)
    if kernel is None:
        gather_parts(device_rows, host_rows, rows, out)
    elif out.numel():
        there = rows.to(host_rows.device, non_blocking=True)
        columns = min(_MAX_COLUMNS, 1 << (dim - 1).bit_length())
        kernel[(rows.shape[0], -(-dim // columns))](
            device_rows, host_rows, there, out, device_rows.shape[0], dim, columns
        )
    return out


@cache
def _kernel() -> Any:
    """Import the Triton kernel on first use, which takes a second and 100 MB; None without Triton."""
    try:
        from workloads.accelerators.triton_gather import gather_kernel
    except ImportError:
        return None
    return gather_kernel

"""Rows of a split table gathered on a CUDA device: hot rows from its own memory, the others read from host memory.

The host part is pinned and mapped, so the device's own loads fetch it over the bus row by row (zero-copy; data tiering,
section 4). With Triton one kernel reads both parts, each row by whole, aligned, consecutive loads; without it torch's
`index_select` runs once for each part.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

# Columns a program moves at once, at most: a warp's 32 loads of 16 bytes are 512 bytes.
_MAX_COLUMNS = 1024


def gather_split(device_rows: torch.Tensor, host_rows: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Row `rows[i]` is `device_rows[rows[i]]`, or `host_rows[rows[i] - len(device_rows)]` past its end.

    Args:
        device_rows: [d, dim] in device memory; d may be 0.
        host_rows: [h, dim] as the device sees it (`CudaAccelerator.map_host`).
        rows: int64 [n] on the host.

    Returns:
        [n, dim] in device memory, on the current stream.
    """
    kernel = _kernel() if host_rows.is_cuda else None
    dim = host_rows.shape[1]
    if kernel is None:
        return _by_parts(device_rows, host_rows, rows)
    out = torch.empty(rows.shape[0], dim, dtype=host_rows.dtype, device=host_rows.device)
    if out.numel():
        there = rows.to(host_rows.device, non_blocking=True)
        columns = min(_MAX_COLUMNS, 1 << (dim - 1).bit_length())
        kernel[(rows.shape[0], -(-dim // columns))](
            device_rows, host_rows, there, out, device_rows.shape[0], dim, columns
        )
    return out


def _by_parts(device_rows: torch.Tensor, host_rows: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    cut, place = device_rows.shape[0], host_rows.device
    out = torch.empty(rows.shape[0], host_rows.shape[1], dtype=host_rows.dtype, device=place)
    on_device = rows < cut
    for part, chosen, first in ((device_rows, on_device, 0), (host_rows, ~on_device, cut)):
        places = chosen.nonzero().squeeze(1)
        if len(places):
            picked = torch.index_select(part, 0, (rows[places] - first).to(place, non_blocking=True))
            out.index_copy_(0, places.to(place, non_blocking=True), picked)
    return out


@cache
def _kernel() -> Any:
    """The Triton kernel, or None where Triton is not installed. Imported only here: it takes a second and 100 MB."""
    try:
        from workloads.accelerators.triton_gather import gather_kernel
    except ImportError:
        return None
    return gather_kernel

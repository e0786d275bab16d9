"""A feature table in two places: hot rows in device memory, the others in host memory that the device reads itself.

As in data tiering (Section 4 of its paper) and DGL's UVA mode: a row that is not on the device crosses the bus when a
kernel reads it (zero-copy), without a copy by the processor beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SplitTable:
    """Row `r` is `device[r]` for `r < len(device)`, else `host[r - len(device)]`.

    Attributes:
        device: [d, dim] in the accelerator's memory; d may be 0.
        host: [h, dim] in host memory: pinned and mapped on `cuda` (`Accelerator.host_buffer`).
    """

    device: torch.Tensor
    host: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(rows of both, dim)."""
        return self.device.shape[0] + self.host.shape[0], self.host.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of both."""
        return self.host.dtype

    def split(self, rows: torch.Tensor) -> tuple[int, int]:
        """How many of `rows` (int64 [n] on the host) lie on the device and how many in host memory."""
        on_device = int((rows < self.device.shape[0]).sum())
        return on_device, int(rows.shape[0]) - on_device

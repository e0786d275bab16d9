"""Rows lent to a loop: whose memory they are, and what becomes of them when that memory
is used again.

The rows of a mini-batch belong to the loop until it asks the loader for another. Then a
late access raises an error: rows are never missing in silence. A loop that ends
(`break`, `next(iter(loader))`, `close()`, the last mini-batch) keeps its last
mini-batch.
"""

from __future__ import annotations

import weakref
from functools import cache
from typing import Any

import torch

from systems.interface import Batch
from systems.loading.batches import MiniBatch, late_access
from workloads.accelerator import Accelerator, aligned_host_tensor


class Lease:
    """The mini-batch that the loop holds, and the buffer of its rows; one for all
    epochs of a loader.

    Args:
        accelerator: device that reads the rows.
        largest: nodes of the largest mini-batch in the plan.
    """

    def __init__(self, accelerator: Accelerator, largest: int) -> None:
        self._accelerator = accelerator
        self._largest = largest
        self._buffer: torch.Tensor | None = None
        self._handed: weakref.ref[Any] | None = None
        self._step = -1
        self._slots: Batch | None = None

    def buffer(self, table: torch.Tensor, count: int) -> torch.Tensor | None:
        """Return memory for `count` rows of `table` [slots, dim], which the next
        mini-batch reuses; None: too many."""
        if count > self._largest:
            return None
        if self._buffer is None:
            # Page-aligned; pages are committed when first written.
            memory = aligned_host_tensor(
                self._largest * table.shape[1] * table.element_size()
            )
            self._buffer = memory.view(table.dtype).view(self._largest, table.shape[1])
        return self._buffer[:count]

    def lend(self, handed: Any, slots: Batch | None, step: int) -> None:
        """Note the mini-batch that the loop holds from now on.

        Args:
            handed: the mini-batch, of any form.
            slots: the system's mini-batch whose memory the rows are; None: they are in
                the buffer, or of their own.
            step: number of the mini-batch.
        """
        self._handed = weakref.ref(_carrier(handed))
        self._slots = slots
        self._step = step

    def end(self) -> None:
        """Take the rows back: a late access to them raises an error."""
        handed = self._taken()
        if handed is not None:
            _forget(handed, self._step)
        self._release()

    def keep(self) -> None:
        """Leave the rows to the loop: those in the system's memory are copied, which is
        then released.

        The plan has room for them until the next mini-batch: `end` takes the copy back.
        """
        handed = None if self._handed is None else self._handed()
        if self._slots is not None and handed is not None:
            _own_rows(handed)
        self._release()

    def close(self) -> None:
        """Leave the buffer to the mini-batch that the loop holds, for ever."""
        self._taken()
        self._buffer = None

    def finish_reading(self) -> None:
        """Wait until the device has read the rows, so that the system may overwrite
        them."""
        if self._accelerator.kind == "cuda":
            torch.cuda.current_stream(self._accelerator.torch_device).synchronize()

    def _taken(self) -> Any:
        """Return the mini-batch that the loop still holds, and forget it; None: the
        loop has dropped it."""
        handed = None if self._handed is None else self._handed()
        self._handed = None
        return handed

    def _release(self) -> None:
        slots = self._slots
        self._slots = None
        if slots is not None:
            self.finish_reading()
            slots.release()


def _carrier(handed: Any) -> Any:
    """Return the object that has the rows: the mini-batch itself, or DGL's first
    block."""
    return handed[2][0] if isinstance(handed, tuple) else handed


def _own_rows(carrier: Any) -> None:
    """Give a mini-batch a copy of its rows."""
    if isinstance(carrier, MiniBatch):
        if carrier.rows is not None:
            carrier.rows = carrier.rows.clone()
    elif hasattr(carrier, "srcdata"):
        carrier.srcdata["feat"] = carrier.srcdata["feat"].clone()
    elif isinstance(carrier.x, torch.Tensor):
        carrier.x = carrier.x.clone()


def _forget(carrier: Any, step: int) -> None:
    """Remove the rows from a mini-batch; from now on access to them raises an error."""
    kind: Any = type(carrier)
    if isinstance(carrier, MiniBatch):
        carrier.rows = None
    elif hasattr(carrier, "srcdata"):
        carrier.srcdata.pop("feat", None)
        carrier.late_step = step
        carrier.__class__ = _late_block(kind)
    else:
        del carrier.x
        # `Data` would keep an attribute of its own of this name.
        object.__setattr__(carrier, "__class__", _late_data(kind))


@cache
def _late_data(data: Any) -> type:
    """Return the class of PyG's `Data` without rows, a subclass of `data`."""

    class LateData(data):  # type: ignore[misc]
        """`Data` whose rows were taken back: access to `x`, copies and moves raise
        InputError."""

        @property
        def x(self) -> Any:
            raise late_access(self.step)

        def __getitem__(self, key: str) -> Any:
            if key == "x":
                raise late_access(self.step)
            return super().__getitem__(key)

        def __getstate__(self) -> Any:
            raise late_access(self.step)

        def apply(self, *_: Any, **__: Any) -> Any:
            raise late_access(self.step)

        def to_dict(self) -> Any:
            raise late_access(self.step)

    return LateData


@cache
def _late_block(block: Any) -> type:
    """Return the class of DGL's first block without rows, a subclass of `block`."""

    class LateBlock(block):  # type: ignore[misc]
        """Block whose rows were taken back: access to `srcdata` and moves raise
        InputError."""

        @property
        def srcdata(self) -> Any:
            raise late_access(self.late_step)

        def to(self, *_: Any, **__: Any) -> Any:
            raise late_access(self.late_step)

    return LateBlock

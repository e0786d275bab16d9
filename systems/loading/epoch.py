"""One epoch of a loader: takes the system's mini-batches one by one, hands each out, and releases it in time."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from systems.interface import Batch, System
from systems.loading.batches import HandOut, forget_rows
from workloads.accelerator import aligned_host_tensor
from workloads.errors import InputError, require
from workloads.feature_table import SplitTable


@dataclass(eq=False, repr=False)
class Epoch(Iterator[Any]):
    """Iterator over the mini-batches of one epoch.

    If rows lie in order in the system's table, `x` is a view of it and the system's slots are released when the next
    mini-batch is requested. Otherwise rows are gathered into one reused buffer and the slots are released at once.

    Attributes:
        began: called when the first mini-batch has arrived. A method of the loader: it keeps the loader alive, which
            closes the system on garbage collection.
        copy: copy each mini-batch's rows.
        largest: nodes of the largest mini-batch in the plan.
        left: mini-batches of the epoch that are still to come.
    """

    system: System
    number: int
    began: Callable[[], None] | None
    hand_out: HandOut
    copy: bool
    largest: int
    left: int

    def __post_init__(self) -> None:
        self._accelerator = self.system.runtime.accelerator
        self._clock = self.system.clock
        self._buffer: torch.Tensor | None = None
        self._held: Batch | None = None
        self._handed: weakref.ref[Any] | None = None
        self._handed_at = 0.0
        self._handed_step = -1
        self._why = ""
        self._first = True
        self._batches: Iterator[Batch] | None = self.system.epoch(self.number)

    def __next__(self) -> Any:
        require(not self._why, f"this epoch was ended before it was over: {self._why}", "begin another iteration")
        if self._batches is None:
            raise StopIteration
        try:
            self._take_back()
            batch = next(self._batches, None)
            if batch is None:
                self.close()
                raise StopIteration
            if self._first:
                self._first = False
                assert self.began is not None
                self.began()
            return self._hand_out(batch)
        except StopIteration:
            raise
        except BaseException:
            with suppress(Exception):  # the original error is more informative
                self.close()
            raise

    def _hand_out(self, batch: Batch) -> Any:
        if batch.ready is not None:
            with self._clock.stage("wait", batch.sampled.index):
                batch.ready()
        if batch.table is None or batch.first_layer_aggregated:
            batch.release()
            raise InputError(
                f"mini-batch {batch.sampled.index} came without its nodes' features", "use a system that brings them"
            )
        x, lent = self._rows(batch)
        found = self.hand_out.convert(batch.sampled, x)
        if lent:
            self._held = batch
        else:
            self._finish_reading()
            batch.release()
        if not self.copy:
            self._handed = weakref.ref(found[2][0] if self.hand_out.form == "dgl" else found)
        self.left -= 1
        self._handed_step, self._handed_at = batch.sampled.index, time.monotonic()
        return found

    def _rows(self, batch: Batch) -> tuple[torch.Tensor, bool]:
        """Return `x`, and whether it is the system's memory."""
        table, rows, count = batch.table, batch.rows, batch.sampled.num_nodes
        accelerator = self._accelerator
        if isinstance(table, torch.Tensor) and rows is None:
            return (table[:count].clone(), False) if self.copy else (table[:count], True)
        assert table is not None
        rows = torch.arange(count) if rows is None else rows
        if isinstance(table, torch.Tensor) and accelerator.kind == "cpu" and not self.copy and count <= self.largest:
            if self._buffer is None:
                # Page-aligned; pages are committed when first written.
                memory = aligned_host_tensor(self.largest * table.shape[1] * table.element_size())
                self._buffer = memory.view(table.dtype).view(self.largest, table.shape[1])
            return torch.index_select(table, 0, rows, out=self._buffer[:count]), False
        found = accelerator.gather(table, rows)
        return found.to(accelerator.torch_device) if isinstance(table, SplitTable) else found, False

    def _finish_reading(self) -> None:
        """Wait until the device has read the rows, so that the system may overwrite them."""
        if self._accelerator.kind == "cuda":
            torch.cuda.current_stream(self._accelerator.torch_device).synchronize()

    def _take_back(self) -> None:
        """Release the mini-batch that the loop held."""
        if self._handed_step >= 0:
            self._clock.add("train", self._handed_step, self._handed_at, time.monotonic())
            self._handed_step = -1
        handed = None if self._handed is None else self._handed()
        self._handed = None
        if handed is not None:
            forget_rows(handed)
        held, self._held = self._held, None
        if held is not None:
            self._finish_reading()
            held.release()

    def close(self) -> None:
        """End the system's epoch and its threads, unless it is over."""
        batches, self._batches = self._batches, None
        if batches is None:
            return
        try:
            self._take_back()
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()
            self._buffer = self.began = None

    def end(self, why: str) -> None:
        """End the epoch early; a later `next` raises an error with reason `why`.

        A loop that counts to `len` has all mini-batches without requesting the end; for the system, request it here.
        """
        if self._batches is None:
            return
        if self.left:
            self._why = why
            self.close()
        else:
            next(self, None)

    def __del__(self) -> None:
        if hasattr(self, "_batches"):
            self.close()

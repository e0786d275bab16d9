"""One epoch of a loader: takes the system's mini-batches one by one, hands each out,
and releases it in time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from systems.interface import Batch, System
from systems.loading.batches import HandOut
from systems.loading.lease import Lease
from workloads.errors import InputError, require
from workloads.feature_table import SplitTable

#: Epochs of the process that this one is a fork of: to end them is to wait for threads
#: that a fork does not have.
_OF_PARENTS: list[Iterator[Batch]] = []


@dataclass(eq=False, repr=False)
class Epoch(Iterator[Any]):
    """Iterator over the mini-batches of one epoch.

    If rows lie in order in the system's table, `x` is a view of it and the system's
    slots are released when the next mini-batch is requested. Otherwise rows are
    gathered into one reused buffer and the slots are released at once. An epoch that
    ends leaves its last mini-batch to the loop.

    Attributes:
        began: called when the first mini-batch has arrived. A method of the loader: it
            keeps the loader alive, which closes the system on garbage collection.
        copy: copy each mini-batch's rows.
        lease: rows of the mini-batch that the loop holds, of this epoch or the one
            before.
        left: mini-batches of the epoch that are still to come.
    """

    system: System
    number: int
    began: Callable[[], None] | None
    hand_out: HandOut
    copy: bool
    lease: Lease
    left: int

    def __post_init__(self) -> None:
        self._accelerator = self.system.runtime.accelerator
        self._clock = self.system.clock
        self._handed_at = 0.0
        self._handed_step = -1
        self._why = ""
        self._process = os.getpid()
        self._first = True
        self._batches: Iterator[Batch] | None = self.system.epoch(self.number)

    def __next__(self) -> Any:
        own = os.getpid() == self._process
        require(
            own,
            "an epoch is continued in a fork of its process",
            "make a loader in every process",
        )
        require(
            not self._why,
            f"this epoch was ended before it was over: {self._why}",
            "begin another iteration",
        )
        if self._batches is None:
            raise StopIteration
        try:
            self._note_training()
            if self.left > 0:
                self.lease.end()
            else:
                self.lease.keep()
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
                f"mini-batch {batch.sampled.index} came without its nodes' features",
                "use a system that brings them",
            )
        self.lease.end()  # where a system has more mini-batches than were planned
        x, lent = self._rows(batch)
        found = self.hand_out.convert(batch.sampled, x)
        if not lent:
            self.lease.finish_reading()
            batch.release()
        if not self.copy:
            self.lease.lend(found, batch if lent else None, batch.sampled.index)
        self.left -= 1
        self._handed_step = batch.sampled.index
        self._handed_at = time.monotonic()
        return found

    def _rows(self, batch: Batch) -> tuple[torch.Tensor, bool]:
        """Return `x`, and whether it is the system's memory."""
        table = batch.table
        rows = batch.rows
        count = batch.sampled.num_nodes
        accelerator = self._accelerator
        if isinstance(table, torch.Tensor) and rows is None:
            return (
                (table[:count].clone(), False) if self.copy else (table[:count], True)
            )
        assert table is not None
        rows = torch.arange(count) if rows is None else rows
        if (
            isinstance(table, torch.Tensor)
            and accelerator.kind == "cpu"
            and not self.copy
        ):
            buffer = self.lease.buffer(table, count)
            if buffer is not None:
                return torch.index_select(table, 0, rows, out=buffer), False
        found = accelerator.gather(table, rows)
        return found.to(accelerator.torch_device) if isinstance(
            table, SplitTable
        ) else found, False

    def _note_training(self) -> None:
        """Record the time that the loop held its mini-batch."""
        if self._handed_step >= 0:
            self._clock.add(
                "train", self._handed_step, self._handed_at, time.monotonic()
            )
            self._handed_step = -1

    def close(self) -> None:
        """End the system's epoch and its threads, unless it is over; the loop keeps its
        mini-batch."""
        batches = self._batches
        self._batches = None
        if batches is None:
            return
        if os.getpid() != self._process:
            _OF_PARENTS.append(batches)
            return
        try:
            self._note_training()
            self.lease.keep()
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()
            self.began = None

    def end(self, why: str) -> None:
        """End the epoch early; a later `next` raises an error with reason `why`.

        A loop that counts to `len` has all mini-batches without requesting the end; for
        the system, request it here.
        """
        if self._batches is None:
            return
        if self.left > 0:
            self._why = why
            self.close()
        else:
            next(self, None)

    def __del__(self) -> None:
        if hasattr(self, "_batches"):
            self.close()

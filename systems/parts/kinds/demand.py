"""A demand cache in host memory: every missed row enters, and a policy chooses the row
that goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch

from systems import _native
from systems.engine.io.arrays import as_ids, as_rows, torch_dtype
from systems.forecast import Trace
from systems.parts.options import wanted_rows
from systems.parts.rows import Ids
from systems.parts.sizes import Follower, Need
from systems.parts.tier import ChangingCache, Found, Places
from workloads.accelerator import aligned_host_tensor
from workloads.errors import BudgetError, require
from workloads.units import format_bytes

Policy = Literal["lru", "fifo", "clock", "sieve", "s3-fifo"]
#: Policies of a demand cache; `systems/native/cache/demand/` has one file for each.
POLICIES: tuple[str, ...] = get_args(Policy)
#: Part of all rows that a cache without a size and without a budget holds.
_UNLIMITED = 4
# of a row of a mini-batch: position, slot and place, twice while they are converted
_LOOK_UP_BYTES = 48


@dataclass(eq=False)
class Demand(ChangingCache):
    """Demand cache of rows.

    The slots of the rows and the policy's order are native code, called once a
    mini-batch.

    Attributes:
        policy: which row goes.
        size: `auto`, a share of the rows such as `0.25x`, or a size such as `32MiB`.
        threads: threads that copy rows; 0: the cores.
        least_batches: mini-batches that the cache has to hold, by the bound of their
            nodes. Any number of slots works, but a cache that one mini-batch empties
            serves nothing, and GraphBolt's own waits for ever.
    """

    title = "{policy} cache in host memory"
    policy: str = "sieve"
    size: str = "auto"
    threads: int = 1
    least_batches: int = 2
    _slots: _native.DemandCache | None = field(init=False, repr=False, default=None)
    _rows: torch.Tensor = field(
        init=False, repr=False, default_factory=lambda: torch.empty(0)
    )

    @property
    def capacity(self) -> int:
        """Rows of the cache."""
        return min(self.site.table.num_rows, self.site.granted(self.name) // self._step)

    @property
    def nbytes(self) -> int:
        """Bytes planned for the rows and for the policy's order of them."""
        return self.site.granted(self.name)

    @property
    def _step(self) -> int:
        """Bytes of a cached row with its bookkeeping."""
        slot_bytes, _ = _native.DemandCache.bytes(self.policy)
        return self.site.table.row_bytes + slot_bytes

    def check(self) -> None:
        """Refuse an unknown policy, and a table of too many rows. Raises InputError."""
        known = ", ".join(POLICIES)
        require(
            self.policy in POLICIES,
            f"there is no policy {self.policy!r} of a demand cache",
            f"choose of {known}",
        )
        rows = self.site.table.num_rows
        require(
            rows < 2**31,
            f"a demand cache numbers {rows} rows",
            "use a table of fewer than 2^31 rows",
        )

    def needs(self) -> Sequence[Need | Follower]:
        """List the map from rows to slots, look-ups, and the rows with their
        bookkeeping."""
        site = self.site
        _, row_bytes = _native.DemandCache.bytes(self.policy)
        least, best = self._least_and_best()
        fix = (
            "raise memory, or lower batch size or fan-out: it holds "
            f"{self.least_batches} mini-batches at least"
        )
        return [
            Need(f"{self.name} map", row_bytes * site.table.num_rows),
            Need(
                f"{self.name} look-ups",
                _LOOK_UP_BYTES * site.bounds.max_nodes * site.in_flight,
            ),
            Need(
                self.name,
                least * self._step,
                best=best * self._step,
                step=self._step,
                fix=fix,
            ),
        ]

    def _least_and_best(self) -> tuple[int, int]:
        rows = self.site.table.num_rows
        least = min(rows, self.least_batches * self.site.bounds.max_nodes)
        if self.size == "auto":
            best = rows if self.site.budget.host is not None else -(-rows // _UNLIMITED)
            return least, max(least, best)
        wanted = min(rows, wanted_rows(self.size, rows, self._step))
        if wanted < least:
            message = (
                f"{self.site.name}: {self.name} of {self.size} holds {wanted} rows"
            )
            needed = f"{self.least_batches} mini-batches have up to {least}"
            fix = (
                f"raise cache to {format_bytes(least * self._step)}, or lower batch "
                "size or fan-out"
            )
            raise BudgetError(f"{message}, {needed}", fix)
        return wanted, wanted

    def chosen(self) -> dict[str, int | str]:
        """Return the bytes of the cache."""
        return {"cache": self.nbytes}

    def open(self) -> None:
        """Allocate the rows and start empty."""
        table = self.site.table
        capacity = self.capacity
        memory = aligned_host_tensor(capacity * table.row_bytes)
        self._rows = memory.view(torch_dtype(table.dtype)).view(capacity, table.dim)
        self.clear()

    def clear(self) -> None:
        """Empty the cache."""
        self._slots = None
        self._slots = _native.DemandCache.make(
            self.policy, self.site.table.num_rows, self.capacity
        )

    def look_up(self, ids: Ids, places: Places | None) -> Found:
        """Use the rows by the policy."""
        assert self._slots is not None
        hits, hit_slots, misses, admitted, into = self._slots.look_up(as_ids(ids))
        if places is None:
            return Found(hits, hit_slots, misses, admitted, into)
        return Found(places[hits], hit_slots, misses, places[admitted], into)

    def settle(self, found: Found, rows: torch.Tensor) -> None:
        """Copy the rows between the cache and the mini-batch."""
        self._copy(self._rows, found.hit_slots, rows, found.hits)
        self._copy(rows, found.admitted, self._rows, found.into)

    def _copy(
        self,
        source: torch.Tensor,
        from_rows: Places,
        target: torch.Tensor,
        to_rows: Places,
    ) -> None:
        if len(from_rows):
            threads = self.threads or self.site.runtime.cores
            _native.scatter(
                as_rows(source), from_rows, as_rows(target), to_rows, threads
            )

    def forecast_misses(self, trace: Trace) -> int:
        """Return the misses of the same policy on the trace."""
        return trace.row_misses(self.policy, self.capacity)

    def notes(self) -> dict[str, str]:
        """Return the size of the cache."""
        key = self.name.replace(" ", "_")
        return {
            key: f"{self.capacity} of {self.site.table.num_rows} rows in host memory, "
            f"{self.policy}"
        }

    def close(self) -> None:
        """Free the cache."""
        self._slots = None
        self._rows = torch.empty(0)

"""The base of all parts of a system, and the site at which they work: what a part may
know of its run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from systems.engine.io.row_reads import RowTable
from systems.engine.io.topology import device_limit
from systems.engine.store.artefacts import Prepared
from systems.interface import MemoryBudget, Runtime, StageClock, System
from systems.parts.sizes import Follower, Need, Sizes
from workloads.accelerator import Accelerator
from workloads.sampling.bounds import Bounds
from workloads.workload import Workload


@dataclass
class Site:
    """The run that a system's parts work for. The system makes it; parts only read it.

    Attributes:
        name: name of the system, for errors.
        bounds: bounds of the mini-batches that the path's sample draws.
        table: table of the rows that mini-batches are made of; its file may exist only
            after preparation.
        in_flight: mini-batches between the start of their loading and the end of their
            training.
        maps_rows: whether the rows come through a memory map.
        lends: whether the rows are handed over in memory of the row part, so that the
            copy needs none to read into.
        cached: whether the path has a cache.
        aggregated: whether the rows hold the first layer's aggregates.
        buffer_bytes: bytes of the copy's buffers that lie behind a cache.
        sizes: the divided budget; None before.
    """

    name: str
    workload: Workload
    runtime: Runtime
    budget: MemoryBudget
    clock: StageClock
    bounds: Bounds = field(init=False)
    table: RowTable = field(init=False)
    in_flight: int = 1
    maps_rows: bool = False
    lends: bool = False
    cached: bool = False
    aggregated: bool = False
    buffer_bytes: int = 0
    sizes: Sizes | None = None

    @classmethod
    def of(cls, system: System) -> Site:
        """Return the site of a system's run; its maker sets `bounds` and `table`."""
        return cls(
            system.info.name,
            system.workload,
            system.runtime,
            system.budget,
            system.clock,
        )

    @property
    def accelerator(self) -> Accelerator:
        """The training device."""
        return self.runtime.accelerator

    @property
    def on_host(self) -> bool:
        """Whether the processor trains, so that host memory is the device's."""
        return self.accelerator.kind == "cpu"

    @property
    def sampling_only(self) -> bool:
        """Whether the run samples and reads no rows."""
        return self.runtime.stages == "sample"

    @property
    def device_limit(self) -> int | None:
        """Bytes of device memory for tables; None where host memory is the device, or
        it is unlimited."""
        return device_limit(self.runtime, self.budget)

    @property
    def limits(self) -> MemoryBudget:
        """The budget, with the device memory that tables may take."""
        return replace(self.budget, device=self.device_limit)

    @property
    def table_bytes(self) -> int:
        """Bytes of the largest mini-batch's rows."""
        return self.bounds.max_nodes * self.table.row_bytes

    def granted(self, name: str) -> int:
        """Return the bytes that a need of this name was given; 0 without such a
        need."""
        assert self.sizes is not None
        return self.sizes.granted.get(name, 0)


@dataclass(eq=False)
class Part:
    """A part of a system's data path: a policy or a way of reading. It starts no
    thread.

    The base calls, in this order: `check` and `needs` to plan; `prepare` on all parts,
    then `open` on all; before each epoch `begin`; `close` at the end. A part with other
    parts inside lists them in `inner`.

    Attributes:
        title: name in words for `outcore systems show` and docs, in which `{policy}`
            stands for the field `policy`; None: the words of the class's name; empty:
            the part is not listed, and its buffers count as those of the next.
        site: the run; set before the first call.
        prepared: artefacts that the part made or found, listed among the system's
            files.
    """

    title: ClassVar[str | None] = None
    site: Site = field(init=False, repr=False)
    prepared: list[Prepared] = field(init=False, repr=False, default_factory=list)

    @property
    def described(self) -> str:
        """The title with the values of its fields."""
        if self.title is not None:
            return self.title.format_map(vars(self))
        words = re.findall("[A-Z][a-z0-9]*", type(self).__name__)
        return " ".join(words).lower()

    def inner(self) -> Sequence[Part]:
        """List the parts that this one is made of, in the order in which they are
        opened."""
        return ()

    def check(self) -> None:
        """Refuse a workload that the part does not support. Raises InputError."""

    def needs(self) -> Sequence[Need | Follower]:
        """List the part's buffers, from the site alone; nothing is allocated."""
        return ()

    def chosen(self) -> dict[str, int | str]:
        """Return the values of options left at `auto` that the sizes decide."""
        return {}

    def prepare(self) -> None:
        """Do the offline work that is kept as an artefact, within the memory that no
        buffer takes yet."""

    def open(self) -> None:
        """Allocate buffers and open files, as planned."""

    def begin(self, epoch: int) -> None:
        """Get ready for another epoch; counts restart."""

    def observed(self) -> dict[str, float]:
        """Return counts of the epoch that the kernel or the order of threads
        decides."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return the part's fields of `Facts`."""
        return {}

    def notes(self) -> dict[str, str]:
        """Return remarks on the run, for people."""
        return {}

    def close(self) -> None:
        """Close files and free buffers. May be called at any time, more than once."""

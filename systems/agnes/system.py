"""AGNES: mini-batches of a hyperbatch sampled and gathered block by block (Jang et al.,
KDD 2026, arXiv 2601.01473).

From the paper's description: graph and features lie in blocks of 1 MiB or more. Each
block that any mini-batch of the hyperbatch needs in a hop is read once and serves all
of them; so does each block of features when rows are gathered. Rows used at least as
often as the hyperbatch's average go to device memory, then to host memory; the others
are appended to a file for each mini-batch, which is read back when it trains. The next
hyperbatch is sampled while this one is gathered.

Ours, where the description leaves it open or the engine does it better: draws are those
of all systems, so mini-batches are equal; where the rows used often do not fit, the
most used ones come first, and where room is left others fill it (as in the authors'
public code; `tiers=average` leaves it empty); blocks are read with several in flight,
past the page cache; the write buffers of files and the hyperbatch shrink to the budget;
`indptr` is read in blocks, too; sampling may go on while the hyperbatch before trains,
or take place only then, which leaves memory for larger hyperbatches; the thread that
samples also places the rows, so that gathering is one pass over the table. Memory takes
five bytes a node of the graph, for its uses and its place.

The data path of a hyperbatch:

1. sample all of its mini-batches to a file, and place the rows that they use in tiers
   (`group.py`, `tiers.py`);
2. once the hyperbatch before has trained, gather its rows in one pass over the table,
   to memory and to a file for each mini-batch (`group.py`);
3. read each mini-batch and the rows of its file ahead, and train it
   (`systems/engine/passes/groups.py`, `loader.py`).

It is no `PathSystem`: reads serve all mini-batches of a hyperbatch before any of them
trains. Buffers are sized by `systems/parts/sizes.py` as others are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from systems.agnes.group import Hyperbatch, Preparer
from systems.agnes.planner import NAME, AgnesOptions, AgnesSizes
from systems.engine.passes.groups import Groups, path_of_groups
from systems.forecast import sequential
from systems.interface import (
    Batch,
    Counters,
    Facts,
    Forecast,
    PartUse,
    Plan,
    System,
    SystemInfo,
    Trace,
)

_OBSERVED = (
    "groups",
    "graph_bytes_read",
    "table_bytes_read",
    "packed_bytes_written",
    "graph_bytes_written",
)


class Agnes(System):
    """AGNES on the processor, and on devices, which hold the most used rows and read
    the others in host memory."""

    info = SystemInfo(
        name=NAME,
        paper="agnes",
        summary="hyperbatches sampled and gathered block by block, often used rows in "
        "memory, others in files",
        options=AgnesOptions,
        reads_by_device=True,
    )
    options: AgnesOptions
    _groups: Groups[Hyperbatch] | None = None

    @cached_property
    def _sizes(self) -> AgnesSizes:
        return AgnesSizes(self)

    def plan(self) -> Plan:
        """Plan the memory of sampling, gathering and training, and the slots."""
        return self._sizes.plan

    def chosen(self) -> dict[str, int | str]:
        """Return the sizes of hyperbatches and slots, and when they are sampled."""
        return {**super().chosen(), **self._sizes.chosen()}

    def prepare(self) -> None:
        """Open the files and allocate the slots; hyperbatches are prepared within the
        epochs."""
        sizes = self._sizes
        self._groups = Groups(
            sizes,
            self.clock,
            lambda _: Preparer(sizes, self.clock),
            look_ahead=sizes.look_ahead != "off",
            loads_first=sizes.look_ahead == "training",
        )

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k` in the seed plan's order; later
        hyperbatches are sampled meanwhile."""
        if self._groups is None:
            raise RuntimeError("prepare() comes before epoch()")
        return self._groups.epoch(k)

    def counters(self) -> Counters:
        """Return the last epoch's hits by tier, misses and reads, with the reads that
        sampled the next hyperbatch.

        A row in memory misses once in a hyperbatch, when it is gathered; a row in a
        file misses for each mini-batch.
        """
        groups = self._groups
        if groups is None or groups.tally is None:
            return Counters()
        tally = groups.tally
        in_files = tally["misses"]
        misses = in_files + tally["kept"]
        observed = {"file_rows": float(in_files), **tally.observed(*_OBSERVED)}
        return groups.counters(
            self._sizes.pieces,
            misses=misses,
            rows_read=misses,
            on_device=tally["on_device"] - tally["kept_on_device"],
            observed=observed,
        )

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast the blocks of graph and features that each hyperbatch reads, and the
        rows of files."""
        sizes = self._sizes
        row = trace.row_bytes
        scale = trace.scale
        block = self.options.block_bytes
        rows = sizes.slots
        device_rows = sizes.device_slots
        groups = -(-trace.num_batches // max(1, sizes.group))
        if self.options.tiers == "off":
            rows = device_rows = 0
        in_files = trace.missed(trace.hottest(rows)) if rows else trace.accesses
        blocks = sum(trace.pieces_by_hop(sizes.group, block)) + trace.row_pieces(
            sizes.group, block
        )
        blocks += (
            len(trace.workload.sampler.fanout)
            * 8.0
            * trace.workload.dataset.num_nodes
            / block
        )
        # Sampled mini-batches, address lists and files are written and read back.
        moved = 2 * trace.graph_bytes * trace.num_batches + scale * (
            8.0 * trace.accesses + 2.0 * in_files * row
        )
        reads = sequential(moved)
        reads[block] = reads.get(block, 0.0) + groups * blocks
        copied = float(trace.accesses)
        if device_rows:
            copied = min(
                copied,
                groups * device_rows / scale + trace.missed(trace.hottest(device_rows)),
            )
        return Forecast(
            {size: count / scale for size, count in reads.items()},
            f"{groups} hyperbatches, each by blocks of graph and features; "
            f"{trace.hit_rate(in_files)} of the accesses in memory",
            rows_copied=copied,
        )

    def data_path(self) -> list[PartUse]:
        """List sampling, the rows in memory, gathering and training."""
        cache = "often used rows in memory"
        return path_of_groups(self.counters(), group="hyperbatches", cache=cache)

    def facts(self) -> Facts:
        """Return the read mode and the reading stages."""
        return Facts() if self._groups is None else self._groups.facts()

    def notes(self) -> dict[str, str]:
        """Return the read mode, the chosen sizes, and the places of the last
        hyperbatch's rows."""
        groups = self._groups
        if groups is None or groups.loader is None:
            return {}
        sizes = self._sizes
        group = groups.last
        batches = self.options.hyperbatch or sizes.default_group
        wanted = min(batches, groups.num_batches)
        fewer = (
            f", not {wanted}: the budget holds the structure of no more"
            if sizes.group < wanted
            else ""
        )
        found = {
            **super().notes(),
            "hyperbatch": f"{sizes.group}{fewer}",
            "look_ahead": sizes.look_ahead,
            "sampling": "block by block" if sizes.external else "online",
            "slots": str(sizes.slots),
        }
        if group is not None and group.chunks is not None:
            rows = (
                f"{group.on_device} on the device, {group.kept - group.on_device} in "
                "host memory"
            )
            found["last_hyperbatch"] = (
                f"{group.uses} uses; rows: {rows}, {group.in_files} in files"
            )
        return found

    def close(self) -> None:
        """End the threads, close the files, free the slots and remove the prepared
        hyperbatches."""
        if self._groups is not None:
            self._groups.close()

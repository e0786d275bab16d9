"""Sizes of agnes's buffers: rows get the budget that sampling one hyperbatch and
gathering another leave.

The structure of a sampled hyperbatch and five bytes for each node of the graph are held
beside the blocks, so a small budget means a smaller hyperbatch. Where the next
hyperbatch is sampled only while this one trains, memory holds the larger of sampling
and gathering instead of both; a cost estimate chooses.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Literal

from pydantic import Field

from systems.engine.passes.distribute import PassPlan
from systems.engine.passes.sampling import ExternalSampler, in_flight
from systems.engine.passes.sizes import (
    BOUNCE,
    BYTES_PER_S,
    SAMPLED_PER_S,
    PassOptions,
    PassSizes,
)
from systems.interface import PlanItem
from workloads.errors import BudgetError

NAME = "agnes"
HYPERBATCH = 1024
LookAhead = Literal["on", "training", "off"]
_PIECES = 8
_LEAST_PIECES = 3  # blocks of the graph's files or of the features in flight
_BUFFERS = (
    256 << 10,
    128 << 10,
    64 << 10,
    32 << 10,
    16 << 10,
)  # a mini-batch's write buffer, longest first
_GOOD_PASS = 64 << 20
_PASS_SHARE = 8  # of the host budget, for the blocks and write buffers of gathering
_LISTS = 1 << 20
_MARGIN = 1.1  # of estimates
_BESIDE = 3 << 20  # of gathering: stacks, a part of the nodes' counts, digests


class AgnesOptions(PassOptions):
    """Options of `agnes`: blocks, hyperbatch and tiers, as the paper has them, and the
    engine's own."""

    block_bytes: int = Field(
        1 << 20,
        ge=4096,
        le=1 << 26,
        multiple_of=4096,
        description="a block of the graph's files or of the features",
    )
    hyperbatch: int = Field(
        0,
        ge=0,
        le=4096,
        description="mini-batches sampled and gathered together, at most an epoch; 0: "
        f"{HYPERBATCH}, fewer where "
        "memory requires it; 1: each mini-batch by itself",
    )
    tiers: Literal["fill", "average", "off"] = Field(
        "fill",
        description="rows in device and host memory: those used at least as often "
        "as the "
        "average, most used first, "
        "and others while there is room (fill), only the former (average), or none "
        "(off)",
    )
    look_ahead: Literal["auto", "on", "training", "off"] = Field(
        "auto",
        description="sample the next hyperbatch, that of the next epoch too, while "
        "this one "
        "is gathered and trains "
        "(on), only while it trains, which leaves memory for larger hyperbatches "
        "(training), or not (off); auto: on or "
        "training, by estimated seconds (after the last epoch as well, so that "
        "every epoch counts one sampling)",
    )


class AgnesSizes(PassSizes):
    """Sizes of a run's hyperbatches and buffers.

    Attributes:
        look_ahead: when the next hyperbatch is sampled.
        pass_plan: memory of the pass that gathers a hyperbatch: blocks, and a write
            buffer for each mini-batch.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """

    fix = "raise memory, or lower batch size, fan-out, block_bytes or window"
    graph_whole = True
    group_option = "hyperbatch"
    default_group = HYPERBATCH
    options: AgnesOptions
    look_ahead: LookAhead = "on"  # until it is chosen

    def _set_graph(self) -> None:
        block = self.options.block_bytes
        host = self.budget.host
        self.external = ExternalSampler.can_sample(self.workload)
        wanted = min(_PIECES, in_flight(self.runtime.disk) // block)
        self.graph_piece_bytes = block
        self.graph_pieces = max(
            _LEAST_PIECES, wanted if host is None else min(wanted, host // 16 // block)
        )

    def chosen(self) -> dict[str, int | str]:
        """Return when the next hyperbatch is sampled, and the base's choices."""
        return {"look_ahead": self.look_ahead, **super().chosen()}

    def _slot_bytes(self) -> int:
        # Id and slot of a row in memory, of the hyperbatch that is gathered and of one
        # placed meanwhile.
        return 16 if self.look_ahead == "on" else 8

    def _rows_of(self, window: int) -> int:
        # Rows outside the tiers lie in host memory, once for each mini-batch.
        need = self.device_slots + self.uses(window)
        return min(self.num_nodes, need) if self.options.tiers == "fill" else need

    def _fit(self) -> None:
        options = self.options
        found = list[tuple[float, int, LookAhead, int]]()
        refused = list[BudgetError]()
        modes: tuple[LookAhead, ...] = (
            ("on", "training")
            if options.look_ahead == "auto"
            else (options.look_ahead,)
        )
        # Rows of fewer mini-batches at a time leave memory for a larger hyperbatch.
        for window, mode in product(dict.fromkeys((options.window, 1)), modes):
            try:
                self._fit_for(mode, window)
                found.append((self._epoch_s(), self.group, mode, window))
            except BudgetError as error:
                refused.append(error)
        if not found:
            raise refused[0]
        # The estimate has no waits of smaller hyperbatches, and none for training: the
        # first ways overlap most.
        largest = max(group for _, group, *_ in found)
        costs = [
            seconds * (1.0 if group == largest else _MARGIN)
            for seconds, group, *_ in found
        ]
        self._fit_for(
            *next(
                one[2:]
                for one, cost in zip(found, costs, strict=True)
                if cost <= _MARGIN * min(costs)
            )
        )

    def _fit_for(self, look_ahead: LookAhead, window: int) -> None:
        """Size all that depends on when the next hyperbatch is sampled and on the
        window."""
        self.look_ahead = look_ahead
        held = self._held()
        self.window, least = self._window(held, window)
        self.group = group = self._group(held, least)
        self.group_uses = self.uses(group)
        self.slots = 0
        self.pass_plan = self._pass_plan(group)
        spare = self.left(
            [
                *held,
                PlanItem(
                    "the least", self._preparing_least(group) + self._slots_bytes(least)
                ),
            ]
        )
        host = self.budget.host
        limit = (
            _GOOD_PASS if host is None else max(0, min(host // _PASS_SHARE, spare or 0))
        )
        limit += self.pass_plan.memory_bytes(self.row, group)
        most = max(
            2, min(_PIECES, in_flight(self.runtime.disk) // self.options.block_bytes)
        )
        plans = (
            self._pass_plan(group, count, size)
            for size in _BUFFERS
            for count in range(most, 1, -1)
        )
        self.pass_plan = next(
            (one for one in plans if one.memory_bytes(self.row, group) <= limit),
            self.pass_plan,
        )
        items = [*held, PlanItem("sampling a hyperbatch", self._sampled(group))]
        if not self.sampling_only:
            gathering = self._gathering(group, self.pass_plan)
            if look_ahead != "on":
                gathering = max(0, gathering - items[-1].bytes)
            items.append(PlanItem("gathering a hyperbatch", gathering))
            self.slots = self._slots(items, least)
            items += self._slot_items(self.slots, packed=2, sampled=2)
        self.plan = self.require(items, self.fix)

    def _epoch_s(self) -> float:
        """Estimate an epoch's seconds: blocks of graph and features, files and samples;
        rows are used at random."""
        groups = math.ceil(self.bounds.num_batches / self.group)
        hops = len(self.workload.sampler.fanout)
        nodes = self.num_nodes
        dataset = self.workload.dataset
        uses = self.uses(self.group)
        used = max(1.0, nodes * -math.expm1(-uses / nodes))
        in_tiers = (
            0 if self.options.tiers == "off" else self.slots - self.uses(self.window)
        )
        kept = min(1.0, max(self.device_slots, in_tiers) / used)
        samples = 2.0 * self.bounds.num_batches * self.bounds.sampled_bytes
        graph = groups * hops * (dataset.topology_bytes + 8.0 * nodes)
        files = (
            0.0
            if self.sampling_only
            else groups * (1.0 - kept) * uses * float(self.row)
        )
        table = 0.0 if self.sampling_only else groups * float(dataset.feature_bytes)
        sampling, gathering, training = map(
            self._read_s, (graph + samples / 2, table + files, samples / 2 + files)
        )
        drawn = groups * uses / (SAMPLED_PER_S * self.threads)
        if self.look_ahead == "on":
            return max(drawn, sampling + gathering + training)
        beside = 0.0 if self.look_ahead == "off" else training
        return gathering + max(drawn, sampling + beside) + (training - beside)

    def _read_s(self, nbytes: float) -> float:
        """Return the seconds of reading `nbytes` in blocks."""
        disk = self.runtime.disk
        block = self.options.block_bytes
        return (
            disk.seconds({block: nbytes / block})
            if disk.random_rates()
            else nbytes / BYTES_PER_S
        )

    def _pass_plan(
        self, group: int, regions: int = 2, buffer_bytes: int = _BUFFERS[-1]
    ) -> PassPlan:
        return PassPlan(
            self.options.block_bytes, regions, buffer_bytes, group, whole=True
        )

    def _sampled(self, group: int) -> int:
        """Return the bytes of host memory for sampling a hyperbatch, then for placing
        its rows beside their ids."""
        sampling = self._sampling(group)
        uses = 4 * self.uses(group)
        if self.sampling_only:
            return sampling
        # Count and place of each node, whether it is in memory, the ids of rows in
        # files, a mini-batch's lists.
        return max(
            sampling,
            2 * uses + 5 * self.num_nodes + _LISTS + 40 * self.bounds.max_nodes,
        )

    def _gathering(self, group: int, plan: PassPlan) -> int:
        """Return the bytes of host memory for gathering: the ids of rows in files, and
        the pass."""
        return (
            4 * self.uses(group)
            + plan.memory_bytes(self.row, group)
            + max(BOUNCE, self.row)
            + _BESIDE
        )

    def _preparing_least(self, group: int) -> int:
        sampling = self._sampled(group)
        if self.sampling_only:
            return sampling
        gathering = self._gathering(group, self._pass_plan(group))
        return (
            sampling + gathering
            if self.look_ahead == "on"
            else max(sampling, gathering)
        )

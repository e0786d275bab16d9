"""Sizes of agnes's buffers: rows get the budget that sampling one hyperbatch and gathering another leave.

The structure of a sampled hyperbatch and four bytes for each node of the graph are held beside the blocks, so a small
budget means a smaller hyperbatch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from systems.engine.passes.distribute import PassPlan
from systems.engine.passes.sampling import ExternalSampler, in_flight
from systems.engine.passes.sizes import BOUNCE, PassOptions, PassSizes
from systems.interface import PlanItem

NAME = "agnes"
HYPERBATCH = 1024
_PIECES, _LEAST_PIECES = 8, 3  # blocks of the graph's files or of the features in flight
_BUFFERS = (256 << 10, 128 << 10, 64 << 10, 32 << 10, 16 << 10)  # a mini-batch's write buffer, longest first
_GOOD_PASS = 64 << 20
_PASS_SHARE = 8  # of the host budget, for the blocks and write buffers of gathering
_LISTS = 1 << 20
_BESIDE = 3 << 20  # of gathering: stacks, a part of the nodes' counts, digests


class AgnesOptions(PassOptions):
    """Options of `agnes`: blocks, hyperbatch and tiers, as the paper has them, and the engine's own."""

    block_bytes: int = Field(
        1 << 20, ge=4096, le=1 << 26, multiple_of=4096, description="a block of the graph's files or of the features"
    )
    hyperbatch: int = Field(
        0,
        ge=0,
        le=4096,
        description=f"mini-batches sampled and gathered together, at most an epoch; 0: {HYPERBATCH}, fewer where "
        "memory requires it; 1: each mini-batch by itself",
    )
    tiers: Literal["fill", "average", "off"] = Field(
        "fill",
        description="rows in device and host memory: those used at least as often as the average, most used first, "
        "and others while there is room (fill), only the former (average), or none (off)",
    )
    look_ahead: bool = Field(
        True,
        description="sample the next hyperbatch while this one is gathered, that of the next epoch too (after the "
        "last epoch as well, so that every epoch counts one sampling)",
    )


class AgnesSizes(PassSizes):
    """Sizes of a run's hyperbatches and buffers.

    Attributes:
        pass_plan: memory of the pass that gathers a hyperbatch: blocks, and a write buffer for each mini-batch.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """

    fix = "raise memory, or lower batch size, fan-out, block_bytes or window"
    graph_whole = True
    group_option = "hyperbatch"
    default_group = HYPERBATCH
    options: AgnesOptions

    def _set_graph(self) -> None:
        block, host = self.options.block_bytes, self.budget.host
        self.external = ExternalSampler.can_sample(self.workload)
        wanted = min(_PIECES, in_flight(self.runtime.disk) // block)
        self.graph_piece_bytes = block
        self.graph_pieces = max(_LEAST_PIECES, wanted if host is None else min(wanted, host // 16 // block))

    def _slot_bytes(self) -> int:
        return 8  # id and slot of a row in memory

    def _rows_of(self, window: int) -> int:
        # Rows outside the tiers lie in host memory, once for each mini-batch.
        need = self.device_slots + self.uses(window)
        return min(self.num_nodes, need) if self.options.tiers == "fill" else need

    def _fit(self) -> None:
        held = self._held()
        self.window, least = self._window(held)
        self.group = group = self._group(held, least)
        self.group_uses, self.slots = self.uses(group), 0
        self.pass_plan = self._pass_plan(group)
        spare = self.left([*held, PlanItem("the least", self._preparing_least(group) + self._slots_bytes(least))])
        host = self.budget.host
        limit = _GOOD_PASS if host is None else max(0, min(host // _PASS_SHARE, spare or 0))
        limit += self.pass_plan.memory_bytes(self.row, group)
        most = max(2, min(_PIECES, in_flight(self.runtime.disk) // self.options.block_bytes))
        plans = (self._pass_plan(group, count, size) for size in _BUFFERS for count in range(most, 1, -1))
        self.pass_plan = next((one for one in plans if one.memory_bytes(self.row, group) <= limit), self.pass_plan)
        items = [*held, PlanItem("sampling a hyperbatch", self._sampling(group))]
        if not self.sampling_only:
            gathering = self._gathering(group, self.pass_plan)
            if not self.options.look_ahead:
                gathering = max(0, gathering - items[-1].bytes)
            items.append(PlanItem("gathering a hyperbatch", gathering))
            self.slots = self._slots(items, least)
            items += self._slot_items(self.slots, packed=1, sampled=2)
        self.plan = self.require(items, self.fix)

    def _pass_plan(self, group: int, regions: int = 2, buffer_bytes: int = _BUFFERS[-1]) -> PassPlan:
        return PassPlan(self.options.block_bytes, regions, buffer_bytes, group, whole=True)

    def _gathering(self, group: int, plan: PassPlan) -> int:
        """Return the bytes of host memory for gathering: ids, then each node's count and place, or the pass."""
        uses, nodes = 4 * self.uses(group), 4 * self.num_nodes
        lists = uses + nodes + _LISTS + 40 * self.bounds.max_nodes
        return uses + max(lists, plan.memory_bytes(self.row, group) + max(BOUNCE, self.row)) + _BESIDE

    def _preparing_least(self, group: int) -> int:
        sampling = self._sampling(group)
        if self.sampling_only:
            return sampling
        gathering = self._gathering(group, self._pass_plan(group))
        return sampling + gathering if self.options.look_ahead else max(sampling, gathering)

"""Division of a memory budget among the buffers of all parts: needs in, a plan out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from systems.interface import MemoryBudget, Plan, PlanItem, Tier
from workloads.direct_files import padded

#: Name of the need of pages of `indices`, which sampling reads through the page cache.
PAGE_CACHE = "page cache of indices"


def all_of(left: int) -> int:
    """Take all the bytes that are left."""
    return left


@dataclass(frozen=True)
class Need:
    """A buffer of a part.

    Attributes:
        name: name in the plan and in errors.
        bytes: least bytes, without which the part cannot work.
        tier: memory that holds the buffer.
        best: bytes beyond which more is useless; 0: the size is fixed.
        step: bytes by which the buffer grows; each a table of its own, in whole pages
            of the device, unless `align` joins them to one.
        reserve: bytes of the tier that stay free beside the buffer.
        share: bytes that the buffer may take of those left once every part has its
            least; None left: unlimited.
        align: multiple to which the planned bytes are rounded up.
        fix: remedy if the buffer does not fit; empty: the system's.
        phase: phase of an epoch that holds the buffer; empty: all. Buffers of different
            phases share their memory.
    """

    name: str
    bytes: int
    tier: Tier = "host"
    best: int = 0
    step: int = 1
    reserve: int = 0
    share: Callable[[int], int] = all_of
    align: int = 1
    fix: str = ""
    phase: str = ""

    @property
    def grows(self) -> bool:
        """Whether the size depends on the budget or on an option of its own."""
        return self.best > 0


@dataclass(frozen=True)
class Follower:
    """A buffer whose size follows from the buffers planned before it, such as the map
    of a cache that got bytes.

    Attributes:
        bytes: returns the size, given those of all needs and of the followers before
            this one.
        cuts: name of a need that gives way where the follower does not fit; empty:
            none.
        phase: as for `Need`.
    """

    name: str
    bytes: Callable[[Sizes], int]
    tier: Tier = "host"
    cuts: str = ""
    phase: str = ""


@dataclass(frozen=True)
class Sizes:
    """A divided budget.

    Attributes:
        plan: all buffers, or those of the phase that takes most host memory: first
            those of one size, then those that grow, then the followers, each in the
            order of the needs.
        granted: bytes of each need, before they were rounded up.
    """

    plan: Plan
    granted: dict[str, int]


def fixed(items: Iterable[PlanItem]) -> list[Need]:
    """Return buffers of known size as needs."""
    return [Need(item.name, item.bytes, item.tier) for item in items]


def divide(
    system: str, needs: Sequence[Need | Follower], budget: MemoryBudget, fix: str
) -> Sizes:
    """Give every need its least bytes, then let the needs grow in their order, then add
    the followers.

    Args:
        system: name of the system, for errors.
        budget: bytes of each tier; None: unlimited.
        fix: remedy if a buffer does not fit.

    Raises:
        BudgetError: names the first buffer that does not fit, the bytes left for it,
            and the buffers before it.
    """
    needs = sorted(needs, key=_rank)
    own = [need for need in needs if isinstance(need, Need)]
    granted = {need.name: need.bytes for need in own}
    least = _followed(needs, granted)
    for need in own:
        if need.grows:
            left = _left(need, own, granted, budget)
            if left is not None:
                # Followers of the needs that have grown already, such as cache maps.
                left -= _followed(needs, granted)[need.tier] - least[need.tier]
            granted[need.name] += _growth(need, left)
    sizes = {need.name: _planned(need, granted) for need in own}
    _require(system, needs, sizes, budget, fix)
    for follower in needs:
        if isinstance(follower, Follower):
            _follow(follower, needs, sizes, granted, budget)
    plans = _require(system, needs, sizes, budget, fix)
    return Sizes(max(plans, key=_host_bytes), granted)


def left_of(budget: MemoryBudget, needs: Sequence[Need], phase: str = "") -> int | None:
    """Return the bytes of the host budget beside the least sizes of these needs, below
    0 if they do not fit.

    Args:
        phase: leave out the buffers of other phases.

    Returns:
        None: the budget is unlimited.
    """
    if budget.host is None:
        return None
    taken = [
        need.bytes
        for need in needs
        if need.tier == "host" and need.phase in ("", phase)
    ]
    return budget.host - sum(taken)


def _host_bytes(plan: Plan) -> int:
    return plan.total("host")


def _phases(needs: Sequence[Need | Follower]) -> list[str]:
    """List the phases of these needs; one without a name where all buffers are held
    throughout."""
    names = dict.fromkeys(need.phase for need in needs if need.phase)
    return list(names) or [""]


def _rank(need: Need | Follower) -> int:
    """Order buffers of one size before those that grow, and followers last."""
    if isinstance(need, Follower):
        return 2
    return 1 if need.grows else 0


def limit_of(budget: MemoryBudget, tier: Tier) -> int | None:
    """Return the bytes of one tier; None: unlimited."""
    limit: int | None = getattr(budget, tier)
    return limit


def _planned(need: Need, granted: dict[str, int]) -> int:
    nbytes = granted[need.name]
    return -(-nbytes // need.align) * need.align


def _cost(nbytes: int, tier: Tier) -> int:
    """Return the bytes that a buffer takes of its tier: whole pages on the device."""
    return padded(nbytes) if tier == "device" else nbytes


def _followed(
    needs: Sequence[Need | Follower], granted: dict[str, int]
) -> dict[Tier, int]:
    """Return the bytes of the followers that no need gives way to, by tier."""
    sizes = dict(granted)
    found: dict[Tier, int] = {"host": 0, "device": 0, "disk": 0}
    for follower in needs:
        if isinstance(follower, Follower) and not follower.cuts:
            nbytes = follower.bytes(Sizes(_plan(needs, sizes), dict(granted)))
            sizes[follower.name] = nbytes
            found[follower.tier] += nbytes
    return found


def _left(
    need: Need, needs: Sequence[Need], granted: dict[str, int], budget: MemoryBudget
) -> int | None:
    """Return the bytes of a need's tier that no need has yet in any phase that holds
    it; None: unlimited."""
    limit = limit_of(budget, need.tier)
    if limit is None:
        return None
    same_tier = [other for other in needs if other.tier == need.tier]
    taken = []
    for phase in [need.phase] if need.phase else _phases(needs):
        costs = [
            _cost(granted[other.name], need.tier) for other in _held(same_tier, phase)
        ]
        taken.append(sum(costs))
    return limit - max(taken)


def _growth(need: Need, left: int | None) -> int:
    most = max(0, need.best - need.bytes)
    if left is None:
        return most
    room = max(0, need.share(left - need.reserve))
    step = max(1, _cost(need.step, need.tier) if need.align == 1 else need.step)
    return min(most, room // step * need.step)


def _plan(needs: Sequence[Need | Follower], sizes: dict[str, int]) -> Plan:
    """List the buffers that hold any bytes."""
    items = [PlanItem(need.name, sizes.get(need.name, 0), need.tier) for need in needs]
    return Plan(tuple(item for item in items if item.bytes))


def _follow(
    follower: Follower,
    needs: Sequence[Need | Follower],
    sizes: dict[str, int],
    granted: dict[str, int],
    budget: MemoryBudget,
) -> None:
    """Add a follower to the sizes, and cut the need that gives way to it."""
    sizes[follower.name] = follower.bytes(Sizes(_plan(needs, sizes), granted))
    limit = limit_of(budget, follower.tier)
    if follower.cuts and limit is not None:
        beside = _plan(_held(needs, follower.phase), sizes)
        excess = beside.total(follower.tier) - limit
        kept = max(0, granted[follower.cuts] - max(0, excess))
        granted[follower.cuts] = kept
        sizes[follower.cuts] = kept


def _held(needs: Sequence[Need | Follower], phase: str) -> list[Need | Follower]:
    """List the buffers that a phase holds."""
    return [need for need in needs if need.phase in ("", phase)]


def _require(
    system: str,
    needs: Sequence[Need | Follower],
    sizes: dict[str, int],
    budget: MemoryBudget,
    fix: str,
) -> list[Plan]:
    """Return the plan of each phase. Raises BudgetError where one does not fit."""
    plans = [_plan(_held(needs, phase), sizes) for phase in _phases(needs)]
    for plan in plans:
        _require_phase(system, needs, plan, budget, fix)
    return plans


def _require_phase(
    system: str,
    needs: Sequence[Need | Follower],
    plan: Plan,
    budget: MemoryBudget,
    fix: str,
) -> None:
    """Refuse a plan with a buffer that does not fit beside those before it. Raises
    BudgetError."""
    by_name = {need.name: need for need in needs}
    left = {tier: limit_of(budget, tier) for tier in ("host", "device", "disk")}
    for number, item in enumerate(plan.items):
        need = by_name[item.name]
        reserve = need.reserve if isinstance(need, Need) and item.bytes else 0
        room = left[item.tier]
        if room is None:
            continue
        cost = _cost(item.bytes, item.tier)
        if cost + reserve > room:
            kept_free = (PlanItem("reserve", reserve, item.tier),) if reserve else ()
            before = Plan((*plan.items[:number], *kept_free))
            own_fix = need.fix if isinstance(need, Need) else ""
            raise before.no_room(system, budget, item, own_fix or fix)
        left[item.tier] = room - cost

"""Rules of conformance: each is checked on every observation of a system and names the
cases that break it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from harness.check.case import CheckedEpoch, Observation

Finder = Callable[[Observation], Iterator[str]]
Which = Callable[[Observation], bool]
CLOSE_LIMIT_S = 5.0
# Kinds of cases whose feature file is damaged.
_DAMAGED = ("cut", "cut-late", "gone")
RUNS = "runs"
# Cases, or systems' names, that are listed by name in a detail.
_NAMED = 3


def _every(seen: Observation) -> bool:
    return True


@dataclass(frozen=True)
class Promise:
    """A promise of a system.

    Attributes:
        broken: yields its violations.
        fix: advice to the author of a system that breaks it.
        asked: whether a case is about the promise.
        ran: whether such a case went far enough to be judged by it.
        only: systems with (or without) an oracle.
        after: promises without which it cannot hold; a case that breaks one of these is
            not judged by it.
    """

    name: str
    broken: Finder
    fix: str
    asked: Which = _every
    ran: Which = _every
    only: Literal["oracle", "no oracle", ""] = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckResult:
    """One line of the report. `fix`: advice where the promise is broken; `log`: path of
    the output, if any was kept; not `judged`: the promise was not looked at, for the
    reason in `detail`."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    log: str = ""
    judged: bool = True

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON, without an empty `fix` or `log`."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value != "" or name == "detail"
        }


def judge(observations: Sequence[Observation], faithful: bool) -> list[CheckResult]:
    """Judge every observation by every rule; a system with an oracle of its own is
    compared with that oracle.

    A case that breaks a promise is not judged by the promises that rest on it, so that
    only the cause is found.
    """
    results = []
    compared = faithful or any(seen.own_oracle for seen in observations)
    blamed: list[set[str]] = [set() for _ in observations]
    for entry in RULES:
        if entry.only == "oracle" and not compared:
            results.append(
                CheckResult(
                    entry.name,
                    True,
                    "not faithful by design: not compared",
                    judged=False,
                )
            )
            continue
        if entry.only == "no oracle" and compared:
            results.append(CheckResult(entry.name, True, "as the oracle's are"))
            continue
        asked = [index for index, seen in enumerate(observations) if entry.asked(seen)]
        ran = [index for index in asked if entry.ran(observations[index])]
        judged = [index for index in ran if not blamed[index].intersection(entry.after)]
        faults: list[str] = []
        for index in judged:
            seen = observations[index]
            found = [f"{seen.case}: {fault}" for fault in entry.broken(seen)]
            faults += found
            blamed[index] |= {entry.name} if found else set()
        if entry.name == RUNS and faults:
            # It may fail on a damaged file for the same reason.
            for seen, names in zip(observations, blamed, strict=True):
                names |= {RUNS} if seen.expected_failure else set()
        detail = "; ".join(faults[:4]) + (
            f"; and {len(faults) - 4} more" if len(faults) > 4 else ""
        )
        missing = [observations[index].case for index in asked if index not in ran]
        counted = _counted(len(judged), missing, len(ran) - len(judged))
        fix = entry.fix if faults else ""
        results.append(
            CheckResult(
                entry.name, not faults, detail or counted, fix, judged=bool(judged)
            )
        )
    return results


def _counted(judged: int, missing: Sequence[str], blamed: int) -> str:
    """Return the number of cases that a promise was judged by, and the others with the
    reason.

    Args:
        judged: number of cases that ran and were judged.
        missing: names of the cases that did not run so far.
        blamed: number of cases that broke a promise before.
    """
    total = judged + len(missing) + blamed
    if total == 0:
        return "no case is about it"
    if total == len(missing):
        return (
            f"none of {total} cases ran" if total > 1 else f"{missing[0]} did not run"
        )
    if total == blamed:
        return "see what is broken"
    parts = [
        f"{judged} case{'' if judged == 1 else 's'}"
        if judged == total
        else f"{judged} of {total} cases"
    ]
    if missing:
        more = len(missing) - _NAMED
        named = ", ".join(missing[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"{len(missing)} did not run: {named}")
    if blamed:
        parts.append(f"{blamed} not judged: see what is broken")
    return "; ".join(parts)


def _each_epoch(faults: Callable[[Observation, CheckedEpoch], Iterator[str]]) -> Finder:
    """Return a rule over the epochs; those with a damaged file are judged by the rule
    about it."""

    def broken(seen: Observation) -> Iterator[str]:
        for number, epoch in enumerate([] if seen.expected_failure else seen.epochs):
            yield from (f"epoch {number}{fault}" for fault in faults(seen, epoch))

    return broken


def _runs(seen: Observation) -> Iterator[str]:
    if seen.crashed or (seen.error and not seen.expected_failure):
        yield f"{seen.error_type}: {seen.error}" if seen.error_type else seen.error


def _equal(name: str, wanted: str, reported: str = "expected") -> Finder:
    """Return a rule that one digest of every epoch equals another one."""

    def faults(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
        if (found := getattr(epoch, name)) != (other := getattr(epoch, wanted)):
            yield f" has digest {found}, {reported} {other}"

    return _each_epoch(faults)


def _own_edges(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    if epoch.foreign_edges:
        yield (
            f": {epoch.foreign_edges} edges come from no in-neighbour of their "
            "destination"
        )


def _stay(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    if epoch.late != epoch.features:
        yield ": rows changed between arrival and release"


def _batches(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    if sorted(epoch.indices) != list(range(epoch.expected_batches)):
        yield (
            f" gave {len(epoch.indices)} batches, {epoch.expected_batches} expected, "
            "each once"
        )
    elif not epoch.seeds_once:
        yield ": the training nodes are not its seed nodes, each once"


def _order(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    if _asks_order(seen) and epoch.indices != sorted(epoch.indices):
        yield f" came as {epoch.indices[:8]}…"


def _loss(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    pairs = list(zip(epoch.losses, epoch.expected_losses, strict=False))
    if len(epoch.losses) != len(epoch.expected_losses) or not pairs:
        yield f" has {len(epoch.losses)} losses, {len(epoch.expected_losses)} expected"
    for step, (got, wanted) in enumerate(pairs):
        if not math.isclose(got, wanted, rel_tol=seen.loss_tolerance, abs_tol=1e-6):
            yield f", step {step}: loss {got:.6f}, expected {wanted:.6f}"
            break


def _counters(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    counters = epoch.counters
    if not counters:
        return
    if counters["misses"] and not counters["io_requests"]:
        yield f": misses {counters['misses']}, but io_requests 0"
    hits = sum(counters["hits"].values())
    rows = counters["rows"]
    misses = counters["misses"]
    if rows != epoch.rows:
        yield f": rows {rows}, its batches have {epoch.rows}"
    elif hits + misses != rows:
        yield f": hits {hits} + misses {misses} are not rows {rows}"
    if counters["bytes_read"] < counters["bytes_useful"]:
        yield (
            f": {counters['bytes_read']} bytes read, {counters['bytes_useful']} useful"
        )
    sizes = counters["requests_by_size"]
    if sum(sizes.values()) != counters["io_requests"]:
        yield (
            f": requests_by_size do not add up to io_requests {counters['io_requests']}"
        )
    elif (
        sum(int(size) * count for size, count in sizes.items()) < counters["bytes_read"]
    ):
        # A request that reaches past the end of the file returns fewer bytes.
        yield (
            ": requests_by_size add up to less than bytes_read "
            f"{counters['bytes_read']}"
        )


def _plan(seen: Observation) -> Iterator[str]:
    for tier, limit in seen.budget_bytes.items():
        planned = seen.plan_bytes.get(tier, 0)
        if limit is not None and planned > limit:
            yield f"plans {planned} bytes of {tier}, the budget is {limit}"


def _closed(seen: Observation) -> Iterator[str]:
    if seen.threads_left:
        yield f"threads left: {', '.join(seen.threads_left[:4])}"
    if seen.files_left:
        yield f"files left open: {', '.join(sorted(set(seen.files_left))[:4])}"


def _close(seen: Observation) -> Iterator[str]:
    yield from seen.close_errors
    if seen.close_seconds > CLOSE_LIMIT_S:
        yield f"took {seen.close_seconds:.1f} s"


def _damaged(seen: Observation) -> Iterator[str]:
    if not seen.error:
        right = all(
            epoch.features in (epoch.expected_features, epoch.own_features)
            for epoch in seen.epochs
        )
        if seen.kind != "cut-late" or not right:
            yield "nothing was raised" + ("" if right else ", and rows were wrong")
    elif not seen.error_file:
        yield f"the error does not name the file: {seen.error_type}: {seen.error}"
    elif seen.kind != "gone" and not seen.error_offset:
        yield f"the error does not name the offset: {seen.error_type}: {seen.error}"


def _reused(seen: Observation) -> Iterator[str]:
    if seen.unfinished:
        left = ", ".join(seen.unfinished)
        yield (
            f"{left} in runtime.artefacts is no finished artefact, and removed before "
            "a run"
        )
    if seen.reused and seen.reused != [False, True, False]:
        yield (
            f"prepared anew, again, for another seed: reused was {seen.reused}, "
            "expected [False, True, False]"
        )


#: Growth of prepared files that names and times in them explain.
_SAME_SIZE = 4096


def _lengths(seen: Observation) -> Iterator[str]:
    short, *longer = seen.prepared_bytes.items()
    for epochs, nbytes in longer:
        if nbytes > short[1] + _SAME_SIZE:
            yield (
                f"prepare() left {short[1]} bytes for {short[0]} epoch and {nbytes} "
                f"bytes for {epochs}"
            )


def _alive(seen: Observation) -> bool:
    return not seen.crashed


def _has_epochs(seen: Observation) -> bool:
    return bool(seen.epochs)


def _asks_epochs(seen: Observation) -> bool:
    """Return whether a case gives epochs of whole files: the others end in mid-epoch,
    or by a damaged file."""
    damaged = seen.kind in _DAMAGED and (seen.expected_failure or not seen.epochs)
    return seen.kind != "close" and not damaged


def _asks_features(seen: Observation) -> bool:
    return seen.kind != "sample-only" and _asks_epochs(seen)


def _asks_order(seen: Observation) -> bool:
    return seen.case.startswith("in order") or seen.kind == "loss"


def _of(*kinds: str) -> Which:
    """Return a function that accepts the cases of these kinds."""
    return lambda seen: seen.kind in kinds


def _no_error(seen: Observation) -> bool:
    return not seen.crashed and not seen.error


_BATCHES = "every batch once an epoch"
_ORDER = "order kept when asked"
_CLOSE = "close() at any moment"
_STRUCTURE = "structure equals the oracle's"
_FEATURES = "features equal the oracle's"
_OWN_ROWS = "rows are those of its nodes"
_STAY = "rows stay until released"
_SAMPLES = (
    "sample by `make_sampler(workload).sample(k, index, seeds)`; sampling of your own "
    "by design: `faithful=False`"
)
_ROWS = (
    "row i of `table[rows]` (without `rows`, of `table`) is the feature row of "
    "`sampled.nodes[i]`, in its dtype"
)
#: In the order in which they are judged: each after those that it rests on.
RULES = (
    Promise(RUNS, _runs, "the log has the traceback"),
    Promise(
        _BATCHES,
        _each_epoch(_batches),
        "yield a Batch for each (index, seeds) of "
        "`enumerate(make_seed_plan(workload).batches(k))`, and none twice",
        asked=_asks_epochs,
        ran=_has_epochs,
    ),
    Promise(
        _ORDER,
        _each_epoch(_order),
        "where `runtime.keep_order` is set, yield in the seed plan's order",
        asked=_asks_order,
        ran=_has_epochs,
        after=(_BATCHES,),
    ),
    Promise(
        _STRUCTURE,
        _equal("structure", "expected_structure"),
        _SAMPLES,
        asked=_asks_epochs,
        ran=_has_epochs,
        only="oracle",
        after=(_BATCHES,),
    ),
    Promise(
        _FEATURES,
        _equal("features", "expected_features"),
        _ROWS,
        asked=_asks_features,
        ran=_has_epochs,
        only="oracle",
        after=(_BATCHES, _STRUCTURE),
    ),
    Promise(
        _OWN_ROWS,
        _equal("features", "own_features", "the rows of its nodes"),
        _ROWS,
        asked=_asks_features,
        ran=_has_epochs,
        only="no oracle",
        after=(_BATCHES,),
    ),
    Promise(
        "edges are the graph's",
        _each_epoch(_own_edges),
        _SAMPLES,
        asked=_asks_epochs,
        ran=_has_epochs,
        only="no oracle",
    ),
    Promise(
        _STAY,
        _each_epoch(_stay),
        "fill a table again only after its `Batch.release()`: pass `on_release`",
        asked=_asks_features,
        ran=_has_epochs,
        after=(_FEATURES, _OWN_ROWS),
    ),
    Promise(
        "loss curve equals the oracle's",
        _each_epoch(_loss),
        "leave rows and labels alone until `Batch.release()`; a copy that may be under "
        "way is waited for in `ready`",
        asked=_of("loss"),
        ran=_has_epochs,
        only="oracle",
        after=(_BATCHES, _ORDER, _STRUCTURE, _FEATURES, _STAY),
    ),
    Promise(
        "counters consistent",
        _each_epoch(_counters),
        "restart the counts in `epoch(k)`; each row is a hit or a miss, each miss "
        "comes by a request; add up the `ReadStats` of every read for "
        "`counters_of(stats, depth, rows=…, misses=…)`",
        asked=_asks_features,
        ran=_has_epochs,
        after=(_BATCHES,),
    ),
    Promise(
        "plan within budget",
        _plan,
        "end `plan()` by `return Plan(items).require(self.info.name, self.budget)`, "
        "which raises BudgetError",
        asked=_of("run", "loss", "smallest"),
        ran=lambda seen: bool(seen.plan_bytes),
    ),
    Promise(
        _CLOSE,
        _close,
        "`close()` may come before `prepare`, in mid-epoch and twice: close each thing "
        "if it is there",
        ran=_alive,
    ),
    Promise(
        "threads and files closed",
        _closed,
        "join threads in `close()`; close readers and files, and drop arrays over "
        "memory maps, there too",
        ran=_alive,
        after=(_CLOSE,),
    ),
    Promise(
        "damaged feature file is reported",
        _damaged,
        "raise `DataIOError(message, path=…, offset=…)` whose message names both, as "
        "`RowReader` does; before rows of a memory map are used call "
        "`DatasetFiles.check()`",
        asked=_of(*_DAMAGED),
        ran=_alive,
        after=(RUNS,),
    ),
    Promise(
        "what is prepared once does not grow with the epochs",
        _lengths,
        "do what single epochs need for themselves alone in `prepare_epochs`, which "
        "returns how many it serves",
        asked=_of("lengths"),
        ran=_no_error,
    ),
    Promise(
        "prepared artefacts are reused",
        _reused,
        "make them by `artefacts.prepare(runtime.artefacts, …)`, keyed by "
        "`artefacts.identity(workload)`",
        asked=_of("artefacts"),
        ran=_no_error,
    ),
)

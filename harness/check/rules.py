"""Rules of conformance: each is checked on every observation of a system and names the cases that break it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from harness.check.case import CheckedEpoch, Observation

Finder = Callable[[Observation], Iterator[str]]
CLOSE_LIMIT_S = 5.0


@dataclass(frozen=True)
class Promise:
    """A promise and a function that yields its violations; `only`: systems with (or without) an oracle."""

    name: str
    broken: Finder
    only: Literal["oracle", "no oracle", ""] = ""


@dataclass(frozen=True)
class CheckResult:
    """One line of the report."""

    name: str
    ok: bool
    detail: str

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return asdict(self)


def judge(observations: Sequence[Observation], faithful: bool) -> list[CheckResult]:
    """Judge every observation by every rule; a system with an oracle of its own is compared with that oracle."""
    results = []
    compared = faithful or any(seen.own_oracle for seen in observations)
    for entry in RULES:
        if entry.only == "oracle" and not compared:
            results.append(CheckResult(entry.name, True, "not faithful by design: not compared"))
            continue
        if entry.only == "no oracle" and compared:
            results.append(CheckResult(entry.name, True, "as the oracle's are"))
            continue
        faults = [f"{seen.case}: {fault}" for seen in observations for fault in entry.broken(seen)]
        detail = "; ".join(faults[:4]) + (f"; and {len(faults) - 4} more" if len(faults) > 4 else "")
        results.append(CheckResult(entry.name, not faults, detail or f"{len(observations)} cases"))
    return results


def _each_epoch(faults: Callable[[Observation, CheckedEpoch], Iterator[str]]) -> Finder:
    """Return a rule over the epochs; those with a damaged file are judged by the rule about it."""

    def broken(seen: Observation) -> Iterator[str]:
        for number, epoch in enumerate([] if seen.expected_failure else seen.epochs):
            yield from (f"epoch {number}{fault}" for fault in faults(seen, epoch))

    return broken


def _runs(seen: Observation) -> Iterator[str]:
    if seen.crashed or (seen.error and not seen.expected_failure):
        yield f"{seen.error_type}: {seen.error}" if seen.error_type else seen.error


def _equal(name: str, wanted: str, told: str = "expected") -> Finder:
    """Return a rule that one digest of every epoch equals another one."""

    def faults(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
        if (found := getattr(epoch, name)) != (other := getattr(epoch, wanted)):
            yield f" has digest {found}, {told} {other}"

    return _each_epoch(faults)


def _own_edges(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    if epoch.foreign_edges:
        yield f": {epoch.foreign_edges} edges come from no in-neighbour of their destination"


def _stay(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    if epoch.late != epoch.features:
        yield ": rows changed between arrival and release"


def _batches(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    if sorted(epoch.indices) != list(range(epoch.expected_batches)):
        yield f" gave {len(epoch.indices)} batches, {epoch.expected_batches} expected, each once"
    elif not epoch.seeds_once:
        yield ": the training nodes are not its seed nodes, each once"


def _order(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    asked = seen.case.startswith("in order") or seen.kind == "loss"
    if asked and epoch.indices != sorted(epoch.indices):
        yield f" came as {epoch.indices[:8]}…"


def _loss(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    if seen.kind != "loss":
        return
    pairs = list(zip(epoch.losses, epoch.expected_losses, strict=False))
    if len(epoch.losses) != len(epoch.expected_losses) or not pairs:
        yield f" has {len(epoch.losses)} losses, {len(epoch.expected_losses)} expected"
    for step, (got, wanted) in enumerate(pairs):
        if not math.isclose(got, wanted, rel_tol=1e-4, abs_tol=1e-6):
            yield f", step {step}: loss {got:.6f}, expected {wanted:.6f}"
            break


def _counters(seen: Observation, epoch: CheckedEpoch) -> Iterator[str]:
    counters = epoch.counters
    if not counters:
        return
    hits, rows, misses = sum(counters["hits"].values()), counters["rows"], counters["misses"]
    if rows != epoch.rows:
        yield f": rows {rows}, its batches have {epoch.rows}"
    elif hits + misses != rows:
        yield f": hits {hits} + misses {misses} are not rows {rows}"
    if counters["bytes_read"] < counters["bytes_useful"]:
        yield f": {counters['bytes_read']} bytes read, {counters['bytes_useful']} useful"
    sizes = counters["requests_by_size"]
    if sum(sizes.values()) != counters["io_requests"]:
        yield f": requests_by_size do not add up to io_requests {counters['io_requests']}"
    elif sum(int(size) * count for size, count in sizes.items()) < counters["bytes_read"]:
        # A request that reaches past the end of the file returns fewer bytes.
        yield f": requests_by_size add up to less than bytes_read {counters['bytes_read']}"


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
    if seen.close_seconds > CLOSE_LIMIT_S:
        yield f"took {seen.close_seconds:.1f} s"


def _damaged(seen: Observation) -> Iterator[str]:
    if seen.kind not in ("cut", "cut-late", "gone") or seen.crashed:
        return
    if not seen.error:
        right = all(epoch.features in (epoch.expected_features, epoch.own_features) for epoch in seen.epochs)
        if seen.kind != "cut-late" or not right:
            yield "nothing was raised" + ("" if right else ", and rows were wrong")
    elif not seen.error_file:
        yield f"the error does not name the file: {seen.error_type}: {seen.error}"
    elif seen.kind != "gone" and not seen.error_offset:
        yield f"the error does not name the offset: {seen.error_type}: {seen.error}"


def _reused(seen: Observation) -> Iterator[str]:
    if seen.unfinished:
        left = ", ".join(seen.unfinished)
        yield f"{left} in runtime.artefacts is no finished artefact, and removed before a run: use artefacts.prepare"
    if seen.reused and seen.reused != [False, True, False]:
        yield f"prepared anew, again, for another seed: reused was {seen.reused}, expected [False, True, False]"


RULES = (
    Promise("runs", _runs),
    Promise("structure equals the oracle's", _equal("structure", "expected_structure"), "oracle"),
    Promise("features equal the oracle's", _equal("features", "expected_features"), "oracle"),
    Promise("rows are those of its nodes", _equal("features", "own_features", "the rows of its nodes"), "no oracle"),
    Promise("edges are the graph's", _each_epoch(_own_edges), "no oracle"),
    Promise("rows stay until released", _each_epoch(_stay)),
    Promise("every batch once an epoch", _each_epoch(_batches)),
    Promise("order kept when asked", _each_epoch(_order)),
    Promise("loss curve equals the oracle's", _each_epoch(_loss), "oracle"),
    Promise("counters consistent", _each_epoch(_counters)),
    Promise("plan within budget", _plan),
    Promise("threads and files closed", _closed),
    Promise("close() at any moment", _close),
    Promise("damaged feature file is told", _damaged),
    Promise("prepared artefacts are reused", _reused),
)

"""Rules of conformance: each is checked on every observation of a system and names the cases that break it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.check.case import Epoch, Observation

Finder = Callable[[Observation], Iterator[str]]
CLOSE_LIMIT_S = 5.0


@dataclass(frozen=True)
class Rule:
    """A promise and a function that yields its violations; the flags ask for systems with or without an oracle."""

    name: str
    broken: Finder
    faithful_only: bool = False
    unfaithful_only: bool = False


@dataclass(frozen=True)
class CheckResult:
    """One line of the report."""

    name: str
    ok: bool
    detail: str

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return {"name": self.name, "ok": self.ok, "detail": self.detail}


RULES: list[Rule] = []


def rule(name: str, *, faithful_only: bool = False, unfaithful_only: bool = False) -> Callable[[Finder], Finder]:
    """Register the decorated function as a rule."""

    def register(finder: Finder) -> Finder:
        RULES.append(Rule(name, finder, faithful_only, unfaithful_only))
        return finder

    return register


def judge(observations: Sequence[Observation], faithful: bool) -> list[CheckResult]:
    """Judge every observation by every rule; a system with an oracle of its own is compared with that oracle."""
    results = []
    compared = faithful or any(seen.own_oracle for seen in observations)
    for entry in RULES:
        if entry.faithful_only and not compared:
            results.append(CheckResult(entry.name, True, "not faithful by design: not compared"))
            continue
        if entry.unfaithful_only and compared:
            results.append(CheckResult(entry.name, True, "as the oracle's are"))
            continue
        faults = [f"{seen.case}: {fault}" for seen in observations for fault in entry.broken(seen)]
        detail = "; ".join(faults[:4]) + (f"; and {len(faults) - 4} more" if len(faults) > 4 else "")
        results.append(CheckResult(entry.name, not faults, detail or f"{len(observations)} cases"))
    return results


def _epochs(seen: Observation) -> Iterator[tuple[int, Epoch]]:
    # The rule about damaged files judges these epochs.
    if not seen.expected_failure:
        yield from enumerate(seen.epochs)


@rule("runs")
def _runs(seen: Observation) -> Iterator[str]:
    if seen.crashed or (seen.error and not seen.expected_failure):
        yield f"{seen.error_type}: {seen.error}" if seen.error_type else seen.error


@rule("structure equals the oracle's", faithful_only=True)
def _structure(seen: Observation) -> Iterator[str]:
    for number, epoch in _epochs(seen):
        if epoch.structure != epoch.expected_structure:
            yield f"epoch {number} has digest {epoch.structure}, expected {epoch.expected_structure}"


@rule("features equal the oracle's", faithful_only=True)
def _features(seen: Observation) -> Iterator[str]:
    for number, epoch in _epochs(seen):
        if epoch.features != epoch.expected_features:
            yield f"epoch {number} has digest {epoch.features}, expected {epoch.expected_features}"


@rule("rows are those of its nodes", unfaithful_only=True)
def _own_rows(seen: Observation) -> Iterator[str]:
    for number, epoch in _epochs(seen):
        if epoch.features != epoch.own_features and seen.kind != "sample-only":
            yield f"epoch {number} has digest {epoch.features}, the rows of its nodes {epoch.own_features}"


@rule("edges are the graph's", unfaithful_only=True)
def _own_edges(seen: Observation) -> Iterator[str]:
    for number, epoch in _epochs(seen):
        if epoch.strangers:
            yield f"epoch {number}: {epoch.strangers} edges come from no in-neighbour of their destination"


@rule("rows stay until released")
def _stay(seen: Observation) -> Iterator[str]:
    for number, epoch in _epochs(seen):
        if epoch.late != epoch.features:
            yield f"epoch {number}: rows changed between arrival and release"


@rule("every batch once an epoch")
def _batches(seen: Observation) -> Iterator[str]:
    for number, epoch in _epochs(seen):
        if sorted(epoch.indices) != list(range(epoch.expected_batches)):
            yield f"epoch {number} gave {len(epoch.indices)} batches, {epoch.expected_batches} expected, each once"
        elif not epoch.seeds_once:
            yield f"epoch {number}: the training nodes are not its seed nodes, each once"


@rule("order kept when asked")
def _order(seen: Observation) -> Iterator[str]:
    if seen.case.startswith("in order") or seen.kind == "loss":
        for number, epoch in _epochs(seen):
            if epoch.indices != sorted(epoch.indices):
                yield f"epoch {number} came as {epoch.indices[:8]}…"


@rule("loss curve equals the oracle's", faithful_only=True)
def _loss(seen: Observation) -> Iterator[str]:
    if seen.kind != "loss":
        return
    for number, epoch in _epochs(seen):
        pairs = list(zip(epoch.losses, epoch.expected_losses, strict=False))
        if len(epoch.losses) != len(epoch.expected_losses) or not pairs:
            yield f"epoch {number} has {len(epoch.losses)} losses, {len(epoch.expected_losses)} expected"
        for step, (got, wanted) in enumerate(pairs):
            if not math.isclose(got, wanted, rel_tol=1e-4, abs_tol=1e-6):
                yield f"epoch {number}, step {step}: loss {got:.6f}, expected {wanted:.6f}"
                break


@rule("counters consistent")
def _counters(seen: Observation) -> Iterator[str]:
    for number, epoch in _epochs(seen):
        counters = epoch.counters
        if not counters:
            continue
        hits, rows, misses = sum(counters["hits"].values()), counters["rows"], counters["misses"]
        if rows != epoch.rows:
            yield f"epoch {number}: rows {rows}, its batches have {epoch.rows}"
        elif hits + misses != rows:
            yield f"epoch {number}: hits {hits} + misses {misses} are not rows {rows}"
        if counters["bytes_read"] < counters["bytes_useful"]:
            yield f"epoch {number}: {counters['bytes_read']} bytes read, {counters['bytes_useful']} useful"
        sizes = counters["requests_by_size"]
        if sum(sizes.values()) != counters["io_requests"]:
            yield f"epoch {number}: requests_by_size do not add up to io_requests {counters['io_requests']}"
        elif sum(int(size) * count for size, count in sizes.items()) < counters["bytes_read"]:
            # A request that reaches past the end of the file returns fewer bytes.
            yield f"epoch {number}: requests_by_size add up to less than bytes_read {counters['bytes_read']}"


@rule("plan within budget")
def _plan(seen: Observation) -> Iterator[str]:
    for tier, limit in seen.budget_bytes.items():
        planned = seen.plan_bytes.get(tier, 0)
        if limit is not None and planned > limit:
            yield f"plans {planned} bytes of {tier}, the budget is {limit}"


@rule("threads and files closed")
def _closed(seen: Observation) -> Iterator[str]:
    if seen.threads_left:
        yield f"threads left: {', '.join(seen.threads_left[:4])}"
    if seen.files_left:
        yield f"files left open: {', '.join(sorted(set(seen.files_left))[:4])}"


@rule("close() at any moment")
def _close(seen: Observation) -> Iterator[str]:
    if seen.close_seconds > CLOSE_LIMIT_S:
        yield f"took {seen.close_seconds:.1f} s"


@rule("damaged feature file is told")
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


@rule("prepared artefacts are reused")
def _reused(seen: Observation) -> Iterator[str]:
    if seen.reused and seen.reused != [False, True, False]:
        yield f"prepared anew, again, for another seed: reused was {seen.reused}, expected [False, True, False]"

"""Rules 1 to 7: the cap is the kernel's, the start is cold, and the run held what it asked for."""

from __future__ import annotations

from harness.context import RunContext
from harness.record import Record
from harness.verdict.registry import Finding, rule, unknown
from workloads.units import format_bytes

RESIDENT_SHARE = 0.01
# Of the dataset's features, and at least: pages of a file's end, or read while the counters were.
WARM_SHARE, WARM_BYTES = 0.005, 1 << 20
SLACK_SHARE = 0.10
SLACK_BYTES = 16 * 2**20
# v1 lets so much be swapped that the kernel meets the memory limit first.
SWAP_BYTES = 2 << 20


@rule("1", "cap_is_a_kernel_cap", "CAVEATS")
def cap_is_a_kernel_cap(record: Record, context: RunContext) -> Finding | None:
    """Only a memory cgroup charges page cache and anonymous memory together; without one the cap is a wish.

    Looks at whether the isolation backend proves memory. Does not apply to runs without a cap.
    """
    if record.memory.cap_bytes is None:
        return None
    return Finding(context.proves_memory, f"isolation {context.isolation}")


@rule("1", "peak_within_cap")
def peak_within_cap(record: Record, context: RunContext) -> Finding | None:
    """A peak above the cap means that the kernel did not keep it.

    Compares the kernel's own peak with the cap; one page group of batching per core is the kernel's tolerance.
    """
    cap = record.memory.cap_bytes
    if cap is None or not context.proves_memory:
        return None
    if record.status == "ok" and record.memory.peak_bytes == 0:
        return unknown("the kernel told no peak")
    tolerance = 2**20
    return Finding(
        record.memory.peak_bytes <= cap + tolerance,
        f"peak {format_bytes(record.memory.peak_bytes)} of {format_bytes(cap)}",
    )


@rule("1", "nothing_was_swapped")
def nothing_was_swapped(record: Record, context: RunContext) -> Finding | None:
    """Swapped pages are memory beyond the cap; on a disk in memory (zram) they even are as fast.

    What of the cap was swapped out, at every gate.
    """
    if record.memory.cap_bytes is None or not context.proves_memory or record.evidence is None:
        return None
    most = max((gate.swap_bytes for gate in record.evidence.gates), default=0)
    return Finding(most <= SWAP_BYTES, f"{format_bytes(most)} swapped out")


@rule("2", "started_cold")
def started_cold(record: Record, context: RunContext) -> Finding | None:
    """Pages cached by somebody else are read without being charged, so a warm start is free memory.

    Looks at the resident share of the run's files after each eviction (before the run, after preparing).
    """
    if record.evidence is None or record.status not in ("ok", "oom", "timeout"):
        return None
    evictions = record.evidence.evictions
    if not evictions:
        return unknown("nothing was evicted")
    worst = max(evictions, key=lambda eviction: eviction.share)
    return Finding(
        worst.share < RESIDENT_SHARE,
        f"{format_bytes(worst.resident_bytes)} of {format_bytes(worst.total_bytes)} resident {worst.when}",
    )


@rule("2", "files_stayed_cold")
def files_stayed_cold(record: Record, context: RunContext) -> Finding | None:
    """Pages that another program reads while a run goes on are as free as those of a warm start.

    At each gate what is resident of the dataset's files, of the system's and of all that the worker has open, against
    the page cache charged to the cap: more than that was read by somebody else. A half per cent of the features is
    left, at least 1 MiB.
    """
    if record.evidence is None or record.status != "ok" or not context.proves_memory:
        return None
    table = record.config.dataset
    features = table.num_nodes * table.dim * (2 if table.dtype == "float16" else 4)
    gates = [gate for gate in record.evidence.gates if gate.resident_bytes is not None]
    if not gates:
        return unknown("the page cache was not looked at")
    warm, at = max(((gate.resident_bytes or 0) - gate.page_cache_bytes, gate.at) for gate in gates)
    allowed = max(WARM_BYTES, int(WARM_SHARE * features))
    return Finding(warm <= allowed, f"{format_bytes(max(0, warm))} cached for others at {at}, {len(gates)} gates")


@rule("4", "memory_as_asked")
def memory_as_asked(record: Record, context: RunContext) -> Finding | None:
    """A system that holds more than it planned competes unfairly, even where the cap lets it.

    Anonymous, shared and kernel memory at its highest against floor + training working set + plan, with slack of a
    tenth, at least 16 MiB. The plan counts host buffers.
    """
    memory = record.memory
    if memory.cap_bytes is None or record.status != "ok":
        return None
    if memory.demand_peak_bytes == 0:
        return unknown("no memory was read")
    planned = sum(item.bytes for item in memory.plan if item.tier == "host")
    allowed = memory.floor_bytes + memory.training_bytes + planned
    allowed += max(int(allowed * SLACK_SHARE), SLACK_BYTES)
    return Finding(
        memory.demand_peak_bytes <= allowed,
        f"held {format_bytes(memory.demand_peak_bytes)}, {format_bytes(allowed)} asked for (slack included)",
    )


@rule("4", "plan_was_kept")
def plan_was_kept(record: Record, context: RunContext) -> Finding | None:
    """A plan is a promise: a system that the kernel ends within it is at fault; nothing was measured but that.

    Looks at how runs ended that had sent a plan which fits the budget. What a plan refuses is a result.
    """
    if not record.memory.plan or record.memory.budget_bytes is None:
        return None
    planned = sum(item.bytes for item in record.memory.plan if item.tier == "host")
    detail = f"{format_bytes(planned)} planned of a budget of {format_bytes(record.memory.budget_bytes)}"
    if record.broke_its_plan:
        detail = f"out of memory with {detail}: a fault of the system's code, not a measurement"
    return Finding(not record.broke_its_plan, detail)


@rule("6", "cap_was_proven", "CAVEATS")
def cap_was_proven(record: Record, context: RunContext) -> Finding | None:
    """Kernels and hypervisors differ in what they charge; a cap counts once a probe was charged and stopped by it.

    Looks at the probe of the series and names what escaped.
    """
    if record.memory.cap_bytes is None:
        return None
    probe = context.probe
    if probe is None:
        return Finding(False, "no probe ran")
    escapes = list(probe.get("escapes", []))
    proven = bool(probe.get("page_cache_charged")) and bool(probe.get("allocation_stopped"))
    return Finding(proven and not escapes, "escaped: " + ", ".join(escapes) if escapes else "charged and stopped")


@rule("7", "class_is_known", "CAVEATS")
def class_is_known(record: Record, context: RunContext) -> Finding | None:
    """Without the working set nobody can tell whether storage or memory was measured."""
    if record.status not in ("ok", "oom"):
        return None
    ratio = record.summary.working_set_over_budget
    shown = "" if ratio is None else f", working set {ratio:.2f} x memory"
    return Finding(record.class_ is not None, f"{record.class_}{shown}")


@rule("27", "worker_is_in_its_cap")
def worker_is_in_its_cap(record: Record, context: RunContext) -> Finding | None:
    """A worker that moves itself, a thread or a helper to another group is neither capped nor counted.

    The worker, its threads, all that they started and what those left behind, at every gate and ten times a second.
    """
    evidence = record.evidence
    if record.memory.cap_bytes is None or not context.proves_memory or record.status != "ok" or evidence is None:
        return None
    outside = [*evidence.outside, *(name for gate in evidence.gates for name in gate.outside)]
    if outside:
        return Finding(False, "outside the cap: " + ", ".join(dict.fromkeys(outside)))
    if not evidence.gates or not evidence.samples:
        return unknown("nobody looked")
    return Finding(True, f"seen {evidence.samples} times, at {len(evidence.gates)} gates")


@rule("27", "limit_is_what_was_asked_for")
def limit_is_what_was_asked_for(record: Record, context: RunContext) -> Finding | None:
    """A cap that somebody raised while the run went on held nothing.

    The limit in force at every gate and ten times a second, to the page.
    """
    cap, evidence = record.memory.cap_bytes, record.evidence
    if cap is None or not context.proves_memory or record.status != "ok" or evidence is None:
        return None
    seen = {*evidence.limits, *(gate.limit_bytes or 0 for gate in evidence.gates)}
    if not seen:
        return unknown("nobody looked")
    page = 1 << 16
    wrong = [limit for limit in seen if not cap - page <= limit <= cap]
    said = ", ".join(format_bytes(limit) if limit else "none" for limit in sorted(wrong))
    return Finding(not wrong, f"limit {said} of {format_bytes(cap)}" if wrong else format_bytes(cap))


@rule("7", "topology_is_told", "CAVEATS")
def topology_is_told(record: Record, context: RunContext) -> Finding | None:
    """The papers' settings hold the topology and not the features; one that holds neither is another experiment.

    That is no fault of a run, so it bends nothing: it is named, here and beside the class in every table. What would is
    a budget without anybody knowing how the graph compares with it.
    """
    if record.status not in ("ok", "oom") or not record.memory.budget_bytes:
        return None
    ratio = record.summary.topology_over_budget
    if ratio is None:
        return unknown("the graph's size is not known")
    fits = "fits: the papers' setting" if ratio <= 1 else "does not fit: not the papers' setting"
    return Finding(True, f"the graph is {ratio:.2f} x the host budget and {fits}")

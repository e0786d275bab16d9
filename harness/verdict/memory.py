"""Rules 1 to 7: the cap is the kernel's, the start is cold, and the run held what it asked for."""

from __future__ import annotations

from harness.context import RunContext
from harness.record import Record
from harness.verdict.registry import Finding, rule
from workloads.units import format_bytes

RESIDENT_SHARE = 0.01
SLACK_SHARE = 0.10
SLACK_BYTES = 16 * 2**20


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
    tolerance = 2**20
    return Finding(
        record.memory.peak_bytes <= cap + tolerance,
        f"peak {format_bytes(record.memory.peak_bytes)} of {format_bytes(cap)}",
    )


@rule("2", "started_cold")
def started_cold(record: Record, context: RunContext) -> Finding | None:
    """Pages cached by somebody else are read without being charged, so a warm start is free memory.

    Looks at the resident share of the run's files after each eviction (before the run, after preparing).
    """
    if not context.evictions:
        return None
    worst = max(context.evictions, key=lambda eviction: eviction.share)
    return Finding(
        worst.share < RESIDENT_SHARE,
        f"{format_bytes(worst.resident_bytes)} of {format_bytes(worst.total_bytes)} resident {worst.when}",
    )


@rule("4", "memory_as_asked")
def memory_as_asked(record: Record, context: RunContext) -> Finding | None:
    """A system that holds more than it planned competes unfairly, even where the cap lets it.

    Anonymous, shared and kernel memory at its highest against floor + training working set + plan, with slack of a
    tenth, at least 16 MiB. The plan counts host buffers.
    """
    memory = record.memory
    if memory.cap_bytes is None or record.status != "ok" or memory.demand_peak_bytes == 0:
        return None
    planned = sum(item.bytes for item in memory.plan if item.tier == "host")
    allowed = memory.floor_bytes + memory.training_bytes + planned
    allowed += max(int(allowed * SLACK_SHARE), SLACK_BYTES)
    return Finding(
        memory.demand_peak_bytes <= allowed,
        f"held {format_bytes(memory.demand_peak_bytes)}, {format_bytes(allowed)} asked for (slack included)",
    )


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
    escapes = list(getattr(probe, "escapes", []))
    proven = bool(getattr(probe, "page_cache_charged", False)) and bool(getattr(probe, "allocation_stopped", False))
    return Finding(proven and not escapes, "escaped: " + ", ".join(escapes) if escapes else "charged and stopped")


@rule("7", "class_is_known", "CAVEATS")
def class_is_known(record: Record, context: RunContext) -> Finding | None:
    """Without the working set nobody can tell whether storage or memory was measured."""
    if record.status not in ("ok", "oom"):
        return None
    ratio = record.summary.working_set_over_budget
    shown = "" if ratio is None else f", working set {ratio:.2f} x memory"
    return Finding(record.class_ is not None, f"{record.class_}{shown}")

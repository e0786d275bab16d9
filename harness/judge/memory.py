"""Rules 1 to 7 and 27: the kernel enforces the cap, the start is cold, and memory stays
within the plan."""

from __future__ import annotations

from collections.abc import Mapping

from harness.foreign import is_foreign
from harness.judge.registry import Finding, RunContext, rule, unknown
from harness.records.record import Memory, Record
from workloads.units import format_bytes

RESIDENT_SHARE = 0.01
# Allowed share of the features and least bytes: pages at a file's end, or read while
# the counters were read.
WARM_SHARE = 0.005
WARM_BYTES = 1 << 20
SLACK_SHARE = 0.10
SLACK_BYTES = 16 * 2**20
CUDA_SLACK_BYTES = 32 << 20
# Memory that a system's own module may take: a share of the budget or as much; DGL
# takes 40 MiB as a library.
MODULE_SHARE = 1 / 16
MODULE_BYTES = 4 << 20
LIBRARY_BYTES = 64 << 20
# Memory by which floors of the same code may differ by chance.
FLOOR_BYTES = 4 << 20
_NAMED = 4  # files named in a finding, the largest


def requested_and_slack(memory: Memory) -> tuple[int, int]:
    """Return the bytes that a run asked for (floor, training working set, plan), and
    the slack that rule 4 allows."""
    asked = memory.floor_bytes + memory.training_bytes + memory.planned_bytes
    return asked, max(int(asked * SLACK_SHARE), SLACK_BYTES)


def allowed_bytes(record: Record) -> int:
    """Return the bytes of files or memory that count as none: 0.5 % of the features or
    1 MiB, whichever is more."""
    return max(WARM_BYTES, int(WARM_SHARE * record.config.dataset.feature_bytes))


def files_within(
    record: Record, found: Mapping[str, int] | None, kind: str, none: str
) -> Finding | None:
    """Return whether files (bytes by path) of a kind count as none; `none`: detail
    without any."""
    if found is None:
        return None
    largest = sorted(found.items(), key=lambda entry: -entry[1])[:_NAMED]
    names = ", ".join(f"{path} ({format_bytes(nbytes)})" for path, nbytes in largest)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    reported = f"{kind}: {names}{more}" if found else none
    return Finding(sum(found.values()) <= allowed_bytes(record), reported)


@rule("1", capped=True)
def peak_within_cap(record: Record, context: RunContext) -> Finding | None:
    """A peak above the cap means that the kernel did not enforce it.

    Compares the kernel's own peak with the cap plus 1 MiB, since the kernel charges
    pages in batches per core.
    """
    cap = record.memory.cap_bytes or 0
    if record.status == "ok" and record.memory.peak_bytes == 0:
        return unknown("the kernel reported no peak")
    peak = record.memory.peak_bytes
    return Finding(
        peak <= cap + 2**20, f"peak {format_bytes(peak)} of {format_bytes(cap)}"
    )


@rule("1", "CAVEATS", capped=True, evidence=True)
def cap_is_below_the_machines_memory(
    record: Record, context: RunContext
) -> Finding | None:
    """A cap above the machine's memory, or above the limit of a group that holds it, is
    never reached and caps nothing.

    Compares the cap with the memory of the host and with the least memory limit of the
    enclosing control groups.
    """
    total = (record.environment.get("memory") or {}).get("total_bytes")
    if total is None:
        return unknown("the machine's memory is not recorded")
    enclosing = record.readings.enclosing_bytes
    bound = total
    whose = "the machine"
    if enclosing is not None and enclosing < total:
        bound = enclosing
        whose = "the control groups around it"
    cap = record.memory.cap_bytes or 0
    return Finding(
        cap < bound,
        f"cap {format_bytes(cap)}, {format_bytes(bound)} of memory in {whose}",
    )


@rule("1", capped=True, evidence=True, of=["ok"])
def memory_is_charged(record: Record, context: RunContext) -> Finding | None:
    """Memory that the cap is not charged for is a free cache.

    Adds up, at each gate and once a second, the bytes in the queues of the run's
    sockets, which cgroup v1 charges to no cap: at most 0.5 % of the features or 1 MiB,
    whichever is more. Only ranks have sockets in a sandbox, and a run that makes one by
    io_uring. All other memory of this kind is refused there (docs/threat-model.md).
    """
    looks = [(gate.uncharged_bytes, gate.at) for gate in record.readings.gates]
    looks.append((record.readings.uncharged_bytes, "a look between gates"))
    known = [(nbytes, at) for nbytes, at in looks if nbytes is not None]
    if not known:
        return None
    most, at = max(known)
    return Finding(most <= allowed_bytes(record), f"{format_bytes(most)} at {at}")


@rule("2", of=["ok", "oom", "timeout"], evidence=True, transient=True)
def started_cold(record: Record, context: RunContext) -> Finding | None:
    """Pages cached by another program are read without being charged, so a warm start
    is free memory.

    Checks the resident share of the run's files after each eviction (before the run,
    after preparing): below 1 %. Pages that the run itself has mapped stay; of a foreign
    system, those charged to the cap after its preparation count as its memory.
    """
    evictions = record.readings.evictions
    if not evictions:
        return unknown("nothing was evicted")
    charged = next(
        (
            gate.page_cache_bytes
            for gate in record.readings.gates
            if gate.at == "prepared"
        ),
        0,
    )
    own = {"after_prepare": charged if is_foreign(record.system) else 0}
    left = [
        max(0, one.resident_bytes - own.get(one.when, 0)) / max(1, one.total_bytes)
        for one in evictions
    ]
    share, worst = max(zip(left, evictions, strict=True), key=lambda pair: pair[0])
    reported = (
        f"{format_bytes(worst.resident_bytes)} of {format_bytes(worst.total_bytes)} "
        f"resident {worst.when}"
    )
    return Finding(share < RESIDENT_SHARE, reported)


@rule("2", of=["ok"], evidence=True, transient=True)
def files_stayed_cold(record: Record, context: RunContext) -> Finding | None:
    """Pages that another program reads during a run are as free as those of a warm
    start.

    Compares, at each gate, the resident pages of the dataset's files, the system's
    files and all files open in the worker with the page cache charged to the cap: the
    excess was read by other programs. At most 0.5 % of the features or 1 MiB, whichever
    is more.
    """
    if not record.readings.proves_memory:
        return None
    gates = [gate for gate in record.readings.gates if gate.resident_bytes is not None]
    if not gates:
        return unknown("the page cache was not looked at")
    warm, at = max(
        ((gate.resident_bytes or 0) - gate.page_cache_bytes, gate.at) for gate in gates
    )
    reported = (
        f"{format_bytes(max(0, warm))} cached for others at {at}, {len(gates)} gates"
    )
    return Finding(warm <= allowed_bytes(record), reported)


@rule("4", of=["ok"])
def memory_as_asked(record: Record, context: RunContext) -> Finding | None:
    """A system that holds more memory than it planned competes unfairly, even within
    the cap.

    Compares the peak of anonymous, shared and kernel memory with floor + training
    working set + plan (host buffers), with slack of a tenth, at least 16 MiB. A foreign
    system without a plan asks for its whole budget.
    """
    memory = record.memory
    if memory.cap_bytes is None or (is_foreign(record.system) and not memory.plan):
        return None
    if memory.demand_peak_bytes == 0:
        return unknown("no memory was read")
    held = memory.demand_peak_bytes
    allowed = sum(requested_and_slack(memory))
    return Finding(
        held <= allowed,
        f"held {format_bytes(held)}, {format_bytes(allowed)} asked for (slack "
        "included)",
    )


@rule("4", capped=True, evidence=True)
def floor_is_of_the_run(record: Record, context: RunContext) -> Finding | None:
    """Memory that a system holds only while its floor is measured makes its cap larger
    by as much.

    Compares the memory at the gate `floor`, where everything is loaded and built, of
    the calibration with that of the run itself, pages of files left out: in the
    calibration at most 4 MiB more. The same code differs by 0.3 MiB.
    """
    gate = next((gate for gate in record.readings.gates if gate.at == "floor"), None)
    if context.calibration is None or context.calibration.built_bytes is None:
        return None
    if gate is None or gate.held_bytes is None:
        return unknown("its worker has no gate `floor` in the run")
    more = context.calibration.built_bytes - gate.held_bytes
    reported = (
        f"{format_bytes(gate.held_bytes)} in the run, {format_bytes(max(0, more))} "
        "more in the calibration"
    )
    return Finding(more <= FLOOR_BYTES, reported)


@rule("4", "CAVEATS", of=["ok"], capped=True)
def libraries_are_small(record: Record, context: RunContext) -> Finding | None:
    """Memory that a system takes while its code is loaded counts as floor, so that its
    cap is larger by as much.

    Compares memory of the calibration, without pages of files: of the system's own
    module with a sixteenth of the budget or 4 MiB, whichever is more; of that and its
    libraries (`load_libraries()`) together with 64 MiB. Of a foreign system, memory of
    its constructor, after its imports, with a sixteenth of the budget or 16 MiB.
    """
    if context.calibration is None:
        return None
    if is_foreign(record.system):
        if (made := context.calibration.constructor_bytes) is None:
            return unknown("its worker's calibration has no gate `imports`")
        most = max(SLACK_BYTES, int(MODULE_SHARE * (record.memory.budget_bytes or 0)))
        return Finding(
            made <= most,
            f"{format_bytes(made)} taken by its constructor, {format_bytes(most)} "
            "allowed",
        )
    module, both = (
        max(0, size)
        for size in (
            context.calibration.module_bytes,
            context.calibration.library_bytes,
        )
    )
    allowed = min(
        LIBRARY_BYTES,
        max(
            MODULE_BYTES,
            int(MODULE_SHARE * (record.memory.budget_bytes or LIBRARY_BYTES)),
        ),
    )
    message = (
        f"{format_bytes(both)} for code and libraries, {format_bytes(module)} of it "
        "for the system's own module"
    )
    return Finding(module <= allowed and both <= LIBRARY_BYTES, message)


@rule("4", "CAVEATS", of=["ok"], capped=True, transient=True)
def training_peak_is_of_its_step(record: Record, context: RunContext) -> Finding | None:
    """A peak that includes earlier use makes the training working set, and with it the
    cap, larger than training needs.

    Kernels before 6.12 cannot reset the peak of a group. Checks that the calibration
    reset it before the training step, or that the step raised it.
    """
    if context.calibration is None or context.calibration.peak_is_of_step is None:
        return None
    if context.calibration.peak_is_of_step or not context.calibration.training_bytes:
        return Finding(True, "the peak is of the training step")
    most = format_bytes(context.calibration.training_bytes)
    return Finding(
        False,
        f"the kernel could not reset the peak: {most} for training may include earlier "
        "use",
    )


@rule("4", of=["ok"])
def floor_and_training_hold_no_features(
    record: Record, context: RunContext
) -> Finding | None:
    """Feature rows that a foreign system loads in its constructor or its training step
    are in no budget.

    Counts the bytes of the features that its calibration brought into the page cache
    until the floor was measured, and from the gate before its training step to the one
    after, each time after an eviction: at most 0.5 % of the features or 1 MiB,
    whichever is more.
    """
    if not is_foreign(record.system) or context.calibration is None:
        return None
    read = context.calibration.feature_read_bytes
    return Finding(
        read <= allowed_bytes(record),
        f"{format_bytes(read)} of features read outside the budget",
    )


@rule("4", of=["ok"])
def device_memory_as_asked(record: Record, context: RunContext) -> Finding | None:
    """A system that holds more device memory than it was given or planned has a cache
    that others lack.

    Compares the most device memory that the worker held with the device memory of the
    run, and its sum over all ranks with plan + training working set (device buffers),
    with slack of a tenth, on CUDA at least 32 MiB a rank for the segments in which
    torch reserves memory. On an emulated device tables count, on CUDA all bytes that
    torch reserves, and beside them NVML's count of the run's processes on all GPUs of
    the host, read from outside ten times a second, less the CUDA contexts as the
    calibration measured them.
    """
    memory = record.memory
    given = record.config.device_memory_bytes
    ranks = len(memory.device_peak_bytes)
    if not ranks:
        return None
    most = max(memory.device_peak_bytes)
    held = sum(memory.device_peak_bytes)
    asked = memory.planned_device_bytes + ranks * memory.training_device_bytes
    least = CUDA_SLACK_BYTES * ranks if record.config.device.startswith("cuda") else 0
    allowed = asked + max(int(asked * SLACK_SHARE), least)
    if given is not None and most > given:
        return Finding(
            False,
            f"held {format_bytes(most)} of {format_bytes(given)} of device memory",
        )
    reported = (
        f"held {format_bytes(held)}, {format_bytes(allowed)} asked for (slack included)"
    )
    if held > allowed or not least:
        return Finding(held <= allowed, reported)
    if memory.device_seen_bytes is None or memory.device_context_bytes is None:
        return unknown("NVML did not count the device memory of the run's processes")
    seen = memory.device_seen_bytes - memory.device_context_bytes
    allowed = allowed if given is None else min(allowed, ranks * given + least)
    contexts = format_bytes(memory.device_context_bytes)
    return Finding(
        seen <= allowed,
        f"{reported}; NVML counted {format_bytes(max(0, seen))} beside contexts of "
        f"{contexts}",
    )


@rule("4")
def plan_was_kept(record: Record, context: RunContext) -> Finding | None:
    """A system that runs out of memory although its plan fits the budget is at fault,
    and nothing was measured.

    Checks the end of runs whose plan fits the budget. A plan that refuses the budget is
    a result.
    """
    memory = record.memory
    if not memory.plan or memory.budget_bytes is None:
        return None
    detail = (
        f"{format_bytes(memory.planned_bytes)} planned of a budget of "
        f"{format_bytes(memory.budget_bytes)}"
    )
    if record.broke_its_plan:
        detail = (
            f"out of memory with {detail}: a fault of the system's code, not a "
            "measurement"
        )
    return Finding(not record.broke_its_plan, detail)


@rule("6", "CAVEATS")
def cap_was_proven(record: Record, context: RunContext) -> Finding | None:
    """Kernels and hypervisors charge different memory, so a cap counts only if a probe
    was charged and stopped by it.

    Checks the probe of the series and names the kinds of memory that escaped.
    """
    if record.memory.cap_bytes is None:
        return None
    probe = record.environment.get("probe")
    if probe is None:
        return Finding(False, "no probe ran")
    escapes = list(probe.get("escapes", []))
    proven = bool(probe.get("page_cache_charged")) and bool(
        probe.get("allocation_stopped")
    )
    return Finding(
        proven and not escapes,
        "escaped: " + ", ".join(escapes) if escapes else "charged and stopped",
    )


@rule("7", "CAVEATS", of=["ok", "oom"])
def class_is_known(record: Record, context: RunContext) -> Finding | None:
    """Without the sizes of the working set and of the graph it is unknown whether
    storage or memory was measured.

    The papers' settings hold the topology, not the features, in memory; a budget for
    neither is another experiment. Both are valid: the detail names the setting, and so
    does the class in every table.
    """
    rows = record.summary.working_set_over_budget
    graph = record.summary.topology_over_budget
    sizes = [str(record.class_)]
    if rows is not None:
        sizes.append(f"working set {rows:.2f} x memory")
    if graph is not None:
        setting = "the papers' setting" if graph <= 1 else "not the papers' setting"
        sizes.append(f"graph {graph:.2f} x the host budget: {setting}")
    known = graph is not None or not record.memory.budget_bytes
    return Finding(record.class_ is not None and known, ", ".join(sizes))


@rule("27", of=["ok"], evidence=True)
def processors_are_what_was_asked_for(
    record: Record, context: RunContext
) -> Finding | None:
    """A worker that takes more processors than the run was given (`cores`) is not
    comparable with those that do not.

    Divides the processor seconds in user mode of all processes in the cap, read from
    outside, by the seconds between the gates of each epoch: at most `cores`, with a
    twentieth and 0.1 s of slack for the kernel's accounting.
    """
    cores = record.config.cores
    if not cores:
        return None
    used = [
        (epoch.user_s, epoch.gate_s)
        for epoch in record.epochs
        if epoch.user_s is not None and epoch.gate_s
    ]
    if len(used) < len(record.epochs):
        return unknown("the processors' time was not counted")
    over = max(
        (user - 1.05 * cores * seconds - 0.1 for user, seconds in used), default=0.0
    )
    most = max((user / seconds for user, seconds in used), default=0.0)
    return Finding(over <= 0.0, f"{most:.2f} processors busy, {cores} asked for")


@rule("33", "CAVEATS", evidence=True)
def worker_was_sandboxed(record: Record, context: RunContext) -> Finding | None:
    """Without walls a worker can read other files and other processes' memory, leave
    its cap and stop the observer.

    Checks that the worker ran in a sandbox (bubblewrap) or a container;
    docs/threat-model.md lists their walls. The record names the mechanism, or the
    reason why the worker was not sandboxed.
    """
    sandbox = record.readings.sandbox
    if sandbox is None:
        return None
    return Finding(
        bool(sandbox.kind), sandbox.kind or f"not sandboxed: {sandbox.missing}"
    )

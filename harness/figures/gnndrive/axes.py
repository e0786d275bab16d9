"""GNNDrive Figures 9, 10, 12 and 13: epoch time over memory, mini-batch size, feature buffer and processes."""

from __future__ import annotations

from harness.compare.plan import Plain, Plan, grid
from harness.compare.points import Group, Point
from harness.figures.base import Figure, gallery, only_systems, register, values, wide_device, with_dims
from harness.figures.draw.kinds import Axis, bars, lines
from harness.figures.ginex.grid import batch_sizes, host_budget
from harness.figures.gnndrive.grid import CPU, SYSTEMS, cpu_variant, in_bytes
from workloads.units import format_bytes, parse_bytes, parse_count

# 8 to 128 GB in the paper: 4 to 60 % of papers100M's features at dimension 512, where our budget is about the smallest.
MEMORY_FACTORS = [1.0, 2.0, 4.0, 8.0]
MOST_MEMORY = 16.0
# The paper's largest cap holds its smaller graphs: here a tenth of our graph, which the warm-up epoch touches whole.
SMALL_SHARE = 10
SMALL_MEMORY = "1.2x"
SMALL_BATCHES = 40
# The paper's 500 to 4000 around its default of 1000.
BATCH_FACTORS = [0.5, 1.0, 2.0, 4.0]
BUFFER_FACTORS = [1.0, 2.0, 4.0, 8.0]
# The paper's default buffer is 4 % of its features. A quarter of the profile's batch size and four times the number of
# mini-batches keep ours near that, so that the largest buffer holds only part of the rows that an epoch reads.
BUFFER_BATCH_FACTOR = 0.25
RANKS = [1, 2, 4, 6, 8]


def over_memory(profile: Plain) -> Plan:
    """Plan the systems and in-memory at budgets of one to sixteen times the profile's, dimension 512."""
    wide = _wide(profile)
    factors = [*values(profile, "memory_factors", MEMORY_FACTORS), MOST_MEMORY]
    budgets = [round(host_budget(wide) * factor) for factor in dict.fromkeys(factors)]
    systems = only_systems(wide, ["in-memory", *SYSTEMS])
    return grid(wide, systems, {budget: {"memory": f"+{budget}"} for budget in budgets})


def _wide(profile: Plain) -> Plain:
    short = wide_device(gallery(profile))
    memory = f"+{host_budget(short)}"
    changed, (name,) = with_dims(short, [512])
    return {**changed, "run": {**changed["run"], "dataset": name, "memory": memory}}


def on_a_graph_that_fits(profile: Plain) -> list[Plain]:
    """Return the experiment of pyg+ and gnndrive on a graph that fits memory (gd-19), which the drawing leaves out."""
    wide = _wide(profile)
    name = wide["run"]["dataset"]
    recipe = wide["datasets"][name]
    sizes = {key: parse_count(recipe[key], key) // SMALL_SHARE for key in ("nodes", "edges")}
    run = {**wide["run"], "dataset": f"{name}-small", "memory": SMALL_MEMORY, "max_batches": SMALL_BATCHES}
    datasets = {**wide["datasets"], f"{name}-small": {**recipe, **sizes}}
    systems = only_systems(profile, ["pyg+", "gnndrive"])
    changed = {"name": "gnndrive-fig9-fits", "datasets": datasets, "systems": systems, "run": run, "grid": {}}
    return [{**wide, **changed}]


def over_batches(profile: Plain) -> Plan:
    """Plan the systems at each batch size, with equal seed nodes per epoch and device memory for the largest size."""
    short = in_bytes(gallery(profile))
    factors = values(profile, "batch_factors", BATCH_FACTORS)
    memory = short["run"].get("device_memory")
    if memory is not None:
        short["run"]["device_memory"] = round(max(factors) * parse_bytes(memory))
    sizes = {run["batch_size"]: run for run in batch_sizes(short, factors)}
    return grid(short, only_systems(short, SYSTEMS), sizes)


def over_buffers(profile: Plain) -> Plan:
    """Plan gnndrive on both devices with each feature buffer; all runs have the memory for the largest buffer."""
    short = in_bytes(gallery(profile))
    (sizes,) = batch_sizes(short, [BUFFER_BATCH_FACTOR])
    short["run"] = {**short["run"], **sizes}
    factors = [float(factor) for factor in values(profile, "buffer_factors", BUFFER_FACTORS)]
    memory = short["run"].get("device_memory")
    if memory is not None:
        # The profile's memory holds a buffer of scale 1 for larger mini-batches: times the factor, the largest one.
        short["run"]["device_memory"] = round(max(factors) * parse_bytes(memory))
    variants = [*only_systems(short, ["gnndrive"]), cpu_variant(short)]
    return grid(short, variants, {factor: {"options": {"feature_buffer_scale": factor}} for factor in factors})


def over_processes(profile: Plain) -> Plan:
    """Plan gnndrive in one and several processes, on devices and on the CPU; the bare disk is no bottleneck.

    The paper leaves host memory unrestricted; here all runs have the profile's budget times the most processes.
    """
    short = gallery(profile)
    ranks = values(profile, "ranks", RANKS)
    short["run"] = {**short["run"], "memory": f"+{max(ranks) * host_budget(short)}", "disk_class": "none"}
    variants = [*only_systems(short, ["gnndrive"]), cpu_variant(short)]
    return grid(short, variants, {count: {"ranks": count} for count in ranks})


def _buffer_bytes(point: Point) -> int | None:
    plan = point.record.get("memory", {}).get("plan", [])
    return next((int(item["bytes"]) for item in plan if item["name"] == "feature buffer"), None)


def _variants(group: Group) -> str:
    missing = "" if CPU in group.systems() else "; not run: the CPU variant"
    return f"one dataset of the paper's four{missing}"


def _processes(group: Group) -> str:
    emulated = str(group.points[0].record["config"]["device"]).startswith("emulated:")
    usable = {(point.record.get("environment", {}).get("cpu") or {}).get("usable") for point in group.points} - {None}
    parts = [
        "each process has an EMULATED device of its own" if emulated else "each process has a device of its own",
        f"all processes share {usable.pop()} cores" if len(usable) == 1 else "",
        "" if CPU in group.systems() else "not run: the CPU variant",
    ]
    return "; ".join(part for part in parts if part)


register(
    Figure(
        "gnndrive-fig9",
        over_memory,
        lines(
            over_memory,
            Axis("host memory budget beyond floor and training", 5, "budgets", format_bytes),
            title="Epoch time over memory",
        ),
        beside=on_a_graph_that_fits,
    )
)
register(
    Figure(
        "gnndrive-fig10",
        over_batches,
        lines(
            over_batches,
            Axis("mini-batch size (seed nodes)", len(BATCH_FACTORS), "sizes"),
            title="Epoch time over mini-batch size",
        ),
    )
)
register(
    Figure(
        "gnndrive-fig12",
        over_buffers,
        bars(
            over_buffers,
            Axis("feature buffer, times its own size", BUFFER_FACTORS, "buffer", lambda x: f"{x:g}x"),
            title="Epoch time over feature buffer",
            numbers=".2f",
            note=_variants,
            columns={"buffer_bytes": _buffer_bytes},
        ),
    )
)
register(
    Figure(
        "gnndrive-fig13",
        over_processes,
        bars(
            over_processes,
            Axis("processes", RANKS, "processes"),
            title="Epoch time over processes",
            numbers=".2f",
            note=_processes,
        ),
    )
)

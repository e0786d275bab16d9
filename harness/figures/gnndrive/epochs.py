"""GNNDrive's epochs: Figures 2, 8 to 10 and 12 to 14, Table 2, and utilisation over time (Figures 3 and 11)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from harness.compare.plan import Plain, Plan, first_setting, grid, joined
from harness.compare.points import Group, NotDrawn, Point, stage_seconds
from harness.figures.accuracy_runs import accuracy_plan, draw_by_system
from harness.figures.base import Drawing, Sheet, figure_of_runs, paper_value, sheet
from harness.figures.draw import style
from harness.figures.draw.captions import describe_memory, left_out
from harness.figures.draw.kinds import Axis, bars, curves, lines
from harness.figures.draw.panels import MARK
from harness.figures.draw.style import Look
from harness.figures.draw.timelines import draw_timelines
from harness.figures.grids import batch_sizes, gallery, host_budget, only_systems, values, wide_device, with_dims
from workloads.units import format_bytes, parse_bytes, parse_count

#: The paper's comparison (Section 5.1), baselines first.
SYSTEMS = ["pyg+", "ginex", "gnndrive"]
#: gnndrive trained on the CPU, with its feature buffer in host memory.
CPU = "gnndrive (cpu)"


def in_bytes(profile: Plain) -> Plain:
    """Return the profile with its host budget in bytes, hence equal over dimensions (32 GB in the paper)."""
    return {**profile, "run": {**profile["run"], "memory": f"+{host_budget(profile)}"}}


def narrow(profile: Plain) -> Plain:
    """Return the gallery's profile, mini-batches scaled by `wide_batch_factor` to fit the widest rows in the budget."""
    short = in_bytes(gallery(profile))
    (run,) = batch_sizes(short, values(profile, "wide_batch_factor", [1.0])[:1])
    return {**short, "run": {**short["run"], **run}}


def over_dims(profile: Plain, dims: list[int]) -> tuple[Plain, dict[int, Plain]]:
    """Return the profile with a dataset per dimension, and run settings with device memory for equally many rows."""
    changed, names = with_dims(profile, dims)
    memory = profile["run"].get("device_memory")
    base = int(profile["datasets"][profile["run"]["dataset"]].get("dim", 128))
    runs: dict[int, Plain] = {}
    for dim, name in zip(dims, names, strict=True):
        own = {} if memory is None or dim == base else {"device_memory": parse_bytes(memory) * dim // base}
        runs[dim] = {"dataset": name, **own}
    return changed, runs


def cpu_variant(profile: Plain, run: Plain | None = None) -> Plain:
    """Return the entry of gnndrive on the CPU, with device memory added to the host budget; `run`: more settings."""
    entry = only_systems(profile, ["gnndrive"])[0]
    own: Plain = {"name": entry} if isinstance(entry, str) else dict(entry)
    host = host_budget(profile) + parse_bytes(profile["run"].get("device_memory") or 0)
    settings = {**own.get("run", {}), "device": "cpu", "device_memory": None, "memory": f"+{host}", **(run or {})}
    return {**own, "series": CPU, "run": settings}


def grows(points: Iterable[Point], what: str) -> str:
    """Return caption text where device memory differs between the points; empty otherwise."""
    sizes = {int(point.record["config"]["device_memory_bytes"] or 0) for point in points if point.record} - {0}
    return f"device memory grows with the {what}" if len(sizes) > 1 else ""


DIMS = [64, 128, 256, 512]
MODELS = {"sage": "GraphSAGE", "gcn": "GCN", "gat": "GAT"}
#: Stages of a run and their suffix to the system's name.
STAGES = {"sample": "only", "all": "all"}
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
REFERENCE = "in-memory"
MARIUS = "mariusgnn"
# Budgets of mariusgnn in Table 2: 32 and 128 GB in the paper.
FACTORS = [1.0, 4.0]
PAPER = {"gnndrive": "GNNDrive-GPU", CPU: "GNNDrive-CPU", "pyg+": "PyG+", "ginex": "Ginex"}
PARTS = ("preparation", "training", "overall")


def sampling(profile: Plain) -> Plan:
    """Plan the capped systems at each dimension, with sampling only and with all stages."""
    short = narrow(profile)
    changed, runs = over_dims(short, values(profile, "dims", DIMS))
    entries = []
    for entry in only_systems(short, SYSTEMS):
        own: Plain = {"name": entry} if isinstance(entry, str) else entry
        for stages, name in STAGES.items():
            run = {**own.get("run", {}), "stages": stages}
            entries.append({**own, "series": f"{own['name']}-{name}", "run": run})
    return grid(changed, entries, runs)


def _open_or_filled(series: str) -> Look:
    """Return the system's look: white with its hatch for sampling only, its plain colour for all stages."""
    system, _, stages = series.rpartition("-")
    look = style.look(system)
    return replace(look, color="white") if stages == "only" else replace(look, hatch="")


def _both(group: Group) -> list[str]:
    if len({series.rpartition("-")[2] for series in group.systems()}) < len(STAGES):
        raise NotDrawn("no runs with sampling only beside runs with all stages (run with --figures gnndrive-fig2)")
    return [grows(group.points, "dimension")]


bars(
    "gnndrive-fig2",
    sampling,
    Axis("feature dimension", DIMS, "dimension"),
    value=stage_seconds("sample"),
    looks=_open_or_filled,
    title="Sampling alone (-only) and with all stages (-all)",
    ylabel="sampling time per epoch (s)",
    log=True,
    numbers="",
    note=_both,
)


def epochs(profile: Plain) -> Plan:
    """Plan the systems at each dimension with each model, the CPU variant with GraphSAGE.

    A model that the profile leaves out runs only at the profile's dimension, on both devices for the comparison.
    """
    short = narrow(profile)
    changed, runs = over_dims(short, values(profile, "dims", DIMS))
    own = int(short["datasets"][short["run"]["dataset"]].get("dim", 128))
    models = values(profile, "models", list(MODELS))
    systems = only_systems(short, SYSTEMS)
    plans = []
    for model, title in MODELS.items():
        dims = runs if model in models else {own: {}}
        plans.append(grid(changed, systems, {dim: {**run, "model": model} for dim, run in dims.items()}, panel=title))
        for dim, run in dims.items():
            if model != "sage" and model in models:
                continue
            cpu = cpu_variant({**short, "run": {**short["run"], **run}}, {**run, "device_memory": None})
            plans.append(grid(changed, [cpu], {dim: {"model": model}}, panel=title))
    return joined(plans)


def _left_out(group: Group) -> list[str]:
    drawn = {point.panel for point in group.points}
    return [
        grows(group.points, "dimension"),
        "of the CPU variant, device memory is in the host budget" if CPU in group.systems() else "",
        left_out([model for model, title in MODELS.items() if title in drawn], list(MODELS), "model"),
        "one dataset of the paper's four",
    ]


curves("gnndrive-fig8", epochs, Axis("feature dimension", DIMS, "dimension"), note=_left_out)


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


lines(
    "gnndrive-fig9",
    over_memory,
    Axis("host memory budget beyond floor and training", 5, "budgets", format_bytes),
    title="Epoch time over memory",
    beside=on_a_graph_that_fits,
)


def over_batches(profile: Plain) -> Plan:
    """Plan the systems at each batch size, with equal seed nodes per epoch and device memory for the largest size."""
    short = in_bytes(gallery(profile))
    factors = values(profile, "batch_factors", BATCH_FACTORS)
    short = wide_device(short, max(factors))
    sizes = {run["batch_size"]: run for run in batch_sizes(short, factors)}
    return grid(short, only_systems(short, SYSTEMS), sizes)


lines(
    "gnndrive-fig10",
    over_batches,
    Axis("mini-batch size (seed nodes)", len(BATCH_FACTORS), "sizes"),
    title="Epoch time over mini-batch size",
)


def over_buffers(profile: Plain) -> Plan:
    """Plan gnndrive on both devices with each feature buffer; all runs have the memory for the largest buffer."""
    short = in_bytes(gallery(profile))
    (sizes,) = batch_sizes(short, [BUFFER_BATCH_FACTOR])
    short["run"] = {**short["run"], **sizes}
    factors = [float(factor) for factor in values(profile, "buffer_factors", BUFFER_FACTORS)]
    # The profile's memory holds a buffer of scale 1 for larger mini-batches: times the factor, the largest one.
    short = wide_device(short, max(factors))
    variants = [*only_systems(short, ["gnndrive"]), cpu_variant(short)]
    return grid(short, variants, {factor: {"options": {"feature_buffer_scale": factor}} for factor in factors})


def _buffer_bytes(point: Point) -> int | None:
    plan = point.record.get("memory", {}).get("plan", [])
    return next((int(item["bytes"]) for item in plan if item["name"] == "feature buffer"), None)


def _variants(group: Group) -> list[str]:
    return ["one dataset of the paper's four", "" if CPU in group.systems() else "not run: the CPU variant"]


bars(
    "gnndrive-fig12",
    over_buffers,
    Axis("feature buffer, times its own size", BUFFER_FACTORS, "buffer", lambda x: f"{x:g}x"),
    title="Epoch time over feature buffer",
    numbers=".2f",
    note=_variants,
    columns={"buffer_bytes": _buffer_bytes},
)


def over_processes(profile: Plain) -> Plan:
    """Plan gnndrive in one and several processes, on devices and on the CPU; the bare disk is no bottleneck.

    The paper leaves host memory unrestricted; here all runs have the profile's budget times the most processes.
    """
    short = gallery(profile)
    ranks = values(profile, "ranks", RANKS)
    short["run"] = {**short["run"], "memory": f"+{max(ranks) * host_budget(short)}", "disk_class": "none"}
    variants = [*only_systems(short, ["gnndrive"]), cpu_variant(short)]
    return grid(short, variants, {count: {"ranks": count} for count in ranks})


def _processes(group: Group) -> list[str]:
    emulated = str(group.points[0].record["config"]["device"]).startswith("emulated:")
    usable = {(point.record.get("environment", {}).get("cpu") or {}).get("usable") for point in group.points} - {None}
    return [
        "each process has an EMULATED device of its own" if emulated else "each process has a device of its own",
        f"all processes share {usable.pop()} cores" if len(usable) == 1 else "",
        "" if CPU in group.systems() else "not run: the CPU variant",
    ]


bars(
    "gnndrive-fig13",
    over_processes,
    Axis("processes", RANKS, "processes"),
    title="Epoch time over processes",
    numbers=".2f",
    note=_processes,
)


def judged(profile: Plain) -> Plan:
    """Plan the accuracy runs of the capped systems, and the same training with all data in memory."""
    return accuracy_plan(profile, [{"name": REFERENCE, "memory": "none"}, *only_systems(profile, SYSTEMS)])


def _memory(done: list[Point]) -> str:
    capped = [describe_memory(point.record["config"]["memory"]) for point in done if point.system != REFERENCE]
    return f"memory {capped[0]}, {REFERENCE} without a cap" if capped else ""


@figure_of_runs("gnndrive-fig14", judged, least=1)
def fig14(group: Group) -> Drawing:
    """Draw accuracy over epochs and over training time, one line per system; raise NotDrawn without a run."""
    return draw_by_system(group, [REFERENCE, *SYSTEMS], ["Accuracy over epochs", "Accuracy over time"], _memory)


def budgets(profile: Plain) -> Plan:
    """Plan the systems and the CPU variant at the profile's budget, mariusgnn also at four times the budget."""
    short = gallery(profile)
    sizes = {round(host_budget(short) * factor): factor for factor in FACTORS}
    others = [*only_systems(short, SYSTEMS), cpu_variant(short)]
    marius = only_systems(short, [MARIUS])
    return joined(
        [grid(short, others, {"": {}}), *(grid(short, marius, {size: {"memory": f"+{size}"}}) for size in sizes)]
    )


@figure_of_runs("gnndrive-tab2", budgets, least=1)
def tab2(group: Group) -> Sheet:
    """Return one row per system with data preparation, training and the whole epoch, and the paper's on papers100M."""
    found = {point.system: point for point in group.points if point.system != MARIUS}
    marius = [point for point in group.points if point.system == MARIUS]
    rows = [_line(name, paper, found.get(name)) for name, paper in PAPER.items()]
    rows += [
        _line(f"{MARIUS}, {format_bytes(point.x)}", paper, point)
        for point, paper in zip(marius, ["MariusGNN-32G", "MariusGNN-128G"], strict=False)
    ]
    seconds = dict.fromkeys(["data preparation (s)", "training (s)", "overall (s)"], ".2f")
    theirs = dict.fromkeys([f"paper: {part} (s)" for part in PARTS], ".1f")
    extra = (
        "training: all of the epoch after data preparation, of which most systems have none; the CPU variant has the "
        "device's memory in its host budget; the paper's values: papers100M, 32 GB (mariusgnn also 128 GB)"
    )
    columns = {"system": "", **seconds, "preparation (%)": ".0f", **theirs}
    return sheet(rows, columns, group, extra)


def _seconds(point: Point | None) -> tuple[float | None, float | None, float | None]:
    """Return median seconds of data preparation (None without it), of the rest of the epoch, and of the epoch."""
    epochs = [] if point is None else [epoch for epoch in point.record["epochs"] if not epoch["warmup"]]
    if point is None or point.value is None or not epochs:
        return None, None, None
    prepares = any("data_prep" in epoch["stages_s"] for epoch in epochs)
    spent = [float(epoch["stages_s"].get("data_prep", 0.0)) for epoch in epochs]
    rest = [float(epoch["seconds"]) - before for epoch, before in zip(epochs, spent, strict=True)]
    return (median(spent) if prepares else None), median(rest), point.value


def _line(name: str, paper: str, point: Point | None) -> Plain:
    before, training, overall = _seconds(point)
    status = point.status if point is not None else "not run"
    failed = None if point is not None and point.value is not None else MARK.get(status, status)
    line: Plain = {
        "system": name,
        "data preparation (s)": failed or before,
        "training (s)": failed or training,
        "overall (s)": failed or overall,
        "preparation (%)": 100 * before / overall if before is not None and overall else None,
    }
    line |= {f"paper: {part} (s)": paper_value("gnndrive-tab2", paper, part) for part in PARTS}
    samples, run = (point.samples, point.record.get("run_id", "")) if point is not None else (0, "")
    return {**line, "status": status, "samples": samples, "run": run}


BASELINES = ["pyg+", "ginex", "mariusgnn"]


def baselines(profile: Plain) -> Plan:
    """Plan capped runs of the baselines."""
    return grid(first_setting(profile), only_systems(profile, BASELINES), {"": {}})


def variants(profile: Plain) -> Plan:
    """Plan gnndrive as in the profile, and on the CPU with the device memory added to the host budget."""
    first = first_setting(profile)
    return grid(first, [*only_systems(first, ["gnndrive"]), cpu_variant(first)], {"": {}})


@figure_of_runs("gnndrive-fig3", lambda profile: baselines(gallery(profile)), otherwise=baselines, least=1)
def fig3(group: Group) -> Drawing:
    """Draw one panel per system, from the headline's runs where the gallery's were not made."""
    points = group.done
    failed = {point.system: point.status.upper() for point in group.points if point.value is None}
    done = [point.system for point in points]
    missing = [f"{failed.get(name, 'not run')}: {name}" for name in BASELINES if name not in done]
    return draw_timelines(points, group, done, "; ".join(missing))


@figure_of_runs("gnndrive-fig11", lambda profile: variants(gallery(profile)), otherwise=variants, least=1)
def fig11(group: Group) -> Drawing:
    """Draw the GPU variant above the CPU variant, as far as measured; raise NotDrawn if neither is."""
    points = group.done
    if not points:
        raise NotDrawn("no run of gnndrive under a cap has a measured epoch")
    names = ["CPU" if point.system == CPU else "GPU" for point in points]
    titles = [
        f"gnndrive, {name} variant ({point.record['config']['device']})"
        for name, point in zip(names, points, strict=True)
    ]
    missing = [name for name in ("GPU", "CPU") if name not in names]
    note = "of the CPU variant, the device's memory is in its host budget"
    if missing:
        note = f"not run in the same setting: the {missing[0]} variant (--figures gnndrive-fig11)"
    return draw_timelines(points, group, titles, note)

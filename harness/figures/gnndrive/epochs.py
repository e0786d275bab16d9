"""GNNDrive's epochs: over dimensions (Figures 2, 8), memory (9) and mini-batch sizes
(10), and to accuracy (14)."""

from __future__ import annotations

from dataclasses import replace

from harness.compare.cells import Cells
from harness.compare.plan import Plan, as_entry, grid, joined
from harness.compare.verdicts import NotDrawn
from harness.figures import grids
from harness.figures.accuracy_runs import accuracy_profile, draw_by_system
from harness.figures.base import Drawing, figure_of_cells
from harness.figures.draw import style
from harness.figures.draw.captions import describe_memory
from harness.figures.draw.charts import Axis, bars, curves, lines
from harness.figures.draw.style import Look
from harness.figures.findings import ratios, spans, wide
from harness.figures.gnndrive.grid import (
    CPU,
    DIMS,
    REFERENCE,
    SYSTEMS,
    cpu_note,
    cpu_variant,
    device_note,
    in_bytes,
    on_cpu,
    wide_rows,
    with_run,
)
from harness.figures.over_axis import PanelPlaces, by_panel, fastest, over_each
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes

MODELS = {"sage": "GraphSAGE", "gcn": "GCN", "gat": "GAT"}
# 8 to 128 GB in the paper: 4 to 60 % of papers100M's features at dimension 512, where
# our budget is about the smallest.
MEMORY_FACTORS = [1.0, 2.0, 4.0, 8.0]
MOST_MEMORY = 16.0
# The paper's 500 to 4000 around its default of 1000.
BATCH_FACTORS = [0.5, 1.0, 2.0, 4.0]
#: Suffix of a colour that makes it paler.
PALE = "66"
ONE_DATASET = "one dataset of the paper's four"
OVER_DIMS = Axis("feature dimension", DIMS, "dimension")


def sampling(profile: JsonDict) -> Plan:
    """Plan the capped systems at each dimension, with sampling only and with all
    stages."""
    base, runs = wide_rows(profile)
    entries = []
    for own in map(as_entry, grids.only_systems(base, SYSTEMS)):
        entries.append(own | {"series": f"{own['name']}-only", "stages": "sample"})
        entries.append(own | {"series": f"{own['name']}-all", "stages": "all"})
    return grid(base, entries, runs)


@figure_of_cells("gnndrive-fig2", sampling)
def fig2(cells: Cells) -> Drawing:
    """Draw seconds of sampling, alone and beside the other stages; raise NotDrawn
    unless both were measured."""
    stages = {name.rpartition("-")[2] for name in cells.systems}
    if stages != {"only", "all"}:
        raise NotDrawn(
            "no runs with sampling only beside runs with all stages (run with "
            "--figures gnndrive-fig2)"
        )
    title = "Sampling alone (-only) and with all stages (-all)"
    ylabel = "sampling time per epoch (s)"
    notes = [device_note(cells)]
    rows = cells.medians("stages_s.sample")
    names = rows.system.str.extract("(?P<name>.+)-(?P<stages>only|all)$")
    times = ratios(
        wide(rows.join(names), index=["name", "x"], columns="stages"), "all", "only"
    )
    slower = wide(times, "times", columns="name")
    most_first = slower[slower.max().sort_values(ascending=False).index]
    finding = spans(most_first, "{name} {span}x", before="Other stages slow sampling: ")
    return bars(
        cells,
        OVER_DIMS,
        title=title,
        rows=rows,
        others=False,
        ylabel=ylabel,
        notes=notes,
        finding=finding,
        looks=_look,
    )


def _look(series: str) -> Look:
    """Return the look of a series like `pyg+-only`: the system's, paler for sampling
    alone."""
    system, _, stages = series.rpartition("-")
    own = style.system_looks([system])(system)
    return (
        replace(own, color=f"{own.color}{PALE}", hatch="") if stages == "only" else own
    )


def epochs(profile: JsonDict) -> Plan:
    """Plan the systems at each dimension with each model, the CPU variant with
    GraphSAGE.

    A model that the profile leaves out runs only at the profile's dimension, on both
    devices for the comparison.
    """
    base, runs = wide_rows(profile)
    systems = grids.only_systems(base, SYSTEMS)
    models = grids.values(profile, "models", list(MODELS))
    plans = []
    for model, title in MODELS.items():
        dims = runs if model in models else {grids.dimension(base): {}}
        over = {dim: run | {"model": model} for dim, run in dims.items()}
        plans.append(grid(base, systems, over, panel=title))
        if model == "sage" or model not in models:
            beside = {
                dim: run | on_cpu(with_run(base, **run)) for dim, run in over.items()
            }
            plans.append(grid(base, [cpu_variant(base)], beside, panel=title))
    return joined(plans)


@figure_of_cells("gnndrive-fig8", epochs)
def fig8(cells: Cells) -> Drawing:
    """Draw epochs over dimensions, a panel for each model."""
    notes = [device_note(cells), cpu_note(cells), ONE_DATASET]
    return curves(cells, OVER_DIMS, notes, _over_others(cells))


def _over_others(cells: Cells) -> str:
    """Return the sentence on gnndrive's speed over the other systems'; empty where no
    cell has both."""
    *others, ours = SYSTEMS
    rows = by_panel(cells.medians())
    places = PanelPlaces(list(dict.fromkeys(rows.x)))
    return over_each(rows, ours, [*others, CPU], places)


def _wide(profile: JsonDict) -> JsonDict:
    """Return the gallery's profile with rows of dimension 512, and the host budget of
    its own rows."""
    short = in_bytes(grids.wide_device(grids.gallery(profile)))
    changed, (name,) = grids.with_dims(short, [512])
    return with_run(changed, dataset=name)


def over_memory(profile: JsonDict) -> Plan:
    """Plan the systems and in-memory at budgets of one to sixteen times the profile's,
    dimension 512."""
    base = _wide(profile)
    least = grids.host_budget(base)
    factors = [*grids.values(profile, "memory_factors", MEMORY_FACTORS), MOST_MEMORY]
    budgets = [round(least * factor) for factor in factors]
    systems = grids.only_systems(base, [REFERENCE, *SYSTEMS])
    return grid(base, systems, {budget: {"memory": f"+{budget}"} for budget in budgets})


def on_a_graph_that_fits(profile: JsonDict) -> list[JsonDict]:
    """Return the experiment of pyg+ and gnndrive on a graph that fits memory (gd-19),
    which the drawing leaves out.

    The paper's largest cap holds its smaller graphs: here a tenth of our graph, which
    the warm-up epoch touches whole.
    """
    base = _wide(profile)
    name, recipe = grids.dataset_of(base)
    small = f"{name}-small"
    base["datasets"][small] = grids.scaled(recipe, 0.1)
    shared = with_run(base, dataset=small, memory="1.2x", max_batches=40)
    systems = grids.only_systems(profile, ["pyg+", "gnndrive"])
    return [grid(shared, systems, {"": {}}).experiment("gnndrive-fig9-fits")]


@figure_of_cells("gnndrive-fig9", over_memory, beside=on_a_graph_that_fits)
def fig9(cells: Cells) -> Drawing:
    """Draw epochs over host memory."""
    axis = Axis(
        "host memory beyond interpreter and training", 5, "budgets", format_bytes
    )
    finding = fastest(cells.medians(), axis.places(cells))
    return lines(cells, axis, "Epoch time over memory", finding)


def over_batches(profile: JsonDict) -> Plan:
    """Plan the systems at each batch size, with equal seed nodes per epoch and device
    memory for the largest size."""
    factors = grids.values(profile, "batch_factors", BATCH_FACTORS)
    short = grids.wide_device(in_bytes(grids.gallery(profile)), max(factors))
    sizes = {run["batch_size"]: run for run in grids.batch_sizes(short, factors)}
    return grid(short, grids.only_systems(short, SYSTEMS), sizes)


@figure_of_cells("gnndrive-fig10", over_batches)
def fig10(cells: Cells) -> Drawing:
    """Draw epochs over mini-batch sizes."""
    axis = Axis("mini-batch size (seed nodes)", 4, "sizes")
    return lines(cells, axis, "Epoch time over mini-batch size", _over_others(cells))


def judged(profile: JsonDict) -> Plan:
    """Plan the accuracy runs of the capped systems, and the same training with all data
    in memory."""
    reference = {"name": REFERENCE, "memory": "none"}
    systems = grids.only_systems(profile, SYSTEMS)
    return grid(accuracy_profile(profile), [reference, *systems], {"": {}})


@figure_of_cells("gnndrive-fig14", judged, least=1)
def fig14(cells: Cells) -> Drawing:
    """Draw accuracy over epochs and over training time, one line per system; raise
    NotDrawn without a run."""
    memory = describe_memory(cells.runs["config.memory"].iloc[-1])
    titles = ["Accuracy over epochs", "Accuracy over time"]
    return draw_by_system(
        cells,
        [REFERENCE, *SYSTEMS],
        titles,
        f"memory {memory}, {REFERENCE} without a cap",
    )

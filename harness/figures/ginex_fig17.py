"""Ginex Fig. 17: speedup over pyg+ over the feature dimension, reading whole 4 KiB pages as the paper's code does."""

from __future__ import annotations

from typing import Any

from harness.figures.base import Drawing, Figure, Plain, gallery, left_out, register, values, with_dims
from harness.figures.evidence import Evidence
from harness.figures.ginex_grid import SYSTEMS, batch_sizes, host_budget, is_plain, systems_of
from harness.figures.ginex_speedups import draw_speedups
from harness.figures.query import group_runs
from workloads.units import parse_bytes

DIMS = [128, 256, 512, 768]
PAGES = {"io_granularity": "4096"}


def needs(profile: Plain) -> Plain:
    """The three systems at each dimension, in the same host memory; device memory grows with the rows.

    A row of dimension 768 is six times one of 128: where the profile's budget would not hold a mini-batch of those, it
    says how much smaller mini-batches are and how much larger the budget, at all dimensions (`wide_batch_factor`,
    `wide_memory_factor`).
    """
    short = gallery(profile)
    changed, names = with_dims(short, values(profile, "wide_dims", DIMS))
    (run,) = batch_sizes(short, values(profile, "wide_batch_factor", [1.0])[:1])
    memory = short["run"].get("device_memory")
    base = int(short["datasets"][short["run"]["dataset"]].get("dim", 128))
    systems = []
    for entry in systems_of(short, SYSTEMS):
        options = {**entry.get("options", {}), **(PAGES if entry["name"] != "pyg+" else {})}
        for name in names:
            own: Plain = {"dataset": name, **run}
            if memory is not None:
                own["device_memory"] = parse_bytes(memory) * int(changed["datasets"][name]["dim"]) // base
            systems.append({**entry, "options": options, "run": {**entry.get("run", {}), **own}})
    (factor,) = values(profile, "wide_memory_factor", [1.0])
    changed["run"] = {**changed["run"], "memory": f"+{round(host_budget(short) * factor)}"}
    return {**changed, "name": "ginex-fig17", "systems": systems, "grid": {}}


def _pages(config: Any) -> bool:
    """Reads of whole pages; of pyg+, whose pages the kernel reads, every plain run."""
    options = config["options"]
    if config["system"] == "pyg+":
        return is_plain(config)
    return options.get("io_granularity") == "4096" and is_plain({**config, "options": {**options, **_LOGICAL}})


_LOGICAL = {"io_granularity": "logical"}


def draw(evidence: Evidence) -> Drawing:
    """Bars over the dimension."""
    group = group_runs(
        evidence.frame,
        axis=lambda config: config["dataset"]["dim"],
        ignore=["dataset", "device_memory_bytes"],
        where=lambda config: config["system"] in SYSTEMS and _pages(config),
    )
    drawn = sorted({int(point.x) for point in group.points})
    extra = "ali+pg and ginex read whole 4 KiB pages, as the paper's code does; device memory grows with the dimension"
    reduced = left_out(drawn, DIMS, "dimension")
    return draw_speedups(
        group, title="Speedup over feature dimension", xlabel="feature dimension",
        extra=extra + (f"; {reduced}" if reduced else ""),
    )  # fmt: skip


register(
    Figure(
        "ginex-fig17", "ginex", "Speedup over feature dimension", needs, draw, claims=("gx-13",),
        full="dimension 128, 256, 512, 768 on four datasets",
    )
)  # fmt: skip

"""PaGraph Tables 1 and 4: device utilisation of DGL, and bytes that an epoch loads from host memory to the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.base import Sheet, figure_of_runs, ids, paper_rows, paper_value
from harness.figures.draw.sheets import Formatter, sheet
from harness.figures.pagraph.grid import HIDDEN, NAMES, by_model, by_sampler, setting

#: The systems of Table 4.
SYSTEMS = ["dgl", "pagraph"]
GB = 10**9


def gigabytes(value: float) -> str:
    """Return bytes as text in decimal gigabytes, as in the papers' tables."""
    return f"{value / GB:.3g} GB"


def models_and_samplers(profile: Plain) -> Plan:
    """Plan DGL with both models and both samplers."""
    models = {model: {"model": model, "hidden": HIDDEN[model]} for model in reversed(HIDDEN)}
    return joined(
        [
            grid(setting(profile), ["dgl"], {model: {**run, **way} for model, run in models.items()}, panel=sampler)
            for sampler, way in by_sampler().items()
        ]
    )


def device_memory_share(record: Plain) -> float | None:
    """Return the per cent of device memory that the run's buffers take, by its memory plan."""
    have = record["config"].get("device_memory_bytes")
    planned = [item["bytes"] for item in record["memory"]["plan"] if item["tier"] == "device"]
    return 100.0 * sum(planned) / have if have and planned else None


def _utilisation(point: Point) -> Plain:
    """Return the row of one model and sampler, with the paper's numbers."""
    busy = point.record["summary"].get("accelerator_utilisation")
    key = f"{NAMES[str(point.x)]} {point.panel}"
    return {
        "model": NAMES[str(point.x)],
        "sampling": point.panel,
        "computation (%)": None if busy is None else 100.0 * busy,
        "memory (%)": device_memory_share(point.record),
        "run": point.record["run_id"],
        "computation, paper (%)": paper_value("pagraph-tab1", key, "computation"),
        "memory, paper (%)": paper_value("pagraph-tab1", key, "memory"),
    }


@figure_of_runs("pagraph-tab1", models_and_samplers, least=1)
def tab1(group: Group) -> Sheet:
    """Return one row per model and sampler; raise NotDrawn without a measured epoch."""
    points = group.done
    if not points:
        raise NotDrawn("no run of dgl with the paper's workload (pagraph-tab1)")
    measures = ["computation (%)", "computation, paper (%)", "memory (%)", "memory, paper (%)"]
    columns = {"model": "", "sampling": "", **dict.fromkeys(measures, ".1f")}
    note = (
        "computation: training alone over the epoch (rule 20); memory: the run's device buffers over the device, "
        "without what training itself takes, which an emulated device does not need"
    )
    return sheet([_utilisation(point) for point in points], columns, group, note, points=points, runs=ids(points))


def loaded(epoch: Mapping[str, Any]) -> float | None:
    """Return the bytes that an epoch copied to the device, None if not counted."""
    value = epoch["counters"].get("bytes_loaded")
    return None if value is None else float(value)


@figure_of_runs("pagraph-tab4", lambda profile: by_model(profile, SYSTEMS, "gcn"), loaded, least=1)
def tab4(group: Group) -> Sheet:
    """Return one measured row, then the paper's; raise NotDrawn without loaded bytes of DGL and PaGraph."""
    found = {point.system: point for point in group.done if point.x == "gcn"}
    missing = [name for name in SYSTEMS if name not in found]
    if missing:
        raise NotDrawn(f"no run of {', '.join(missing)} with the paper's workload that counted what it loaded")
    dgl, pagraph = (float(found[name].value or 0.0) for name in SYSTEMS)
    record, facts = found["dgl"].record, found["pagraph"].record["facts"]
    rows: list[Plain] = [
        {
            "dataset": record["config"]["dataset"]["name"],
            "dgl": dgl,
            "pagraph": pagraph,
            "saved (%)": 100.0 * (1.0 - pagraph / dgl) if dgl else None,
            "cached (%)": 100.0 * facts["cached_rows"] / facts["table_rows"] if "cached_rows" in facts else None,
            "source": "measured",
        }
    ]
    paper: dict[str, dict[str, float]] = {}
    for row in paper_rows("pagraph-tab4"):
        paper.setdefault(row["series"], {})[str(row["x"])] = float(row["value"])
    for name, own in paper.items():
        bytes_of = {system: GB * own[system] for system in SYSTEMS}
        shares = {"saved (%)": own["saved"], "cached (%)": own["cached"]}
        rows.append({"dataset": name, **bytes_of, **shares, "source": "paper"})
    columns: dict[str, Formatter] = {"dataset": "", "dgl": gigabytes, "pagraph": gigabytes}
    columns |= {"saved (%)": ".1f", "cached (%)": ".0f", "source": ""}
    batches = next(epoch["batches"] for epoch in record["epochs"] if not epoch["warmup"])
    how = f"feature bytes copied to the device in an epoch of {batches} mini-batches (paper: a whole one)"
    points = list(found.values())
    return sheet(rows, columns, group, NAMES["gcn"], how, points=points, runs=ids(points))

"""The PaGraph paper's workload on a profile's graph, its four systems, and common queries of its figures."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pandas as pd

from harness.compare.plan import Plan, grid
from harness.compare.points import Group, NotDrawn
from harness.figures.base import Plain, gallery
from harness.figures.draw import style
from harness.figures.ginex.grid import feature_bytes
from harness.studies.base import StudyNeed
from workloads.units import parse_count

FAMILY = ["dgl", "pagraph", "dgl+pp", "pagraph+pp"]
# Hidden widths of Table 3, two layers.
HIDDEN = {"gcn": 32, "sage": 16}
NAMES = {"gcn": "GCN", "sage": "GraphSAGE"}
# Section 5.1: two neighbours a node and layer, 2,400 nodes a layer, mini-batches of 6,000, a split of 65:10:25.
NEIGHBOURS = 2
LAYER_NODES = 2400
BATCH = 6000
SPLIT = {"train_fraction": 0.65, "valid_fraction": 0.1, "test_fraction": 0.25}
# An 11 GB device beside 19.4 GB of features (enwiki): 54 % of the rows are cached there.
DEVICE_SHARE = 0.6
MOST_DEVICE = 11 << 30
# Steps of an epoch: these runs read nothing from disk, so an epoch can have more than those of other figures.
STEPS = 3
# Partitioning reads every training node's neighbourhood; a tenth of the graph keeps it under a minute.
PARTITION_SCALE = 10
LOADING = ("extract", "transfer")


def device_bytes(profile: Plain, share: float = DEVICE_SHARE) -> int:
    """Return device memory for `share` of the features, at most the paper's 11 GiB, in whole MiB."""
    return min(MOST_DEVICE, max(1, round(share * feature_bytes(gallery(profile)) / 2**20)) * 2**20)


def setting(profile: Plain, *, model: str = "gcn", **changes: Any) -> Plain:
    """Return the profile with the paper's split, mini-batches, fan-outs and widths; `changes` override run settings."""
    changed = copy.deepcopy(gallery(profile))
    name = changed["run"]["dataset"]
    recipe = changed["datasets"][name]
    nodes = parse_count(recipe["nodes"], "nodes")
    own = f"{name}-t65"
    changed["datasets"] = {own: {**recipe, **SPLIT}}
    changed["run"] = {
        **changed["run"],
        "dataset": own,
        "model": model,
        "hidden": HIDDEN[model],
        "fanout": [NEIGHBOURS] * 2,
        "sampler": "neighbor",
        "batch_size": min(BATCH, max(100, 3 * nodes // 1000)),
        "max_batches": STEPS * int(changed["run"].get("max_batches", 0)),
        "memory": "none",
        "disk_class": "none",
        "device_memory": device_bytes(profile),
        **changes,
    }
    changed["systems"] = list(FAMILY)
    return changed


def by_model(profile: Plain, systems: Sequence[Any], *models: str, **changes: Any) -> Plan:
    """Plan the systems with the given models (by default both); x is `gcn` or `sage`."""
    over = {model: {"model": model, "hidden": HIDDEN[model]} for model in models or HIDDEN}
    return grid(setting(profile, **changes), systems, over)


def one_device(profile: Plain) -> Plan:
    """Plan the four systems with both models, as in Fig. 11."""
    return by_model(profile, FAMILY)


def layerwise() -> Plain:
    """Return `run` settings of layer-wise sampling, as in the paper."""
    return {"sampler": "layerwise", "fanout": [LAYER_NODES] * 2}


def study(profile: Plain, name: str, **params: Any) -> StudyNeed:
    """Return a study of a whole epoch of the paper's workload, without the limit on mini-batches."""
    base = setting(profile)
    run = base["run"]
    return StudyNeed(
        name,
        {"dataset": run["dataset"], "fanout": run["fanout"], "batch_size": run["batch_size"], **params},
        base["datasets"],
    )


def small_study(profile: Plain, name: str, **params: Any) -> StudyNeed:
    """Return a study of the paper's workload on a tenth of the profile's nodes and edges, with a tenth of the batch."""
    base = setting(profile)
    recipe = next(iter(base["datasets"].values()))
    nodes = parse_count(recipe["nodes"], "nodes") // PARTITION_SCALE
    edges = parse_count(recipe["edges"], "edges") // PARTITION_SCALE
    own = f"{base['run']['dataset']}-tenth"
    batch = max(1, base["run"]["batch_size"] // PARTITION_SCALE)
    return StudyNeed(
        name,
        {"dataset": own, "fanout": base["run"]["fanout"], "batch_size": batch, **params},
        {own: {**recipe, "nodes": nodes, "edges": edges}},
    )


def need_systems(group: Group, systems: Sequence[str], x: Any) -> None:
    """Check that each system has a measured point at `x`.

    Raises:
        NotDrawn: a system has none; the message names it.
    """
    done = {point.system for point in group.points if point.x == x and point.value is not None}
    missing = [name for name in systems if name not in done]
    if missing:
        raise NotDrawn(f"no measured run of {', '.join(missing)} at {x} with the paper's workload")


def speedup_rows(group: Group, base: str = "dgl") -> pd.DataFrame:
    """Return rows for bars: group (model), series (system), value (s), interval, status, `speedup` over `base`."""
    rows = []
    order = style.ordered([point.system for point in group.points])
    for model in [name for name in HIDDEN if any(point.x == name for point in group.points)]:
        mine = {point.system: point for point in group.points if point.x == model}
        reference = mine[base].value if base in mine else None
        for system in order:
            point = mine.get(system)
            value = point.value if point is not None else None
            rows.append(
                {
                    "group": NAMES[model],
                    "series": system,
                    "value": value,
                    "low": point.low if point else None,
                    "high": point.high if point else None,
                    "status": point.status if point else "not run",
                    "speedup": reference / value if value and reference else None,
                    "run": point.record.get("run_id", "") if point else "",
                }
            )
    return pd.DataFrame(rows)

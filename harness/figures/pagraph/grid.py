"""The PaGraph paper's workload on a profile's graph and its four systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.compare.plan import Plan, grid, joined
from harness.figures.grids import dataset_of, feature_bytes, gallery, scaled, study_of
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict
from workloads.units import parse_count

FAMILY = ["dgl", "pagraph", "dgl+pp", "pagraph+pp"]
#: Models with the hidden widths of Table 3, two layers; their names in the figures.
GCN = {"gcn": {"model": "gcn", "hidden": 32}}
MODELS: dict[str, JsonDict] = {**GCN, "sage": {"model": "sage", "hidden": 16}}
ONE_PANEL: dict[str, JsonDict] = {"": {}}
NAMES = {"gcn": "GCN", "sage": "GraphSAGE"}
#: Run settings of section 5.1: two neighbours a node and layer, or layer-wise 2,400
#: nodes a layer.
RUN = {"fanout": [2, 2], "sampler": "neighbor", "memory": "none", "disk_class": "none"}
LAYERWISE: JsonDict = {"fanout": [2400, 2400], "sampler": "layerwise"}
BATCH_SIZE = 6000
SPLIT = {"train_fraction": 0.65, "valid_fraction": 0.1, "test_fraction": 0.25}
# An 11 GB device beside 19.4 GB of features (enwiki): 54 % of the rows are cached
# there.
DEVICE_SHARE = 0.6
MOST_DEVICE = 11 << 30
# Factor on the gallery's mini-batches: these runs read nothing from disk, so that an
# epoch can have more of them.
STEPS = 3
# Partitioning reads every training node's neighbourhood; a tenth of the graph keeps it
# under a minute.
PARTITION_SCALE = 10


def device_bytes(profile: JsonDict, share: float = DEVICE_SHARE) -> int:
    """Return device memory for `share` of the features, at most the paper's 11 GiB, in
    whole MiB."""
    wanted = share * feature_bytes(gallery(profile))
    mebibytes = max(1, round(wanted / 2**20))
    return min(MOST_DEVICE, mebibytes << 20)


def setting(profile: JsonDict, *, model: str = "gcn", **changes: Any) -> JsonDict:
    """Return the profile with the paper's split, mini-batches, fan-outs and widths;
    `changes` override run settings."""
    changed = gallery(profile)
    name, recipe = dataset_of(changed)
    dataset = f"{name}-t65"
    changed["datasets"] = {dataset: {**recipe, **SPLIT}}
    changed["systems"] = list(FAMILY)
    run = changed["run"]
    nodes = parse_count(recipe["nodes"], "nodes")
    run |= RUN
    run |= MODELS[model]
    run |= {"dataset": dataset, "device_memory": device_bytes(profile)}
    run["batch_size"] = min(BATCH_SIZE, max(100, 3 * nodes // 1000))
    run["max_batches"] = STEPS * int(run.get("max_batches", 0))
    run |= changes
    return changed


def planned(
    profile: JsonDict,
    systems: Sequence[Any],
    over: Mapping[Any, JsonDict],
    panels: Mapping[str, JsonDict] = ONE_PANEL,
    **changes: Any,
) -> Plan:
    """Plan the systems of the paper's workload at each value of an axis, in each panel.

    Args:
        over: value of the axis -> run settings there.
        panels: panel -> its run settings; those of `over` override them.
        changes: run settings of all cells.
    """
    base = setting(profile, **changes)
    plans = []
    for panel, own in panels.items():
        runs = {x: own | run for x, run in over.items()}
        plans.append(grid(base, systems, runs, panel=panel))
    return joined(plans)


def study(profile: JsonDict, name: str, **params: Any) -> StudyNeed:
    """Return a study of a whole epoch of the paper's workload, without the limit on
    mini-batches."""
    return study_of(setting(profile), name, **params)


def small_study(profile: JsonDict, name: str) -> StudyNeed:
    """Return a study of the paper's workload on a tenth of the profile's nodes and
    edges, with a tenth of the batch."""
    base = setting(profile)
    dataset, recipe = dataset_of(base)
    small = scaled(recipe, 1 / PARTITION_SCALE)
    batch_size = max(1, base["run"]["batch_size"] // PARTITION_SCALE)
    return study_of(
        base, name, dataset=(f"{dataset}-tenth", small), batch_size=batch_size
    )

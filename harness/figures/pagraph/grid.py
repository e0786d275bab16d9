"""The PaGraph paper's workload on a profile's graph, and its four systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.compare.plan import Plain, Plan, grid
from harness.figures.grids import dataset_of, feature_bytes, gallery, study_of
from harness.studies.base import StudyNeed
from workloads.units import parse_count

FAMILY = ["dgl", "pagraph", "dgl+pp", "pagraph+pp"]
# Hidden widths of Table 3, two layers.
HIDDEN = {"gcn": 32, "sage": 16}
NAMES = {"gcn": "GCN", "sage": "GraphSAGE"}
SAMPLERS = {"neighbor": "neighbour", "layerwise": "layer-wise"}
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


def device_bytes(profile: Plain, share: float = DEVICE_SHARE) -> int:
    """Return device memory for `share` of the features, at most the paper's 11 GiB, in whole MiB."""
    return min(MOST_DEVICE, max(1, round(share * feature_bytes(gallery(profile)) / 2**20)) * 2**20)


def setting(profile: Plain, *, model: str = "gcn", **changes: Any) -> Plain:
    """Return the profile with the paper's split, mini-batches, fan-outs and widths; `changes` override run settings."""
    changed = gallery(profile)
    name, recipe = dataset_of(changed)
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


def layerwise() -> Plain:
    """Return `run` settings of layer-wise sampling, as in the paper."""
    return {"sampler": "layerwise", "fanout": [LAYER_NODES] * 2}


def by_sampler() -> dict[str, Plain]:
    """Return `run` settings of both ways of sampling, by their names in the figures."""
    return {SAMPLERS["neighbor"]: {}, SAMPLERS["layerwise"]: layerwise()}


def study(profile: Plain, name: str, **params: Any) -> StudyNeed:
    """Return a study of a whole epoch of the paper's workload, without the limit on mini-batches."""
    return study_of(setting(profile), name, **params)


def small_study(profile: Plain, name: str, **params: Any) -> StudyNeed:
    """Return a study of the paper's workload on a tenth of the profile's nodes and edges, with a tenth of the batch."""
    base = setting(profile)
    own, recipe = dataset_of(base)
    sizes = {key: parse_count(recipe[key], key) // PARTITION_SCALE for key in ("nodes", "edges")}
    batch = max(1, base["run"]["batch_size"] // PARTITION_SCALE)
    return study_of(base, name, dataset=(f"{own}-tenth", {**recipe, **sizes}), batch_size=batch, **params)

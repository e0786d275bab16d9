"""The PaGraph paper's workload on a profile's graph, and its four systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.compare.plan import Plain, Plan, grid
from harness.figures.base import specs
from harness.figures.grids import dataset_of, feature_bytes, gallery, study_of
from harness.studies.base import StudyNeed
from workloads.units import parse_count

SPEC = specs(__file__)
FAMILY: list[str] = SPEC["systems"]
HIDDEN: dict[str, int] = SPEC["hidden"]
NAMES: dict[str, str] = SPEC["names"]
SAMPLERS: dict[str, str] = SPEC["samplers"]
#: Run settings of layer-wise sampling, as in the paper.
LAYERWISE: Plain = SPEC["layerwise"]
SPLIT: dict[str, float] = SPEC["split"]
PARTITION_SCALE: int = SPEC["partition_scale"]


def device_bytes(profile: Plain, share: float = SPEC["device_share"]) -> int:
    """Return device memory for `share` of the features, at most the paper's 11 GiB, in whole MiB."""
    return min(11 << 30, max(1, round(share * feature_bytes(gallery(profile)) / 2**20)) * 2**20)


def setting(profile: Plain, *, model: str = "gcn", **changes: Any) -> Plain:
    """Return the profile with the paper's split, mini-batches, fan-outs and widths; `changes` override run settings."""
    changed = gallery(profile)
    name, recipe = dataset_of(changed)
    nodes = parse_count(recipe["nodes"], "nodes")
    own = f"{name}-t65"
    size, batches = min(SPEC["batch"], max(100, 3 * nodes // 1000)), int(changed["run"].get("max_batches", 0))
    run = {"dataset": own, "model": model, "hidden": HIDDEN[model], "device_memory": device_bytes(profile)}
    run |= {"batch_size": size, "max_batches": SPEC["steps"] * batches}
    run = {**changed["run"], **SPEC["run"], **run, **changes}
    return {**changed, "datasets": {own: {**recipe, **SPLIT}}, "run": run, "systems": list(FAMILY)}


def by_model(profile: Plain, systems: Sequence[Any], *models: str, **changes: Any) -> Plan:
    """Plan the systems with the given models (by default both); x is `gcn` or `sage`."""
    over = {model: {"model": model, "hidden": HIDDEN[model]} for model in models or HIDDEN}
    return grid(setting(profile, **changes), systems, over)


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

"""What the figures of the data tiering paper share: runs with the features in host memory, and studies of coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.figures.base import Plain, gallery, values
from harness.figures.evidence import Evidence
from harness.figures.ginex_grid import feature_bytes, systems_of
from harness.figures.query import NotDrawn
from harness.studies.base import StudyNeed
from harness.studies.record import StudyRecord
from workloads.units import parse_bytes

#: What the paper compares, and how its figures call them.
SYSTEMS = {"dgl": "CPU gather", "uva": "zero-copy", "data-tiering": "tiering"}
TIERING = "data-tiering"
# Shares of the rows in device memory (Fig. 10).
HOT_SHARES = [0.0, 0.05, 0.1, 0.25]
# The papers' usual width, columns.
_NARROW = 128
#: The share of Fig. 8.
DEFAULT_SHARE = 0.1


def host_profile(profile: Plain) -> Plain:
    """The gallery's profile with all features in host memory, and a device that holds the largest hot share, too.

    Epochs are whole: with everything in memory a short one would be over before it could be timed. A profile may name
    another dataset and mini-batch size (`tiering_dataset`, `tiering_batch`), so that the bus counts beside sampling.
    """
    short = gallery(profile)
    memory = short["run"].get("device_memory")
    run = {**short["run"], "memory": "none", "max_batches": 0}
    (run["dataset"],) = values(profile, "tiering_dataset", [run["dataset"]])
    (run["batch_size"],) = values(profile, "tiering_batch", [run["batch_size"]])
    short = {**short, "run": run}
    if memory is not None:
        run["device_memory"] = parse_bytes(memory) + round(max(HOT_SHARES) * feature_bytes(short))
    return {**short, "run": run}


def entry_of(profile: Plain, system: str) -> Plain:
    """The system's entry, under no cap."""
    (entry,) = systems_of(profile, [system])
    return {**entry, "run": {**entry.get("run", {}), "memory": "none"}}


def hot_entry(profile: Plain, shares: Sequence[float]) -> Plain:
    """data-tiering with each share of the rows hot."""
    return {**entry_of(profile, TIERING), "grid": {"options.cache": [f"{share:g}x" for share in shares]}}


def in_host_memory(config: Mapping[str, Any]) -> bool:
    """Whether a run is one of this paper's: no cap, one device, all stages, rows in host memory, reordered."""
    options = config["options"]
    return bool(
        config["stages"] == "all"
        and config["memory"] == "none"
        and config["ranks"] == 1
        and config["sampler"] == "neighbor"
        and options.get("host_store", "memory") == "memory"
        and options.get("ranking", "weighted-reverse-pagerank") == "weighted-reverse-pagerank"
        and options.get("reorder", True)
    )


def hot_share(config: Mapping[str, Any]) -> float | None:
    """The share of the rows that a run was told to hold in device memory; None where it took what was free."""
    cache = str(config["options"].get("cache", "auto"))
    return float(cache[:-1]) if cache.endswith("x") else None


def chosen_rows(config: Mapping[str, Any]) -> str:
    """For the caption: rows wide enough for the bus to show were chosen; empty where they are as narrow as usual."""
    dim = int(config["dataset"]["dim"])
    if dim <= _NARROW:
        return ""
    return f"rows of {dim} columns were chosen so that the bus shows: sampling would hide what narrow ones cost"


def coverage_needs(profile: Plain, fanouts: Sequence[Sequence[int]], batches: int, **more: Any) -> list[StudyNeed]:
    """The study of coverage of the profile's graph, for each fan-out."""
    short = gallery(profile)
    name = short["run"]["dataset"]
    shared = {"dataset": name, "batch_size": short["run"]["batch_size"], "max_batches": batches, **more}
    recipe = {name: short["datasets"][name]}
    return [StudyNeed("access-coverage", {**shared, "fanout": list(fanout)}, recipe) for fanout in fanouts]


def coverage_studies(evidence: Evidence, fanouts: Sequence[Sequence[int]], scores: Sequence[str]) -> list[StudyRecord]:
    """The newest study of coverage for each of the fan-outs, all of one dataset, in that order.

    Raises:
        NotDrawn: none of them was made with these scores.
    """
    wanted = [list(fanout) for fanout in fanouts]
    found = evidence.all_studies(
        "access-coverage",
        where=lambda params: params["fanout"] in wanted and set(scores) <= set(params["scores"]),
    )
    newest = max(found, key=lambda record: record.started_at).dataset
    if newest is None:
        raise NotDrawn("the studies of access coverage name no dataset")
    kept = {tuple(record.params["fanout"]): record for record in found if record.dataset == newest}
    return [kept[tuple(fanout)] for fanout in wanted if tuple(fanout) in kept]

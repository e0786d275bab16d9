"""What the figures of the data tiering paper share: runs with the features in host memory, and studies of coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn
from harness.figures.base import Plain, gallery, values
from harness.figures.ginex.grid import feature_bytes, systems_of
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


def hot_rows(profile: Plain, shares: Sequence[float], **run: Any) -> Plan:
    """data-tiering with each share of the rows hot; x is the share; `run`: more settings."""
    over = {share: {"memory": "none", **run, "options": {"cache": f"{share:g}x"}} for share in shares}
    return grid(profile, systems_of(profile, [TIERING]), over)


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
        "access-coverage", where=lambda params: params["fanout"] in wanted and set(scores) <= set(params["scores"])
    )
    newest = max(found, key=lambda record: record.started_at).dataset
    if newest is None:
        raise NotDrawn("the studies of access coverage name no dataset")
    kept = {tuple(record.params["fanout"]): record for record in found if record.dataset == newest}
    return [kept[tuple(fanout)] for fanout in wanted if tuple(fanout) in kept]

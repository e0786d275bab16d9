"""Common parts of the Data Tiering paper's figures: runs with features in host memory, studies of coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn
from harness.figures.base import Plain, gallery, values
from harness.figures.ginex.grid import feature_bytes, systems_of
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed
from workloads.units import parse_bytes

#: The paper's comparison: systems, and their names in its figures.
SYSTEMS = {"dgl": "CPU gather", "uva": "zero-copy", "data-tiering": "tiering"}
TIERING = "data-tiering"
# Shares of the rows in device memory (Fig. 10).
HOT_SHARES = [0.0, 0.05, 0.1, 0.25]
# Columns of the papers' usual rows.
_NARROW = 128
#: Share of hot rows in Fig. 8.
DEFAULT_SHARE = 0.1


def host_profile(profile: Plain) -> Plain:
    """Return the gallery's profile with all features in host memory, and device memory for the largest hot share, too.

    Epochs are whole: with all data in memory a short one would end too soon to be timed. A profile may set another
    dataset and mini-batch size (`tiering_dataset`, `tiering_batch`), so that the bus counts beside sampling.
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
    """Plan data-tiering with each share of the rows hot; x is the share; `run`: further run settings."""
    over = {share: {"memory": "none", **run, "options": {"cache": f"{share:g}x"}} for share in shares}
    return grid(profile, systems_of(profile, [TIERING]), over)


def chosen_rows(config: Mapping[str, Any]) -> str:
    """Return caption text on rows chosen wide enough for the bus to matter; empty for rows of usual width."""
    dim = int(config["dataset"]["dim"])
    if dim <= _NARROW:
        return ""
    return f"rows of {dim} columns were chosen so that the bus shows: sampling would hide what narrow ones cost"


def coverage_needs(profile: Plain, fanouts: Sequence[Sequence[int]], batches: int, **more: Any) -> list[StudyNeed]:
    """Return the coverage study of the profile's graph for each fan-out.

    Args:
        batches: number of mini-batches of each study.
    """
    short = gallery(profile)
    name = short["run"]["dataset"]
    shared = {"dataset": name, "batch_size": short["run"]["batch_size"], "max_batches": batches, **more}
    recipe = {name: short["datasets"][name]}
    return [StudyNeed("access-coverage", {**shared, "fanout": list(fanout)}, recipe) for fanout in fanouts]


def coverage_studies(evidence: Evidence, fanouts: Sequence[Sequence[int]], scores: Sequence[str]) -> list[StudyRecord]:
    """Return the newest coverage study of each fan-out, in that order, all of the newest study's dataset.

    Raises:
        NotDrawn: no study has these fan-outs and scores, or the newest has no dataset.
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

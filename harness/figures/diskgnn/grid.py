"""What the figures of the DiskGNN paper share: its systems, its sweeps and its datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.compare.points import Point
from harness.figures.base import Plain, gallery, only_systems, values
from harness.studies.base import StudyNeed

#: The paper's comparison (Section 7.1).
SYSTEMS = ["ginex", "mariusgnn", "diskgnn"]
MEMORY_SHARES = [0.1, 0.3, 0.5]
# Mini-batches an epoch, as a multiple of the gallery's, of figures over shares of the features: with the gallery's own
# the smallest share would already hold all that an epoch touches.
_LONGER = 8
_FLAT_COPIES = 64


def entries(profile: Plain, names: list[str], **options: Any) -> list[Plain]:
    """The profile's entries of these systems, each with `options` on top of its own, and no run settings of its own."""
    found: list[Plain] = []
    for entry in only_systems(profile, names):
        own: Plain = {"name": entry} if isinstance(entry, str) else entry
        found.append({"name": own["name"], "options": {**own.get("options", {}), **options}})
    return found


def shares_of(profile: Plain) -> list[float]:
    """Host memory of the sweeps over it, as shares of the feature table."""
    return values(profile, "memory_shares", MEMORY_SHARES)


def longer(profile: Plain) -> Plain:
    """The gallery's profile with epochs long enough for memory to matter, one of them measured."""
    short = gallery(profile)
    batches = int(short["run"].get("max_batches", 0))
    run = {**short["run"], "max_batches": _LONGER * batches, "epochs": 2, "warmup": 1}
    return {**short, "run": run}


def memory_share(config: Mapping[str, Any]) -> float:
    """The host budget of a run as a share of the features; only for those that are given so."""
    return float(str(config["memory"])[:-1])


def percent(share: Any) -> str:
    """`10 %`."""
    return f"{100 * float(share):g} %"


def bar_row(point: Point, **columns: Any) -> Plain:
    """One bar."""
    return {
        **columns,
        "value": point.value,
        "low": point.low,
        "high": point.high,
        "status": point.status,
        "run": point.record.get("run_id", ""),
    }


def preparation_s(record: Mapping[str, Any]) -> float:
    """Seconds of preprocessing, whichever run spent them."""
    spent = record.get("preprocess") or {}
    return float(spent.get("seconds") or 0.0) + float(spent.get("made_s") or 0.0)


def graphs(profile: Plain) -> list[tuple[str, Plain]]:
    """Datasets that the studies look at, (name, recipe): the profile's own and one of flat accesses beside it.

    The flat one is its fractal expansion, as large, whose shuffled copies spread accesses as Friendster's are spread.
    It has one feature column, since no study reads features.
    """
    base = gallery(profile)
    name = base["run"]["dataset"]
    recipe = base["datasets"][name]
    flat = {
        **{key: recipe[key] for key in ("nodes", "edges", "classes", "seed", "max_memory") if key in recipe},
        "kind": "fractal",
        "expand": _FLAT_COPIES,
        "dim": 1,
    }
    return [(name, recipe), (f"{name}-flat", flat)]


def planning_needs(
    profile: Plain, study: str, *, datasets: list[tuple[str, Plain]] | None = None, **params: Any
) -> list[StudyNeed]:
    """One study on each dataset, of whole epochs of the profile's mini-batches and rows as wide as its own."""
    base = gallery(profile)
    run = base["run"]
    recipe = base["datasets"][run["dataset"]]
    width = int(recipe.get("dim", 128)) * (2 if recipe.get("dtype") == "float16" else 4)
    shared = {"fanout": run["fanout"], "batch_size": run["batch_size"], "seed": run.get("seed", 0)}
    if study != "access-share":
        shared["row_bytes"] = width
    return [
        StudyNeed(study, {"dataset": name, **shared, **params}, {name: own})
        for name, own in (graphs(profile) if datasets is None else datasets)
    ]


def no_runs(profile: Plain) -> list[Plain]:
    """For figures that are drawn from studies alone."""
    return []

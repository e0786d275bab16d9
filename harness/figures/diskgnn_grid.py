"""What the figures of the DiskGNN paper share: its systems, which runs are plain ones, its sweeps and its datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.figures.base import Plain, gallery, only_systems, values
from harness.figures.query import Group, Point
from harness.studies.base import StudyNeed

#: The paper's comparison (Section 7.1).
SYSTEMS = ["ginex", "mariusgnn", "diskgnn"]
MEMORY_SHARES = [0.1, 0.3, 0.5]
# Options as they are unless a figure of some paper varies them, whichever system has them.
_USUAL: Mapping[str, Any] = {
    "pipeline": True, "packing": "batched", "device_cache": "auto", "disk_cache": "auto", "disk_limit": "none",
    "segment": 0, "resample_every": 1, "io_granularity": "logical", "superbatch": 0, "pipelined": True, "prefill": True,
}  # fmt: skip
# Mini-batches an epoch, as a multiple of the gallery's, of figures over shares of the features: with the gallery's own
# the smallest share would already hold all that an epoch touches.
_LONGER = 8
_FLAT_COPIES = 64


def is_plain(config: Mapping[str, Any], *free: str) -> bool:
    """Whether a run trains all stages under a cap with a system's usual options, but for those that are `free`."""
    options = config["options"]
    return bool(
        config["stages"] == "all"
        and config["memory"] != "none"
        and config["ranks"] == 1
        and config["sampler"] == "neighbor"
        and not config["test_nodes"]
        and all(options.get(name, usual) == usual for name, usual in _USUAL.items() if name not in free)
        and (config["system"] != "diskgnn" or "host_cache" in free or options.get("host_cache", "auto") == "auto")
    )


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


def over_memory(profile: Plain, name: str, systems: list[Plain], shares: list[float] | None = None) -> Plain:
    """An experiment of these systems at each share of memory."""
    memory = [f"{share:g}x" for share in (shares_of(profile) if shares is None else shares)]
    return {**longer(profile), "name": name, "systems": systems, "grid": {"memory": memory}}


def memory_share(config: Mapping[str, Any]) -> float:
    """The host budget of a run as a share of the features; only for those that are given so."""
    return float(str(config["memory"])[:-1])


def is_share(config: Mapping[str, Any]) -> bool:
    """Whether a run's memory is given as a share of the features."""
    return str(config["memory"]).endswith("x")


def percent(share: Any) -> str:
    """`10 %`."""
    return f"{100 * float(share):g} %"


def bar_rows(group: Group) -> pd.DataFrame:
    """A row a point, as `draw_bars` wants it: x as the group, the system as the series."""
    return pd.DataFrame([bar_row(point, group=point.x, series=point.system) for point in group.points])


def bar_row(point: Point, **columns: Any) -> Plain:
    """One bar."""
    return {
        **columns, "value": point.value, "low": point.low, "high": point.high, "status": point.status,
        "run": point.record.get("run_id", ""),
    }  # fmt: skip


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
        "kind": "fractal", "expand": _FLAT_COPIES, "dim": 1,
    }  # fmt: skip
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

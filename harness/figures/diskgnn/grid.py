"""Common parts of the DiskGNN paper's figures: systems, sweeps and datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.compare.plan import Plain, Plan, as_entry, grid
from harness.figures.base import FORMATS
from harness.figures.grids import bytes_of_row, dataset_of, gallery, only_systems, study_of, values
from harness.studies.base import StudyNeed

#: The paper's comparison (Section 7.1).
SYSTEMS = ["ginex", "mariusgnn", "diskgnn"]
#: Host memory as shares of the feature table.
MEMORY_SHARES = [0.1, 0.3, 0.5]
# Factor on the gallery's mini-batches in sweeps over memory: else the smallest share holds all rows of an epoch.
_LONGER = 8
_FLAT_COPIES = 64


def entries(profile: Plain, names: list[str], **options: Any) -> list[Plain]:
    """Return the profile's entries of these systems, `options` added to their own, without run settings."""
    found = map(as_entry, only_systems(profile, names))
    return [{"name": own["name"], "options": {**own.get("options", {}), **options}} for own in found]


def longer(profile: Plain) -> Plain:
    """Return the gallery's profile with epochs long enough for memory to matter: one to warm up, one measured."""
    short = gallery(profile)
    batches = int(short["run"].get("max_batches", 0))
    run = {**short["run"], "max_batches": _LONGER * batches, "epochs": 2, "warmup": 1}
    return {**short, "run": run}


def in_gallery(profile: Plain, names: list[str], over: Mapping[Any, Plain] = {"": {}}) -> Plan:
    """Plan systems at each value of an axis, in the gallery's runs."""
    short = gallery(profile)
    return grid(short, entries(short, names), over)


def over_shares(profile: Plain, systems: Sequence[Plain]) -> Plan:
    """Plan entries of systems at each share of memory, in longer epochs."""
    shares = values(profile, "memory_shares", MEMORY_SHARES)
    return grid(longer(profile), systems, {share: {"memory": f"{share:g}x"} for share in shares})


#: Function from a share to per cent, like `10 %`.
percent = FORMATS["percent"]


def graphs(profile: Plain) -> list[tuple[str, Plain]]:
    """Return (name, recipe) of the studies' datasets: the profile's own and an equally large one with flat accesses.

    The flat one is a fractal expansion: its shuffled copies spread accesses as in Friendster. No study reads features.
    """
    name, recipe = dataset_of(gallery(profile))
    return [(name, recipe), (f"{name}-flat", shape_of(recipe) | {"kind": "fractal", "expand": _FLAT_COPIES, "dim": 1})]


def shape_of(recipe: Plain) -> Plain:
    """Return the size, classes and seed of a dataset's recipe."""
    return {key: recipe[key] for key in ("nodes", "edges", "classes", "seed", "max_memory") if key in recipe}


def planning_needs(
    profile: Plain, study: str, *, datasets: list[tuple[str, Plain]] | None = None, **params: Any
) -> list[StudyNeed]:
    """Return one study per dataset, on a whole epoch of the profile's mini-batches and with rows of its width.

    Args:
        datasets: (name, recipe) of each dataset; by default `graphs`.
    """
    base = gallery(profile)
    width = {} if study == "access-share" else {"row_bytes": bytes_of_row(base)}
    shared = {"seed": base["run"].get("seed", 0), **width, **params}
    return [study_of(base, study, dataset=own, **shared) for own in (graphs(profile) if datasets is None else datasets)]

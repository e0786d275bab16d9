"""Common parts of the Ginex paper's figures: systems, and grids with scaled sizes."""

from __future__ import annotations

from typing import Any

from harness.figures.base import Plain, only_systems
from workloads.units import parse_bytes, parse_count, row_bytes

#: The paper's comparison (Section 5.1), baseline first.
SYSTEMS = ["pyg+", "ali+pg", "ginex"]


def systems_of(profile: Plain, names: list[str]) -> list[Any]:
    """Return entries of these systems: the profile's own, or those of its gallery where it does not list them."""
    own = {entry["name"]: dict(entry) for entry in (profile.get("gallery") or {}).get("systems", [])}
    found = []
    for entry in only_systems(profile, names):
        found.append(own.get(entry, {"name": entry}) if isinstance(entry, str) else dict(entry))
    return found


def host_budget(profile: Plain) -> int:
    """Return the profile's host budget in bytes, which it gives so or as a share of the feature table."""
    memory = str(profile["run"]["memory"])
    if memory.endswith("x"):
        return round(float(memory[:-1]) * feature_bytes(profile))
    return parse_bytes(memory.removeprefix("+"))


def feature_bytes(profile: Plain) -> int:
    """Return bytes of the feature table of the profile's dataset, by its recipe."""
    recipe = profile["datasets"][profile["run"]["dataset"]]
    width = row_bytes(int(recipe.get("dim", 128)), recipe.get("dtype", "float32"))
    return parse_count(recipe["nodes"], "nodes") * width


def batch_sizes(profile: Plain, factors: list[float]) -> list[Plain]:
    """Return run settings for mini-batches of `factors` times the profile's size, with as many seed nodes per epoch."""
    size, batches = int(profile["run"]["batch_size"]), int(profile["run"].get("max_batches", 0))
    found = []
    for factor in factors:
        own = max(1, round(size * factor))
        found.append({"batch_size": own, "max_batches": max(1, round(batches * size / own)) if batches else 0})
    return found

"""Grids of figures: from a bench profile to the experiments whose runs a figure is drawn from."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from workloads.units import parse_bytes

Plain = dict[str, Any]
T = TypeVar("T")


def gallery(profile: Plain) -> Plain:
    """Return the profile for figures beyond the headline: its `gallery` section overrides run, rounds and datasets.

    A gallery run has fewer mini-batches than a headline run, so that all figures fit in one session.
    """
    changed = copy.deepcopy(profile)
    own = changed.get("gallery") or {}
    changed["run"] = {**changed["run"], **own.get("run", {})}
    changed["rounds"] = own.get("rounds", changed.get("rounds", 1))
    changed["datasets"] = {**changed.get("datasets", {}), **own.get("datasets", {})}
    changed["grid"] = {}
    return changed


def values(profile: Plain, key: str, full: Sequence[T]) -> list[T]:
    """Return the values of an axis: the profile's reduced list (`gallery.grid.<key>`) if it has one, else `full`."""
    reduced = ((profile.get("gallery") or {}).get("grid") or {}).get(key)
    return list(full if reduced is None else reduced)


def with_dims(profile: Plain, dims: list[int]) -> tuple[Plain, list[str]]:
    """Return a profile with one dataset for each feature dimension, and the names of those datasets."""
    changed = copy.deepcopy(profile)
    name = changed["run"]["dataset"]
    recipe = changed["datasets"][name]
    names = []
    for dim in dims:
        own = name if dim == recipe.get("dim", 128) else f"{name}-d{dim}"
        changed["datasets"][own] = {**recipe, "dim": dim}
        names.append(own)
    return changed, names


def wide_device(profile: Plain) -> Plain:
    """Return a profile for sweeps up to dimension 512: device memory for as many rows at four times the width."""
    memory = profile["run"].get("device_memory")
    if memory is None:
        return profile
    return {**profile, "run": {**profile["run"], "device_memory": 4 * parse_bytes(memory)}}


def only_systems(profile: Plain, names: list[str]) -> list[Any]:
    """Return one entry (the first: the capped one) for each named system of the profile, else of `gallery.systems`.

    The headline does not run `gallery.systems`. An installed system in neither list has its bare name as entry.
    """
    from systems.registry import names as installed

    found: dict[str, Any] = {}
    beside = (profile.get("gallery") or {}).get("systems") or []
    for entry in [*profile["systems"], *beside]:
        own = entry if isinstance(entry, str) else entry["name"]
        if own in names:
            found.setdefault(own, entry)
    for name in names:
        if name not in found and name in installed():
            found[name] = name
    return [found[name] for name in names if name in found]

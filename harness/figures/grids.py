"""Grids of figures: from a bench profile to the experiments whose runs a figure is
drawn from."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from harness.compare.plan import Plan, as_entry, first_setting, grid
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict
from workloads.units import parse_bytes, parse_count, row_bytes

T = TypeVar("T")


def gallery(profile: JsonDict) -> JsonDict:
    """Return the profile for figures beyond the headline: its `gallery` section
    overrides run, rounds and datasets.

    A gallery run has fewer mini-batches than a headline run, so that all figures fit in
    one session.
    """
    changed = copy.deepcopy(profile)
    own = changed.get("gallery") or {}
    changed["run"] = {**changed["run"], **own.get("run", {})}
    changed["rounds"] = own.get("rounds", changed.get("rounds", 1))
    changed["datasets"] = {**changed.get("datasets", {}), **own.get("datasets", {})}
    changed["grid"] = {}
    return changed


def values(profile: JsonDict, key: str, full: Sequence[T]) -> list[T]:
    """Return the values of an axis: the profile's reduced list (`gallery.grid.<key>`)
    if it has one, else `full`."""
    reduced = ((profile.get("gallery") or {}).get("grid") or {}).get(key)
    return list(full if reduced is None else reduced)


def with_dims(profile: JsonDict, dims: list[int]) -> tuple[JsonDict, list[str]]:
    """Return a profile with one dataset for each feature dimension, and the names of
    those datasets."""
    changed = copy.deepcopy(profile)
    name, recipe = dataset_of(changed)
    names = [name if dim == dimension(profile) else f"{name}-d{dim}" for dim in dims]
    changed["datasets"] |= {
        own: {**recipe, "dim": dim} for own, dim in zip(names, dims, strict=True)
    }
    return changed, names


def dataset_of(profile: JsonDict) -> tuple[str, JsonDict]:
    """Return name and recipe of the profile's dataset."""
    name = profile["run"]["dataset"]
    return name, profile["datasets"][name]


def scaled(recipe: JsonDict, share: float) -> JsonDict:
    """Return a recipe with a share of the nodes and edges."""
    counts = {
        key: parse_count(recipe[key], key)
        for key in ("nodes", "edges")
        if key in recipe
    }
    return {**recipe, **{key: round(share * count) for key, count in counts.items()}}


def study_of(
    profile: JsonDict,
    study: str,
    *,
    dataset: tuple[str, JsonDict] | None = None,
    **params: Any,
) -> StudyNeed:
    """Return a study of the profile's mini-batches, on its own dataset or another (name
    and recipe)."""
    name, recipe = dataset or dataset_of(profile)
    shared = {
        key: profile["run"][key]
        for key in ("fanout", "batch_size")
        if key not in params
    }
    return StudyNeed(study, {"dataset": name, **shared, **params}, {name: recipe})


def dimension(profile: JsonDict) -> int:
    """Return the feature dimension of the profile's dataset."""
    return int(dataset_of(profile)[1].get("dim", 128))


def over_dims(
    profile: JsonDict, dims: list[int]
) -> tuple[JsonDict, dict[int, JsonDict]]:
    """Return the profile with a dataset per dimension, and run settings with device
    memory for equally many rows."""
    changed, names = with_dims(profile, dims)
    memory = profile["run"].get("device_memory")
    base = dimension(profile)
    runs: dict[int, JsonDict] = {}
    for dim, name in zip(dims, names, strict=True):
        device = (
            {}
            if memory is None
            else {"device_memory": parse_bytes(memory) * dim // base}
        )
        runs[dim] = {"dataset": name, **device}
    return changed, runs


def wide_device(profile: JsonDict, factor: float = 4) -> JsonDict:
    """Return a profile with `factor` times the device memory: by default for rows of
    dimension 512."""
    memory = profile["run"].get("device_memory")
    if memory is None:
        return profile
    return {
        **profile,
        "run": {**profile["run"], "device_memory": round(factor * parse_bytes(memory))},
    }


def only_systems(profile: JsonDict, names: list[str]) -> list[Any]:
    """Return one entry (the first: the capped one) for each named system of the
    profile, else of `gallery.systems`.

    The headline does not run `gallery.systems`. An installed system in neither list has
    its bare name as entry.
    """
    from systems.registry import names as installed

    beside = (profile.get("gallery") or {}).get("systems") or []
    found = {
        as_entry(entry)["name"]: entry
        for entry in reversed([*profile["systems"], *beside])
    }
    for name in names:
        if name not in found and name in installed():
            found[name] = name
    return [found[name] for name in names if name in found]


def systems_of(profile: JsonDict, names: list[str]) -> list[JsonDict]:
    """Return entries of these systems: the profile's own, or those of its gallery where
    it does not list them."""
    own = {
        entry["name"]: entry
        for entry in (profile.get("gallery") or {}).get("systems", [])
    }
    listed = only_systems(profile, names)
    return [
        as_entry(own.get(entry, entry) if isinstance(entry, str) else entry)
        for entry in listed
    ]


def capped(profile: JsonDict, systems: list[str]) -> Plan:
    """Plan systems under the profile's cap, at the first value of every axis of its
    grid."""
    return grid(first_setting(profile), only_systems(profile, systems), {"": {}})


def in_gallery(
    profile: JsonDict, systems: list[str], over: Mapping[Any, JsonDict] = {"": {}}
) -> Plan:
    """Plan systems at each value of an axis, in the gallery's runs."""
    short = gallery(profile)
    return grid(short, systems_of(short, systems), over)


def host_budget(profile: JsonDict) -> int:
    """Return the profile's host budget in bytes, which it gives so or as a share of the
    feature table."""
    memory = str(profile["run"]["memory"])
    if memory.endswith("x"):
        return round(float(memory[:-1]) * feature_bytes(profile))
    return parse_bytes(memory.removeprefix("+"))


def bytes_of_row(profile: JsonDict) -> int:
    """Return bytes of a feature row of the profile's dataset, by its recipe."""
    return row_bytes(dimension(profile), dataset_of(profile)[1].get("dtype", "float32"))


def feature_bytes(profile: JsonDict) -> int:
    """Return bytes of the feature table of the profile's dataset, by its recipe."""
    return parse_count(dataset_of(profile)[1]["nodes"], "nodes") * bytes_of_row(profile)


def batch_sizes(profile: JsonDict, factors: list[float]) -> list[JsonDict]:
    """Return run settings for mini-batches of `factors` times the profile's size, with
    as many seed nodes per epoch."""
    size = int(profile["run"]["batch_size"])
    batches = int(profile["run"].get("max_batches", 0))
    sizes = [max(1, round(size * factor)) for factor in factors]
    return [
        {
            "batch_size": own,
            "max_batches": batches and max(1, round(batches * size / own)),
        }
        for own in sizes
    ]

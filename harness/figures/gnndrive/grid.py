"""Common parts of the GNNDrive paper's figures: systems, the CPU variant, and scaled profiles."""

from __future__ import annotations

from collections.abc import Iterable

from harness.compare.plan import Plain
from harness.compare.points import Point
from harness.figures.grids import batch_sizes, gallery, host_budget, only_systems, values, with_dims
from workloads.units import parse_bytes

#: The paper's comparison (Section 5.1), baselines first.
SYSTEMS = ["pyg+", "ginex", "gnndrive"]
#: gnndrive trained on the CPU, with its feature buffer in host memory.
CPU = "gnndrive (cpu)"


def in_bytes(profile: Plain) -> Plain:
    """Return the profile with its host budget in bytes, hence equal over dimensions (32 GB in the paper)."""
    return {**profile, "run": {**profile["run"], "memory": f"+{host_budget(profile)}"}}


def narrow(profile: Plain) -> Plain:
    """Return the gallery's profile, mini-batches scaled by `wide_batch_factor` to fit the widest rows in the budget."""
    short = in_bytes(gallery(profile))
    (run,) = batch_sizes(short, values(profile, "wide_batch_factor", [1.0])[:1])
    return {**short, "run": {**short["run"], **run}}


def over_dims(profile: Plain, dims: list[int]) -> tuple[Plain, dict[int, Plain]]:
    """Return the profile with a dataset per dimension, and run settings with device memory for equally many rows."""
    changed, names = with_dims(profile, dims)
    memory = profile["run"].get("device_memory")
    base = int(profile["datasets"][profile["run"]["dataset"]].get("dim", 128))
    runs: dict[int, Plain] = {}
    for dim, name in zip(dims, names, strict=True):
        own = {} if memory is None or dim == base else {"device_memory": parse_bytes(memory) * dim // base}
        runs[dim] = {"dataset": name, **own}
    return changed, runs


def cpu_variant(profile: Plain, run: Plain | None = None) -> Plain:
    """Return the entry of gnndrive on the CPU, with device memory added to the host budget; `run`: more settings."""
    entry = only_systems(profile, ["gnndrive"])[0]
    own: Plain = {"name": entry} if isinstance(entry, str) else dict(entry)
    host = host_budget(profile) + parse_bytes(profile["run"].get("device_memory") or 0)
    settings = {**own.get("run", {}), "device": "cpu", "device_memory": None, "memory": f"+{host}", **(run or {})}
    return {**own, "series": CPU, "run": settings}


def grows(points: Iterable[Point], what: str) -> str:
    """Return caption text where device memory differs between the points; empty otherwise."""
    sizes = {int(point.record["config"]["device_memory_bytes"] or 0) for point in points if point.record} - {0}
    return f"device memory grows with the {what}" if len(sizes) > 1 else ""

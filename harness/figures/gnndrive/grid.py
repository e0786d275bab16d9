"""Plans that GNNDrive's figures share: its systems, equal budgets over dimensions, and
gnndrive on GPU and CPU."""

from __future__ import annotations

from typing import Any

from harness.compare.cells import Cells
from harness.compare.plan import as_entry
from harness.figures.grids import (
    batch_sizes,
    gallery,
    host_budget,
    only_systems,
    over_dims,
    values,
)
from workloads.arraytypes import JsonDict
from workloads.units import parse_bytes

#: The paper's comparison (Section 5.1), baselines first.
SYSTEMS = ["pyg+", "ginex", "gnndrive"]
#: gnndrive trained on the CPU, with its feature buffer in host memory.
CPU = "gnndrive (cpu)"
REFERENCE = "in-memory"
MARIUS = "mariusgnn"
DIMS = [64, 128, 256, 512]


def with_run(profile: JsonDict, **settings: Any) -> JsonDict:
    """Return the profile with other run settings."""
    return {**profile, "run": profile["run"] | settings}


def in_bytes(profile: JsonDict) -> JsonDict:
    """Return the profile with its host budget in bytes, hence equal over dimensions (32
    GB in the paper)."""
    return with_run(profile, memory=f"+{host_budget(profile)}")


def wide_rows(profile: JsonDict) -> tuple[JsonDict, dict[int, JsonDict]]:
    """Return the gallery's profile with a dataset for each dimension, and the run
    settings of each dimension.

    Mini-batches are scaled by `wide_batch_factor` so that the widest rows fit in the
    budget.
    """
    short = in_bytes(gallery(profile))
    factors = values(profile, "wide_batch_factor", [1.0])
    size = batch_sizes(short, factors)[0]
    return over_dims(with_run(short, **size), values(profile, "dims", DIMS))


def on_cpu(profile: JsonDict) -> JsonDict:
    """Return run settings for the CPU, with the profile's device memory added to its
    host budget."""
    device = parse_bytes(profile["run"].get("device_memory") or 0)
    return {
        "device": "cpu",
        "device_memory": None,
        "memory": f"+{host_budget(profile) + device}",
    }


def cpu_variant(profile: JsonDict) -> JsonDict:
    """Return the entry of gnndrive on the CPU."""
    own = as_entry(only_systems(profile, ["gnndrive"])[0])
    return own | {"series": CPU} | on_cpu(profile)


def on_both(profile: JsonDict) -> list[JsonDict]:
    """Return the entries of gnndrive as in the profile, and on the CPU."""
    return [*only_systems(profile, ["gnndrive"]), cpu_variant(profile)]


def cpu_note(cells: Cells) -> str:
    """Return caption text on the CPU variant."""
    if CPU in cells.systems:
        return "of the CPU variant, device memory is in the host budget"
    return "not run: the CPU variant"


def device_note(cells: Cells) -> str:
    """Return caption text where device memory differs over dimensions; empty
    otherwise."""
    sizes = cells.runs["config.device_memory_bytes"]
    return "device memory grows with the dimension" if sizes.nunique() > 1 else ""

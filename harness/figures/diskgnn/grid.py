"""Common parts of the DiskGNN paper's figures: systems, sweeps and datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.compare.plan import Plan, as_entry, grid
from harness.figures.accuracy_runs import accuracy_profile
from harness.figures.base import FORMATS
from harness.figures.grids import (
    bytes_of_row,
    dataset_of,
    gallery,
    only_systems,
    study_of,
    values,
)
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict

#: Name and recipe of a dataset.
Graph = tuple[str, JsonDict]
Names = list[str]
#: Value of an axis -> run settings.
Over = Mapping[Any, JsonDict]
#: The paper's comparison (Section 7.1).
SYSTEMS = ["ginex", "mariusgnn", "diskgnn"]
#: Host memory as shares of the feature table.
MEMORY_SHARES = [0.1, 0.3, 0.5]
#: Factor on the gallery's mini-batches in sweeps over memory: else the smallest share
#: holds all rows of an epoch.
LONGER = 8
#: Shuffled copies that the graph of flat accesses is expanded from.
FLAT_COPIES = 64
#: The axis of a plan with one value.
ONE: Over = {"": {}}
#: Function from a share to per cent, like `10 %`.
percent = FORMATS["percent"]


def entries(profile: JsonDict, names: Names) -> list[JsonDict]:
    """Return the profile's entries of these systems with their options, without run
    settings."""
    found = map(as_entry, only_systems(profile, names))
    return [{"name": own["name"], "options": own.get("options", {})} for own in found]


def in_gallery(profile: JsonDict, names: Names, over: Over = ONE) -> Plan:
    """Plan systems at each value of an axis, in the gallery's runs."""
    return grid(gallery(profile), entries(profile, names), over)


def judged(profile: JsonDict, names: Names = SYSTEMS, over: Over = ONE) -> Plan:
    """Plan systems at each value of an axis, with test accuracy after every epoch."""
    return grid(accuracy_profile(profile), entries(profile, names), over)


def longer(profile: JsonDict) -> JsonDict:
    """Return the gallery's profile with epochs long enough for memory to matter: one to
    warm up, one measured."""
    base = gallery(profile)
    run = base["run"]
    batches = run.get("max_batches", 0)
    run |= {"max_batches": LONGER * batches, "epochs": 2, "warmup": 1}
    return base


def over_shares(profile: JsonDict, systems: Sequence[JsonDict]) -> Plan:
    """Plan entries of systems at each share of memory, in longer epochs."""
    shares = values(profile, "memory_shares", MEMORY_SHARES)
    memories = {share: {"memory": f"{share:g}x"} for share in shares}
    return grid(longer(profile), systems, memories)


def variants(profile: JsonDict, options: Mapping[str, JsonDict]) -> Plan:
    """Plan diskgnn at each share of memory once for each variant (name -> options)."""
    (own,) = entries(profile, ["diskgnn"])
    found = [
        {**own, "series": name, "options": own["options"] | changes}
        for name, changes in options.items()
    ]
    return over_shares(profile, found)


def like(profile: JsonDict, name: str, **kind: Any) -> Graph:
    """Return a graph of another kind, as large as the profile's; no study reads its
    features."""
    own, recipe = dataset_of(gallery(profile))
    same = {"nodes", "edges", "classes", "seed", "max_memory"} & set(recipe)
    shape = {key: recipe[key] for key in same}
    return f"{own}-{name}", {**shape, **kind, "dim": 1}


def flat_graph(profile: JsonDict) -> Graph:
    """Return a fractal graph, whose shuffled copies spread the accesses as in
    Friendster."""
    return like(profile, "flat", kind="fractal", expand=FLAT_COPIES)


def graphs(profile: JsonDict) -> list[Graph]:
    """Return the profile's own dataset and the flat graph."""
    return [dataset_of(gallery(profile)), flat_graph(profile)]


def epoch_studies(
    profile: JsonDict, study: str, graphs: list[Graph], **params: Any
) -> list[StudyNeed]:
    """Return a study of each graph on a whole epoch of the profile's mini-batches."""
    base = gallery(profile)
    seed = base["run"].get("seed", 0)
    return [
        study_of(base, study, dataset=graph, seed=seed, **params) for graph in graphs
    ]


def packing_studies(
    profile: JsonDict, study: str, graphs: list[Graph], **params: Any
) -> list[StudyNeed]:
    """Return `epoch_studies` of packed rows, which are as wide as the profile's."""
    width = bytes_of_row(gallery(profile))
    return epoch_studies(profile, study, graphs, row_bytes=width, **params)

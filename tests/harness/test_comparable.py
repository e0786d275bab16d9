"""Which runs are the same experiment, and which have the same reads: views derived from
the role of each setting."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import BaseModel

from harness.compare.comparable import comparable, workload_key
from harness.records.record import RunConfig
from harness.report.standings import settings_of, without_cap
from harness.settings import Role, RunSettings, roles_of
from tests.harness.records import make_record

#: A value other than `make_record`'s, for each setting that it varies here.
OTHER: dict[str, Any] = {
    "memory": "+1048576",
    "model": "gcn",
    "hidden": 32,
    "heads": 2,
    "learning_rate": 0.1,
    "dropout": 0.5,
    "sampler": "layerwise",
    "fanout": [5, 5, 5],
    "replace": True,
    "shuffle": False,
    "batch_size": 7,
    "max_batches": 3,
    "epochs": 9,
    "warmup": 2,
    "device": "cpu",
    "disk_class": "none",
    "stages": "sample",
    "cores": 1,
    "ranks": 2,
    "partition": "self-reliant",
    "keep_order": True,
    "seed": 1,
    "verify": True,
    "test_nodes": 5,
    "options": {"queue": 1},
    "layers": 5,
    "device_memory_bytes": 1,
    "isolation": "docker",
    "timeout_s": 5.0,
    "experiment": "mine",
    "axes": {"seed": 1},
    "figure_tags": ["a"],
    "round": 1,
}


def test_every_setting_has_a_role() -> None:
    assert set(roles_of(RunConfig).values()) | set(
        roles_of(RunSettings).values()
    ) == set(get_args(Role))
    assert set(OTHER) == set(RunConfig.model_fields) - {"system", "dataset"}


def test_a_setting_without_a_role_cannot_be_added() -> None:
    class Careless(BaseModel):
        depth: int = 3

    with pytest.raises(TypeError, match=r"Careless\.depth has no role"):
        roles_of(Careless)


@pytest.mark.parametrize("name", OTHER)
def test_two_runs_are_one_experiment_unless_workload_budget_place_or_length_differ(
    name: str,
) -> None:
    runs = [
        make_record("ginex", [1.0]),
        make_record("ginex", [1.0], **{name: OTHER[name]}),
    ]
    same = len(comparable([run.to_json() for run in runs])) == 1
    assert same == (roles_of(RunConfig)[name] in ("system", "repeat", "watch", "label"))
    reads = len({workload_key(run.config) for run in runs}) == 1
    assert reads == (roles_of(RunConfig)[name] in ("place", "length", "watch", "label"))


def test_a_grid_over_seeds_is_one_setting_in_which_no_system_has_batches_of_its_own() -> (
    None
):
    runs = []
    for seed in (0, 1):
        for system in ("ginex", "gnndrive"):
            run = make_record(system, [1.0], seed=seed, axes={"seed": seed})
            for epoch in run.epochs:
                epoch.digest = f"xxh3:{seed}-{epoch.epoch}"
            runs.append(run.to_json())
    (setting,) = settings_of(runs)
    assert [len(standing.runs) for standing in setting.standings] == [2, 2]
    assert not any(standing.own_batches for standing in setting.standings)


def test_a_system_with_batches_of_its_own_is_found_at_any_seed() -> None:
    runs = [
        make_record(system, [1.0], seed=3)
        for system in ("ginex", "gnndrive", "mariusgnn")
    ]
    runs[2].epochs[1].digest = "xxh3:own"
    (setting,) = settings_of([run.to_json() for run in runs])
    assert [
        standing.system for standing in setting.standings if standing.own_batches
    ] == ["mariusgnn"]


def test_inside_a_memory_grid_the_run_without_a_cap_is_the_partner_of_those_with_one() -> (
    None
):
    capped = [
        make_record(system, [2.0], axes={"memory": "+64MiB"})
        for system in ("ginex", "pyg+")
    ]
    free = make_record("in-memory", [1.0], memory="none", axes={"memory": "none"})
    settings = settings_of([run.to_json() for run in (*capped, free)])
    partner = without_cap(settings[0], settings)
    assert partner is not None
    assert partner.system == "in-memory"


def test_runs_with_one_core_and_with_all_are_not_ranked_together() -> None:
    runs = [make_record("ginex", [2.0]), make_record("gnndrive", [1.0], cores=1)]
    assert len(settings_of([run.to_json() for run in runs])) == 2

"""`outcore.loader` refuses impossible settings in one sentence, before anything is
loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcore
from tests.support import make_tiny
from tests.systems.loading_tools import leaves_nothing, make
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DatasetError, InputError


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    # Not shared with other modules: bounds of a workload's largest mini-batch are kept
    # for the process.
    return make_tiny(tmp_path_factory.mktemp("loader") / "graph", seed=7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"system": "pagraph+pp"}, "first layer already.*use pagraph"),
        ({"system": "mariusgnn"}, "samples in its own way.*faithful=False"),
        (
            {"system": "diskgnn", "options": {"resample_every": 0}},
            "other mini-batches.*faithful=False",
        ),
        ({"system": "diskgn"}, "did you mean 'diskgnn'"),
        (
            {"system": "diskgnn", "options": {"resample_evry": 0}},
            "did you mean 'resample_every'",
        ),
        ({"system": "diskgnn", "options": {"queue": 0}}, "option queue"),
        ({"device": "emulated:a10g"}, "computes nothing"),
        ({"device": "tpu"}, "is not known"),
        ({"device_memory": "1GiB"}, "leave it out"),
        ({"memory": "8G"}, "did you mean 8GiB"),
        ({"memory": "quarterx"}, "share like 0.25x"),
        ({"memory": 0}, "which is nothing"),
        ({"memory": "0.25"}, "did you mean 0.25x"),
        ({"memory": 0.5}, "did you mean 0.5x"),
        ({"memory": "-1x"}, "more than nothing"),
        ({"memory": "nanx"}, "share like 0.25x"),
        ({"memory": "25%"}, "did you mean 0.25x"),
        ({"split": "training"}, "use train, valid or test"),
        ({"nodes": [1, 1]}, "twice"),
        ({"nodes": [2000]}, "the graph has 2000"),
        ({"nodes": [0.5]}, "whole numbers"),
        ({"form": "tf"}, "auto, pyg, plain or dgl"),
        ({"edges": "both"}, "use hops or layers"),
        ({"sampler": "layerwise"}, "use edges='layers'"),
        ({"rank": 2, "world": 2}, "rank"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence_with_the_fix(
    graph: Dataset, settings: dict[str, Any], message: str
) -> None:
    folder = set(graph.path.parent.iterdir())
    with pytest.raises(InputError, match=message):
        make(graph, **settings)
    assert set(graph.path.parent.iterdir()) == folder


def test_a_missing_dataset_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="there is no dataset"):
        outcore.loader(tmp_path / "nothing")


def test_an_unfaithful_system_loads_its_own_mini_batches_on_demand(
    graph: Dataset,
) -> None:
    features = graph.load("features")
    train = set(graph.load("train").tolist())
    with make(graph, system="mariusgnn", faithful=False) as loader:
        seen: list[int] = []
        for batch in loader:
            np.testing.assert_array_equal(batch.x, features[batch.n_id.numpy()])
            seen += batch.n_id[: batch.batch_size].tolist()
        assert not loader.faithful
    assert set(seen) == train
    assert len(seen) == len(train)


def test_a_plan_over_budget_names_the_part_before_anything_is_loaded(
    graph: Dataset,
) -> None:
    with (
        leaves_nothing(graph),
        pytest.raises(
            BudgetError,
            match=r"rows handed out needs .* of the 16\.0 KiB host budget after "
            r"reserve",
        ),
    ):
        make(graph, memory="16KiB")
    with leaves_nothing(graph), pytest.raises(BudgetError, match=r"gnndrive: .* needs"):
        make(graph, memory="4400KiB")


@pytest.mark.parametrize("name", ["gnndrive", "outcore", "in-memory"])
def test_a_refusal_names_the_least_memory_and_that_is_accepted(
    graph: Dataset, name: str
) -> None:
    with pytest.raises(
        BudgetError, match=r"\d+MiB is the least that fits with these settings"
    ) as caught:
        make(graph, system=name, memory="16KiB")
    named = re.search(r"(\d+)MiB is the least", str(caught.value))
    assert named is not None
    with make(graph, system=name, memory=f"{named[1]}MiB") as loader:
        assert loader.least_memory() == int(named[1]) << 20
        assert sum(1 for _ in loader) == len(loader)
    with pytest.raises(BudgetError, match=f"{named[1]}MiB is the least"):
        make(graph, system=name, memory=f"{int(named[1]) - 1}MiB")


@pytest.mark.parametrize("name", ["in-memory", "pagraph", "uva", "data-tiering"])
def test_a_system_that_loads_everything_is_refused_where_that_does_not_fit(
    tmp_path: Path, name: str
) -> None:
    """A run of the harness has a kernel cap; the loader has none, so the plan must
    refuse."""
    graph = make_tiny(
        tmp_path / "large",
        nodes=20_000,
        edges=30_000,
        dim=256,
        train_fraction=0.01,
        seed=9,
    )
    assert graph.feature_bytes > 18 << 20
    with pytest.raises(BudgetError, match="raise memory"):
        make(graph, system=name, memory="0.5x")
    with make(graph, system="gnndrive", memory="0.5x") as loader:
        assert loader.plan.total("host") <= graph.feature_bytes // 2
        for batch in loader:
            assert batch.num_nodes

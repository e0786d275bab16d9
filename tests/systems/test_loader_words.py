"""`outcore.loader` takes the arguments of PyG's `NeighborLoader`, or says what to use
instead."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.loader import NeighborLoader

from systems.interface import Plan, PlanItem
from systems.loading import Loader, request
from systems.loading.pyg_arguments import INSTEAD, check_words
from systems.loading.request import open_dataset
from tests.support import make_tiny
from tests.systems.loading_tools import make
from workloads.dataset import Dataset
from workloads.errors import InputError

OWN = inspect.signature(Loader).parameters
PAGE = (Path(__file__).parent.parent.parent / "docs" / "loader.md").read_text()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny(tmp_path_factory.mktemp("words") / "graph", seed=7)


def seeds(loader: Loader) -> list[int]:
    return [
        node for batch in loader for node in batch.n_id[: batch.batch_size].tolist()
    ]


@pytest.mark.parametrize("theirs", [NeighborLoader, torch.utils.data.DataLoader])
def test_every_argument_of_pyg_and_torch_is_taken_or_answered(theirs: type) -> None:
    for name, parameter in inspect.signature(theirs).parameters.items():
        if name in ("data", "dataset", "kwargs") or name in OWN:
            continue
        assert name in INSTEAD, name
        assert f"`{name}`" in PAGE, name
        check_words({name: parameter.default}, OWN)  # asks for nothing
        with pytest.raises(InputError, match=f"the loader takes no {name}; "):
            check_words({name: object()}, OWN)


def test_pygs_arguments_give_the_mini_batches_of_ours(graph: Dataset) -> None:
    ours = {"fanout": [5, 4], "cores": 2, "split": "valid"}
    theirs = {
        "fanout": None,
        "num_neighbors": torch.tensor([5, 4]),
        "cores": 0,
        "num_workers": 2,
        "input_nodes": "val",
    }
    with (
        make(graph, **ours) as one,
        make(graph, **theirs, pin_memory=False, prefetch_factor=None) as other,
    ):
        for batch, wanted in zip(other, one, strict=True):
            assert torch.equal(batch.n_id, wanted.n_id)
            assert torch.equal(batch.edge_index, wanted.edge_index)


@pytest.mark.parametrize("as_given", [list, tuple, np.asarray, torch.as_tensor])
def test_input_nodes_are_ids_of_any_kind(graph: Dataset, as_given: Any) -> None:
    with make(graph, input_nodes=as_given([1999, 3, 500])) as loader:
        assert seeds(loader) == [1999, 3, 500]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.sets(st.integers(0, 1999), min_size=1),
    kind=st.sampled_from([np.asarray, torch.as_tensor, list]),
)
def test_a_mask_is_the_ascending_ids_of_its_nodes(
    graph: Dataset, chosen: set[int], kind: Any
) -> None:
    mask = np.zeros(2000, dtype=bool)
    mask[list(chosen)] = True
    by_mask, by_ids = (
        open_dataset(graph, "train", nodes) for nodes in (kind(mask), sorted(chosen))
    )
    assert (
        by_mask.load("train").tolist()
        == by_ids.load("train").tolist()
        == sorted(chosen)
    )
    assert by_mask.fingerprint == by_ids.fingerprint


MASK_KINDS: list[Any] = [
    np.asarray,
    torch.as_tensor,
    lambda mask: mask.tolist(),
    lambda mask: tuple(mask.tolist()),
    lambda mask: mask.astype(np.uint8),
    lambda mask: torch.as_tensor(mask).to(torch.uint8),
]


@pytest.mark.parametrize("kind", MASK_KINDS)
def test_a_mask_is_known_by_booleans_or_by_uint8_for_every_node(
    graph: Dataset, kind: Any
) -> None:
    mask = np.zeros(2000, dtype=bool)
    mask[[3, 500, 1999]] = True
    with make(graph, input_nodes=kind(mask)) as loader:
        assert seeds(loader) == [3, 500, 1999]
    with pytest.raises(InputError, match="names no node"):
        make(graph, input_nodes=kind(np.zeros(2000, dtype=bool)))


@pytest.mark.parametrize(
    "kind",
    [
        lambda mask: mask.astype(np.int64),
        lambda mask: mask.astype(np.int8),
        lambda mask: mask.astype(int).tolist(),
        lambda mask: torch.as_tensor(mask).to(torch.int64),
        lambda mask: [True, *mask.astype(int).tolist()[1:]],
        lambda mask: mask.astype(np.uint8)[:100],
    ],
)
def test_integers_of_zeros_and_ones_are_refused_with_both_readings(
    graph: Dataset, kind: Any
) -> None:
    mask = np.arange(2000) < 7
    with pytest.raises(
        InputError,
        match="of zeros and ones, a mask or the ids 0 and 1 repeated; give a mask "
        "as bool",
    ):
        make(graph, input_nodes=kind(mask))


def test_uint8_ids_are_ids_and_what_may_be_either_is_refused(
    graph: Dataset, tmp_path: Path
) -> None:
    with make(graph, input_nodes=np.array([7, 3, 255], dtype=np.uint8)) as loader:
        assert seeds(loader) == [7, 3, 255]
    small = make_tiny(tmp_path / "small", nodes=20, edges=20)
    falling = np.arange(20, dtype=np.uint8)[::-1]
    assert (
        open_dataset(small, "train", falling).load("train").tolist() == falling.tolist()
    )
    assert request._is_mask(np.array([1, 1], dtype=np.uint8), 2)
    with pytest.raises(
        InputError,
        match=r"nodes is uint8 \[0, 1\] for 2 nodes, a mask or ids; give a mask as "
        r"booleans",
    ):
        request._is_mask(np.array([0, 1], dtype=np.uint8), 2)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            torch.ones(2000),
            r"nodes is float32 \[2000\]; give ids as whole numbers .n., or a "
            r"mask as booleans",
        ),
        (torch.ones(2000).bool().to_sparse(), "nodes is sparse; give it dense"),
        (torch.ones(2).bfloat16(), "nodes is bfloat16"),
        ({1, 2}, "nodes is object"),
        (np.array([2**63], dtype=np.uint64), "the graph has 2000"),
        ([2**70], "nodes is object"),
        (torch.tensor(3), r"nodes is int64 \[\]"),
        (np.zeros((1, 2000), dtype=np.uint8), r"nodes is uint8 \[1, 2000\]"),
    ],
)
def test_other_nodes_are_one_sentence(graph: Dataset, nodes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make(graph, input_nodes=nodes)
    assert "\n" not in str(caught.value)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(-3, 2002), max_size=20))
def test_ids_are_taken_whole_or_refused(graph: Dataset, ids: list[int]) -> None:
    sound = (
        bool(ids) and len(set(ids)) == len(ids) and min(ids) >= 0 and max(ids) < 2000
    )
    if sound:
        assert open_dataset(graph, "train", ids).load("train").tolist() == ids
    else:
        with pytest.raises(InputError, match="nodes"):
            open_dataset(graph, "train", ids)


def test_drop_last_leaves_out_the_short_mini_batch_alone(graph: Dataset) -> None:
    nodes = np.arange(110)
    with make(graph, nodes=nodes, drop_last=True) as loader:
        assert [batch.batch_size for batch in loader] == [50, 50]
    with make(graph, nodes=nodes[:100], drop_last=True) as loader:
        assert seeds(loader) == list(range(100))
    with make(graph, nodes=nodes, drop_last=True, max_batches=1) as loader:
        assert len(loader) == 1
    with make(
        graph, nodes=nodes, drop_last=True, batch_size=25, rank=1, world=2
    ) as loader:
        assert [batch.batch_size for batch in loader] == [25, 25]


def test_the_loader_reports_classes_and_features_and_its_plan(graph: Dataset) -> None:
    with make(graph) as loader:
        assert (loader.num_classes, loader.num_features) == (5, 16)
        table = str(loader.plan).splitlines()
        assert len(table) == len(loader.plan.items) + 1
        assert max(map(len, table)) <= 80
        assert table[-1].split()[:2] == ["total", "host"]
        for item, line in zip(loader.plan.items, table, strict=False):
            assert line.startswith(item.name)
    both = str(
        Plan(
            (
                PlanItem("cache", 2048),
                PlanItem("rows", 4096, "device"),
                PlanItem("more", 1024),
            )
        )
    )
    assert both.splitlines() == [
        "cache  host       2.0 KiB",
        "rows   device     4.0 KiB",
        "more   host       1.0 KiB",
        "total  host       3.0 KiB",
        "total  device     4.0 KiB",
    ]


@pytest.mark.parametrize(
    ("given_words", "message"),
    [
        ({"num_neighbors": [5]}, "fanout and num_neighbors are both given"),
        (
            {"fanout": None, "num_neighbors": 10},
            "the fan-out is 10; give one whole number for each hop",
        ),
        (
            {"fanout": None, "num_neighbors": {("a", "to", "b"): [5]}},
            "by type of edges, and typed graphs are not supported",
        ),
        ({"fanout": [0.5]}, "the fan-out is"),
        ({"input_nodes": [1], "nodes": [2]}, "beside split or nodes"),
        ({"input_nodes": [1], "split": "test"}, "beside split or nodes"),
        ({"input_nodes": ("paper", [1])}, "names a type of nodes"),
        ({"input_nodes": "training"}, "use train, valid or test"),
        (
            {"input_nodes": np.zeros(7, bool)},
            r"mask \[7\], the graph has 2000 nodes; give a boolean for every node",
        ),
        ({"input_nodes": np.zeros((2000, 3), bool)}, "choose one of its columns"),
        ({"input_nodes": np.zeros(2000, bool)}, "names no node"),
        ({"input_nodes": [[1], [2, 3]]}, "unequal length"),
        ({"num_workers": 2}, "cores and num_workers are both given"),
        ({"cores": 0, "num_workers": -1}, "num_workers is -1"),
        (
            {"drop_last": True, "nodes": [1, 2]},
            "drop_last leaves nothing of 2 seed nodes",
        ),
        ({"pin_memory": True}, "use device='cuda'"),
        ({"persistent_workers": True}, "threads load"),
        ({"prefetch_factor": 2}, "as memory allows"),
        ({"num_neighbours": [5]}, "did you mean 'num_neighbors'"),
        (
            {"sampler": torch.utils.data.SequentialSampler([1])},
            "sampler is a SequentialSampler; give a name",
        ),
    ],
)
def test_what_the_loader_cannot_do_is_one_sentence(
    graph: Dataset, given_words: dict[str, Any], message: str
) -> None:
    folder = set(graph.path.parent.iterdir())
    with pytest.raises(InputError, match=message) as caught:
        make(graph, **given_words)
    assert "\n" not in str(caught.value)
    assert set(graph.path.parent.iterdir()) == folder


@pytest.mark.parametrize("value", ["2", 1.5, None, True, -1, float("nan"), [1]])
@pytest.mark.parametrize(
    "name",
    [
        "batch_size",
        "cores",
        "epochs",
        "max_batches",
        "num_workers",
        "rank",
        "seed",
        "world",
        "layers",
    ],
)
def test_an_argument_that_counts_is_a_whole_number(
    graph: Dataset, name: str, value: Any
) -> None:
    with pytest.raises(InputError, match=f"^{name} is "):
        make(graph, **{name: value})


def test_an_epoch_is_a_whole_number(graph: Dataset) -> None:
    with make(graph) as loader:
        for value in ("1", 1.5, True, None):
            with pytest.raises(InputError, match=r"^epoch is .*whole number"):
                loader.set_epoch(value)
        loader.set_epoch(np.int64(1))
        assert loader.epoch == 1

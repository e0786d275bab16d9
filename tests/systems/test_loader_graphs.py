"""Graphs that the loader does not take whole: attributes left out are named, typed
graphs are refused by name."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset, TemporalData

import outcore
from outcore.pyg import FeatureStore, GraphStore
from tests.support import make_tiny
from workloads.errors import InputError
from workloads.importers.pyg import open_pyg

dgl: Any = pytest.importorskip("dgl", reason="DGL is not installed")

SETTINGS: dict[str, Any] = {
    "memory": "64MiB",
    "num_neighbors": [3],
    "batch_size": 20,
    "form": "plain",
    "cores": 2,
}
TYPED = (
    "typed .heterogeneous. graphs are not supported yet; give a "
    "torch_geometric.data.Data, one graph with one type"
)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTCORE_DATA", str(tmp_path / "data"))


def a_graph(**more: Any) -> Data:
    mask = torch.arange(60) < 30
    edges = torch.stack([torch.arange(60), (torch.arange(60) + 1) % 60])
    return Data(
        edge_index=edges,
        x=torch.randn(60, 4),
        y=torch.arange(60) % 3,
        train_mask=mask,
        **more,
    )


def warned(graph: Any, **settings: Any) -> list[str]:
    """Return the warnings of a loader over a graph."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        outcore.loader(graph, **SETTINGS, **settings).close()
    return [
        str(warning.message) for warning in raised if warning.category is UserWarning
    ]


LEFT_OUT: list[dict[str, Any]] = [
    {"edge_attr": torch.ones(60, 2), "time": torch.arange(60)},
    {"pos": torch.ones(60, 3)},
    {
        "n_id": torch.arange(7),
        "e_id": torch.arange(60),
    },  # n_id is not that of all nodes
    {"adj_t": torch.eye(60)},
    {
        "name": "a text",
        "batch": torch.zeros(60, dtype=torch.int64),
        "ptr": torch.tensor([0, 60]),
    },
    {f"attribute_{number}": torch.ones(1) for number in range(25)},
]


@pytest.mark.parametrize("more", LEFT_OUT, ids=lambda more: next(iter(more)))
@pytest.mark.parametrize("form", ["data", "graph.pt", "graph.npz"])
def test_every_attribute_left_out_is_named_in_one_warning(
    tmp_path: Path, more: dict[str, Any], form: str
) -> None:
    graph: Any = a_graph(**more)
    if form == "graph.pt":
        torch.save(graph, tmp_path / form)
        graph = tmp_path / form
    if form == "graph.npz":
        np.savez(
            tmp_path / form,
            **{name: np.asarray(value) for name, value in graph.to_dict().items()},
        )
        graph = tmp_path / form
    (fault,) = warned(graph)
    named = re.split(r", |: |; ", fault)
    assert set(more) <= set(named), fault
    assert not {"x", "y", "edge_index", "train_mask"} & set(named)


def test_a_graph_that_is_taken_whole_gives_no_warning(tmp_path: Path) -> None:
    assert warned(a_graph()) == []
    assert warned(a_graph(num_classes=5)) == []
    assert warned(a_graph(edge_attr=None)) == []
    assert warned(make_tiny(tmp_path / "tiny", nodes=100, edges=300)) == []


def test_weights_that_are_not_asked_for_are_named(tmp_path: Path) -> None:
    weighted = a_graph(edge_weight=torch.ones(60))
    (fault,) = warned(weighted)
    assert "edge_weight is not handed out unless edge_weight=True" in fault
    assert warned(weighted, edge_weight=True) == []


def test_a_kept_graph_is_warned_of_by_every_loader(tmp_path: Path) -> None:
    for _ in range(2):
        (fault,) = warned(a_graph(time=torch.arange(60)), artefacts=tmp_path / "kept")
        assert "time" in fault


def hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.ones(3, 2)
    data["paper", "cites", "paper"].edge_index = torch.zeros(2, 1, dtype=torch.int64)
    return data


class OneTyped(InMemoryDataset):
    """Dataset of one typed graph, as a user saves it."""

    processed_file_names = ("data.pt",)

    def process(self) -> None:
        self.save([hetero()], self.processed_paths[0])


def two_types() -> Any:
    return dgl.heterograph({("a", "to", "b"): ([0], [1]), ("b", "to", "a"): ([0], [1])})


IN_MEMORY: list[Any] = [
    hetero(),
    hetero().to_dict(),
    HeteroData(),
    HeteroData().to_dict(),
    {("paper", "cites", "paper"): torch.zeros(2, 1)},
    {"edge_index_dict": {}, "x_dict": {}},
    {
        "x": {"paper": torch.ones(3, 2)},
        "edge_index": {("paper", "cites", "paper"): torch.zeros(2, 1)},
    },
    Data(edge_index_dict={("paper", "cites", "paper"): torch.zeros(2, 1)}),
    two_types(),
]


@pytest.mark.parametrize("graph", IN_MEMORY, ids=lambda graph: type(graph).__name__)
def test_a_typed_graph_is_refused_by_name(graph: Any) -> None:
    with pytest.raises(InputError, match=TYPED) as caught:
        outcore.loader(graph, **SETTINGS)
    assert "\n" not in str(caught.value)
    assert "edge_index (" not in str(caught.value)


@pytest.mark.parametrize("saved", ["object", "dictionary", "dataset"])
def test_a_saved_typed_graph_is_refused_by_name_in_loader_and_import(
    tmp_path: Path, saved: str
) -> None:
    path = tmp_path / "graph.pt"
    if saved == "dataset":
        path = Path(OneTyped(str(tmp_path / "one")).processed_paths[0])
    else:
        torch.save(hetero() if saved == "object" else hetero().to_dict(), path)
    with pytest.raises(InputError, match=TYPED):
        outcore.loader(path, **SETTINGS)
    with pytest.raises(InputError, match=TYPED):
        open_pyg(path)


@pytest.mark.parametrize("store", [FeatureStore, GraphStore])
def test_stores_refuse_graphs_in_memory(store: Any) -> None:
    for typed in (hetero(), hetero().to_dict(), two_types()):
        with pytest.raises(InputError, match=TYPED):
            store(typed)
    with pytest.raises(
        InputError,
        match=r"expect a dataset on disk, but got Data; .*outcore data import",
    ):
        store(a_graph())


def test_a_dictionary_beside_the_edges_is_left_out_and_not_taken_for_a_type() -> None:
    (fault,) = warned(
        {
            **a_graph().to_dict(),
            "meta": {"source": "a shop"},
            "label_dict": {0: "books"},
        }
    )
    assert "label_dict, meta" in fault


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            dgl.graph(([0], [1])),
            r"is a graph of DGL; .*edge_index=torch.stack\(graph.edges\(\)\)",
        ),
        (
            TemporalData(src=torch.tensor([1])),
            "is a TemporalData; give a torch_geometric.data.Data",
        ),
        (
            Data(x=torch.ones(3, 2), adj_t=torch.eye(3)),
            "has no edge_index.*puts adj_t in its place",
        ),
        (
            Data(x=torch.ones(3, 2)),
            r"has no edge_index; give it as \[2, E\], sources above destinations$",
        ),
    ],
)
def test_what_has_no_edges_of_its_own_is_answered_by_its_cause(
    graph: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        outcore.loader(graph, **SETTINGS)


def test_the_fix_for_a_graph_of_dgl_works() -> None:
    graph = dgl.graph(([0, 1, 2], [1, 2, 0]))
    graph.ndata["feat"] = torch.ones(3, 2)
    mask = torch.tensor([True, True, False])
    edges = torch.stack(graph.edges())
    data = Data(
        edge_index=edges,
        x=graph.ndata["feat"],
        y=torch.tensor([0, 1, 0]),
        train_mask=mask,
    )
    with outcore.loader(data, **SETTINGS) as loader:
        assert [batch.batch_size for batch in loader] == [2]


class Mine:
    """Class of a user's own, whose code is not run."""


def test_the_fix_for_a_file_with_objects_works(tmp_path: Path) -> None:
    torch.save(Mine(), tmp_path / "mine.pt")
    with pytest.raises(
        InputError,
        match=r"save its tensors alone: torch.save\(\{'edge_index': ..., 'x': ..., 'y'",
    ):
        outcore.loader(tmp_path / "mine.pt", **SETTINGS)
    fields = a_graph().to_dict()
    torch.save(
        {name: fields[name] for name in ("edge_index", "x", "y", "train_mask")},
        tmp_path / "mine.pt",
    )
    with outcore.loader(tmp_path / "mine.pt", **SETTINGS) as loader:
        assert len(loader) == 2

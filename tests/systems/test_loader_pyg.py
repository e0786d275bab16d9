"""`outcore.loader` trains on a `torch_geometric.data.Data`, in memory, memory-mapped or
saved."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.nn import GCNConv

import outcore
from systems.registry import load, names
from tests.support import make_tiny, needs_dgl
from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError, OutcoreError
from workloads.making.importing import ImportSpec, import_dataset

NODES = 300
EDGES = 2400
SETTINGS: dict[str, Any] = {
    "memory": "64MiB",
    "num_neighbors": [5, 4],
    "batch_size": 20,
    "form": "plain",
    "cores": 2,
}


def a_graph(seed: int = 0) -> Data:
    """Some edges are there twice, some are loops."""
    make = torch.Generator().manual_seed(seed)
    share = torch.rand(NODES, generator=make)
    return Data(
        edge_index=torch.randint(NODES, (2, EDGES), generator=make),
        x=torch.randn(NODES, 7, generator=make),
        y=torch.randint(4, (NODES,), generator=make),
        train_mask=share < 0.4,
        val_mask=(share >= 0.4) & (share < 0.5),
        test_mask=share >= 0.8,
    )


def arrays(data: Data) -> dict[str, np.ndarray[Any, Any]]:
    return {name: value.numpy() for name, value in data.to_dict().items()}


def mapped(data: Data, folder: Path) -> Data:
    """The graph with every tensor in a memory map."""
    found = {}
    for name, array in arrays(data).items():
        np.save(folder / f"{name}.npy", array)
        found[name] = torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="r+"))
    return Data(**found)


class OneGraph(InMemoryDataset):
    """What a user's own dataset of one graph saves."""

    def __init__(self, root: str, data: Data) -> None:
        self.made = data
        super().__init__(root)

    @property
    def processed_file_names(self) -> list[str]:
        return ["data.pt"]

    def process(self) -> None:
        self.save([self.made], self.processed_paths[0])


def given_as(data: Data, form: str, folder: Path) -> Any:
    if form == "data":
        return data
    if form == "mapped":
        return mapped(data, folder)
    if form == "dataset.pt":
        return OneGraph(tempfile.mkdtemp(dir=folder), data).processed_paths[0]
    path = folder / form
    if form == "graph.pt":
        torch.save(data, path)
    else:
        (np.savez if form == "graph.npz" else np.savez_compressed)(path, **arrays(data))
    return path


FORMS = ["data", "mapped", "graph.pt", "dataset.pt", "graph.npz", "small.npz"]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTCORE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("system", ["in-memory", "gnndrive"])
def test_a_graph_gives_its_own_edges_rows_and_labels(
    tmp_path: Path, root: Path, form: str, system: str
) -> None:
    data = a_graph()
    edges = {tuple(pair) for pair in data.edge_index.T.tolist()}
    given = given_as(data, form, tmp_path)
    before = sorted(tmp_path.iterdir())
    with outcore.loader(given, system=system, **SETTINGS) as loader:
        assert (loader.num_classes, loader.num_features) == (4, 7)
        seen = []
        for batch in loader:
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert torch.equal(batch.y, data.y[batch.n_id[: batch.batch_size]])
            assert {
                tuple(pair) for pair in batch.n_id[batch.edge_index].T.tolist()
            } <= edges
            seen += batch.n_id[: batch.batch_size].tolist()
    assert sorted(seen) == data.train_mask.nonzero().flatten().tolist()
    assert [path for path in sorted(tmp_path.iterdir()) if path != root] == before
    assert not root.exists() or list(root.iterdir()) == []


def test_all_neighbours_are_pygs_in_neighbours_with_repeated_edges(
    tmp_path: Path,
) -> None:
    data = a_graph(seed=3)
    with outcore.loader(
        data, **{**SETTINGS, "num_neighbors": [-1]}, input_nodes=data.test_mask
    ) as loader:
        for batch in loader:
            source, target = batch.n_id[batch.edge_index]
            for node in batch.n_id[: batch.batch_size].tolist():
                wanted = data.edge_index[0, data.edge_index[1] == node]
                assert sorted(source[target == node].tolist()) == sorted(
                    wanted.tolist()
                )


@pytest.mark.parametrize("form", FORMS)
def test_what_was_written_is_kept_by_its_content(tmp_path: Path, form: str) -> None:
    data = a_graph()
    kept = tmp_path / "kept"
    given = given_as(data, form, tmp_path)
    fingerprints = []
    for _ in range(2):
        with outcore.loader(given, **SETTINGS, artefacts=kept) as loader:
            fingerprints.append(loader.workload.dataset.fingerprint)
            made = {path: path.stat().st_ino for path in kept.glob("graph-*")}
    assert len(made) == 1
    assert made == {path: path.stat().st_ino for path in kept.glob("graph-*")}
    other = a_graph()
    other.x[5, 3] += 1
    with outcore.loader(
        given_as(other, form, tmp_path), **SETTINGS, artefacts=kept
    ) as loader:
        fingerprints.append(loader.workload.dataset.fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_every_form_of_a_graph_is_the_same_dataset(tmp_path: Path) -> None:
    data = a_graph()
    found = set()
    for form in FORMS:
        with outcore.loader(given_as(data, form, tmp_path), **SETTINGS) as loader:
            found.add(loader.workload.dataset.fingerprint)
    assert len(found) == 1


def test_nodes_without_labels_are_loaded_where_they_are_named(tmp_path: Path) -> None:
    data = Data(edge_index=a_graph().edge_index, x=a_graph().x.double())
    with outcore.loader(data, **SETTINGS, input_nodes=range(NODES)) as loader:
        batches = [batch.y.tolist() for batch in loader]
    assert [label for labels in batches for label in labels] == [-1] * NODES


def broken(**changed: Any) -> Data:
    data = a_graph()
    for name, value in changed.items():
        if value is None:
            del data[name]
        else:
            data[name] = value
    return data


FAULTS = [
    (broken(edge_index=None), r"has no edge_index; give it as \[2, E\]"),
    (broken(edge_index=a_graph().edge_index.T), r"edge_index.* has shape \(2400, 2\)"),
    (broken(edge_index=a_graph().x), r"edge_index.* not \[2, E\] of integers"),
    (
        broken(edge_index=torch.tensor([[0, 300], [1, 2]])),
        "an edge names node 300, but there are 300 nodes",
    ),
    (broken(edge_index=torch.tensor([[0, -1], [1, 2]])), "an edge names node -1"),
    (broken(x=None), "has no x"),
    (broken(x=torch.zeros(299, 7)), "has 300 labels for 299 nodes"),
    (broken(num_nodes=301), "x of .* has 300 rows for 301 nodes"),
    (broken(x=torch.zeros(NODES)), "not rows of numbers"),
    (broken(y=None), "has no y"),
    (broken(y=torch.zeros(12, dtype=torch.int64)), "has 12 labels for 300 nodes"),
    (broken(y=torch.zeros(NODES, 3)), "has 3 columns of labels"),
    (broken(train_mask=None), "train_mask of .* is missing.*RandomNodeSplit"),
    (
        broken(train_mask=torch.zeros(NODES, dtype=torch.bool)),
        "train_mask of .* chooses no node",
    ),
    (
        broken(train_mask=torch.zeros(NODES, 5, dtype=torch.bool)),
        "choose one of its columns",
    ),
    (broken(train_mask=torch.arange(5)), r"not bool \[300\]"),
    (
        broken(edge_weight=torch.ones(5)),
        r"edge_weight of .* is float32 \[5\]; give a number for every edge, \[2400\]",
    ),
    (
        broken(val_mask=torch.ones(NODES, dtype=torch.bool)),
        "which another split names too",
    ),
]


@pytest.mark.parametrize(("data", "message"), FAULTS)
@pytest.mark.parametrize("form", ["data", "graph.pt", "graph.npz"])
def test_a_faulty_graph_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, root: Path, data: Data, message: str, form: str
) -> None:
    if form == "graph.npz":
        np.savez(
            tmp_path / form,
            **{
                name: np.asarray(value, order="C")
                for name, value in data.to_dict().items()
            },
        )
        given: Any = tmp_path / form
    else:
        given = given_as(data, form, tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OutcoreError, match=message) as caught:
        outcore.loader(given, **SETTINGS)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert [path for path in sorted(tmp_path.iterdir()) if path != root] == before
    assert not root.exists() or list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            HeteroData(),
            "is a HeteroData, and typed .* not supported yet; give a "
            "torch_geometric.data.Data",
        ),
        ([1, 2], "is a list"),
        (broken(x=a_graph().x.to_sparse()), "x of data is sparse; give it dense"),
        (broken(x=a_graph().x.bfloat16()), "x of data is bfloat16"),
    ],
)
def test_what_is_no_plain_data_is_reported(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        outcore.loader(given, **SETTINGS)


def test_a_split_without_nodes_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the val split of .* is empty"):
        outcore.loader(broken(val_mask=None), **SETTINGS, input_nodes="val")


def test_a_hostile_or_damaged_file_is_refused_and_never_run(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    torch.save({"edge_index": Hostile()}, tmp_path / "hostile.pt")
    torch.save(a_graph(), tmp_path / "cut.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "cut.pt").read_bytes()[:3000])
    (tmp_path / "text.npz").write_text("no zip")
    for name in ("hostile.pt", "cut.pt", "text.npz"):
        with pytest.raises(OutcoreError, match=name) as caught:
            outcore.loader(tmp_path / name, **SETTINGS)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


def weighted() -> tuple[Data, dict[tuple[int, int], float]]:
    """Repeated edges have several weights; whole numbers, so that sums are exact."""
    data = a_graph(seed=5)
    data.edge_weight = torch.arange(EDGES, dtype=torch.float32)
    sums: dict[tuple[int, int], float] = {}
    for (u, v), weight in zip(
        data.edge_index.T.tolist(), data.edge_weight.tolist(), strict=True
    ):
        sums[u, v] = sums.get((u, v), 0) + weight
    assert len(sums) < EDGES
    return data, sums


@pytest.fixture(scope="module")
def weighted_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("weighted")
    torch.save(weighted()[0], folder / "g.pt")
    return import_dataset(folder / "g.pt", folder / "data" / "g", ImportSpec("pyg"))


@pytest.mark.parametrize(
    "system", [name for name in names() if load(name).info.faithful]
)
def test_sampled_edges_have_their_weights_from_every_system(
    weighted_dataset: Dataset, system: str
) -> None:
    _, sums = weighted()
    settings = {**SETTINGS, "system": system, "edge_weight": True, "max_batches": 3}
    with outcore.loader(weighted_dataset, **settings) as loader:
        for batch in loader:
            ends = batch.n_id[batch.edge_index].T.tolist()
            assert batch.edge_weight.dtype == torch.float32
            assert batch.edge_weight.tolist() == [sums[u, v] for u, v in ends]
        assert "search for edge weights" in str(loader.plan)


@pytest.mark.parametrize("form", ["plain", "pyg", pytest.param("dgl", marks=needs_dgl)])
def test_every_form_of_a_mini_batch_has_weights_by_layer(
    weighted_dataset: Dataset, form: str
) -> None:
    _, sums = weighted()
    settings = {
        **SETTINGS,
        "form": form,
        "edges": "layers",
        "edge_weight": True,
        "max_batches": 2,
    }
    with outcore.loader(weighted_dataset, **settings) as loader:
        for batch in loader:
            if form == "dgl":
                nodes, _, blocks = batch
                layers = [
                    (torch.stack(block.edges()), block.edata["edge_weight"])
                    for block in blocks
                ]
            else:
                nodes = batch.n_id
                moved = batch.to("cpu")
                layers = [
                    (layer.edge_index, w)
                    for layer, w in zip(moved.layers, moved.edge_weight, strict=True)
                ]
            assert len(layers) == 2
            for edge_index, weight in layers:
                assert weight.tolist() == [
                    sums[u, v] for u, v in nodes[edge_index].T.tolist()
                ]


def test_pygs_gcn_trains_with_the_weights(weighted_dataset: Dataset) -> None:
    layer = GCNConv(7, 4)
    with outcore.loader(
        weighted_dataset, **{**SETTINGS, "form": "pyg"}, edge_weight=True
    ) as loader:
        for batch in loader:
            assert layer(batch.x, batch.edge_index, batch.edge_weight).isfinite().all()


def test_weights_come_only_where_they_are_asked_for(
    weighted_dataset: Dataset, tmp_path: Path
) -> None:
    with outcore.loader(weighted_dataset, **SETTINGS, max_batches=1) as loader:
        assert [batch.edge_weight for batch in loader] == [None]
    with pytest.raises(
        InputError, match="has no edge weights; import it with edge_weight"
    ):
        outcore.loader(a_graph(), **SETTINGS, edge_weight=True)


def test_a_dataset_with_weights_is_verified_whole(
    weighted_dataset: Dataset, tmp_path: Path
) -> None:
    assert weighted_dataset.verify() == []
    copy = tmp_path / "copy"
    shutil.copytree(weighted_dataset.path, copy)
    with (copy / "edge_weight.npy").open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"xx")
    (fault,) = Dataset.open(copy).verify()
    assert "edge_weight.npy is corrupted" in fault
    os.truncate(copy / "edge_weight.npy", 5000)
    with pytest.raises(DatasetError, match=r"edge_weight.npy is truncated"):
        Dataset.open(copy)


def test_a_dataset_gives_what_its_data_gives(tmp_path: Path) -> None:
    """The same mini-batches from a dataset and from a `Data` of the same edges."""
    dataset: Dataset = make_tiny(tmp_path / "tiny", nodes=300, edges=2000)
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    target = np.repeat(np.arange(300), np.diff(indptr))
    masks = {}
    for part, name in (
        ("train", "train_mask"),
        ("valid", "val_mask"),
        ("test", "test_mask"),
    ):
        masks[name] = torch.zeros(300, dtype=torch.bool)
        masks[name][dataset.load(part)] = True  # type: ignore[arg-type]
    shuffled = torch.randperm(2000)
    data = Data(
        edge_index=torch.from_numpy(np.stack([indices, target]).astype(np.int64))[
            :, shuffled
        ],
        x=torch.from_numpy(dataset.load("features")),
        y=torch.from_numpy(dataset.load("labels")),
        **masks,
    )
    with (
        outcore.loader(dataset, **SETTINGS) as one,
        outcore.loader(data, **SETTINGS) as other,
    ):
        for batch, wanted in zip(other, one, strict=True):
            assert torch.equal(batch.n_id, wanted.n_id)
            assert torch.equal(batch.edge_index, wanted.edge_index)

"""A loader's mini-batches are joined with a user's own data by the ids of the imported
graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import outcore
from tests.support import needs_dgl
from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.node_data import NodeDataSpec

NODES = 300
SETTINGS: dict[str, Any] = {
    "memory": "64MiB",
    "fanout": [5, 4],
    "batch_size": 20,
    "cores": 2,
    "form": "plain",
}


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A graph whose ids are the squares of numbers from 5 on."""
    root = tmp_path_factory.mktemp("sparse")
    rng = np.random.default_rng(1)
    ends = (
        np.concatenate([rng.integers(0, NODES, 2000), np.arange(NODES)]).reshape(2, -1)
        + 5
    ) ** 2
    np.savetxt(root / "g.txt", ends.T, fmt="%d")
    node_data = NodeDataSpec(dim=4, classes=3)
    return import_dataset(
        root / "g.txt",
        root / "g",
        ImportSpec("snap", node_data=node_data, fractions=(0.5, 0.2, 0.2)),
    )


@pytest.mark.parametrize("form", ["plain", "pyg"])
def test_nodes_of_mini_batches_have_the_ids_of_the_imported_graph(
    sparse: Dataset, form: str
) -> None:
    with outcore.loader(sparse, **{**SETTINGS, "form": form}) as loader:
        for batch in loader:
            ids = loader.original_ids(batch.n_id)
            assert isinstance(ids, torch.Tensor)
            assert ids.dtype == torch.int64
            assert ids.device == batch.n_id.device
            assert ids.tolist() == ((batch.n_id + 5) ** 2).tolist()
            ends = loader.original_ids(batch.n_id[batch.edge_index])
            assert ends.shape == batch.edge_index.shape
        assert loader.original_ids([0, 2]).tolist() == [25, 49]
        assert isinstance(loader.original_ids(np.array([[0], [2]])), np.ndarray)
        with pytest.raises(
            InputError, match=f"has no node {NODES}; give ids from 0 to {NODES - 1}"
        ):
            loader.original_ids(torch.tensor([0, NODES]))


@needs_dgl
def test_dgls_input_nodes_have_them_too(sparse: Dataset) -> None:
    with outcore.loader(sparse, **{**SETTINGS, "form": "dgl"}, max_batches=2) as loader:
        for inputs, outputs, _ in loader:
            assert loader.original_ids(inputs).tolist() == ((inputs + 5) ** 2).tolist()
            assert (
                loader.original_ids(outputs).tolist() == ((outputs + 5) ** 2).tolist()
            )


def test_seed_nodes_are_chosen_by_original_ids_and_labels_joined_by_them(
    sparse: Dataset,
) -> None:
    labels = {(number + 5) ** 2: number % 7 for number in range(NODES)}  # a user's own
    chosen = [121, 36, 9025, 25]
    nodes = sparse.nodes_of(chosen)
    with outcore.loader(sparse, nodes=nodes, **{**SETTINGS, "batch_size": 2}) as loader:
        seeds = [
            one
            for batch in loader
            for one in loader.original_ids(batch.n_id[: batch.batch_size]).tolist()
        ]
        assert seeds == chosen
        assert [labels[one] for one in seeds] == [6, 1, 90 % 7, 0]


def test_a_dataset_whose_nodes_kept_their_numbers_gives_the_nodes_themselves(
    tiny_dataset: Dataset,
) -> None:
    with outcore.loader(tiny_dataset, **SETTINGS, max_batches=1) as loader:
        for batch in loader:
            found = loader.original_ids(batch.n_id)
            assert found.tolist() == batch.n_id.tolist()
            assert found.data_ptr() != batch.n_id.data_ptr()


def test_a_data_object_with_n_id_keeps_it(tmp_path: Path) -> None:
    """As a subgraph has it that PyG took out of a larger graph; another one is another
    dataset."""
    rng = np.random.default_rng(2)
    for seed in range(2):
        data = Data(
            edge_index=torch.from_numpy(
                np.random.default_rng(0).integers(0, NODES, (2, 900))
            ),
            x=torch.ones(NODES, 3),
            y=torch.zeros(NODES, dtype=torch.int64),
            train_mask=torch.arange(NODES) < 90,
            n_id=torch.from_numpy(rng.permutation(10**6)[:NODES]),
        )
        torch.save(data, tmp_path / f"{seed}.pt")
        for graph in (data, tmp_path / f"{seed}.pt"):
            for _ in range(2):  # kept by the first
                with outcore.loader(
                    graph, **SETTINGS, artefacts=tmp_path / "kept"
                ) as loader:
                    assert (
                        loader.original_ids(range(NODES)).tolist() == data.n_id.tolist()
                    )


def test_a_loader_of_an_older_dataset_that_lost_the_ids_refuses_to_make_them_up(
    sparse: Dataset,
) -> None:
    files = {
        part: entry for part, entry in sparse.manifest.files.items() if part != "ids"
    }
    older = Dataset(sparse.path, sparse.manifest.model_copy(update={"files": files}))
    with (
        outcore.loader(older, **SETTINGS) as loader,
        pytest.raises(
            DatasetError, match="kept no original ids; import it again with --force"
        ),
    ):
        loader.original_ids([0])

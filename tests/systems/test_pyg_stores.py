"""PyG's own loaders over `outcore.pyg` give the tensors of the same graph in memory;
memory is bounded."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.typing as built
from torch_geometric.data import Data, TensorAttr
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from harness.foreign.environment import find
from outcore.pyg import FeatureStore, GraphStore
from systems.loading import pyg_stores
from tests.harness.run_tools import REPOSITORY
from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DatasetError, InputError

SMALL = "7MiB"  # labels, read buffers and some of the rows


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A table of 7.6 MiB."""
    return make_tiny(
        tmp_path_factory.mktemp("stores") / "g", nodes=5000, edges=60_000, dim=400
    )


def held_by_pyg(dataset: Dataset) -> Data:
    """Return the same graph as PyG holds it in memory."""
    indptr = dataset.load("indptr")
    targets = np.repeat(np.arange(dataset.num_nodes), np.diff(indptr))
    edges = torch.from_numpy(
        np.stack([dataset.load("indices").astype(np.int64), targets])
    )
    x, y = (torch.from_numpy(dataset.load(part)) for part in ("features", "labels"))  # type: ignore[arg-type]
    return Data(edge_index=edges, x=x, y=y)


@pytest.fixture(scope="module")
def in_memory(dataset: Dataset) -> Data:
    return held_by_pyg(dataset)


INDICES: list[Any] = [
    None,
    slice(None),
    slice(7, 4000, 13),
    slice(-5, None),
    torch.tensor([5, 4999, 5, 0]),
    torch.tensor([], dtype=torch.int64),
    torch.tensor([-1, 3], dtype=torch.int32),
    torch.arange(5000) % 7 == 0,
    17,
    torch.tensor(3),
]


@pytest.mark.parametrize("memory", [SMALL, "64MiB"])
@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_every_index_gives_the_tensor_that_pygs_data_gives(
    dataset: Dataset, in_memory: Data, memory: str, index: Any
) -> None:
    store = FeatureStore(dataset, memory=memory)
    for name in ("x", "y"):
        attr = TensorAttr(None, name, index)
        whole = in_memory[name]
        expected = (
            whole
            if index is None
            else whole[torch.arange(5000)[index]]
            if isinstance(index, slice)
            else whole[index]
        )
        found = store.get_tensor(attr)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
        assert store.get_tensor_size(attr) == tuple(expected.shape)
    both = store.multi_get_tensor(
        [TensorAttr(None, name, index) for name in ("x", "y")]
    )
    assert torch.equal(both[0], store.get_tensor(None, "x", index))
    assert torch.equal(store[None, "x"][index], both[0])
    # PyG itself takes no NumPy index in `get_tensor`; its utilities hand one on.
    assert torch.equal(
        store._get_tensor(TensorAttr(None, "x", np.array([17, 3]))),
        in_memory.x[[17, 3]],
    )


def test_a_part_of_the_rows_is_cached_and_the_rest_is_read(dataset: Dataset) -> None:
    store = FeatureStore(dataset, memory=SMALL)
    assert 0 < store.cached_rows < dataset.num_nodes
    held = (
        store.cached_rows * dataset.row_bytes
        + 4 * dataset.num_nodes
        + 2 * dataset.num_nodes
    )
    assert held < 7 << 20
    degrees = np.bincount(dataset.load("indices"), minlength=dataset.num_nodes)
    hubs = torch.from_numpy(
        np.argsort(-degrees, kind="stable")[: store.cached_rows].copy()
    )
    store.get_tensor(None, "x", hubs)
    assert store.counters() == {
        "rows": len(hubs),
        "hits": len(hubs),
        "misses": 0,
        "requests": 0,
        "bytes_read": 0,
    }
    store.get_tensor(None, "x", None)
    counts = store.counters()
    assert counts["misses"] == dataset.num_nodes - store.cached_rows
    assert counts["bytes_read"] >= counts["misses"] * 1600
    whole = FeatureStore(dataset, memory="64MiB")
    whole.get_tensor(None, "x", None)
    assert whole.cached_rows == dataset.num_nodes
    assert whole.counters()["bytes_read"] == 0


def test_reads_of_any_length_are_bounded(
    dataset: Dataset, in_memory: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyg_stores, "READ_ROWS", 100)
    assert torch.equal(
        FeatureStore(dataset, memory=SMALL).get_tensor(None, "x", None), in_memory.x
    )


def test_float16_rows_stay_float16_and_a_dataset_is_named_by_its_path(
    tmp_path: Path,
) -> None:
    half = make_tiny(tmp_path / "half", nodes=200, edges=900, dtype="float16")
    store = FeatureStore(tmp_path / "half", memory="8MiB")
    found = store.get_tensor(None, "x", torch.tensor([3, 199]))
    assert found.dtype == torch.float16
    assert np.array_equal(found.numpy(), half.load("features")[[3, 199]])


def test_memory_too_small_wrong_indices_and_writes_are_refused(
    dataset: Dataset,
) -> None:
    with pytest.raises(
        BudgetError, match=r"labels and read buffers take .*; give memory="
    ):
        FeatureStore(dataset, memory="100KiB")
    with pytest.raises(InputError, match="memory is 'none'"):
        FeatureStore(dataset, memory="none")
    store = FeatureStore(dataset, memory="8MiB")
    graph = GraphStore(dataset)
    for index in (
        torch.tensor([5000]),
        torch.tensor([-5001]),
        torch.tensor([2**64 - 1], dtype=torch.uint64),
    ):
        for name in ("x", "y"):
            with pytest.raises(IndexError):
                store.get_tensor(None, name, index)
    with pytest.raises(
        InputError, match="uint8, a mask or ids; give a mask as booleans"
    ):
        store.get_tensor(None, "x", torch.ones(5000, dtype=torch.uint8))
    for wrong in (
        torch.tensor([[1]]),
        torch.tensor([0.5]),
        torch.ones(3, dtype=torch.bool),
    ):
        with pytest.raises(InputError):
            store.get_tensor(None, "x", wrong)
    assert store._get_tensor(TensorAttr(None, "z", None)) is None
    with pytest.raises(InputError, match="read-only"):
        store.put_tensor(torch.zeros(1), None, "z", None)
    with pytest.raises(InputError, match="read-only"):
        store.remove_tensor(None, "x", None)
    with pytest.raises(InputError, match="read-only"):
        graph.put_edge_index((torch.zeros(1), torch.zeros(1)), None, "coo")
    with pytest.raises(KeyError):
        graph.get_edge_index(("a", "to", "b"), "coo")


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_every_layout_of_the_edges_is_that_of_pygs_data(
    tmp_path: Path, index_dtype: str
) -> None:
    own = make_tiny(tmp_path / "g", nodes=300, edges=2000, index_dtype=index_dtype)
    indptr, indices = (
        torch.from_numpy(own.load(part).astype(np.int64))
        for part in ("indptr", "indices")
    )
    targets = torch.repeat_interleave(torch.arange(300), indptr.diff())
    data = Data(edge_index=torch.stack([indices, targets]), num_nodes=300)
    store = GraphStore(own)

    def pairs(layout: str, row: torch.Tensor, col: torch.Tensor) -> list[list[int]]:
        """Sources and destinations, sorted: PyG leaves the order within a list open."""
        assert row.dtype == col.dtype == torch.int64
        if layout != "coo":
            pointers = col if layout == "csc" else row
            assert len(pointers) == 301
            ends = torch.repeat_interleave(torch.arange(300), pointers.diff())
            row, col = (row, ends) if layout == "csc" else (ends, col)
        return sorted(torch.stack([row, col]).T.tolist())

    for layout in ("coo", "csc", "csr"):
        theirs = pairs(layout, *getattr(data, layout)()[:2])
        assert pairs(layout, *store.get_edge_index(None, layout)) == theirs
        assert pairs(layout, *getattr(store, layout)()[:2]) == theirs
    assert torch.equal(store.get_edge_index(None, "csc")[0], indices)
    assert store.get_all_edge_attrs()[0].size == (300, 300)


def test_a_graph_without_edges_has_empty_lists_under_numpy_1_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = make_tiny(tmp_path / "g", nodes=30, edges=0, index_dtype="int64")

    def as_numpy_1(*_: Any, **__: Any) -> Any:
        raise ValueError("cannot mmap an empty file")

    monkeypatch.setattr(np, "load", as_numpy_1)
    store = GraphStore(none)
    assert [
        len(ends)
        for layout in ("coo", "csc", "csr")
        for ends in store.get_edge_index(None, layout)
    ] == [*(0, 0, 0, 31, 31, 0)]


class EveryNeighbour(BaseSampler):  # type: ignore[misc]
    """One hop, all in-neighbours: a sampler that needs neither pyg-lib nor
    torch-sparse."""

    def __init__(self, edge_index: torch.Tensor) -> None:
        self.edges = edge_index

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        chosen = torch.isin(self.edges[1], index.node).nonzero().view(-1)
        nodes = torch.cat([index.node, self.edges[0, chosen]])
        unique, place = torch.unique(nodes, return_inverse=True)
        first = torch.full((len(unique),), len(nodes)).scatter_reduce(
            0, place, torch.arange(len(nodes)), "amin"
        )
        order = first.argsort()
        number = torch.empty_like(order).scatter(0, order, torch.arange(len(order)))
        row, col = (
            number[torch.searchsorted(unique, ends)] for ends in self.edges[:, chosen]
        )
        return SamplerOutput(
            node=unique[order],
            row=row,
            col=col,
            edge=chosen,
            metadata=(index.input_id, index.time),
        )

    def sample_from_edges(self, index: Any, **_: Any) -> Any:
        raise NotImplementedError

    @property
    def edge_permutation(self) -> None:
        return None


def same_batches(one: Any, other: Any, *more: str) -> int:
    """Compare the mini-batches of two loaders tensor by tensor; return their number."""
    count = 0
    for mine, theirs in zip(one, other, strict=True):
        for name in ("x", "y", "edge_index", "n_id", "e_id", "input_id", *more):
            assert torch.equal(mine[name], theirs[name]), name
        assert mine.get("batch_size") == theirs.get("batch_size")
        assert mine.num_nodes == theirs.num_nodes
        count += 1
    return count


@pytest.mark.parametrize("workers", [0, 2])
def test_a_node_loader_over_the_stores_gives_the_tensors_of_one_in_memory(
    dataset: Dataset, in_memory: Data, workers: int
) -> None:
    store = FeatureStore(dataset, memory=SMALL)
    store.get_tensor(
        None, "x", torch.tensor([0, 4998])
    )  # a reader of this process, which workers do not use
    options: dict[str, Any] = {
        "input_nodes": torch.from_numpy(dataset.load("train")),
        "batch_size": 300,
    }
    sampler = EveryNeighbour(in_memory.edge_index)
    ours = NodeLoader(
        (store, GraphStore(dataset)), sampler, num_workers=workers, **options
    )
    assert same_batches(ours, NodeLoader(in_memory, sampler, **options)) == 4


def forks_while_threads_read(path: str, mode: str) -> None:
    """Fork while two threads read; each child reads too.

    Rows are compared by NumPy, and an operation of torch is first used before the
    threads begin: torch holds a lock in its first use of an operation (`rows[nodes]`
    was one), for which a child forked meanwhile waits for ever.
    """
    pyg_stores.RowReader.__init__ = functools.partialmethod(
        pyg_stores.RowReader.__init__, mode=mode
    )  # type: ignore[method-assign,assignment]
    dataset = Dataset.open(path)
    rows = dataset.load("features")
    store = FeatureStore(dataset, memory=SMALL)
    done = threading.Event()
    wrong = list[int]()

    def equal(nodes: np.ndarray[Any, Any]) -> bool:
        return np.array_equal(
            store.get_tensor(None, "x", torch.from_numpy(nodes)).numpy(), rows[nodes]
        )

    def read(seed: int) -> None:
        draw = np.random.default_rng(seed)
        while not done.is_set():
            if not equal(draw.integers(0, dataset.num_nodes, 3000)):
                wrong.append(seed)

    uncached = np.flatnonzero(
        store._cache.lookup(np.arange(dataset.num_nodes)).slots < 0
    )[:200]
    assert equal(uncached)
    threads = [
        threading.Thread(target=read, args=(seed,), daemon=True) for seed in range(2)
    ]
    for thread in threads:
        thread.start()
    for _ in range(8):
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends a child that hangs, not one on a busy machine
            sound = store.counters()["rows"] == 0
            sound &= equal(uncached)
            os._exit(0 if sound and store.counters()["misses"] == len(uncached) else 1)
        assert (ended := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) == 0, (
            f"the child ended with {ended}"
        )
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    print("equal")


@pytest.mark.parametrize("mode", ["auto", "pread"])
def test_a_process_forked_while_threads_read_reads_too(
    dataset: Dataset, mode: str
) -> None:
    code = "from tests.systems import test_pyg_stores as own; "
    code += f"own.forks_while_threads_read({str(dataset.path)!r}, {mode!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.splitlines()[-1:] == ["equal"], done.stderr[-3000:]


def test_a_dataset_made_anew_is_not_mixed_with_the_one_that_was_opened(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tiny"
    make_tiny(folder, nodes=5_000, edges=20_000, dim=400, seed=1)
    rows = FeatureStore(folder, memory=SMALL)
    edges = GraphStore(folder)
    assert 0 < rows.cached_rows < 5_000
    shutil.rmtree(folder)
    make_tiny(folder, nodes=5_000, edges=20_000, dim=400, seed=2)
    for ask in (
        lambda: rows.rows(np.arange(5_000)),
        lambda: edges.get_edge_index(None, "csc"),
    ):
        for _ in range(2):
            with pytest.raises(
                DatasetError, match="was replaced since the store was opened"
            ):
                ask()


def test_a_pickled_store_is_made_again_of_its_dataset(
    dataset: Dataset, in_memory: Data
) -> None:
    store = pickle.loads(pickle.dumps(FeatureStore(dataset, memory=SMALL)))
    assert torch.equal(store.get_tensor(None, "x", torch.tensor([9])), in_memory.x[[9]])
    store.close()
    assert torch.equal(copy.copy(store).get_tensor(None, "y", 3), in_memory.y[3])


def neighbor_loaders(path: str) -> None:
    """Compare PyG's `NeighborLoader` and `LinkNeighborLoader` over the stores with
    those over a graph in memory."""
    dataset = Dataset.open(path)
    whole = held_by_pyg(dataset)
    stores = (FeatureStore(dataset, memory=SMALL), GraphStore(dataset))
    nodes = torch.from_numpy(dataset.load("train"))
    edges = whole.edge_index[:, :500]
    shared: dict[str, Any] = {"num_neighbors": [5, 5], "batch_size": 100}

    def drawn(loader: Any) -> list[Any]:
        torch.manual_seed(0)
        return list(loader)

    for workers in (0, 2):
        shared["num_workers"] = workers
        both = [
            drawn(NeighborLoader(data, input_nodes=nodes, **shared))
            for data in (stores, whole)
        ]
        assert same_batches(*both) == 10
        ends = ((None, edges), edges)
        both = [
            drawn(LinkNeighborLoader(data, edge_label_index=label, **shared))
            for data, label in zip((stores, whole), ends, strict=True)
        ]
        assert same_batches(*both, "edge_label_index") == 5
    print("equal")


@pytest.mark.slow("systems/loading/pyg_stores.py", "outcore/pyg.py", "foreign/pyg")
def test_neighbor_loader_and_link_neighbor_loader_give_the_tensors_of_a_graph_in_memory(
    dataset: Dataset,
) -> None:
    folder = find("pyg")
    packages = list[str]()
    if not (built.WITH_PYG_LIB or built.WITH_TORCH_SPARSE):
        if folder.missing:
            pytest.skip(
                f"NeighborLoader needs pyg-lib or torch-sparse; {folder.missing}"
            )
        assert folder.environment is not None
        packages += map(str, folder.environment.glob("lib/python*/site-packages"))
    # Its torch-sparse, behind Outcore's own packages.
    code = (
        f"import sys; sys.path += {packages}; from tests.systems.test_pyg_stores "
        "import neighbor_loaders; "
    )
    code += f"neighbor_loaders({str(dataset.path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines()[-1:] == ["equal"], done.stderr

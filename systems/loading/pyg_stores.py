"""PyG's `FeatureStore` and `GraphStore` over a dataset: rows by direct reads behind a
cache of a given size."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from systems.engine.cache.static_cache import StaticCache
from systems.engine.io.arrays import gather
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import RowTable
from systems.engine.rank.ranking import out_degrees, top
from systems.loading.request import memory_bytes
from workloads.dataset import Dataset, find_dataset
from workloads.direct_files import aligned_empty, small_maps
from workloads.errors import BudgetError, DatasetError, HostError, InputError, require
from workloads.importers.pyg import check_untyped
from workloads.units import format_bytes
from workloads.workload import ModelSpec, SamplerSpec, Workload

try:
    from torch_geometric import data as pyg
    from torch_geometric.data.graph_store import EdgeLayout
    from torch_geometric.index import index2ptr, ptr2index
except ModuleNotFoundError as error:
    raise HostError(
        "the stores are torch_geometric's", "pip install torch_geometric"
    ) from error

Ids = npt.NDArray[np.int64]
#: Rows of one read, which bounds the memory of its plan.
READ_ROWS = 1 << 14
_CHUNK = 1 << 20
_COUNTING_BYTES = 4 << 20
_READ_ONLY = "the store is read-only"
#: Held by a read and by a fork: a child never begins within a read, whose memory, locks
#: and threads it would share.
_READING = threading.RLock()
_STORES: weakref.WeakValueDictionary[int, FeatureStore] = weakref.WeakValueDictionary()


def _forked() -> None:
    """Let the stores of a child begin without their parent's readers and counts."""
    for store in list(_STORES.values()):
        store._begin()
    _READING.release()


os.register_at_fork(
    before=_READING.acquire, after_in_parent=_READING.release, after_in_child=_forked
)


def _opened(dataset: Any) -> Dataset:
    if isinstance(dataset, Dataset):
        return dataset
    if not isinstance(dataset, str | Path):
        check_untyped(dataset, "the graph")
        fault = f"the stores expect a dataset on disk, but got {type(dataset).__name__}"
        fix = (
            "torch.save(data, 'graph.pt') and `outcore data import NAME graph.pt "
            "--format pyg` make one of a Data"
        )
        raise InputError(fault, fix)
    return find_dataset(str(dataset), os.environ.get("OUTCORE_DATA", "data"))


def _check_unchanged(dataset: Dataset) -> None:
    """Check that files opened by path just now are of the dataset that was opened
    before. Raises DatasetError: another was made in its place."""
    now = Dataset.open(dataset.path).content
    fault = f"dataset {dataset.name!r} was replaced since the store was opened"
    require(now == dataset.content, fault, "open the stores again", DatasetError)


class FeatureStore(pyg.FeatureStore):  # type: ignore[misc]
    """Features `x` and labels `y` of a dataset, for `NeighborLoader` and other loaders
    of PyG.

    The rows of the nodes with most out-edges, which are sampled most often, stay in
    memory; others are read from disk when they are asked for, past the page cache.
    Every process that uses the store (`num_workers`) opens its own reader; forked ones
    share the cache, spawned ones fill one each. Threads may share a store: a process
    reads for one at a time, and forks between two reads.

    Args:
        dataset: opened dataset, its folder, or its name under `$OUTCORE_DATA`.
        memory: bytes of cache, labels and read buffers, like `8GiB`, or `0.25x` of the
            features. The rows of a mini-batch, which PyG keeps, come on top.

    Attributes:
        dataset: the opened dataset.
        cached_rows: number of rows in memory.

    Raises:
        BudgetError: labels and read buffers exceed `memory`.
        DataIOError, DatasetError: the dataset cannot be read, or was replaced by
            another.
    """

    def __init__(
        self, dataset: Dataset | Path | str, *, memory: str | int = "1GiB"
    ) -> None:
        super().__init__()
        self.dataset = _opened(dataset)
        self._memory = memory
        self._table = RowTable.of(self.dataset)
        self._reader: RowReader | None = None
        small = (
            np.int16 if self.dataset.num_classes <= np.iinfo(np.int16).max else np.int64
        )
        self._labels = self.dataset.load("labels").astype(small)
        budget = memory_bytes(memory, self.dataset.feature_bytes)
        fixed = self._labels.nbytes + RowReader.plan_bytes(
            **self._table.place, num_ids=READ_ROWS, path=self._table.path
        )
        require(budget is not None, f"memory is {memory!r}", "give a size like 8GiB")
        assert budget is not None
        if fixed > budget:
            fault = (
                f"labels and read buffers take {format_bytes(fixed)}, memory is "
                f"{format_bytes(budget)}"
            )
            raise BudgetError(fault, f"give memory='{-(-fixed // 1024)}KiB' or more")
        with _READING:
            self._begin()
            self._cache = self._filled(budget - fixed)
        _check_unchanged(self.dataset)
        _STORES[id(self)] = self  # PyG makes stores that have no hash

    def _begin(self) -> None:
        """Set the counts to 0 and let go of a parent's reader, for ever if it has
        threads: to free it would be to wait for them, and a child does not have
        them."""
        if self._reader is not None and not self._reader.mode.startswith("io_uring"):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._reader))
        self._reader = None
        self._counts = dict.fromkeys(
            ("rows", "hits", "misses", "requests", "bytes_read"), 0
        )

    def _filled(self, nbytes: int) -> StaticCache:
        """Fill a cache of at most `nbytes`, its map of the nodes included."""
        workload = Workload(self.dataset, SamplerSpec(), ModelSpec())
        capacity = StaticCache.capacity_of(workload, nbytes)
        self._rows = torch.from_numpy(aligned_empty(capacity * self._table.row_bytes))
        self._rows = self._rows.view(
            getattr(torch, self.dataset.feature_dtype.name)
        ).view(capacity, self._table.dim)
        ranking = np.empty(0, dtype=np.int64)
        if capacity:
            # The rows' memory is not touched yet, so that counting may take it.
            least = 4 * self.dataset.num_nodes + _COUNTING_BYTES
            ranking = top(out_degrees(workload, max(nbytes, least)), capacity)
        return StaticCache.build(workload, ranking, self._rows)

    @property
    def cached_rows(self) -> int:
        """Number of rows in memory."""
        return self._cache.capacity

    def counters(self) -> dict[str, int]:
        """Return this process's counts: rows asked for, hits, misses, requests to the
        disk, bytes read."""
        return dict(self._counts)

    def rows(self, nodes: Ids) -> Tensor:
        """Return the feature rows of nodes, [n, D]. Raises IndexError: a node is not in
        the graph; DataIOError: a row cannot be read."""
        out = torch.empty(len(nodes), self._table.dim, dtype=self._rows.dtype)
        with _READING:
            for first in range(0, len(nodes), READ_ROWS):
                self._fetch(
                    nodes[first : first + READ_ROWS], out[first : first + READ_ROWS]
                )
        return out

    def _fetch(self, nodes: Ids, out: Tensor) -> None:
        found = self._cache.lookup(nodes)
        hits = len(nodes) - len(found.misses)
        if hits:
            # Rows of misses are overwritten below: one pass without a temporary copy of
            # the hits.
            gather(self._rows, np.maximum(found.slots, 0), out, torch.get_num_threads())
        added = {"rows": len(nodes), "hits": hits, "misses": len(found.misses)}
        if len(found.misses):
            if self._reader is None:
                self._reader = RowReader(self._table.path, **self._table.place)
                try:
                    _check_unchanged(self.dataset)
                except DatasetError:
                    self.close()
                    raise
            stats = self._reader.read(nodes[found.misses], out, found.misses)
            added |= {"requests": stats.requests, "bytes_read": stats.bytes_read}
        for name, count in added.items():
            self._counts[name] += count

    def close(self) -> None:
        """Close this process's reader; a later read opens it again."""
        with _READING:
            if self._reader is not None:
                self._reader.close()
            self._reader = None

    def __reduce__(self) -> Any:
        """Return what another process makes the store of; it fills a cache of its
        own."""
        return _remade, (str(self.dataset.path), self._memory)

    def _get_tensor(self, attr: Any) -> Tensor | None:
        if attr.group_name is not None or attr.attr_name not in ("x", "y"):
            return None
        nodes, single = _nodes(attr.index, self.dataset.num_nodes)
        values = (
            self.rows(nodes)
            if attr.attr_name == "x"
            else torch.from_numpy(self._labels[nodes].astype(np.int64))
        )
        return values[0] if single else values

    def _get_tensor_size(self, attr: Any) -> tuple[int, ...] | None:
        if attr.group_name is not None or attr.attr_name not in ("x", "y"):
            return None
        if attr.index is None:
            return (self.dataset.num_nodes,) + (
                (self._table.dim,) if attr.attr_name == "x" else ()
            )
        nodes, single = _nodes(attr.index, self.dataset.num_nodes)
        return (() if single else (len(nodes),)) + (
            (self._table.dim,) if attr.attr_name == "x" else ()
        )

    def get_all_tensor_attrs(self) -> list[Any]:
        """Return the attributes `x` and `y`."""
        return [pyg.TensorAttr(group_name=None, attr_name=name) for name in ("x", "y")]

    def _put_tensor(self, tensor: Any, attr: Any) -> bool:
        raise InputError(_READ_ONLY, "add tensors of your own to the mini-batches")

    def _remove_tensor(self, attr: Any) -> bool:
        raise InputError(
            _READ_ONLY, "leave the attribute out where you use the mini-batch"
        )


def _remade(path: str, memory: str | int) -> FeatureStore:
    return FeatureStore(path, memory=memory)


def _nodes(index: Any, num_nodes: int) -> tuple[Ids, bool]:
    """Return the nodes of an index (None, slice, number, ids or mask), and whether it
    names a single row."""
    if index is None or isinstance(index, slice):
        return np.arange(num_nodes)[index or slice(None)], False
    array = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if array.dtype == np.bool_:
        require(
            array.shape == (num_nodes,),
            f"the mask is {list(array.shape)}, the graph has {num_nodes} nodes",
        )
        return np.flatnonzero(array), False
    fix = "give a mask as booleans (mask.bool(), mask.astype(bool)), or ids as int64"
    require(array.dtype != np.uint8, "the index is uint8, a mask or ids", fix)
    whole = array.ndim < 2 and (array.dtype.kind in "iu" or array.size == 0)
    require(
        whole,
        f"the index is {array.dtype} {list(array.shape)}",
        "give ids [n], a mask, a slice or a number",
    )
    flat = array.reshape(-1)
    if flat.size and (
        int(flat.min()) < -num_nodes or int(flat.max()) >= num_nodes
    ):  # before a uint64 becomes negative
        raise IndexError(
            f"node {flat.min() if int(flat.min()) < -num_nodes else flat.max()} of "
            f"{num_nodes}"
        )
    nodes = flat.astype(np.int64)
    return np.where(nodes < 0, nodes + num_nodes, nodes), array.ndim == 0


class GraphStore(pyg.GraphStore):  # type: ignore[misc]
    """Edges of a dataset in CSC, COO or CSR, for `NeighborLoader` and other loaders of
    PyG.

    Neighbour lists are int64, as PyG's samplers want them: mapped from disk where the
    dataset has such, else converted in memory (8 bytes an edge) at their first use. COO
    and CSR are made when they are asked for.

    Args:
        dataset: opened dataset, its folder, or its name under `$OUTCORE_DATA`.
    """

    def __init__(self, dataset: Dataset | Path | str) -> None:
        super().__init__()
        self.dataset = _opened(dataset)
        self._lists: tuple[Tensor, Tensor] | None = None

    def __reduce__(self) -> Any:
        """Return what another process makes the store of."""
        return GraphStore, (str(self.dataset.path),)

    def _csc(self) -> tuple[Tensor, Tensor]:
        """Return the sources of all edges by destination, int64 [E], and where each
        destination's begin [N + 1]."""
        if self._lists is None:
            # NumPy before 2 cannot map a file of no edges.
            if self.dataset.index_dtype == np.int64 and self.dataset.num_edges:
                row = torch.from_numpy(
                    np.load(self.dataset.file("indices"), mmap_mode="c")
                )
            else:
                indices = self.dataset.memmap("indices")
                row = torch.empty(len(indices), dtype=torch.int64)
                with small_maps(indices):
                    for first in range(0, len(indices), _CHUNK):
                        row.numpy()[first : first + _CHUNK] = indices[
                            first : first + _CHUNK
                        ]
            lists = row, torch.from_numpy(self.dataset.load("indptr"))
            _check_unchanged(self.dataset)
            self._lists = lists
        return self._lists

    def _get_edge_index(self, attr: Any) -> tuple[Tensor, Tensor] | None:
        if attr.edge_type is not None:
            return None
        row, colptr = self._csc()
        if attr.layout == EdgeLayout.CSC:
            return row, colptr
        col = ptr2index(colptr)
        if attr.layout == EdgeLayout.COO:
            return row, col
        order = torch.argsort(row, stable=True)
        return index2ptr(row[order], self.dataset.num_nodes), col[order]

    def get_all_edge_attrs(self) -> list[Any]:
        """Return the layout that needs no conversion, CSC."""
        nodes = self.dataset.num_nodes
        return [
            pyg.graph_store.EdgeAttr(
                None, EdgeLayout.CSC, is_sorted=True, size=(nodes, nodes)
            )
        ]

    def _put_edge_index(self, edge_index: Any, edge_attr: Any) -> bool:
        raise InputError(_READ_ONLY, "import another dataset")

    def _remove_edge_index(self, edge_attr: Any) -> bool:
        raise InputError(_READ_ONLY, "import another dataset")

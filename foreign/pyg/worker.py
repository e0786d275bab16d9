"""PyG as its users run it beyond memory: `NeighborLoader` over a `FeatureStore` on a
memory map, PyG's layers."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Callable
from itertools import islice
from typing import Any

from outcore_worker import Log, Run, Worker, main, own_temporary_folder

own_temporary_folder()  # for what PyG and torch generate, from their import on

import torch
from torch.nn import functional
from torch_geometric.data import FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeAttr
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

# The maps are read-only, as the dataset is; torch-sparse draws, since pyg-lib has no
# wheel in the package index.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
warnings.filterwarnings("ignore", message=".*without a 'pyg-lib' installation")


class MappedRows(FeatureStore):
    """Feature store with one tensor, `x` [N, dim], on a memory map."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.__dict__["rows"] = rows

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor:
        rows: torch.Tensor = self.__dict__["rows"]
        return rows if attr.index is None else rows[attr.index]

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        return tuple(self.__dict__["rows"].shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Return the one tensor's name."""
        return [TensorAttr(None, "x", None)]

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        return False

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return False


class Lists(GraphStore):
    """Graph store with one edge type, in CSC."""

    def __init__(self, indptr: torch.Tensor, indices: torch.Tensor) -> None:
        super().__init__()
        self.__dict__["lists"] = (indices, indptr)

    def _get_edge_index(self, edge_attr: EdgeAttr) -> Any:
        return self.__dict__["lists"]

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Return the one edge type."""
        nodes = len(self.__dict__["lists"][1]) - 1
        return [EdgeAttr(None, "csc", size=(nodes, nodes))]

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        return False

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return False


class Model(torch.nn.Module):
    """PyG's GraphSAGE, GCN or GAT of the widths that Outcore's models have."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        config = run.config
        data = run.data
        widths = [data.dim, *[config.hidden] * (config.layers - 1), data.num_classes]
        self.elu = config.model == "gat"
        self.dropout = config.dropout
        self.layers = torch.nn.ModuleList()
        for layer in range(config.layers):
            inside = widths[layer]
            outside = widths[layer + 1]
            last = layer == config.layers - 1
            if config.model == "gat":
                width = outside if last else outside // config.heads
                self.layers.append(
                    GATConv(inside, width, config.heads, concat=not last)
                )
            else:
                self.layers.append(
                    (SAGEConv if config.model == "sage" else GCNConv)(inside, outside)
                )

    def forward(
        self, x: torch.Tensor, edges: torch.Tensor, hops: list[tuple[int, int]]
    ) -> torch.Tensor:
        """Return the scores of all nodes that the last layer still has.

        Args:
            x: [nodes, dim], rows of the mini-batch's nodes.
            edges: int64 [2, E], source and destination of each edge, by hop.
            hops: (nodes, edges) that each layer needs, input layer first.
        """
        for number, (layer, (nodes, count)) in enumerate(zip(self.layers, hops)):  # noqa: B905 - as long as each other
            x = layer(x[:nodes], edges[:, :count])
            if number < len(self.layers) - 1:
                x = functional.elu(x) if self.elu else functional.relu(x)
                x = functional.dropout(x, self.dropout, self.training)
        return x


class Pyg(Worker):
    """PyG's `NeighborLoader`."""

    def __init__(self, run: Run) -> None:
        """Make model and optimiser."""
        super().__init__(run)
        run.only(sampler="neighbor", stages="all", test_nodes=0)
        torch.manual_seed(run.config.seed)
        if threads := run.options.threads or run.config.cores:
            torch.set_num_threads(threads)
        self.model = Model(run)
        self.adam = torch.optim.Adam(self.model.parameters(), run.config.learning_rate)

    def prepare(self) -> tuple[()]:
        """Load the graph, map the features, make the loader."""
        self.batches = self.loader(self.run.options.workers)
        return ()

    def loader(self, workers: int) -> NeighborLoader:
        """Return the loader, iterated once an epoch."""
        config = self.run.config
        data = self.run.data
        self.labels = torch.from_numpy(data.load("labels"))
        mapped = data.memmap("features")
        if self.run.options.madvise == "random":
            mapped._mmap.madvise(mmap.MADV_RANDOM)
        lists = Lists(
            torch.from_numpy(data.load("indptr")),
            torch.from_numpy(data.load("indices")).long(),
        )
        return NeighborLoader(
            (MappedRows(torch.from_numpy(mapped)), lists),
            num_neighbors=config.fanout,
            input_nodes=torch.from_numpy(data.load("train")),
            batch_size=config.batch_size,
            shuffle=config.shuffle,
            replace=config.replace,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def step(self) -> Callable[[], None]:
        """Return a training step on the first mini-batch that the loader draws."""
        batch = next(iter(self.loader(0)))

        def step() -> None:
            self.train_on(batch)

        return step

    def epoch(self, number: int, log: Log) -> None:
        """Train every mini-batch; sampling and reading happen in the loader."""
        found = islice(iter(self.batches), self.run.num_batches)
        for index in range(self.run.num_batches):
            with log.stage("extract", index):
                batch = next(found, None)
                if batch is None:
                    return
            with log.stage("train", index):
                loss, correct = self.train_on(batch)
            log.batch(
                batch.n_id,
                batch.x,
                batch.edge_index.shape[1],
                batch.n_id[: batch.batch_size],
                loss,
                correct,
            )

    def train_on(self, batch: Any) -> tuple[float, int]:
        """Take one step of Adam; return the mean loss and the number of correct seed
        nodes."""
        seeds = batch.batch_size
        labels = self.labels[batch.n_id[:seeds]]
        scores = self.model(batch.x.float(), batch.edge_index, self.hops(batch))[:seeds]
        loss = functional.cross_entropy(scores, labels)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.item(), int((scores.argmax(1) == labels).sum())

    def hops(self, batch: Any) -> list[tuple[int, int]]:
        """Return (nodes, edges) that each layer needs, input layer first, as PyG's
        `trim_to_layer` does where pyg-lib counts them: nodes are numbered by hop, and
        edges follow their destinations."""
        sources, destinations = batch.edge_index
        nodes = batch.batch_size
        found = []
        for _ in self.run.config.fanout:
            edges = int(torch.searchsorted(destinations, nodes))
            nodes = max(nodes, int(sources[:edges].max()) + 1) if edges else nodes
            found.append((nodes, edges))
        return found[::-1]

    def close(self) -> dict[str, str]:
        """End the loader's processes."""
        import torch_geometric

        self.batches = None
        return {
            "versions": f"torch_geometric {torch_geometric.__version__}, torch "
            f"{torch.__version__}"
        }


if __name__ == "__main__":
    main(Pyg)

"""GraphBolt as its users run it: `FusedCSCSamplingGraph` in memory, `TorchBasedFeature`
over a map, DGL's layers.

`DglWorker` has what DGL's two loaders share: the dataset's arrays, the model and the
training step."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from outcore_worker import Log, Run, Worker, main, own_temporary_folder

own_temporary_folder()  # for what torch leaves, from its import on

import dgl
import torch

# which the first optimiser imports: memory of libraries, not of the constructor
import torch._dynamo
from torch.nn import functional

# The maps are read-only, as the dataset is.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


class Model(torch.nn.Module):
    """DGL's GraphSAGE, GCN or GAT over blocks, of the widths that Outcore's models
    have."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        config = run.config
        data = run.data
        widths = [data.dim, *[config.hidden] * (config.layers - 1), data.num_classes]
        self.heads = config.heads if config.model == "gat" else 0
        self.dropout = config.dropout
        self.layers = torch.nn.ModuleList()
        for layer in range(config.layers):
            inside = widths[layer]
            outside = widths[layer + 1]
            if config.model == "sage":
                made = dgl.nn.SAGEConv(inside, outside, "mean")
            elif config.model == "gcn":
                made = dgl.nn.GraphConv(inside, outside, allow_zero_in_degree=True)
            else:
                width = (
                    outside if layer == config.layers - 1 else outside // config.heads
                )
                made = dgl.nn.GATConv(
                    inside, width, config.heads, allow_zero_in_degree=True
                )
            self.layers.append(made)

    def forward(self, blocks: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the seed nodes, [seeds, classes], from the rows [nodes,
        dim] of all."""
        for number, (layer, block) in enumerate(zip(self.layers, blocks)):  # noqa: B905 - as long as each other
            last = number == len(self.layers) - 1
            x = layer(block, x)
            if self.heads:
                x = x.mean(1) if last else functional.elu(x.flatten(1))
            elif not last:
                x = functional.relu(x)
            if not last:
                x = functional.dropout(x, self.dropout, self.training)
        return x


class DglWorker(Worker):
    """A system whose mini-batches DGL draws. A loader yields (node ids, rows, seed
    nodes, blocks)."""

    def __init__(self, run: Run) -> None:
        """Make model and optimiser."""
        super().__init__(run)
        run.only(sampler="neighbor", stages="all", test_nodes=0)
        torch.manual_seed(run.config.seed)
        dgl.seed(run.config.seed)
        if threads := run.options.threads or run.config.cores:
            torch.set_num_threads(threads)
        self.model = Model(run)
        self.adam = torch.optim.Adam(self.model.parameters(), run.config.learning_rate)

    def loader(self, workers: int) -> Any:
        """Return the library's loader, iterated once an epoch."""
        raise NotImplementedError

    def unpacked(self, batch: Any) -> tuple[Any, Any, Any, Any]:
        """Return node ids, rows, seed nodes and blocks of one of its mini-batches."""
        raise NotImplementedError

    def prepare(self) -> tuple[()]:
        """Load the graph, map the features, start the loader's processes."""
        self.open()
        self.batches = self.loader(self.run.options.workers)
        return ()

    def open(self) -> None:
        """Load the graph and map the features."""
        data = self.run.data
        self.indptr, self.indices = (
            torch.from_numpy(data.load(part)) for part in ("indptr", "indices")
        )
        self.labels, self.train = (
            torch.from_numpy(data.load(part)) for part in ("labels", "train")
        )
        mapped = data.memmap("features")
        if self.run.options.madvise == "random":
            mapped._mmap.madvise(mmap.MADV_RANDOM)
        self.features = torch.from_numpy(mapped)

    def step(self) -> Callable[[], None]:
        """Return a training step on the first mini-batch that the loader draws."""
        self.open()
        _, rows, seeds, blocks = self.unpacked(next(iter(self.loader(0))))

        def step() -> None:
            self.train_on(rows, seeds, blocks)

        return step

    def epoch(self, number: int, log: Log) -> None:
        """Train every mini-batch; sampling and reading happen in the loader."""
        found: Iterator[Any] = islice(iter(self.batches), self.run.num_batches)
        for index in range(self.run.num_batches):
            with log.stage("extract", index):
                batch = next(found, None)
                if batch is None:
                    return
                nodes, rows, seeds, blocks = self.unpacked(batch)
            with log.stage("train", index):
                loss, correct = self.train_on(rows, seeds, blocks)
            log.batch(
                nodes,
                rows,
                sum(block.num_edges() for block in blocks),
                seeds,
                loss,
                correct,
            )

    def train_on(
        self, rows: torch.Tensor, seeds: torch.Tensor, blocks: Any
    ) -> tuple[float, int]:
        """Take one step of Adam; return the mean loss and the number of correct seed
        nodes."""
        labels = self.labels[seeds.long()]
        scores = self.model(blocks, rows.float())
        loss = functional.cross_entropy(scores, labels)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.item(), int((scores.argmax(1) == labels).sum())

    def close(self) -> dict[str, str]:
        """End the loader's processes."""
        self.batches = None
        return {"versions": f"dgl {dgl.__version__}, torch {torch.__version__}"}


class GraphBolt(DglWorker):
    """GraphBolt's datapipe: items, neighbours, features, loader."""

    def loader(self, workers: int) -> Any:
        """Return the datapipe's `DataLoader`."""
        import dgl.graphbolt as gb

        config = self.run.config
        graph = gb.fused_csc_sampling_graph(self.indptr, self.indices)
        store = gb.BasicFeatureStore(
            {("node", None, "feat"): gb.TorchBasedFeature(self.features)}
        )
        items = gb.ItemSet(self.train.to(self.indices.dtype), names="seed_nodes")
        pipe = gb.ItemSampler(
            items, batch_size=config.batch_size, shuffle=config.shuffle
        )
        # GraphBolt's last fan-out is the seed nodes'.
        pipe = pipe.sample_neighbor(graph, config.fanout[::-1], replace=config.replace)
        pipe = pipe.fetch_feature(store, node_feature_keys=["feat"])
        if self.run.options.prefetch:
            pipe = pipe.copy_to(
                torch.device("cpu")
            )  # whose loader works two mini-batches ahead in a thread
        return gb.DataLoader(pipe, num_workers=workers)

    def unpacked(self, batch: Any) -> tuple[Any, Any, Any, Any]:
        """Return node ids, rows, seed nodes and blocks."""
        return (
            batch.input_nodes,
            batch.node_features["feat"],
            batch.seed_nodes,
            batch.blocks,
        )


if __name__ == "__main__":
    main(GraphBolt)

"""DGL's own `DataLoader`, as `env:dgl`: its `NeighborSampler`, features prefetched from
a memory map by the loader."""

from __future__ import annotations

from typing import Any

import dgl
from outcore_worker import main
from worker import DglWorker


class Dgl(DglWorker):
    """`dgl.dataloading.DataLoader` over a graph whose features are mapped."""

    def loader(self, workers: int) -> Any:
        """Return the loader."""
        config = self.run.config
        # DGL needs one type for ids and offsets; int64 is its own default.
        graph = dgl.graph(
            ("csc", (self.indptr, self.indices.long(), [])),
            num_nodes=self.run.data.num_nodes,
        )
        graph.ndata["feat"] = self.features
        # DGL's last fan-out is the seed nodes'.
        sampler = dgl.dataloading.NeighborSampler(
            config.fanout[::-1], replace=config.replace, prefetch_node_feats=["feat"]
        )
        sizes = {
            "batch_size": config.batch_size,
            "shuffle": config.shuffle,
            "drop_last": False,
        }
        return dgl.dataloading.DataLoader(
            graph, self.train, sampler, **sizes, num_workers=workers
        )

    def unpacked(self, batch: Any) -> tuple[Any, Any, Any, Any]:
        """Return node ids, rows, seed nodes and blocks."""
        nodes, seeds, blocks = batch
        return nodes, blocks[0].srcdata["feat"], seeds, blocks


if __name__ == "__main__":
    main(Dgl)

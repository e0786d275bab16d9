"""`new-system` as a worker of its own: replace sampling, reading and training by your
code (docs/foreign.md).

By hand: `python worker.py DATASET batch_size=100 fanout=[5,5]`, with Outcore's
`outcore/foreign` on PYTHONPATH.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
from outcore_worker import Log, Run, Worker, main


class NewSystem(Worker):
    """Uniform sampling without replacement; softmax regression on a seed node's row
    plus the mini-batch's mean."""

    def __init__(self, run: Run) -> None:
        """Make the model; data is read in `prepare`, so that its memory counts as the
        system's."""
        super().__init__(run)
        run.only(sampler="neighbor", stages="all", replace=False, test_nodes=0)
        self.weights = np.zeros((run.data.dim, run.data.num_classes), dtype=np.float32)
        self.random = np.random.default_rng(run.config.seed)

    def step(self) -> Callable[[], None]:
        """Return a training step on random rows."""
        size = self.run.config.batch_size
        rows = np.random.default_rng(0).standard_normal(
            (size, self.run.data.dim), dtype=np.float32
        )
        labels = np.zeros(size, dtype=np.int64)

        def step() -> None:
            self.train(rows, labels)

        return step

    def prepare(self) -> tuple[()]:
        """Load the graph and map the features."""
        data = self.run.data
        self.indptr = data.load("indptr")
        self.indices = data.load("indices")
        self.labels = data.load("labels")
        self.features = data.memmap("features")
        if self.run.options.madvise == "random":
            self.features._mmap.madvise(mmap.MADV_RANDOM)
        return ()

    def epoch(self, number: int, log: Log) -> None:
        """Train every mini-batch of the epoch."""
        seeds = self.run.seeds(number)
        size = self.run.config.batch_size
        for index in range(self.run.num_batches):
            batch = seeds[index * size : (index + 1) * size]
            with log.stage("sample", index):
                nodes, edges = self.sample(batch)
            with log.stage("extract", index):
                rows = self.read(nodes)
            with log.stage("train", index):
                loss, correct = self.train(
                    rows[: len(batch)] + rows.mean(0), self.labels[batch]
                )
            log.batch(nodes, rows, edges, batch, loss, correct)

    def sample(self, seeds: Any) -> tuple[Any, int]:
        """Return a mini-batch's nodes, seed nodes first, and its number of edges."""
        nodes = seeds
        edges = 0
        for fanout in self.run.config.fanout:
            drawn = self.neighbours(nodes, fanout)
            edges += len(drawn)
            nodes = np.concatenate([nodes, np.setdiff1d(drawn, nodes)])
        return nodes, edges

    def neighbours(self, nodes: Any, fanout: int) -> Any:
        """Draw up to `fanout` distinct in-neighbours of each node (-1: all)."""
        degrees = self.indptr[nodes + 1] - self.indptr[nodes]
        owner = np.repeat(np.arange(len(nodes)), degrees)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        lists = self.indices[self.indptr[nodes][owner] + place]
        if fanout < 0:
            return lists
        # The first `fanout` of each list in a random order.
        order = np.lexsort((self.random.random(len(owner)), owner))
        return lists[order[place < fanout]]

    def read(self, nodes: Any) -> Any:
        """Read the rows of nodes, [n, dim]."""
        return self.features[nodes]

    def train(self, rows: Any, labels: Any) -> tuple[float, int]:
        """Take a gradient step of softmax regression; return the mean loss and the
        number of correct seed nodes."""
        scores = np.clip(rows.astype(np.float32) @ self.weights, -50, 50)
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        own = shares[np.arange(len(labels)), labels]
        correct = int((shares.argmax(1) == labels).sum())
        shares[np.arange(len(labels)), labels] -= 1
        self.weights -= (
            self.run.config.learning_rate
            * rows.T.astype(np.float32)
            @ shares
            / len(labels)
        )
        return float(-np.log(own + 1e-12).mean()), correct


if __name__ == "__main__":
    main(NewSystem)

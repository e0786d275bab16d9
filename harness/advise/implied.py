"""A graph of full size implied by its published statistics, without a byte of it
stored.

`indptr` and `indices` are functions: degrees follow an exponential law about the
published mean, and each entry of a list is a node drawn by a popularity with which the
unique nodes of the mini-batches have the published skew of accesses. This is a model:
beyond popularity the statistics do not say which nodes are neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.sampling.batch import Block, SampledBatch
from workloads.sampling.distinct import distinct

Ids = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

# Nodes of a group, whose lists share the mean number of edges, cut at random positions.
_GROUP = 8
_POINTS = 4096
# Greatest probability that a mini-batch contains a node: certainty would take
# infinitely many draws.
_MOST_INCLUSION = 0.995
_FIT_ROUNDS = 6
_MIX = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def uniform(keys: npt.NDArray[Any], salt: int) -> Reals:
    """Return a reproducible number in [0, 1) for each key (SplitMix64's finalizer,
    Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        mixed = (keys.astype(np.uint64) + np.uint64(salt)) * _MIX[0]
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[1]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[2]
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


class ImpliedIndptr:
    """int64 [N + 1] as a function of an array of node ids."""

    def __init__(self, num_nodes: int, num_edges: int) -> None:
        self._nodes = num_nodes
        self._edges = num_edges

    def __getitem__(self, ids: Ids) -> Ids:
        """Return the positions at which the lists of `ids` begin."""
        ids = np.asarray(ids, dtype=np.int64)
        group, place = np.divmod(ids, _GROUP)
        width = _GROUP * (self._edges / self._nodes)
        keys = group[:, None] * _GROUP + np.arange(1, _GROUP, dtype=np.int64)
        cuts = np.insert(np.sort(uniform(keys, salt=1), axis=1), 0, 0.0, axis=1)
        begin = group * _GROUP * (self._edges / self._nodes)
        return np.minimum(
            np.floor(begin + cuts[np.arange(len(ids)), place] * width), self._edges
        ).astype(np.int64)


class ImpliedGraph:
    """The graph that statistics imply, and a sampler of its mini-batches.

    Args:
        num_nodes, num_edges: at least one of each.
        accesses: (share of nodes, share of accesses), the most accessed first, as in
            `PublishedGraph`.
        fanout: neighbours a hop, seed nodes' hop first.
        seed: key of every draw.
    """

    def __init__(
        self,
        num_nodes: int,
        num_edges: int,
        accesses: Sequence[tuple[float, float]],
        fanout: Sequence[int],
        seed: int,
    ) -> None:
        self.num_nodes = num_nodes
        self.num_edges = num_edges
        self.indptr = ImpliedIndptr(num_nodes, num_edges)
        self._fanout = tuple(fanout)
        self._seed = seed
        # Cumulative accesses over ranks: log-log between the published points and
        # beyond the first.
        knots = np.asarray(accesses, dtype=np.float64)
        self._ranks = np.unique(np.geomspace(1.0 / num_nodes, 1.0, _POINTS))
        slope = math.log(knots[1, 1] / knots[0, 1]) / math.log(
            knots[1, 0] / knots[0, 0]
        )
        first = (self._ranks[0], knots[0, 1] * (self._ranks[0] / knots[0, 0]) ** slope)
        points = np.vstack([first, knots])
        shares = np.exp(
            np.interp(np.log(self._ranks), np.log(points[:, 0]), np.log(points[:, 1]))
        )
        self._nodes = np.diff(self._ranks, prepend=0.0) * num_nodes
        self._shares = np.diff(shares, prepend=0.0)
        # Spread the ranks over the ids, so that ids do not reveal popularity.
        self._step = _coprime(num_nodes)
        self._set(self._shares)

    def fit(self, batch_size: int) -> None:
        """Find the popularity at which mini-batches of `batch_size` seed nodes have the
        published skew of accesses."""
        seeds = self.node_of(
            np.arange(batch_size, dtype=np.int64) * max(1, self.num_nodes // batch_size)
        )
        for _ in range(_FIT_ROUNDS):
            batch = self.sample(0, 0, seeds)
            self._set(self._for_draws(float(batch.num_edges)))

    def _set(self, popularity: Reals) -> None:
        """Set how often the nodes of each cell of ranks are drawn, on any scale."""
        cumulative = np.concatenate([[0.0], np.cumsum(popularity)])
        self._cumulative: Reals = cumulative / cumulative[-1]

    def _for_draws(self, draws: float) -> Reals:
        """Return draws by cell of ranks, `draws` in total, whose unique nodes have the
        published shares of accesses."""

        def drawn(accesses: float) -> Reals:
            included = np.minimum(
                accesses * self._shares / self._nodes, _MOST_INCLUSION
            )
            found: Reals = -np.log1p(-included) * self._nodes
            return found

        low = 0.0
        high = float(self.num_nodes)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if drawn(middle).sum() < draws else (low, middle)
        return drawn(high)

    def node_of(self, ranks: Ids) -> Ids:
        """Return the ids of the nodes of these ranks; rank 0 is the most accessed."""
        return (ranks * self._step + 1) % self.num_nodes

    def hottest(self, count: int) -> Ids:
        """Return the ids of the `count` most accessed nodes."""
        return self.node_of(np.arange(min(count, self.num_nodes), dtype=np.int64))

    def neighbours(self, positions: Ids) -> Ids:
        """Return `indices[positions]`."""
        at = np.interp(
            uniform(positions, salt=2),
            self._cumulative,
            np.concatenate([[0.0], self._ranks]),
        )
        return self.node_of(
            np.minimum((at * self.num_nodes).astype(np.int64), self.num_nodes - 1)
        )

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Sample a mini-batch: every hop draws distinct entries from the lists of all
        nodes so far."""
        nodes = np.asarray(seeds, dtype=np.int64)
        blocks = []
        for hop, fanout in enumerate(self._fanout):
            begin = self.indptr[nodes]
            degree = self.indptr[nodes + 1] - begin
            count = degree if fanout < 0 else np.minimum(degree, fanout)
            which = np.repeat(np.arange(len(nodes)), count)
            offsets = np.concatenate([[0], np.cumsum(count)])
            within = np.arange(len(which)) - offsets[which]
            key = ((epoch * 1_000_003 + index) * 64 + hop) * 2_654_435_761 + self._seed
            jitter = np.where(
                count[which] < degree[which],
                uniform(nodes[which] * 64 + within, salt=key),
                0.0,
            )
            # One entry of each of `count` equal stretches of the list.
            positions = begin[which] + np.floor(
                (within + jitter) * degree[which] / count[which]
            ).astype(np.int64)
            found = self.neighbours(positions)
            fresh = np.setdiff1d(distinct(found), nodes, assume_unique=True)
            sources = np.concatenate([nodes, fresh])
            order = np.argsort(sources, kind="stable")
            local = order[np.searchsorted(sources, found, sorter=order)].astype(
                np.int32
            )
            blocks.append(
                Block(offsets.astype(np.int64), local, len(sources), len(nodes))
            )
            nodes = sources
        labels = np.zeros(len(seeds), dtype=np.int64)
        return SampledBatch(
            epoch, index, nodes, len(seeds), tuple(reversed(blocks)), labels
        )


def _coprime(count: int) -> int:
    """Return a step that visits all of `count` positions in a scattered order."""
    step = max(1, round(count * 0.6180339887498949))
    while math.gcd(step, count) != 1:
        step += 1
    return step

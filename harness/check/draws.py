"""Tests of a foreign system's draws against those of the workload's own sampler.

Each measure of an epoch is compared with that of many simulated epochs, which have
draws and an order of seed nodes of their own. A measure sums up thousands of draws, so
that it is close to normal, and one epoch more lies within Student's prediction
interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from workloads.arraytypes import Int64Array
from workloads.sampling.once import Drawn, Expands, drawn_batches
from workloads.workload import Workload

#: Rate at which a system with the right draws fails, over all epochs and measures.
FALSE_ALARMS = 1e-6
SIMULATED = 200
#: Measures of an epoch, and that of two of them together.
SIZES = ("nodes", "edges")
SHAPES = (
    "distinct nodes",
    "uses of nodes, squared",
    "uses of the tenth of the nodes with most out-edges",
    "neighbours of seed nodes",
    "pairs of neighbours that are side by side in a seed node's list",
)
KEPT = "neighbours of seed nodes that both epochs have"


@dataclass(frozen=True)
class Measured:
    """One epoch's draws. `values`: by measure. `held`: bool, for each entry of the
    training nodes' neighbour lists whether the mini-batch of that training node has
    it."""

    values: Mapping[str, float]
    held: npt.NDArray[np.bool_]


class Draws:
    """Measures of draws from a workload's graph, and the bounds that right ones keep.

    Args:
        workload: workload of the run.
        expands: nodes whose neighbours a hop draws: all so far, or those found first in
            the hop before.
        epochs: number of epochs that are judged.
    """

    def __init__(self, workload: Workload, expands: Expands, epochs: int) -> None:
        data = workload.dataset
        self._workload = workload
        self._expands = expands
        self._epochs = epochs
        self._indptr = data.load("indptr")
        self._indices = data.load("indices")
        train = data.load("train").astype(np.int64)
        entries, owner = _ranges(self._indptr, train)
        self._entries = self._indices[entries]
        self._begin = np.searchsorted(owner, np.arange(len(train) + 1))
        self._beside = owner[1:] == owner[:-1]
        self._hot = np.argsort(-np.bincount(self._indices, minlength=data.num_nodes))[
            : data.num_nodes // 10
        ]
        self._place = np.full(data.num_nodes, -1)
        self._place[train] = np.arange(len(train))

    def strange(self, batch: Drawn) -> str:
        """Return why nodes cannot be those of a mini-batch, drawn from the graph along
        in-edges; empty if they can."""
        nodes = batch.nodes
        most = self._workload.dataset.num_nodes
        if len(nodes) and nodes.max() >= most:
            return f"has node {nodes.max()} of a graph of {most} nodes"
        if len(np.unique(nodes)) != len(nodes):
            return "has a node twice"
        if len(left := np.setdiff1d(batch.seeds, nodes)):
            return f"lacks its own seed node {left[0]}"
        others = np.setdiff1d(nodes, batch.seeds)
        if len(
            far := np.setdiff1d(others, self._indices[_ranges(self._indptr, nodes)[0]])
        ):
            return (
                f"has {len(far)} nodes, such as {far[0]}, that are in-neighbours of "
                "none of its nodes"
            )
        return ""

    def measure(self, batches: Iterable[Drawn]) -> Measured:
        """Return the measures of one epoch's mini-batches, whose nodes and seed nodes
        are of the graph."""
        uses = np.zeros(self._workload.dataset.num_nodes, dtype=np.int64)
        here = np.zeros(len(uses), dtype=bool)
        held = np.zeros(len(self._entries), dtype=bool)
        edges = 0
        for batch in batches:
            uses[batch.nodes] += 1
            here[batch.nodes] = True
            edges += batch.edges
            places = self._place[batch.seeds]
            entries = _ranges(self._begin, places[places >= 0])[0]
            held[entries] = here[self._entries[entries]]
            here[batch.nodes] = False
        sizes = (int(uses.sum()), edges)
        hot = uses[self._hot].sum()
        beside = (held[1:] & held[:-1] & self._beside).sum()
        shapes = (np.count_nonzero(uses), (uses**2).sum(), hot, held.sum(), beside)
        return Measured(
            dict(zip((*SIZES, *SHAPES), map(float, (*sizes, *shapes)), strict=True)),
            held,
        )

    def simulated(self, seeds: Iterable[int]) -> Iterator[Measured]:
        """Yield the measures of an epoch for each seed."""
        for seed in seeds:
            drawn = replace(self._workload, seed=seed)
            yield self.measure(
                drawn_batches(drawn, 0, self._expands, self._indptr, self._indices)
            )

    @cached_property
    def _bounds(self) -> dict[str, tuple[float, float]]:
        """Least and most of each measure."""
        known = list(self.simulated(range(SIMULATED)))
        found = {name: [one.values[name] for one in known] for name in known[0].values}
        found[KEPT] = [
            _both(*pair) for pair in zip(known[::2], known[1::2], strict=True)
        ]
        tests = self._epochs * (len(SIZES) + len(SHAPES)) + math.comb(self._epochs, 2)
        return {
            name: _interval(values, FALSE_ALARMS / tests)
            for name, values in found.items()
        }

    def odd(self, name: str, value: float, where: str) -> Iterator[str]:
        """Yield one phrase if a measure is outside its bounds."""
        least, most = self._bounds[name]
        if not least <= value <= most:
            yield (
                f"{where} has {value:,.0f} {name}, expected {least:,.0f} to {most:,.0f}"
            )

    def odd_sizes(self, sizes: Sequence[tuple[int, int]]) -> list[str]:
        """Return one phrase for each size outside its bounds. `sizes`: (nodes, edges)
        of each epoch, summed over its mini-batches."""
        named = [
            (name, size, k)
            for k, pair in enumerate(sizes)
            for name, size in zip(SIZES, pair, strict=True)
        ]
        return [
            text
            for name, size, k in named
            for text in self.odd(name, size, f"epoch {k}")
        ]

    def odd_shapes(self, epochs: Sequence[Measured]) -> list[str]:
        """Return one phrase for each measure, other than sizes, outside its bounds."""
        named = [
            (name, one.values[name], f"epoch {k}")
            for k, one in enumerate(epochs)
            for name in SHAPES
        ]
        pairs = combinations(enumerate(epochs), 2)
        named += [
            (KEPT, _both(one, two), f"epoch {k} beside {at}")
            for (k, one), (at, two) in pairs
        ]
        return [text for entry in named for text in self.odd(*entry)]


def _ranges(begin: Int64Array, which: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the places of all entries of some lists, list after list, and for each the
    position of its list in `which`. `begin`: where each list begins, int64 [lists +
    1]."""
    lengths = begin[which + 1] - begin[which]
    owner = np.repeat(np.arange(len(which)), lengths)
    inside = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return begin[which][owner] + inside, owner


def _both(one: Measured, two: Measured) -> float:
    return float((one.held & two.held).sum())


def _interval(values: Sequence[float], rate: float) -> tuple[float, float]:
    """Return the bounds within which one more of normal values lies but at a rate."""
    from scipy.stats import t

    middle = float(np.mean(values))
    spread = float(np.std(values, ddof=1))
    number = len(values)
    far = float(t.isf(rate / 2, number - 1)) * math.sqrt(1 + 1 / number) * spread
    return middle - far, middle + far

"""Philox and the samplers in short, slow Python: the reference for the native code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

MASK = 0xFFFFFFFF


def philox4x32(seed: int, counter: list[int]) -> list[int]:
    x = list(counter)
    key = [seed & MASK, seed >> 32]
    for _ in range(10):
        p = 0xD2511F53 * x[0]
        q = 0xCD9E8D57 * x[2]
        x = [(q >> 32) ^ x[1] ^ key[0], q & MASK, (p >> 32) ^ x[3] ^ key[1], p & MASK]
        key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
    return x


def stream(seed: int, epoch: int, batch: int, hop: int, node: int) -> Iterator[int]:
    words = [node & MASK, (node >> 32) | (epoch << 16), batch | (hop << 26)]
    for group in range(1 << 32):
        yield from philox4x32(seed, [group, *words])


def below(words: Iterator[int], bound: int) -> int:
    bits = 32 if bound < 1 << 32 else 64
    while True:
        word = next(words) if bits == 32 else next(words) | next(words) << 32
        if word * bound % (1 << bits) >= (1 << bits) % bound:
            return word * bound >> bits


def positions(
    degree: int, fanout: int, replace: bool, words: Iterator[int]
) -> list[int]:
    if fanout < 0 or degree == 0 or (not replace and degree <= fanout):
        return list(range(degree))
    if replace:
        return sorted(below(words, degree) for _ in range(fanout))
    chosen: set[int] = set()
    for last in range(degree - fanout, degree):
        position = below(words, last + 1)
        chosen.add(last if position in chosen else position)
    return sorted(chosen)


def sample(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.integer],
    fanout: list[int],
    seeds: list[int],
    *,
    seed: int,
    epoch: int,
    batch: int,
    replace: bool = False,
) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
    """Sample one mini-batch; return (nodes, [(indptr, indices)], input layer first)."""
    nodes = list(seeds)
    blocks: list[tuple[list[int], list[int]]] = []
    for hop, neighbours in enumerate(fanout):
        edges = []
        for node in nodes:
            first = int(indptr[node])
            last = int(indptr[node + 1])
            drawn = positions(
                last - first, neighbours, replace, stream(seed, epoch, batch, hop, node)
            )
            edges.append([int(indices[first + position]) for position in drawn])
        starts = np.cumsum([0] + [len(sources) for sources in edges]).tolist()
        nodes = nodes + sorted(
            {source for sources in edges for source in sources} - set(nodes)
        )
        place = {node: position for position, node in enumerate(nodes)}
        blocks.insert(
            0, (starts, [place[source] for sources in edges for source in sources])
        )
    return nodes, blocks


Graph = tuple[npt.NDArray[np.int64], npt.NDArray[np.integer]]


def neighbours(graph: Graph, node: int) -> list[int]:
    indptr, indices = graph
    return [
        int(source) for source in indices[int(indptr[node]) : int(indptr[node + 1])]
    ]


def weights(graph: Graph, destinations: list[int]) -> dict[int, float]:
    """Compute the weight of each candidate of a layer."""
    found: dict[int, float] = {}
    for node in destinations:
        sources = neighbours(graph, node)
        for source in sources:
            found[source] = found.get(source, 0.0) + 1.0 / (
                float(len(sources)) * float(len(sources))
            )
    return {
        node: weight for node, weight in found.items() if node not in set(destinations)
    }


def uniform(words: Iterator[int]) -> float:
    """Draw a number in (0, 1] of 53 bits."""
    low = next(words)
    high = next(words)
    return (((low | high << 32) >> 11) + 1) * 2.0**-53


def layerwise(
    graph: Graph,
    fanout: list[int],
    seeds: list[int],
    *,
    seed: int,
    epoch: int,
    batch: int,
) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
    """Sample one mini-batch; return (nodes, [(indptr, indices)], input layer first)."""
    nodes = list(seeds)
    blocks: list[tuple[list[int], list[int]]] = []
    for hop, wanted in enumerate(fanout):
        found = weights(graph, nodes)
        priority = {
            node: weight / uniform(stream(seed, epoch, batch, hop, node))
            for node, weight in found.items()
        }
        best = sorted(found, key=lambda node: (-priority[node], node))
        destinations = nodes
        nodes = nodes + sorted(best if wanted < 0 else best[:wanted])
        blocks.insert(0, induced(graph, destinations, nodes))
    return nodes, blocks


def induced(
    graph: Graph, destinations: list[int], nodes: list[int]
) -> tuple[list[int], list[int]]:
    """Return (indptr, indices) of all edges from `nodes` to `destinations`."""
    place = {node: position for position, node in enumerate(nodes)}
    edges = [
        [place[source] for source in neighbours(graph, node) if source in place]
        for node in destinations
    ]
    return np.cumsum([0] + [len(sources) for sources in edges]).tolist(), [
        e for sources in edges for e in sources
    ]

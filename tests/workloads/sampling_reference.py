"""Philox and the neighbour sampler once more, short and slow, in plain Python: what the native code is held against."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

MASK = 0xFFFFFFFF


def philox4x32(seed: int, counter: list[int]) -> list[int]:
    x, key = list(counter), [seed & MASK, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
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


def positions(degree: int, fanout: int, replace: bool, words: Iterator[int]) -> list[int]:
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
    """(nodes, [(indptr, indices)] input layer first)."""
    nodes, blocks = list(seeds), []
    for hop, neighbours in enumerate(fanout):
        edges = []
        for node in nodes:
            first, last = int(indptr[node]), int(indptr[node + 1])
            drawn = positions(last - first, neighbours, replace, stream(seed, epoch, batch, hop, node))
            edges.append([int(indices[first + position]) for position in drawn])
        starts = np.cumsum([0] + [len(sources) for sources in edges]).tolist()
        nodes = nodes + sorted({source for sources in edges for source in sources} - set(nodes))
        place = {node: position for position, node in enumerate(nodes)}
        blocks.insert(0, (starts, [place[source] for sources in edges for source in sources]))
    return nodes, blocks

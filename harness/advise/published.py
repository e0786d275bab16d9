"""Published sizes and access skews of graphs that are too large to store here."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.errors import InputError

_DISKGNN = "DiskGNN (SIGMOD 2025), Tables 2 and 3"


@dataclass(frozen=True)
class PublishedGraph:
    """Statistics of a graph as a paper trains on it, edges in both directions.

    Attributes:
        dim, dtype: feature dimension and type by the graph's own authors; papers often cut or extend features.
        train_share: share of the nodes that are seed nodes.
        accesses: (share of the nodes, most accessed first; their share of all accesses), rising, up to (1, 1).
    """

    name: str
    num_nodes: int
    num_edges: int
    dim: int
    dtype: str
    train_share: float
    accesses: tuple[tuple[float, float], ...]
    source: str = _DISKGNN


def _ranks(first: float, second: float, third: float) -> tuple[tuple[float, float], ...]:
    """Return the ranks of Table 3: below 1 %, to 5 %, to 10 %, and the remainder."""
    return ((0.01, first), (0.05, first + second), (0.1, first + second + third), (1.0, 1.0))


GRAPHS = {
    graph.name: graph
    for graph in (
        PublishedGraph("friendster", 66_000_000, 3_600_000_000, 128, "float32", 0.01, _ranks(0.141, 0.255, 0.182)),
        PublishedGraph("papers100m", 111_000_000, 3_300_000_000, 128, "float32", 0.0109, _ranks(0.432, 0.365, 0.112)),
        PublishedGraph("mag240m", 244_000_000, 3_400_000_000, 768, "float16", 0.0045, _ranks(0.564, 0.323, 0.073)),
        PublishedGraph("igb260m", 269_000_000, 3_900_000_000, 1024, "float32", 0.0506, _ranks(0.225, 0.300, 0.208)),
    )
}


def published(name: str) -> PublishedGraph:
    """Return a graph by its name; raise InputError if no statistics of the graph are known."""
    if name.lower() not in GRAPHS:
        raise InputError(f"no statistics of {name!r} are carried here", f"known: {', '.join(GRAPHS)}")
    return GRAPHS[name.lower()]

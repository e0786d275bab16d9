"""The mini-batch: output of every sampler, input of every system and every model."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.arraytypes import Int32Array, Int64Array

Lists = Int32Array | Int64Array


@dataclass(frozen=True)
class Block:
    """One hop as a bipartite graph from source to destination nodes, in CSR by
    destination.

    Source and destination nodes are prefixes of `SampledBatch.nodes`: the first
    `num_src` and the first `num_dst` of it, so destinations are the first `num_dst`
    sources.
    """

    indptr: Int64Array  # [num_dst + 1]
    # [num_edges], positions among the sources, by (destination, position in its list)
    indices: Int32Array
    num_src: int
    num_dst: int

    @property
    def num_edges(self) -> int:
        """Number of edges of the block."""
        return int(self.indices.shape[0])


@dataclass(frozen=True)
class SampledBatch:
    """One mini-batch, a function of the workload alone (architecture: "The mini-batch
    is the same for everyone")."""

    epoch: int
    index: int  # position in the epoch's seed plan
    # [num_nodes], original ids, unique: seed nodes as drawn, then each hop's new nodes
    # by ascending id
    nodes: Int64Array
    num_seeds: int  # number of seed nodes, the first of `nodes`
    # Of the hops, input layer first: `blocks[0].num_src == len(nodes)`,
    # `blocks[-1].num_dst == num_seeds`. ShaDow repeats one block from all nodes to all
    # nodes; its scores are the first `num_seeds` rows.
    blocks: tuple[Block, ...]
    labels: Int64Array  # [num_seeds]
    # Counters and local ids are no part of the digest.
    edge_reads: int = 0  # number of neighbour-list entries read
    list_reads: int = 0  # number of neighbour lists read, over all hops
    list_hits: int = 0  # number of neighbour lists read from a neighbour cache
    local: Int64Array | None = None  # [num_nodes], ids of `nodes` in a renumbered graph

    @property
    def num_nodes(self) -> int:
        """Number of nodes, whose feature rows the batch needs."""
        return int(self.nodes.shape[0])

    @property
    def num_edges(self) -> int:
        """Number of edges over all blocks."""
        return sum(block.num_edges for block in self.blocks)

    @property
    def nbytes(self) -> int:
        """Bytes of the batch's arrays."""
        blocks = sum(
            block.indptr.nbytes + block.indices.nbytes for block in self.blocks
        )
        local = 0 if self.local is None else self.local.nbytes
        return int(self.nodes.nbytes + self.labels.nbytes + blocks + local)

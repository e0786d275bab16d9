"""The ShaDow sampler, which draws one subgraph for a whole mini-batch and all
layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from workloads.arraytypes import Int64Array
from workloads.errors import require
from workloads.sampling.batch import SampledBatch
from workloads.sampling.listing import SamplerKind
from workloads.sampling.neighbor import NeighborSampler


class ShadowSampler(NeighborSampler):
    """Sampler of a subgraph of bounded depth around the seed nodes, on all of which
    every layer runs (shaDow-GNN).

    Its nodes are those that the neighbour sampler reaches from the seed nodes, one hop
    for each fan-out; its edges are all edges of the graph between them (the induced
    subgraph). Its one block, from all nodes to all nodes, is repeated for each of the
    model's `layers`; scores are read out at the seed nodes, the first rows. So depth
    (fan-outs) and layers are independent. The seed nodes of a mini-batch share one
    subgraph, where the paper gives each its own: each node's row is then needed once a
    batch, and a seed node may also receive messages from nodes that only another seed
    node reached.

    Reads the drawn entries of the hops and the whole lists of all nodes. Other args as
    `NeighborSampler`.
    """

    kind: ClassVar[str] = "shadow"

    def __init__(self, *arguments: Any, layers: int, **others: Any) -> None:
        fault = f"layers is {layers}"
        require(layers >= 1, fault, "a model needs at least one")
        super().__init__(*arguments, **others)
        self._layers = layers

    def sample(
        self,
        epoch: int,
        batch: int,
        seeds: Int64Array,
        *,
        local_seeds: Int64Array | None = None,
    ) -> SampledBatch:
        """Sample one mini-batch, as `NeighborSampler.sample`; all its blocks are the
        same one."""
        sampled = super().sample(epoch, batch, seeds, local_seeds=local_seeds)
        return replace(sampled, blocks=sampled.blocks * self._layers)


SAMPLER = SamplerKind(
    "shadow",
    lambda workload, **more: ShadowSampler(**more, layers=workload.model.layers),
    (5, 3),
    one_subgraph=True,
)

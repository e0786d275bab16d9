"""Samplers that draw for a whole mini-batch: layer by layer with importance (FastGCN, LADIES), and ShaDow's subgraph.

Both share the neighbour sampler's calls, counters (epoch, batch, hop, original node id) and canonical order, so a
system that treats sampling as a black box feeds their batches unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from workloads.errors import InputError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.neighbor import NeighborSampler


class LayerwiseSampler(NeighborSampler):
    """Sampler of a fixed number of new nodes a layer, drawn with importance for all destinations together.

    The candidates of a hop are the in-neighbours of its destinations that are no destinations themselves. `fanout[hop]`
    candidates are drawn without replacement (all, where there are fewer or for -1): a candidate's weight is the sum
    over its edges to destinations i of 1 / degree(i)^2, that is the squared entries of the row-normalised adjacency
    matrix (FastGCN's importance, restricted to the destinations' neighbours as in LADIES), and the candidates with the
    largest weight / u are taken, u uniform in (0, 1] (priority sampling). Destinations stay sources (skip connections).
    A block holds every edge between its destinations and its sources, in the order of the neighbour lists.

    The models take no edge weights: a destination aggregates over its sampled neighbours. Neighbours of many
    destinations are sampled more often, so the aggregate is biased towards them; the weights that would remove the
    bias, 1 / min(1, weight / threshold), are not applied.

    A batch depends on all of its seed nodes together: ranks that split a step draw other nodes than one process would.
    Every hop reads the whole lists of its destinations. Args as `NeighborSampler`, where `fanout` counts nodes a layer.
    """

    kind: ClassVar[str] = "layerwise"

    def __init__(
        self,
        indptr: npt.NDArray[np.int64],
        indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
        fanout: Sequence[int],
        **others: Any,
    ) -> None:
        if others.get("replace"):
            raise InputError("the layerwise sampler draws without replacement", "leave replace out")
        super().__init__(indptr, indices, fanout, **others)


class ShadowSampler(NeighborSampler):
    """Sampler of a subgraph of bounded depth around the seed nodes, on all of which every layer runs (shaDow-GNN).

    Its nodes are those that the neighbour sampler reaches from the seed nodes, one hop for each fan-out; its edges are
    all edges of the graph between them (the induced subgraph). Its one block, from all nodes to all nodes, is repeated
    for each of the model's `layers`; scores are read out at the seed nodes, the first rows. So depth (fan-outs) and
    layers are independent. The seed nodes of a mini-batch share one subgraph, where the paper gives each its own: each
    node's row is then needed once a batch, and a seed node may also receive messages from nodes that only another seed
    node reached.

    Reads the drawn entries of the hops and the whole lists of all nodes. Other args as `NeighborSampler`.
    """

    kind: ClassVar[str] = "shadow"

    def __init__(
        self,
        indptr: npt.NDArray[np.int64],
        indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
        fanout: Sequence[int],
        *,
        layers: int,
        **others: Any,
    ) -> None:
        if layers < 1:
            raise InputError(f"layers is {layers}", "a model needs at least one")
        super().__init__(indptr, indices, fanout, **others)
        self._layers = layers

    def sample(
        self, epoch: int, batch: int, seeds: npt.NDArray[np.int64], *, local_seeds: npt.NDArray[np.int64] | None = None
    ) -> SampledBatch:
        """Sample one mini-batch, as `NeighborSampler.sample`; all its blocks are the same one."""
        sampled = super().sample(epoch, batch, seeds, local_seeds=local_seeds)
        return replace(sampled, blocks=sampled.blocks * self._layers)

"""The layer-wise sampler, which draws with importance for a whole layer (FastGCN,
LADIES)."""

from __future__ import annotations

from typing import ClassVar

from workloads.sampling.listing import SamplerKind
from workloads.sampling.neighbor import NeighborSampler


class LayerwiseSampler(NeighborSampler):
    """Sampler of a fixed number of new nodes a layer, drawn with importance for all
    destinations together.

    The candidates of a hop are the in-neighbours of its destinations that are no
    destinations themselves. `fanout[hop]` candidates are drawn without replacement
    (all, where there are fewer or for -1): a candidate's weight is the sum over its
    edges to destinations i of 1 / degree(i)^2, that is the squared entries of the
    row-normalised adjacency matrix (FastGCN's importance, restricted to the
    destinations' neighbours as in LADIES), and the candidates with the largest weight /
    u are taken, u uniform in (0, 1] (priority sampling). Destinations stay sources
    (skip connections). A block holds every edge between its destinations and its
    sources, in the order of the neighbour lists.

    The models take no edge weights: a destination aggregates over its sampled
    neighbours. Neighbours of many destinations are sampled more often, so the aggregate
    is biased towards them; the weights that would remove the bias, 1 / min(1, weight /
    threshold), are not applied.

    A batch depends on all of its seed nodes together: ranks that split a step draw
    other nodes than one process would. Every hop reads the whole lists of its
    destinations. Args as `NeighborSampler`, where `fanout` counts nodes a layer.
    """

    kind: ClassVar[str] = "layerwise"
    replacement: ClassVar[bool] = False


SAMPLER = SamplerKind(
    "layer-wise",
    lambda workload, **others: LayerwiseSampler(**others),
    (60, 40),
    replacement=False,
    by_layer=True,
)

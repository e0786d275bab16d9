"""Mini-batches: neighbour sampling, the seed plan, digests, and the bounds of a run's batches."""

from __future__ import annotations

from workloads.sampling.batch import Block, SampledBatch
from workloads.sampling.digest import EpochDigest, feature_digest, structure_digest
from workloads.sampling.neighbor import NeighborSampler
from workloads.sampling.seeds import PartitionPlan, SeedPlan
from workloads.sampling.subgraph import LayerwiseSampler, ShadowSampler

__all__ = [
    "Block",
    "EpochDigest",
    "LayerwiseSampler",
    "NeighborSampler",
    "PartitionPlan",
    "SampledBatch",
    "SeedPlan",
    "ShadowSampler",
    "feature_digest",
    "structure_digest",
]

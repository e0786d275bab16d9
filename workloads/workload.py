"""The workload: dataset, sampler, seed plan and model, which together fix every
mini-batch and the training step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workloads.arraytypes import ArrayShape
from workloads.dataset import Dataset

ModelName = Literal["sage", "gcn", "gat"]


@dataclass(frozen=True)
class ModelSpec:
    """Model to train."""

    name: ModelName = "sage"
    layers: int = 3  # = number of hops (ShaDow: any number)
    hidden: int = 256  # hidden width (for GAT: over all heads together)
    heads: int = 4  # attention heads (GAT only)
    learning_rate: float = 0.003  # of Adam
    # share dropped after each hidden layer; 0 keeps faithful systems' loss curves equal
    dropout: float = 0.0


@dataclass(frozen=True)
class SamplerSpec:
    """Sampler of the mini-batches."""

    name: str = "neighbor"  # in `workloads.sampling.listing`, or `package.module:NAME`
    # Neighbours a node and hop, first entry next to the seed nodes; -1 takes all.
    # Layer-wise: new nodes a layer. ShaDow: fan-outs of the walk that finds the
    # subgraph, whose depth need not be the number of layers.
    fanout: ArrayShape = (10, 10, 10)
    replace: bool = False  # whether to draw with replacement
    batch_size: int = 1000  # seed nodes a mini-batch
    shuffle: bool = True  # whether to shuffle the training nodes every epoch
    max_batches: int = 0  # most mini-batches an epoch (0: all)


@dataclass(frozen=True)
class Workload:
    """Computation of a run, the same for every system. `seed` keys sampling, shuffling
    and initial weights.

    Attributes:
        rank, world: rank of this process, and number of ranks that take each step
            together.
        partition: `.npz` file of `partition_of`, int64 [T]: rank of each training node;
            None: ranks split steps evenly.
    """

    dataset: Dataset
    sampler: SamplerSpec
    model: ModelSpec
    seed: int = 0
    rank: int = 0
    world: int = 1
    partition: Path | None = None

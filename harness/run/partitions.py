"""Self-reliant partitions of the training nodes: made once for each dataset, hops and ranks, outside cap and clock.

A JSON file beside the partition keeps the seconds spent, for the record of every run that uses it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cache import Cache

if TYPE_CHECKING:
    from harness.records.record import RunConfig
    from workloads.dataset import Dataset


@dataclass(frozen=True)
class MadePartition:
    """A partition file (`Workload.partition`), the seconds spent on making it, and whether it existed before."""

    path: Path
    seconds: float
    reused: bool


def partition(
    results_root: Path, config: RunConfig, dataset: Dataset, progress: Callable[[str], None] = lambda text: None
) -> MadePartition | None:
    """Return the partition of the training nodes among ranks, made if missing; None without a partition.

    A file without its seconds, left by a process killed between the two writes, is made again.

    Args:
        results_root: root of the cache.
        config, dataset: configuration of the run, and its opened dataset.
        progress: called with a text before a partition is made.
    """
    if config.partition == "none":
        return None
    from harness.worker.build import workload_of
    from systems.engine.rank.partition import partition_training_nodes

    key = f"{dataset.fingerprint.replace(':', '-')}-{len(config.fanout)}-{config.ranks}"
    file, cache = results_root.absolute() / "cache" / f"partition-{key}.npz", Cache(results_root)
    known = (cache.get("partition", key) or {}).get("seconds")
    if file.exists() and isinstance(known, float):
        return MadePartition(file, known, reused=True)
    progress("partitioning the training nodes")
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{os.getpid()}-{file.name}")
    began = time.monotonic()
    partition_training_nodes(workload_of(config, dataset), config.ranks, hops=len(config.fanout)).save(partial)
    seconds = time.monotonic() - began
    partial.rename(file)
    cache.put("partition", key, {"seconds": seconds})
    return MadePartition(file, seconds, reused=False)

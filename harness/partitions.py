"""Self-reliant partitions of the training nodes: made once for each dataset, hops and ranks, outside cap and clock.

The seconds that making took stand beside the file, so that every run that uses it can say so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.record import RunConfig
    from workloads.dataset import Dataset


@dataclass(frozen=True)
class MadePartition:
    """A partition file.

    Attributes:
        path: as `Workload.partition`.
        seconds: that making it took.
        reused: whether it was there before.
    """

    path: Path
    seconds: float
    reused: bool


def partition(
    results_root: Path, config: RunConfig, dataset: Dataset, progress: Callable[[str], None] = lambda text: None
) -> MadePartition | None:
    """Which rank trains each training node, made now unless it is there; None where ranks share every step.

    A file whose seconds are not known, since whoever made it was killed between the two, is made again.
    """
    if config.partition == "none":
        return None
    from harness.build import workload_of
    from systems.engine.partition import partition_training_nodes

    key = f"{dataset.fingerprint.replace(':', '-')}-{len(config.fanout)}-{config.ranks}"
    file = results_root.absolute() / "cache" / f"partition-{key}.npz"
    beside = file.with_suffix(".json")
    if file.exists():
        with suppress(OSError, ValueError, KeyError, TypeError):
            return MadePartition(file, float(json.loads(beside.read_text(encoding="utf-8"))["seconds"]), reused=True)
    progress("partitioning the training nodes")
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{os.getpid()}-{file.name}")
    began = time.monotonic()
    partition_training_nodes(workload_of(config, dataset), config.ranks, hops=len(config.fanout)).save(partial)
    seconds = time.monotonic() - began
    partial.rename(file)
    partial_beside = partial.with_suffix(".json")
    partial_beside.write_text(json.dumps({"seconds": seconds}), encoding="utf-8")
    partial_beside.rename(beside)
    return MadePartition(file, seconds, reused=False)

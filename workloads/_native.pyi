"""Types of the extension module workloads._native."""

from typing import Any

import numpy as np
import numpy.typing as npt

MAX_NODE: int
MAX_EPOCH: int
MAX_BATCH: int
MAX_HOPS: int

class NeighborSampler:
    def __init__(
        self,
        indptr: npt.NDArray[np.int64],
        indices: npt.NDArray[np.integer],
        fanout: list[int],
        seed: int,
        replace: bool = False,
        threads: int = 1,
        wide_keys: bool = False,
        address: npt.NDArray[np.int64] | None = None,
        lists: npt.NDArray[np.integer] | None = None,
        names: npt.NDArray[np.int64] | None = None,
        kind: str = "neighbor",
    ) -> None: ...
    def sample(self, epoch: int, batch: int, seeds: npt.NDArray[np.int64]) -> tuple[
        npt.NDArray[np.int64], list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], int, int]], int, int, int,
        npt.NDArray[np.int64],
    ]: ...  # fmt: skip
    def scratch_bytes(self) -> int: ...

def draw_positions(
    degree: int, fanout: int, replace: bool, seed: int, epoch: int = 0, batch: int = 0, hop: int = 0, node: int = 0
) -> npt.NDArray[np.uint64]: ...
def draw_positions_of(
    nodes: npt.NDArray[np.int64], degree: int, fanout: int, replace: bool, seed: int
) -> npt.NDArray[np.uint64]: ...
def philox4x32(seed: int, counter: list[int]) -> list[int]: ...
def shuffle(values: npt.NDArray[np.int64], seed: int, epoch: int) -> None: ...
def __getattr__(name: str) -> Any: ...  # the generation part

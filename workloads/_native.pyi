"""Sampling, relabelling, generation and CSC building."""

from collections.abc import Sequence
from typing import Annotated, overload

import numpy
import numpy.typing
from numpy.typing import NDArray

MAX_NODE: int = 281474976710656

MAX_EPOCH: int = 65536

MAX_BATCH: int = 67108864

MAX_HOPS: int = 63

class NeighborSampler:
    @overload
    def __init__(
        self,
        indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        fanout: Sequence[int],
        seed: int,
        replace: bool = False,
        threads: int = 1,
        wide_keys: bool = False,
        address: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        lists: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        names: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        kind: str = "neighbor",
    ) -> None: ...
    @overload
    def __init__(
        self,
        indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        fanout: Sequence[int],
        seed: int,
        replace: bool = False,
        threads: int = 1,
        wide_keys: bool = False,
        address: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        lists: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        names: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
        kind: str = "neighbor",
    ) -> None: ...
    def sample(
        self, epoch: int, batch: int, seeds: numpy.typing.NDArray[numpy.int64]
    ) -> tuple[
        numpy.typing.NDArray[numpy.int64],
        list[tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.int32], int, int]],
        int,
        int,
        int,
        numpy.typing.NDArray[numpy.int64],
    ]:
        """
        (nodes int64, [(indptr int64, indices int32, num_src, num_dst)] input layer first, edge_reads, list_reads, list_hits, local int64)
        """

    def scratch_bytes(self) -> int: ...

def draw_positions(
    degree: int, fanout: int, replace: bool, seed: int, epoch: int = 0, batch: int = 0, hop: int = 0, node: int = 0
) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]:
    """The positions that the sampler keeps of one neighbour list, ascending."""

def draw_positions_of(
    nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    degree: int,
    fanout: int,
    replace: bool,
    seed: int,
) -> Annotated[NDArray[numpy.uint64], dict(shape=(None, None))]:
    """
    The same for many nodes whose lists are equally long, [len(nodes), fanout], drawn side by side.
    """

def philox4x32(seed: int, counter: Sequence[int]) -> list[int]:
    """Philox4x32-10 at one counter."""

def shuffle(
    values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")], seed: int, epoch: int
) -> None:
    """Shuffles in place, a function of (seed, epoch, size)."""

class KroneckerStream:
    def __init__(
        self,
        base_indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        base_indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        seed_indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        seed_indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        num_nodes: int,
    ) -> None: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    def indptr(
        self,
        start: int,
        out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
        threads: int,
    ) -> None: ...
    @overload
    def edges(
        self,
        start: int,
        out: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
        threads: int,
    ) -> None: ...
    @overload
    def edges(
        self,
        start: int,
        out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
        threads: int,
    ) -> None: ...

class Rmat:
    def __init__(self, num_nodes: int, num_edges: int, seed: int, permute: bool, communities: int) -> None: ...
    def count(
        self, indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")], threads: int
    ) -> None: ...
    def labels(
        self, first: int, out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")]
    ) -> None: ...
    @overload
    def fill(
        self,
        indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        first: int,
        last: int,
        out: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
        used: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu")],
        threads: int,
    ) -> None: ...
    @overload
    def fill(
        self,
        indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        first: int,
        last: int,
        out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
        used: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu")],
        threads: int,
    ) -> None: ...

class FractalStream:
    def __init__(
        self,
        base_indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        base_indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        keep: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        seed: int,
    ) -> None: ...
    @property
    def num_nodes(self) -> int: ...
    def count_edges(self, threads: int) -> int: ...
    def make32(
        self,
        first: int,
        degrees: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
        threads: int,
    ) -> int: ...
    def make64(
        self,
        first: int,
        degrees: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
        threads: int,
    ) -> int: ...
    @overload
    def take(
        self, out: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")], threads: int
    ) -> None: ...
    @overload
    def take(
        self, out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")], threads: int
    ) -> None: ...

@overload
def clustering(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    pairs: int,
    sorted: bool,
    seed: int,
    threads: int,
) -> float: ...
@overload
def clustering(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    pairs: int,
    sorted: bool,
    seed: int,
    threads: int,
) -> float: ...
@overload
def homophily(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    threads: int,
) -> tuple[int, int]: ...
@overload
def homophily(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    threads: int,
) -> tuple[int, int]: ...
@overload
def count_sources(
    indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
) -> None: ...
@overload
def count_sources(
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
) -> None: ...
@overload
def sort_lists(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
) -> None: ...
@overload
def sort_lists(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
) -> None: ...
@overload
def communities(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    number: int,
    sweeps: int,
    seed: int,
    out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
@overload
def communities(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    number: int,
    sweeps: int,
    seed: int,
    out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
def feature_rows32(
    centres: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    group: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    seed: int,
    noise: float,
    threads: int,
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def feature_rows16(
    centres: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    group: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    seed: int,
    noise: float,
    threads: int,
    out: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def random_labels(
    first: int,
    num_classes: int,
    seed: int,
    out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
def permute(
    n: int,
    seed: int,
    name0: int,
    name1: int,
    inverse: bool,
    ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...

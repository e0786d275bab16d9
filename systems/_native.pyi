"""
Direct-I/O reader, gather, page cache, feature buffer, Belady changesets, cache policies, packing, rankings.
"""

from collections.abc import Sequence
from typing import Annotated, Any, overload

import numpy
import numpy.typing
from numpy.typing import NDArray

class Reader:
    """Reads rows of a table file, or ranges of it, with direct I/O."""

    def __init__(
        self,
        path: str,
        *,
        data_offset: int,
        num_rows: int,
        row_bytes: int,
        depth: int,
        granularity: int,
        merge: bool,
        max_request_bytes: int,
        merge_gap_bytes: int,
        mode: str,
        threads: int,
        register_buffers: bool,
        buffer_bytes: int,
    ) -> None: ...
    @property
    def mode(self) -> str: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    def read(
        self,
        ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
        out_rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)] | None,
    ) -> tuple[dict[str, Any], tuple[int, int] | None]:
        """
        Reads row ids[i] into out[out_rows[i]], or out[i]; returns (counts, failure).
        """

    def counts_of(
        self, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> dict[str, Any]:
        """Counts the requests and bytes of a read of these ids."""

    def read_range(
        self,
        offset: int,
        out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
        request_bytes: int,
    ) -> tuple[dict[str, Any], tuple[int, int] | None]: ...
    def read_ranges(
        self,
        offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        positions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
        request_bytes: int,
    ) -> tuple[dict[str, Any], tuple[int, int] | None]: ...

class GroupRead:
    """
    Reads rows into a bounded staging buffer and hands them over group by group.
    """

    def __init__(
        self,
        reader: Reader,
        ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        staging: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
        group_rows: int,
        own_slices: bool = True,
    ) -> None: ...
    def next(self) -> tuple[int, numpy.typing.NDArray[numpy.int64]] | str | None:
        """
        Returns (slice, positions) of a group, None at the end, or a str: "starved" | "failed".
        """

    def give_back(self, slice: int) -> None: ...
    def close(self) -> None: ...
    @property
    def counts(self) -> dict[str, Any]: ...
    @property
    def failure(self) -> tuple[int, int] | None: ...

class RangeQueue:
    """Queue of file ranges, read in order in large direct requests."""

    def __init__(self, path: str, *, depth: int, request_bytes: int, mode: str) -> None: ...
    @property
    def mode(self) -> str: ...
    @property
    def block_bytes(self) -> int: ...
    def submit(
        self, offset: int, need: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")]
    ) -> int:
        """
        Holds the memory of `out` until its ticket is waited for or the queue is closed.
        """

    def wait(self, ticket: int) -> tuple[tuple[int, int] | None, float]:
        """Returns (failure, seconds on the monotonic clock)."""

    def close(self) -> None: ...

def reader_buffer_bytes(
    data_offset: int, row_bytes: int, block_bytes: int, max_request_bytes: int, depth: int
) -> int: ...
def block_bytes(path: str) -> int: ...
def plan_bytes(num_ids: int) -> int: ...
def plan_reads(
    ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    *,
    data_offset: int,
    num_rows: int,
    row_bytes: int,
    file_bytes: int,
    block_bytes: int,
    merge: bool,
    max_request_bytes: int,
    merge_gap_bytes: int,
) -> dict[str, Any]: ...
def gather(
    table: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
    in_order: bool = False,
) -> int: ...
def resident_bytes(path: str) -> int: ...
def evict(path: str) -> int: ...
def advise(
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)], advice: int
) -> None: ...
def scatter(
    source: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    from_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    target: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    to_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    threads: int,
) -> None: ...
def split_rows(
    source: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    to_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    begin: int,
    on_device: int,
    host: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    staging: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
) -> tuple[int, Annotated[NDArray[numpy.int64], dict(shape=(None,))]]: ...

class FeatureBuffer:
    """Slot, references and state of each node's row; holds no rows itself."""

    @overload
    def __init__(self, num_slots: int) -> None: ...
    @overload
    def __init__(
        self,
        num_slots: int,
        memory: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
        create: bool,
    ) -> None: ...
    @property
    def num_slots(self) -> int: ...
    @staticmethod
    def bytes(num_slots: int) -> int: ...
    def acquire(
        self,
        ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        timeout_s: float,
    ) -> tuple[
        str,
        int,
        Annotated[NDArray[numpy.int64], dict(shape=(None,))],
        Annotated[NDArray[numpy.int64], dict(shape=(None,))],
        Annotated[NDArray[numpy.int64], dict(shape=(None,))],
    ]:
        """Returns (state, unique rows, alias, load, waiting)."""

    def publish(
        self, slots: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> None: ...
    def fail(
        self,
        slots: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        error: str,
    ) -> None: ...
    def wait(
        self,
        slots: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        timeout_s: float,
    ) -> tuple[str, str]:
        """Returns (state, error)."""

    def release(
        self, slots: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> None: ...
    def slots_of(
        self, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...
    def close(self) -> None: ...
    @property
    def standby(self) -> int: ...
    @property
    def counts(self) -> dict[str, Any]: ...

class SegmentPool:
    """
    Holder and nodes of each segment of a staging buffer that processes share.
    """

    def __init__(
        self,
        parties: int,
        portion: int,
        segment_rows: int,
        memory: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
        create: bool,
    ) -> None: ...
    @staticmethod
    def bytes(parties: int, portion: int, segment_rows: int) -> int: ...
    def acquire(self, party: int, borrow: bool, block: bool) -> int:
        """
        Returns the segment, -1 where none is available now, -2 where the pool is closed.
        """

    def release(self, party: int, segment: int) -> None: ...
    def publish(
        self,
        segment: int,
        nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None: ...
    def present(
        self, nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...
    def fetch(
        self,
        party: int,
        segment: int,
        nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        staging: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
        row_bytes: int,
    ) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...
    def close(self) -> None: ...
    def counts(self, party: int) -> tuple[int, int]:
        """Returns (borrowed segments, rows found)."""

class ChangesetPlanner:
    """Belady's replacement over a superbatch, in three passes."""

    def __init__(
        self,
        num_nodes: int,
        capacity: int,
        batch_sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        threads: int,
    ) -> None: ...
    def look_back(
        self,
        batch: int,
        nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None: ...
    def fill(
        self,
        batch: int,
        nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> bool:
        """Returns True once the cache is full or the last mini-batch is done."""

    @overload
    def begin(self) -> None: ...
    @overload
    def begin(
        self, resident: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> None: ...
    def held(self, begin: int, end: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...
    def advance(
        self,
        batch: int,
        nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> tuple[
        Annotated[NDArray[numpy.int32], dict(shape=(None,))],
        Annotated[NDArray[numpy.int32], dict(shape=(None,))],
        Annotated[NDArray[numpy.int32], dict(shape=(None,))],
        int,
        int,
    ]:
        """Returns (slots, in_positions, in_slots, hits, evictions)."""

    @property
    def filled(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @staticmethod
    def bytes(num_nodes: int, capacity: int, accesses: int, batches: int) -> int: ...

class SlotPlanner:
    """Plans the slots of feature rows for a sequence of mini-batches."""

    def __init__(self, slots: int, window: int, keep: bool, threads: int = 1) -> None: ...
    def plan(
        self,
        nodes: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        seeds: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None: ...
    def misses(
        self, i: int
    ) -> tuple[
        Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))]
    ]:
        """Returns the rows to read for mini-batch i, and their slots."""

    def slots(self, i: int) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...
    def miss_counts(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...
    def copy_misses(
        self, to: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu")]
    ) -> None: ...
    def sampled_misses(self, region_rows: int, every: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...
    def list_bytes(self, i: int) -> int: ...
    def write_lists(
        self, begin: int, to: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")]
    ) -> tuple[
        int, Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))]
    ]:
        """
        Writes the address lists from `begin` on that fit; returns (next list, bytes of each, XXH3 of each).
        """

    def clear(self) -> None: ...
    @property
    def hits(self) -> int: ...
    @property
    def carried(self) -> int: ...
    @staticmethod
    def bytes(slots: int, batches: int, accesses: int, threads: int = 1) -> int: ...

def dense_rows(
    ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)], num_nodes: int
) -> tuple[Annotated[NDArray[numpy.uint32], dict(shape=(None,))], int]:
    """
    Returns the ids relabelled in the order of their first occurrence, and the number of distinct ids.
    """

def policy_misses(
    policy: str,
    rows: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    begins: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    num_rows: int,
    sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    threads: int,
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

class BinnedEdges:
    """Edges sorted into bins, target after target, for `add_along`."""

    def __init__(self, num_nodes: int, capacity: int) -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def clear(self) -> None: ...
    @staticmethod
    def plan_bytes(num_nodes: int, edges: int, targets: int, appends: int) -> int: ...
    @overload
    def append(
        self,
        sources: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        first_target: int,
        first_edge: int,
        threads: int,
    ) -> bool: ...
    @overload
    def append(
        self,
        sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        first_target: int,
        first_edge: int,
        threads: int,
    ) -> bool: ...

@overload
def count_ids(
    ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    counts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
@overload
def count_ids(
    ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
@overload
def count_ids(
    ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    counts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
@overload
def count_ids(
    ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
@overload
def partition_greedily(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    train: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    hops: int,
    given: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    members: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...
@overload
def partition_greedily(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    train: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    hops: int,
    given: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    members: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...
@overload
def count_accesses(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    train: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    partition_of: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    hops: int,
    members: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
) -> tuple[int, int]: ...
@overload
def count_accesses(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    train: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    partition_of: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    hops: int,
    members: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
) -> tuple[int, int]: ...
def binned_entries(num_nodes: int) -> int: ...
def add_along(
    chunks: Sequence[BinnedEdges],
    values: numpy.typing.NDArray[numpy.float64],
    sums: numpy.typing.NDArray[numpy.float64],
    threads: int,
) -> None: ...
def pagerank_step(
    scores: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    sums: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    before: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    base: float,
    damping: float,
    threads: int,
) -> float: ...
def divide_by_degrees(
    scores: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    threads: int,
) -> bool: ...
def pack_pass(
    path: str,
    *,
    data_offset: int,
    num_rows: int,
    row_bytes: int,
    files: Sequence[str],
    chunks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    partition_rows: int,
    buffers: int,
    write_bytes: int,
    hold: bool,
    threads: int,
    depth: int,
    request_bytes: int,
    mode: str,
) -> tuple[
    dict[str, int], Annotated[NDArray[numpy.uint64], dict(shape=(None,))], tuple[int, bool, int, int] | None
]: ...
def partition_buffer_bytes(partition_rows: int, row_bytes: int) -> int: ...
def ascending(
    ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
) -> tuple[
    Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))]
]:
    """Returns the ids in ascending order and their old positions."""

def minhash_order(
    ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    hashes: int,
    seed: int,
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...
def minhash_bytes(num_ids: int, num_lists: int, hashes: int) -> int: ...
def xxh3(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)]) -> int:
    """XXH3-64 of the bytes."""

def scatter_rows(
    rows: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first: int,
    out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    threads: int,
) -> None: ...
@overload
def relocate_edges(
    sources: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first_target: int,
    first_edge: int,
    places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    new_indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first: int,
    out: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
) -> bool: ...
@overload
def relocate_edges(
    sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first_target: int,
    first_edge: int,
    places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    new_indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first: int,
    out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
) -> bool: ...

class StopFlag:
    def __init__(self) -> None: ...
    def set(self) -> None: ...

def distribute(
    *,
    path: str,
    data_offset: int,
    num_rows: int,
    row_bytes: int,
    file: str,
    chunks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    region_bytes: int,
    regions: int,
    depth: int,
    gap_bytes: int,
    buffer_bytes: int,
    writers: int,
    mode: str,
    stop: StopFlag,
) -> tuple[
    dict[str, Any], int, int, Annotated[NDArray[numpy.uint64], dict(shape=(None,))], tuple[int, bool, int] | None
]:
    """Returns (reads, writes, bytes written, digests, failure)."""

def distribute_bytes(
    *, row_bytes: int, chunks: int, region_bytes: int, regions: int, buffer_bytes: int, writers: int
) -> int: ...

class Spread:
    """Fills regions of a file through buffers, each a long direct write."""

    def __init__(
        self,
        path: str,
        bounds: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        *,
        buffer_bytes: int,
        writers: int,
        mode: str,
    ) -> None: ...
    def append(
        self,
        region: int,
        data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None: ...
    def rows(
        self,
        rows: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        regions: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None: ...
    def finish(self) -> tuple[int, int] | None: ...
    @property
    def failure(self) -> tuple[int, int] | None: ...
    @property
    def writes(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @staticmethod
    def bytes(regions: int, buffer_bytes: int, writers: int) -> int: ...
    @overload
    def lists(
        self,
        indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        first_node: int,
        first_edge: int,
        sources: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        region_of: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None: ...
    @overload
    def lists(
        self,
        indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        first_node: int,
        first_edge: int,
        sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        region_of: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None: ...

MAX_PARTITIONS: int = 256

def assign_partitions(
    first: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    size: int,
    seed: int,
    partition_of: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
def count_kept(
    nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    degrees: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    order: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    slot_of: Annotated[NDArray[numpy.int16], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    kept: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
) -> int: ...
@overload
def count_buckets(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first_node: int,
    first_edge: int,
    sources: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    partition_of: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    partitions: int,
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
@overload
def count_buckets(
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first_node: int,
    first_edge: int,
    sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    partition_of: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    partitions: int,
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
@overload
def partitions_of(
    sources: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    partition_of: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    order: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
) -> None: ...
@overload
def partitions_of(
    sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    partition_of: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    order: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    threads: int,
) -> None: ...
@overload
def place_edges(
    sources: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    order: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    next: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    out: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
@overload
def place_edges(
    sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    order: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    next: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
@overload
def fill_lists(
    nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    kept: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    buckets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    lengths: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
@overload
def fill_lists(
    nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    kept: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    buckets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    lengths: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...

class ExternalSampler:
    """Samples many mini-batches at once in passes over the graph's files."""

    def __init__(
        self,
        *,
        indptr: str,
        indptr_offset: int,
        indices: str,
        indices_offset: int,
        num_nodes: int,
        num_edges: int,
        index_bytes: int,
        fanout: Sequence[int],
        seed: int,
        replace: bool,
        gap_bytes: int,
        piece_bytes: int,
        pieces: int,
        depth: int,
        group_nodes: int,
        threads: int,
        mode: str,
    ) -> None: ...
    def begin(
        self,
        epoch: int,
        numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        seeds: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None: ...
    def pass_over(self) -> tuple[int, bool, int] | None: ...
    def finish(self) -> None: ...
    def forget(self) -> None: ...
    def lay_out(
        self,
        begin: int,
        labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        to: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
        nodes: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu")] | None,
    ) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
        """
        Returns, for each mini-batch laid out, head bytes, body bytes and nodes, as flat int64.
        """

    def needs(self, i: int, labels: int) -> tuple[int, int]: ...
    def stop(self) -> None: ...
    @property
    def memory_bytes(self) -> int: ...
    def reads(self) -> dict[str, Any]: ...

@overload
def count_by_piece(
    sources: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    num_nodes: int,
    piece_rows: int,
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
@overload
def count_by_piece(
    sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    num_nodes: int,
    piece_rows: int,
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
@overload
def place_by_piece(
    sources: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first_edge: int,
    piece_rows: int,
    next: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    edges: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
@overload
def place_by_piece(
    sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first_edge: int,
    piece_rows: int,
    next: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    edges: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
@overload
def count_loops(
    sources: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first_target: int,
    first_edge: int,
    loops: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
@overload
def count_loops(
    sources: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first_target: int,
    first_edge: int,
    loops: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
) -> bool: ...
def add_rows(
    edges: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    rows: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    sums: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    dim: int,
    weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first_row: int,
    first_target: int,
    skip_loops: bool,
    threads: int,
) -> bool: ...

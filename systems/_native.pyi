"""Types of the compiled module; see `systems/engine/` for the meaning."""

from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Failure = tuple[int, int] | None

class Reader:
    mode: str
    memory_bytes: int
    block_bytes: int
    file_bytes: int
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
    def read(self, ids: Ids, out: Bytes, out_rows: Ids | None) -> tuple[dict[str, Any], Failure]: ...
    def counts_of(self, ids: Ids) -> dict[str, Any]: ...
    def read_range(self, offset: int, out: Bytes, request_bytes: int) -> tuple[dict[str, Any], Failure]: ...
    def read_ranges(
        self, offsets: Ids, sizes: Ids, positions: Ids, out: Bytes, request_bytes: int
    ) -> tuple[dict[str, Any], Failure]: ...

class GroupRead:
    counts: dict[str, Any]
    failure: Failure
    def __init__(self, reader: Reader, ids: Ids, staging: Bytes, group_rows: int, own_slices: bool = True) -> None: ...
    def next(self) -> tuple[int, Ids] | str | None: ...
    def give_back(self, slice: int) -> None: ...
    def close(self) -> None: ...

class FeatureBuffer:
    num_slots: int
    standby: int
    counts: dict[str, int]
    @overload
    def __init__(self, num_slots: int) -> None: ...
    @overload
    def __init__(self, num_slots: int, memory: Bytes, create: bool) -> None: ...
    @staticmethod
    def bytes(num_slots: int) -> int: ...
    def acquire(self, ids: Ids, timeout_s: float) -> tuple[str, int, Ids, Ids, Ids]: ...
    def publish(self, slots: Ids) -> None: ...
    def fail(self, slots: Ids, error: str) -> None: ...
    def wait(self, slots: Ids, timeout_s: float) -> tuple[str, str]: ...
    def release(self, slots: Ids) -> None: ...
    def slots_of(self, ids: Ids) -> Ids: ...
    def close(self) -> None: ...

class SegmentPool:
    def __init__(self, parties: int, portion: int, segment_rows: int, memory: Bytes, create: bool) -> None: ...
    @staticmethod
    def bytes(parties: int, portion: int, segment_rows: int) -> int: ...
    def acquire(self, party: int, borrow: bool, block: bool) -> int: ...
    def release(self, party: int, segment: int) -> None: ...
    def publish(self, segment: int, nodes: Ids) -> None: ...
    def present(self, nodes: Ids) -> Ids: ...
    def fetch(self, party: int, segment: int, nodes: Ids, staging: Bytes, row_bytes: int) -> Ids: ...
    def close(self) -> None: ...
    def counts(self, party: int) -> tuple[int, int]: ...

def reader_buffer_bytes(
    data_offset: int, row_bytes: int, block_bytes: int, max_request_bytes: int, depth: int
) -> int: ...
def block_bytes(path: str) -> int: ...
def plan_bytes(num_ids: int) -> int: ...
def gather(table: Bytes, rows: Ids, out: Bytes, threads: int, in_order: bool = False) -> int: ...
def resident_bytes(path: str) -> int: ...
def evict(path: str) -> int: ...
def advise(data: Bytes, advice: int) -> None: ...

# Rankings (`systems/engine/rank/ranking.py`).
def count_ids(ids: NDArray[np.integer[Any]], counts: NDArray[np.integer[Any]]) -> bool: ...

class BinnedEdges:
    size: int
    capacity: int
    def __init__(self, num_nodes: int, capacity: int) -> None: ...
    @staticmethod
    def plan_bytes(num_nodes: int, edges: int, targets: int, appends: int) -> int: ...
    def append(
        self, sources: NDArray[np.integer[Any]], indptr: Ids, first_target: int, first_edge: int, threads: int
    ) -> bool: ...
    def clear(self) -> None: ...

def binned_entries(num_nodes: int) -> int: ...
def add_along(
    chunks: list[BinnedEdges], values: NDArray[np.float64], sums: NDArray[np.float64], threads: int
) -> None: ...
def pagerank_step(
    scores: NDArray[np.float64],
    sums: NDArray[np.float64],
    before: NDArray[np.float64],
    base: float,
    damping: float,
    threads: int,
) -> float: ...
def divide_by_degrees(scores: NDArray[np.float64], indptr: Ids, threads: int) -> bool: ...

# Partitions and edge buckets (`systems/mariusgnn/partitioned.py`).
MAX_PARTITIONS: int

def assign_partitions(first: Ids, size: int, seed: int, partition_of: Bytes) -> None: ...
def count_buckets(
    indptr: Ids,
    first_node: int,
    first_edge: int,
    sources: NDArray[np.integer[Any]],
    partition_of: Bytes,
    partitions: int,
    counts: Ids,
) -> None: ...
def partitions_of(sources: NDArray[np.integer[Any]], partition_of: Bytes, order: Bytes, threads: int) -> None: ...
def place_edges(sources: NDArray[np.integer[Any]], order: Bytes, next: Ids, out: NDArray[np.integer[Any]]) -> None: ...
def count_kept(
    nodes: Ids, degrees: NDArray[np.uint32], order: Bytes, slot_of: NDArray[np.int16], indptr: Ids, kept: Bytes
) -> int: ...
def fill_lists(
    nodes: Ids,
    kept: Bytes,
    indptr: Ids,
    buckets: NDArray[np.integer[Any]],
    starts: Ids,
    lengths: Ids,
    indices: NDArray[np.integer[Any]],
) -> None: ...

# Regions of a file, filled through buffers (`systems/mariusgnn/partition_writer.py`).
class Spread:
    failure: tuple[int, int] | None
    writes: int
    bytes_written: int
    def __init__(self, path: str, bounds: Ids, *, buffer_bytes: int, writers: int, mode: str) -> None: ...
    def append(self, region: int, data: NDArray[np.uint8]) -> None: ...
    def rows(self, rows: NDArray[np.uint8], regions: NDArray[np.uint8]) -> None: ...
    def lists(
        self,
        indptr: Ids,
        first_node: int,
        first_edge: int,
        sources: NDArray[np.integer[Any]],
        region_of: NDArray[np.uint8],
    ) -> None: ...
    def finish(self) -> tuple[int, int] | None: ...
    @staticmethod
    def bytes(regions: int, buffer_bytes: int, writers: int) -> int: ...

# The changeset planner, and the row copies that carry changesets out.
Ints = NDArray[np.int32]

class ChangesetPlanner:
    filled: int
    memory_bytes: int
    def __init__(self, num_nodes: int, capacity: int, batch_sizes: Ids, threads: int) -> None: ...
    def look_back(self, batch: int, nodes: Ids) -> None: ...
    def fill(self, batch: int, nodes: Ids) -> bool: ...
    def begin(self, resident: NDArray[np.uint32] = ...) -> None: ...
    def held(self, begin: int, end: int) -> Ids: ...
    def advance(self, batch: int, nodes: Ids) -> tuple[Ints, Ints, Ints, int, int]: ...
    @staticmethod
    def bytes(num_nodes: int, capacity: int, accesses: int, batches: int) -> int: ...

def scatter(source: Bytes, from_rows: Ints, target: Bytes, to_rows: Ints, threads: int) -> None: ...
def split_rows(
    source: Bytes, to_rows: Ints, begin: int, on_device: int, host: Bytes, staging: Bytes
) -> tuple[int, Ids]: ...

# Packing, MinHash, range queue.

class RangeQueue:
    mode: str
    block_bytes: int
    def __init__(self, path: str, *, depth: int, request_bytes: int, mode: str) -> None: ...
    def submit(self, offset: int, need: int, out: Bytes) -> int: ...
    def wait(self, ticket: int) -> tuple[Failure, float]: ...
    def close(self) -> None: ...

def pack_pass(
    path: str,
    *,
    data_offset: int,
    num_rows: int,
    row_bytes: int,
    files: list[str],
    chunks: Ids,
    ids: NDArray[np.uint32],
    partition_rows: int,
    buffers: int,
    write_bytes: int,
    hold: bool,
    threads: int,
    depth: int,
    request_bytes: int,
    mode: str,
) -> tuple[dict[str, int], NDArray[np.uint64], tuple[int, bool, int, int] | None]: ...
def partition_buffer_bytes(partition_rows: int, row_bytes: int) -> int: ...
def ascending(ids: Ids) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]: ...
def minhash_order(ids: Ids, offsets: Ids, hashes: int, seed: int) -> Ids: ...
def minhash_bytes(num_ids: int, num_lists: int, hashes: int) -> int: ...
def plan_reads(
    ids: Ids,
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
def xxh3(data: Bytes) -> int: ...

# Cache policies on a trace (bind_policies.cpp).
def dense_rows(ids: Ids, num_nodes: int) -> tuple[NDArray[np.uint32], int]: ...
def policy_misses(
    policy: str, rows: NDArray[np.uint32], begins: Ids, num_rows: int, sizes: Ids, threads: int
) -> NDArray[np.int64]: ...

# First-layer aggregation (`systems/engine/loading/aggregate.py`).
def count_by_piece(sources: NDArray[np.integer[Any]], num_nodes: int, piece_rows: int, counts: Ids) -> bool: ...
def place_by_piece(
    sources: NDArray[np.integer[Any]],
    indptr: Ids,
    first_edge: int,
    piece_rows: int,
    next: Ids,
    edges: NDArray[np.uint64],
) -> bool: ...
def count_loops(
    sources: NDArray[np.integer[Any]], indptr: Ids, first_target: int, first_edge: int, loops: NDArray[np.int32]
) -> bool: ...
def add_rows(
    edges: NDArray[np.uint64],
    rows: NDArray[np.float32],
    sums: NDArray[np.float32],
    dim: int,
    weights: NDArray[np.float32],
    first_row: int,
    first_target: int,
    skip_loops: bool,
    threads: int,
) -> bool: ...

# Reordering (`systems/data_tiering/reorder.py`).
def scatter_rows(rows: Bytes, places: Ids, first: int, out: Bytes, threads: int) -> None: ...
def relocate_edges(
    sources: NDArray[np.integer[Any]],
    indptr: Ids,
    first_target: int,
    first_edge: int,
    places: Ids,
    new_indptr: Ids,
    first: int,
    out: NDArray[np.integer[Any]],
    threads: int,
) -> bool: ...

# Partitioning (`systems/engine/rank/partition.py`).
def partition_greedily(
    indptr: Ids,
    indices: NDArray[np.integer[Any]],
    train: Ids,
    hops: int,
    given: Ids,
    members: NDArray[np.uint64],
    threads: int,
) -> Ids: ...
def count_accesses(
    indptr: Ids,
    indices: NDArray[np.integer[Any]],
    train: Ids,
    partition_of: Ids,
    hops: int,
    members: NDArray[np.uint64],
    threads: int,
) -> tuple[int, int]: ...

class ExternalSampler:
    memory_bytes: int
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
        fanout: list[int],
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
    def begin(self, epoch: int, numbers: Ids, seeds: Ids, offsets: Ids) -> None: ...
    def pass_over(self) -> tuple[int, bool, int] | None: ...
    def finish(self) -> None: ...
    def forget(self) -> None: ...
    def lay_out(
        self, begin: int, labels: Ids, offsets: Ids, to: NDArray[np.uint8], nodes: NDArray[np.uint32] | None
    ) -> Ids: ...
    def needs(self, i: int, labels: int) -> tuple[int, int]: ...
    def stop(self) -> None: ...
    def reads(self) -> dict[str, Any]: ...

class SlotPlanner:
    hits: int
    carried: int
    def __init__(self, slots: int, window: int, keep: bool, threads: int = 1) -> None: ...
    def plan(self, nodes: NDArray[np.uint32], offsets: Ids, seeds: Ids) -> None: ...
    def misses(self, i: int) -> tuple[Ids, NDArray[np.int32]]: ...
    def slots(self, i: int) -> NDArray[np.int32]: ...
    def miss_counts(self) -> Ids: ...
    def copy_misses(self, to: NDArray[np.uint32]) -> None: ...
    def sampled_misses(self, region_rows: int, every: int) -> Ids: ...
    def list_bytes(self, i: int) -> int: ...
    def write_lists(self, begin: int, to: NDArray[np.uint8]) -> tuple[int, Ids, NDArray[np.uint64]]: ...
    def clear(self) -> None: ...
    @staticmethod
    def bytes(slots: int, batches: int, accesses: int, threads: int = 1) -> int: ...

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
    chunks: Ids,
    ids: NDArray[np.uint32],
    region_bytes: int,
    regions: int,
    depth: int,
    gap_bytes: int,
    buffer_bytes: int,
    writers: int,
    mode: str,
    stop: StopFlag,
) -> tuple[dict[str, Any], int, int, NDArray[np.uint64], tuple[int, bool, int] | None]: ...
def distribute_bytes(
    *, row_bytes: int, chunks: int, region_bytes: int, regions: int, buffer_bytes: int, writers: int
) -> int: ...

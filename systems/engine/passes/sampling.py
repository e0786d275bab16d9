"""Out-of-core neighbour sampling: many mini-batches are drawn together by sequential
passes over the graph's files.

A group needs one pass for each hop, since a hop's nodes are known only when the hop
before is drawn. Successive groups share passes: in the pass in which a group draws its
last hop, the next group draws the hop before, and so on, so that every group but the
first costs one pass, across epochs too. Each draw is keyed by epoch, mini-batch, hop
and node, so the order in which a pass meets the nodes changes nothing: the mini-batches
equal those of `NeighborSampler`. A sequential pass replaces a random read for each
neighbour list (sort, scan, distribute: Aggarwal and Vitter, "The Input/Output
Complexity of Sorting and Related Problems", 1988).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import Mode, ReadStats, arrived, range_queue
from systems.engine.store.batch_store import BatchWriter
from systems.interface import DiskProfile
from workloads.direct_files import PAGE, io_failed
from workloads.errors import DatasetError, InputError
from workloads.sampling.bounds import Bounds
from workloads.sampling.listing import find
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.uint32]
_PIECES = 16
_LEAST_PIECES = 4
# Seconds of sequential reads in flight: the device's latency and a thread's delay until
# it submits again.
_AHEAD_S = 0.008
_DEPTH = 32
# A label, the longest request for labels, its buffer, and such requests in flight.
_ITEM = 8
_RANGE = 64 << 10
_BUFFER = (64 << 10) + 4096
_IN_FLIGHT = 6


class LabelReader:
    """Reader of the 8-byte labels of seed nodes; labels close together are read in one
    request where that is cheaper.

    A group has thousands of seed nodes: with a request for each label, a disk of few
    requests a second would take longer than for the whole file.

    Args:
        gap_bytes: longest run of unwanted bytes that is read to save a request.

    Raises:
        DataIOError: the file cannot be opened.
    """

    def __init__(
        self, path: Path, *, data_offset: int, gap_bytes: int, mode: Mode = "auto"
    ) -> None:
        self._path = path
        self._offset = data_offset
        self._gap = gap_bytes
        self._open = partial(
            range_queue, path, depth=_IN_FLIGHT, request_bytes=_BUFFER, mode=mode
        )
        self._queue: _native.RangeQueue | None = self._open()

    @staticmethod
    def memory_bytes() -> int:
        """Return the bytes of host memory that `read` takes beside its ids and
        values."""
        return _IN_FLIGHT * _BUFFER

    def read(self, ids: Ids) -> tuple[Ids, ReadStats]:
        """Return the items of `ids` (int64 [n], any order) and the counts of their
        reads.

        Raises:
            DataIOError: the file ends early or its device failed; names file and
                offset.
        """
        queue = self._queue = self._queue or self._open()  # reopened after a failure
        values = np.empty(len(ids), dtype=np.int64)
        stats = ReadStats()
        block = queue.block_bytes
        order = np.argsort(ids, kind="stable")
        at = self._offset + _ITEM * ids[order]
        first = at // block * block
        last = (at + _ITEM - 1) // block * block + block
        begins = np.ones(len(ids), dtype=bool)
        begins[1:] = (first[1:] - last[:-1] > self._gap) | (
            first[1:] // _RANGE != first[:-1] // _RANGE
        )
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(ids))[: len(starts)]
        free = [aligned_empty(_BUFFER) for _ in range(min(_IN_FLIGHT, len(starts)))]
        asked: deque[tuple[int, npt.NDArray[np.uint8], int, int]] = deque()

        def take() -> None:
            ticket, memory, begin, end = asked.popleft()
            arrived(queue, ticket, self._path)
            inside = at[begin:end] - first[begin]
            values[order[begin:end]] = (
                memory[inside[:, None] + np.arange(_ITEM)].view(np.int64).reshape(-1)
            )
            free.append(memory)

        try:
            for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
                if not free:
                    take()
                memory = free.pop()
                offset = int(first[begin])
                need = int(at[end - 1]) + _ITEM - offset
                asked.append((queue.submit(offset, need, memory), memory, begin, end))
                stats.count(-(-need // block) * block)
            while asked:
                take()
        except BaseException:
            # Reads in flight write into buffers that are about to be freed.
            self.close()
            raise
        stats.rows = len(ids)
        stats.bytes_useful = _ITEM * len(ids)
        return values, stats

    def close(self) -> None:
        """Wait for the reads in flight and close the file. May be called more than
        once."""
        queue = self._queue
        self._queue = None
        if queue is not None:
            queue.close()


@dataclass(frozen=True, order=True)
class Job:
    """A group: mini-batches `first` to `first + count - 1` of an epoch."""

    epoch: int
    first: int
    count: int


@dataclass
class _Begun:
    job: Job
    seeds: Ids
    offsets: Ids
    hops: int = 0


def in_flight(disk: DiskProfile) -> int:
    """Return the bytes of sequential reads in flight that keep the device busy, a power
    of two; 1 GiB if unknown."""
    rate = (disk.limited or (0.0, 0.0))[1] or disk.sequential_bytes_per_s()
    return 1 << int(rate * _AHEAD_S).bit_length() if rate > 0 else 1 << 30


class ExternalSampler:
    """Sampler of groups of mini-batches by passes over the graph's files; holds no part
    of the graph.

    Args:
        gap_bytes: longest run of unwanted bytes of the graph that is read to save a
            request.
        piece_bytes, pieces: bytes of a read of the graph's files, in whole pages, and
            such pieces of `indices` held.
        group_nodes: approximate number of destination nodes drawn before their edges
            are read.
        threads: threads that draw and relabel.
        whole: read each piece that holds a wanted page as a whole, and once for each
            hop, as far as `pieces` suffice for the neighbour lists that are drawn from
            together.

    Raises:
        InputError: a sampler other than neighbour sampling, or a graph too large for
            4-byte ids.
        DataIOError: a file cannot be opened.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        gap_bytes: int,
        piece_bytes: int = 512 << 10,
        pieces: int = _PIECES,
        group_nodes: int = 8192,
        threads: int = 1,
        mode: Mode = "auto",
        whole: bool = False,
    ) -> None:
        if not self.can_sample(workload):
            raise InputError(
                "out-of-core sampling draws neighbours of graphs below 2^32 - 1 nodes",
                "sample online",
            )
        dataset = workload.dataset
        self._files = {
            part: dataset.file(part) for part in ("indptr", "indices", "labels")
        }
        try:
            self._native = _native.ExternalSampler(
                indptr=str(self._files["indptr"]),
                indptr_offset=dataset.data_offset("indptr"),
                indices=str(self._files["indices"]),
                indices_offset=dataset.data_offset("indices"),
                num_nodes=dataset.num_nodes,
                num_edges=dataset.num_edges,
                index_bytes=dataset.topology_bytes // max(1, dataset.num_edges),
                fanout=list(workload.sampler.fanout),
                seed=workload.seed,
                replace=workload.sampler.replace,
                gap_bytes=gap_bytes // PAGE * PAGE,
                piece_bytes=piece_bytes,
                pieces=pieces,
                depth=_DEPTH,
                group_nodes=group_nodes,
                threads=threads,
                mode=mode,
                whole=whole,
            )
        except OSError as error:
            raise io_failed(self._files["indptr"], 0, error.errno or 0) from error
        self._labels = LabelReader(
            self._files["labels"],
            data_offset=dataset.data_offset("labels"),
            gap_bytes=gap_bytes,
            mode=mode,
        )
        self._num_hops = len(workload.sampler.fanout)
        self._begun: deque[_Begun] = deque()
        self._label_values: Ids = np.empty(0, dtype=np.int64)
        self._seed_offsets: Ids = np.zeros(1, dtype=np.int64)
        self._label_reads = ReadStats()

    @staticmethod
    def can_sample(workload: Workload) -> bool:
        """Return whether the workload's sampler supports it and its node ids fit 4
        bytes."""
        return (
            find(workload.sampler.name).out_of_core
            and workload.dataset.num_nodes < (1 << 32) - 1
        )

    @staticmethod
    def pieces(piece_bytes: int, disk: DiskProfile) -> int:
        """Return the number of pieces that keep the device busy; a slow device needs
        fewer."""
        return min(_PIECES, max(_LEAST_PIECES, in_flight(disk) // piece_bytes))

    @staticmethod
    def fixed_bytes(
        piece_bytes: int,
        pieces: int,
        group_nodes: int,
        fanout: int,
        whole: bool = False,
    ) -> int:
        """Return the bytes of host memory beside the mini-batches: pieces of both
        files, noted edges, label reader."""
        noted = 3 * 12 * max(fanout, 32) * group_nodes
        held = (1 + whole) * pieces * piece_bytes + max(2, pieces // 4) * (
            piece_bytes + PAGE
        )
        return held + noted + LabelReader.memory_bytes()

    @staticmethod
    def batch_bytes(bounds: Bounds) -> int:
        """Return the bytes of host memory of the largest mini-batch between its first
        hop and `write`."""
        # Earlier hops are blocks already. The last hop holds a source id for each edge
        # and, for each destination, its id and two words, in place of the 8 bytes of
        # index pointers in a finished mini-batch.
        destinations = (
            bounds.sampled_bytes - 8 * bounds.max_nodes - 4 * bounds.max_edges
        )
        return (
            4 * bounds.max_edges
            + max(destinations, bounds.sampled_bytes // 16) * 5 // 2
        )

    @staticmethod
    def ahead_bytes(bounds: Bounds, hops: int) -> int:
        """Return the bytes of host memory that later groups take for each mini-batch of
        a group at its largest."""
        # The group one hop behind holds the last hop's destinations and the hops
        # before; groups behind it far less.
        destinations = (
            bounds.sampled_bytes - 8 * bounds.max_nodes - 4 * bounds.max_edges
        )
        return 2 * max(destinations, bounds.sampled_bytes // 16) if hops > 1 else 0

    @staticmethod
    def relabel_bytes(bounds: Bounds) -> int:
        """Return the bytes of host memory for relabelling one mini-batch, beside its
        arrays."""
        slots = 1 << (2 * (bounds.max_nodes + bounds.max_edges) - 1).bit_length()
        return 8 * slots + 16 * bounds.max_nodes

    def sample(
        self, jobs: Sequence[Job], seeds: Callable[[Job], Sequence[Ids]]
    ) -> None:
        """Sample the mini-batches of a group; `write` stores them.

        Args:
            jobs: the group, then later groups, in order; each draws one hop less than
                the group before it in the same passes. A group that was not listed
                ahead of its own call starts from the seed nodes.
            seeds: function from a group to the seed nodes of each of its mini-batches,
                int64.

        Raises:
            InputError: a seed node is repeated or not a node.
            DatasetError: the graph's arrays contradict each other.
            DataIOError: a file ends early or its device failed; names file and offset.
            InterruptedError: `stop` was called.
        """
        if any(begun.job != job for begun, job in zip(self._begun, jobs, strict=False)):
            self._forget()
        try:
            while not self._begun or self._begun[0].hops < self._num_hops:
                # A group begins once the group before has drawn a hop, so each stays
                # one hop behind the other.
                if len(self._begun) < len(jobs) and (
                    not self._begun or self._begun[-1].hops > 0
                ):
                    self._begin(jobs[len(self._begun)], seeds)
                failure = self._native.pass_over()
                if failure is not None:
                    code, in_indices, offset = failure
                    raise io_failed(
                        self._files["indices" if in_indices else "indptr"], offset, code
                    )
                for group in self._begun:
                    group.hops += 1
        except Exception as error:
            self._forget()
            if isinstance(error, IndexError):
                raise DatasetError(
                    str(error), "check the dataset with `outcore data verify`"
                ) from None
            if isinstance(error, ValueError):
                raise InputError(
                    str(error), "correct the seed nodes, batch size or fan-out"
                ) from None
            if isinstance(error, RuntimeError):
                raise InterruptedError(str(error)) from None
            raise
        self._native.finish()
        begun = self._begun.popleft()
        self._label_values, read = self._labels.read(begun.seeds)
        self._label_reads.add(read)
        self._seed_offsets = begun.offsets

    def _begin(self, job: Job, seeds: Callable[[Job], Sequence[Ids]]) -> None:
        parts = seeds(job)
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        flat = np.concatenate(parts)
        self._native.begin(
            job.epoch,
            np.arange(job.first, job.first + len(parts), dtype=np.int64),
            flat,
            offsets,
        )
        self._begun.append(_Begun(job, flat, offsets))

    def _forget(self) -> None:
        self._native.forget()
        self._begun.clear()

    def write(
        self, to: BatchWriter, room_bytes: int, nodes: Nodes | None
    ) -> tuple[Ids, Nodes | None]:
        """Write all mini-batches of the last `sample` to a file, several at a time.

        Args:
            room_bytes: bytes of memory in which mini-batches are laid out; more where
                one mini-batch needs it.
            nodes: uint32, filled with the node ids of all mini-batches in order and
                reallocated where it is too short; None: node ids are not wanted.

        Returns:
            int64 [mini-batches + 1], begin of each mini-batch in `nodes`; and `nodes`.

        Raises:
            DataIOError: the disk is full or fails.
            InterruptedError: `stop` was called.
        """
        offsets = np.zeros(len(self._seed_offsets), dtype=np.int64)
        begin = 0
        while begin < len(offsets) - 1:
            room = to.room(room_bytes)
            at = int(offsets[begin])
            target = None if nodes is None else nodes[at:]
            try:
                made = self._native.lay_out(
                    begin, self._label_values, self._seed_offsets, room, target
                )
            except RuntimeError as error:
                raise InterruptedError(str(error)) from None
            sizes = made.reshape(-1, 3)
            if not len(sizes):  # an epoch larger than all that the bounds come from
                nbytes, count = self._native.needs(
                    begin, int(np.diff(self._seed_offsets)[begin])
                )
                room_bytes = max(room_bytes, nbytes)
                if nodes is not None and len(nodes) < at + count:
                    nodes = np.concatenate(
                        [nodes, np.empty(at + count - len(nodes), dtype=np.uint32)]
                    )
                continue
            to.append_made(
                [(head, body, count) for head, body, count in sizes.tolist()]
            )
            offsets[begin + 1 : begin + 1 + len(sizes)] = at + np.cumsum(sizes[:, 2])
            begin += len(sizes)
        return offsets, nodes

    def reads(self) -> ReadStats:
        """Return the counts of all reads so far, of the graph and the labels."""
        total = ReadStats(**self._native.reads())
        total.add(self._label_reads)
        return total

    def stop(self) -> None:
        """End a `sample` or `write` of another thread with InterruptedError."""
        self._native.stop()

    def close(self) -> None:
        """Close the files. May be called more than once."""
        self._labels.close()

"""The neighbour sampler: every hop expands its whole destination set, by the same
uniform draws for every system.

The draws (GraphSAGE's fixed-size neighbourhood sampling, Hamilton, Ying and Leskovec
2017, section 3.1) are keyed by the run's seed and by (epoch, batch, hop, original node
id); `workloads/native/base/draws.hpp` has the counter layout. The other samplers share
its calls, counters and canonical order, so a system that treats sampling as a black box
feeds their batches unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from workloads import _native
from workloads.arraytypes import Array, Int64Array
from workloads.errors import DatasetError, InputError, require
from workloads.sampling.batch import Block, Lists, SampledBatch
from workloads.sampling.listing import SamplerKind

_VERIFY = "check the dataset with `outcore data verify`"


class NeighborSampler:
    """Sampler of mini-batches from CSC arrays (in-neighbours) in memory or
    memory-mapped.

    A batch depends on its arguments and the graph alone: not on `threads`, the index
    dtype or earlier batches. Working memory is bounded by the largest batch, not by the
    number of nodes.

    Args:
        indptr: int64 [N + 1], where each node's neighbour list begins.
        indices: int32 or int64 [E], the neighbour lists.
        fanout: neighbours a node and hop, first entry next to the seed nodes; -1 takes
            the whole list.
        seed: seed of the run, which keys every draw.
        replace: whether to draw with replacement: `fanout` draws from every non-empty
            list (-1 still takes it once).
        threads: number of threads that share one batch; more than the cores help where
            `indices` is memory-mapped, since the threads wait for its pages.
        labels: int64 [N], or None for labels of -1.
        cached: neighbour cache (address int64 [N], lists of the dtype of `indices`):
            node v's list is read from `lists[address[v]:]` instead of `indices`; -1:
            not cached. The batch stays the same.
        names: int64 [N], for a renumbered graph: node v's original id. Draws are keyed,
            nodes ordered and returned by original ids, so where each list keeps the
            original's order (its entries renumbered) the batch is that of the original
            graph; `labels` then go by local id.

    Raises:
        InputError: a shape, dtype, fan-out or seed is invalid.
        DatasetError: `indptr` does not fit `indices`.
    """

    kind: ClassVar[str] = "neighbor"
    replacement: ClassVar[bool] = True

    def __init__(
        self,
        indptr: Int64Array,
        indices: Lists,
        fanout: Sequence[int],
        *,
        seed: int,
        replace: bool = False,
        threads: int = 1,
        labels: Int64Array | None = None,
        cached: tuple[Int64Array, Lists] | None = None,
        names: Int64Array | None = None,
    ) -> None:
        if replace and not self.replacement:
            fault = f"the {self.kind} sampler draws without replacement"
            raise InputError(fault, "leave replace out")
        if indptr.ndim != 1 or indptr.dtype != np.int64 or len(indptr) < 1:
            fault = f"indptr is {indptr.dtype} {list(indptr.shape)}"
            raise InputError(fault, "give int64 [N + 1]")
        if indices.ndim != 1 or indices.dtype not in (np.int32, np.int64):
            fault = f"indices are {indices.dtype} {list(indices.shape)}"
            raise InputError(fault, "give int32 or int64 [E]")
        if not 1 <= len(fanout) < _native.MAX_HOPS or min(fanout) < -1:
            fault = f"fan-out is {tuple(fanout)}"
            raise InputError(
                fault, "give one number >= -1 for each hop, such as 10,10,10"
            )
        fault = f"seed is {seed}"
        require(0 <= seed < 1 << 64, fault, "give a whole number from 0 to 2^64 - 1")
        fault = f"threads is {threads}"
        require(threads >= 1, fault, "give at least 1")
        fault = (
            f"indptr runs from {indptr[0]} to {indptr[-1]} but there are "
            f"{len(indices)} neighbours"
        )
        whole = int(indptr[0]) == 0 and int(indptr[-1]) == len(indices)
        require(whole, fault, _VERIFY, DatasetError)
        if len(indptr) - 1 > _native.MAX_NODE:
            fault = f"the graph has {len(indptr) - 1} nodes"
            raise InputError(fault, "at most 2^48 can be sampled")
        self.num_nodes = len(indptr) - 1
        address, lists = cached or (None, None)
        if address is not None and lists is not None:
            address = _contiguous(address)
            lists = _contiguous(lists)
            sound = address.shape == (self.num_nodes,) and address.dtype == np.int64
            sound = sound and lists.dtype == indices.dtype
            fault = (
                f"the neighbour cache is {address.dtype} {list(address.shape)} over "
                f"{lists.dtype} lists"
            )
            fix = (
                f"give addresses int64 [{self.num_nodes}] and lists of {indices.dtype}"
            )
            require(sound, fault, fix)
        if names is not None and (
            names.shape != (self.num_nodes,) or names.dtype != np.int64
        ):
            fault = f"names are {names.dtype} {list(names.shape)}"
            fix = f"give int64 [{self.num_nodes}]"
            raise InputError(fault, fix)
        self.fanout = tuple(int(neighbours) for neighbours in fanout)
        self.threads = threads
        self._labels = labels
        self._names = names
        try:
            self._native = _native.NeighborSampler(
                _contiguous(indptr),
                _contiguous(indices),
                list(self.fanout),
                seed,
                replace,
                threads,
                address=address,
                lists=lists,
                names=None if names is None else _contiguous(names),
                kind=self.kind,
            )
        except ValueError as error:
            raise InputError(
                str(error), "give each node its original id, from 0 to 2^48 - 1"
            ) from None

    def sample(
        self,
        epoch: int,
        batch: int,
        seeds: Int64Array,
        *,
        local_seeds: Int64Array | None = None,
    ) -> SampledBatch:
        """Sample one mini-batch without the GIL; any number of threads may call at
        once.

        Args:
            epoch: number of the epoch, below 2^16.
            batch: position in the epoch's seed plan, below 2^26. Ranks pass the same
                number for their parts of one step: a node then draws the same on all
                ranks, as in one process with all their seed nodes.
            seeds: int64 [n], distinct original node ids.
            local_seeds: int64 [n], their ids in the renumbered graph; required with
                `names`, and only then.

        Raises:
            InputError: a seed node is repeated or unknown, a number is out of range, or
                `local_seeds` are other nodes.
            DatasetError: the graph's arrays contradict each other.
        """
        named = 0 <= epoch < _native.MAX_EPOCH and 0 <= batch < _native.MAX_BATCH
        fix = (
            f"an epoch is below {_native.MAX_EPOCH} and a batch below "
            f"{_native.MAX_BATCH}"
        )
        fault = f"epoch {epoch}, batch {batch} cannot be named"
        require(named, fault, fix)
        seeds = start = np.ascontiguousarray(seeds, dtype=np.int64)
        fault = (
            "local_seeds go with the names of a renumbered graph, and one of them is "
            "missing"
        )
        valid = (self._names is None) == (local_seeds is None)
        require(valid, fault, "give both or none")
        if local_seeds is not None:
            start = np.ascontiguousarray(local_seeds, dtype=np.int64)
        try:
            nodes, hops, edge_reads, list_reads, list_hits, local = self._native.sample(
                epoch, batch, start
            )
        except ValueError as error:
            fault = f"batch {batch} of epoch {epoch}: {error}"
            raise InputError(fault, "fix its seed nodes, size or fan-out") from None
        except IndexError as error:
            raise DatasetError(str(error), _VERIFY) from None
        if local_seeds is not None and not np.array_equal(nodes[: len(start)], seeds):
            fault = f"batch {batch} of epoch {epoch}: local_seeds are other nodes"
            raise InputError(fault, "fix its seed nodes")
        if self._labels is None:
            labels = np.full(len(seeds), -1)
        else:
            labels = self._labels[start]
        blocks = tuple(Block(*hop) for hop in hops)
        labels = np.asarray(labels, dtype=np.int64)
        ids = None if self._names is None else local
        return SampledBatch(
            epoch,
            batch,
            nodes,
            len(seeds),
            blocks,
            labels,
            edge_reads,
            list_reads,
            list_hits,
            ids,
        )

    @property
    def scratch_bytes(self) -> int:
        """Bytes of working memory of all threads that sampled so far, without batches
        under way."""
        return int(self._native.scratch_bytes())


def _contiguous(array: Array) -> Array:
    # A plain view of the memory map, without a copy.
    return np.ascontiguousarray(array).view(np.ndarray)


SAMPLER = SamplerKind(
    "neighbour",
    lambda workload, **others: NeighborSampler(**others),
    (5, 5),
    out_of_core=True,
)

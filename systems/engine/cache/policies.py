"""Cache policies on a recorded trace of mini-batches: each policy's share of missed row
accesses, by cache size.

Accesses are counted by mini-batch: a row of a mini-batch is a hit if it was cached when
its turn came. Rows of a mini-batch are processed in the order of its nodes. The demand
policies (`lru`, `fifo`, `lfu`, `clock`, `sieve`, `s3-fifo`) start empty and admit every
missed row, evicting one if the cache is full. `belady` starts empty and decides once a
mini-batch, like Ginex's changesets (Ginex, Section 3.3): of the cached rows and the
mini-batch's, it keeps those used again soonest, so a missed row need not be admitted;
no policy misses less. `degree` and any other ranking are static: filled beforehand, at
one read a row (`fills`), and never changed.

A cache reads `misses + fills` rows from disk. Ginex fills its cache beforehand too,
with rows that are used later: each of those reads saves exactly the miss of a cache
starting empty, so its `misses + fills` equal `belady`'s misses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.rank.ranking import out_degrees, top
from workloads.errors import InputError, require
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]

DYNAMIC = ("belady", "lru", "fifo", "lfu", "clock", "sieve", "s3-fifo")
#: All policies for `compare`; `degree` is static, by out-degree, like PaGraph's cache.
POLICIES = (*DYNAMIC, "degree")
#: Policies that need one pass over the trace for all sizes.
ONE_PASS = ("belady", "lru", "degree")


@dataclass(frozen=True)
class RowTrace:
    """Row accesses of mini-batches, in order.

    Attributes:
        rows: uint32 [accesses], rows numbered in the order of their first access,
            unique within a mini-batch.
        begins: int64 [mini-batches + 1], start of each mini-batch.
        nodes: int64 [num_rows], the node of each row.
    """

    rows: npt.NDArray[np.uint32]
    begins: Ids
    nodes: Ids
    num_nodes: int

    @property
    def accesses(self) -> int:
        """Number of row accesses."""
        return len(self.rows)

    @property
    def num_rows(self) -> int:
        """Number of distinct rows."""
        return len(self.nodes)

    @classmethod
    def of(cls, batches: Iterable[Ids], num_nodes: int) -> RowTrace:
        """Make the trace of these mini-batches' nodes (int64 [n] each, unique in each).

        Raises:
            InputError: a node is outside the graph, or there is no mini-batch.
        """
        parts = list(batches)
        require(parts, "the trace has no mini-batches", "sample at least one")
        ids = np.concatenate(parts)
        begins = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(
            np.int64
        )
        del parts
        try:
            rows, num_rows = _native.dense_rows(ids, num_nodes)
        except IndexError as error:
            raise InputError(
                f"the trace does not fit the graph: {error}",
                "trace the dataset it came from",
            ) from None
        nodes = np.empty(num_rows, dtype=np.int64)
        nodes[rows] = ids
        return cls(rows, begins, nodes, num_nodes)

    @classmethod
    def record(
        cls, workload: Workload, epochs: int = 1, *, threads: int = 1
    ) -> RowTrace:
        """Sample the mini-batches of a workload's first epochs; takes 12 bytes of
        memory an access."""
        sampler = make_sampler(workload, threads=threads)
        plan = make_seed_plan(workload)
        wanted = (
            (epoch, *batch)
            for epoch in range(epochs)
            for batch in enumerate(plan.batches(epoch))
        )
        return cls.of(
            (sampler.sample(*one).nodes for one in wanted), workload.dataset.num_nodes
        )


@dataclass(frozen=True)
class Misses:
    """Misses of a policy on a trace, for some cache sizes.

    Attributes:
        sizes: int64 [k], rows of the cache.
        misses: int64 [k], accesses that were not cached.
        fills: int64 [k], rows read beforehand.
        accesses: accesses of the trace.
    """

    policy: str
    sizes: Ids
    misses: Ids
    fills: Ids
    accesses: int

    @property
    def ratio(self) -> npt.NDArray[np.float64]:
        """Misses over accesses, float64 [k]."""
        return self.misses / max(1, self.accesses)

    @property
    def reads(self) -> Ids:
        """Rows read from disk, fills included, int64 [k]: makes static and demand
        policies comparable."""
        return self.misses + self.fills


def simulate(
    trace: RowTrace, policy: str, sizes: Sequence[int] | Ids, *, threads: int = 1
) -> Misses:
    """Count the misses of one of `DYNAMIC` for caches of `sizes` rows (0 or more), each
    starting empty.

    `belady` and `lru` take one pass for all sizes, the others one pass a size, up to
    `threads` in parallel.

    Raises:
        InputError: the policy is unknown, or a size is negative.
    """
    require(
        policy in DYNAMIC,
        f"there is no policy {policy!r} to simulate",
        f"choose of {', '.join(DYNAMIC)}",
    )
    wanted = _sizes(sizes)
    misses = _native.policy_misses(
        policy, trace.rows, trace.begins, trace.num_rows, wanted, threads
    )
    return Misses(policy, wanted, misses, np.zeros_like(wanted), trace.accesses)


def simulate_static(
    trace: RowTrace, ranking: Ids, sizes: Sequence[int] | Ids, *, policy: str = "static"
) -> Misses:
    """Count the misses of caches of the first rows of `ranking` (int64, distinct nodes,
    best first), for all sizes.

    Raises:
        InputError: a size is negative.
    """
    wanted = _sizes(sizes)
    uses = np.zeros(trace.num_nodes, dtype=np.int64)
    uses[trace.nodes] = np.bincount(trace.rows, minlength=trace.num_rows)
    served = np.concatenate([[0], np.cumsum(uses[ranking])])
    held = np.minimum(wanted, len(ranking))
    return Misses(policy, wanted, trace.accesses - served[held], held, trace.accesses)


def compare(
    workload: Workload,
    trace: RowTrace,
    policies: Sequence[str],
    sizes: Sequence[int] | Ids,
    *,
    threads: int = 1,
) -> list[Misses]:
    """Simulate each of `policies` (of `POLICIES`) on the trace, in that order.

    Raises:
        InputError: a policy is unknown, or a size is negative.
    """
    found = []
    for policy in policies:
        if policy == "degree":
            ranking = top(out_degrees(workload), int(max([0, *_sizes(sizes).tolist()])))
            found.append(simulate_static(trace, ranking, sizes, policy=policy))
        else:
            found.append(simulate(trace, policy, sizes, threads=threads))
    return found


def _sizes(sizes: Sequence[int] | Ids) -> Ids:
    wanted = np.asarray(sizes, dtype=np.int64).reshape(-1)
    least = int(wanted.min(initial=0))
    require(least >= 0, f"a cache of {least} rows", "give sizes of 0 or more")
    return wanted

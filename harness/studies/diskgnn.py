"""Studies of DiskGNN's evaluation, by its own planning on sampled mini-batches in
memory: nothing is packed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.studies.base import StudyContext, WorkloadParams, sample_all, study
from workloads.arraytypes import JsonDict
from workloads.errors import BudgetError, InputError
from workloads.sampling.make import make_seed_plan

if TYPE_CHECKING:
    from systems.diskgnn.layout import ColdSamples
    from systems.diskgnn.ranking import AccessCounts, Ids
    from systems.diskgnn.search import Search

#: Most node ids held in memory, 4 bytes each, so that a small host's memory suffices.
MAX_ACCESSES = 1_500_000_000
_THREADS = 2
_QUANTILES = 20


class PlanningParams(WorkloadParams):
    """Parameters of a study of DiskGNN's layout.

    Attributes:
        row_bytes: bytes of a feature row; 0: the dataset's own.
        granularity: bytes of the smallest read (4096 as in the paper, or the device's
            logical block).
        hashes: number of MinHash functions that order a disk cache.
    """

    row_bytes: int = Field(default=0, ge=0)
    granularity: int = Field(default=4096, ge=512, le=4096)
    hashes: int = Field(default=2, ge=0, le=16)


@dataclass
class Sampled:
    """Unique node ids (uint32) of each mini-batch of a workload, with its nodes, its
    seed and bytes of a row."""

    batches: list[npt.NDArray[np.uint32]]
    num_nodes: int
    seed: int
    row_bytes: int

    def __len__(self) -> int:
        return len(self.batches)

    def nodes(self, i: int, /) -> Ids:
        """Return the node ids of mini-batch `i`, int64."""
        return self.batches[i].astype(np.int64)

    @property
    def accesses(self) -> int:
        """Feature rows accessed over all mini-batches."""
        return sum(len(batch) for batch in self.batches)

    @property
    def counts(self) -> JsonDict:
        """Numbers of a study's result: `accesses`, `batches`, `rows_per_batch`
        (mean)."""
        return {
            "accesses": self.accesses,
            "batches": len(self),
            "rows_per_batch": self.accesses / len(self),
        }

    @cached_property
    def counter(self) -> AccessCounts:
        """Number of mini-batches that ask for each node (Section 4)."""
        from systems.diskgnn.ranking import AccessCounts

        counter = AccessCounts(self.num_nodes)
        for number in range(len(self)):
            counter.add(self.nodes(number))
        return counter

    def cold(self, share: float) -> ColdSamples:
        """Return the mini-batches without the hottest rows, a `share` of all nodes,
        which are held in memory."""
        from systems.diskgnn.layout import ColdSamples
        from systems.diskgnn.ranking import slots_of

        return ColdSamples(
            self,
            slots_of(
                self.counter.hottest(round(share * self.num_nodes)), self.num_nodes
            ),
        )


_LAST: dict[Any, Sampled] = {}


def sampled(params: WorkloadParams, context: StudyContext) -> Sampled:
    """Sample all mini-batches of the study's workload as in a run; keep those of the
    last workload.

    Raises:
        InputError: the mini-batches make more than `MAX_ACCESSES` accesses.
    """
    workload = context.workload(params)
    epochs = params.epochs
    dataset = workload.dataset
    key = (
        dataset.fingerprint,
        workload.sampler,
        workload.model.layers,
        workload.seed,
        epochs,
    )
    if key in _LAST:
        return _LAST[key]
    _LAST.clear()
    context.progress(
        f"sampling {epochs} epoch(s) of {dataset.name}, fan-out "
        f"{workload.sampler.fanout}"
    )
    count = epochs * make_seed_plan(workload).num_batches
    batches: list[npt.NDArray[np.uint32]] = []
    for *_, batch in sample_all(workload, epochs, threads=_THREADS):
        if not batches and batch.num_nodes * count > MAX_ACCESSES:
            about = f"about {batch.num_nodes * count} row accesses"
            raise InputError(
                f"{about} are more than the {MAX_ACCESSES} that are held",
                "set max_batches",
            )
        batches.append(batch.nodes.astype(np.uint32))
    row_bytes = dataset.row_bytes
    _LAST[key] = Sampled(batches, dataset.num_nodes, workload.seed, row_bytes)
    return _LAST[key]


def searching(
    samples: Sampled,
    cold: ColdSamples,
    params: PlanningParams,
    *,
    limit: int | None = None,
) -> Search:
    """Return DiskGNN's search over these mini-batches; the limit is on bytes of feature
    rows alone (Eq. 2).

    Args:
        samples, cold: mini-batches, and the same without rows held in memory.
        limit: bytes on disk; None: no limit.
    """
    from systems.diskgnn.ranking import by_node
    from systems.diskgnn.search import Search, Space, simulate_reads
    from systems.engine.io.reader import ReadStats

    row_bytes = params.row_bytes or samples.row_bytes

    def simulate(rows: Ids) -> ReadStats:
        return simulate_reads(
            rows,
            row_bytes=row_bytes,
            num_rows=1 << 40,
            logical_bytes=params.granularity,
        )

    shared: dict[str, Any] = {
        "hashes": params.hashes,
        "seed": samples.seed,
        "max_segment": len(samples),
    }
    return Search(
        cold,
        Space(row_bytes, 0, limit),
        by_node(samples.num_nodes),
        simulate=simulate,
        **shared,
    )


def packed_rows(
    samples: Sampled, cold: ColdSamples, lengths: Sequence[int]
) -> dict[int, int]:
    """Count the rows on disk for each segment length, with threshold 2 (length 1:
    packed chunks alone)."""
    from systems.diskgnn.ranking import by_node
    from systems.diskgnn.search import rows_by_segment

    rows = rows_by_segment(cold, by_node(samples.num_nodes))
    return {length: int(rows[min(length, len(samples))]) for length in lengths}


class AccessShareParams(WorkloadParams):
    """Parameters of `access-share`; `bounds` are shares of all nodes at which the
    ranking is cut, ascending."""

    bounds: list[float] = Field(default_factory=lambda: [0.01, 0.05, 0.1])


@study("access-share", "share of accesses by node rank", lambda params: 15.0)
def access_share(params: AccessShareParams, context: StudyContext) -> JsonDict:
    """Rank nodes by the number of mini-batches that ask for them, as DiskGNN, and count
    the accesses of each bucket.

    Returns:
        `shares` (one for each bucket, the last beyond the last bound), `accesses`,
        `touched` (share of nodes in any mini-batch), `batches`, `rows_per_batch`
        (mean).
    """
    samples = sampled(params, context)
    counts = samples.counter.counts
    total = samples.accesses
    ranked = samples.counter.hottest(samples.num_nodes)
    bounds = [round(bound * samples.num_nodes) for bound in sorted(params.bounds)]
    edges = [
        0,
        *(int(counts[ranked[:bound]].sum(dtype="int64")) for bound in bounds),
        total,
    ]
    shares = [(high - low) / total for low, high in itertools.pairwise(edges)]
    return {"shares": shares, "touched": float((counts > 0).mean()), **samples.counts}


class AmplificationParams(PlanningParams):
    """Parameters of `amplification`.

    Attributes:
        memory_share: rows held in memory, a share of all nodes.
        segments: lengths of segments, in mini-batches.
        threshold: accesses in a segment from which on its disk cache holds a row.
    """

    memory_share: float = Field(default=0.1, ge=0, le=1)
    segments: list[int] = Field(default_factory=lambda: [50, 100, 150])
    threshold: int = Field(default=2, ge=2)


@study(
    "amplification",
    "read amplification of disk caches by order and segment",
    lambda params: 15.0 + 4.0 * len(params.segments),
)
def amplification(params: AmplificationParams, context: StudyContext) -> JsonDict:
    """Simulate the reads of one global segment and of each length asked for, with rows
    by id and reordered by MinHash.

    Returns:
        `layouts`, each with `segment` (mini-batches), `global` (one segment holds all),
        `reordered`, `disk_bytes` (of feature rows), `read_bytes`, `useful_bytes`,
        `cache_read_bytes` and `cache_useful_bytes` (their parts from the disk cache),
        `amplification`, `cache_amplification`, and `reduction`: 21 quantiles over
        mini-batches of the share of bytes saved against one global cache in the order
        of ids.
    """
    samples = sampled(params, context)
    row = params.row_bytes or samples.row_bytes
    cold = samples.cold(params.memory_share)
    count = len(samples)
    lengths = [
        count,
        *sorted({min(length, count) for length in params.segments} - {count}),
    ]
    layouts: list[JsonDict] = []
    plain = np.zeros(0)
    for length, reordered in itertools.product(lengths, (False, True)):
        context.progress(
            f"segments of {length}, {'reordered' if reordered else 'by id'}"
        )
        found, read = _layout(samples, cold, params, row, length, reordered)
        plain = plain if len(plain) else read
        saved = np.quantile(
            1.0 - read / np.maximum(1, plain), np.linspace(0, 1, _QUANTILES + 1)
        )
        layouts.append({**found, "reduction": saved.tolist()})
    sizes = {
        "packed_bytes": packed_rows(samples, cold, [1])[1] * row,
        "feature_bytes": samples.num_nodes * row,
    }
    return {"layouts": layouts, "batches": count, "row_bytes": row, **sizes}


def _layout(
    samples: Sampled,
    cold: ColdSamples,
    params: AmplificationParams,
    row: int,
    length: int,
    reordered: bool,
) -> tuple[JsonDict, npt.NDArray[np.float64]]:
    from systems.diskgnn.layout import Shape
    from systems.diskgnn.search import rows_of

    search = searching(
        samples, cold, params if reordered else params.model_copy(update={"hashes": 0})
    )
    shape = Shape(length, params.threshold)
    reads = list(search.reads(shape))
    found: JsonDict = {
        "segment": length,
        "global": length == len(samples),
        "reordered": reordered,
    }
    found["disk_bytes"] = (
        rows_of(cold, shape, np.zeros(samples.num_nodes, np.int32)) * row
    )
    for part in ("", "cache_"):
        read, useful = (
            sum(getattr(one, f"{part}{kind}_bytes") for one in reads)
            for kind in ("read", "useful")
        )
        found |= {f"{part}read_bytes": read, f"{part}useful_bytes": useful}
        found[f"{part}amplification"] = read / max(1, useful)
    return found, np.array([batch.read_bytes for batch in reads], dtype=np.float64)


class DiskSpaceParams(PlanningParams):
    """Parameters of `disk-space`; `memory_shares` are rows held in memory, as shares of
    all nodes."""

    memory_shares: list[float] = Field(default_factory=lambda: [0.0, 0.1, 0.3, 0.5])


@study(
    "disk-space",
    "disk space of packed chunks over the rows in memory",
    lambda params: 10.0 + 2.0 * len(params.memory_shares),
)
def disk_space(params: DiskSpaceParams, context: StudyContext) -> JsonDict:
    """Count the rows of packed chunks alone, and the fewest rows on disk over all
    segment lengths.

    Returns:
        `points`, one for each share: `memory_share`, `packed_bytes` (no limit: every
            mini-batch has its own rows),
        `least_bytes` (with disk caches of the best segment length), and both over the
        bytes of the feature table (`packed_x`, `least_x`); `accesses`, `batches`,
        `rows_per_batch`, `row_bytes`.
    """
    samples = sampled(params, context)
    row = params.row_bytes or samples.row_bytes
    points = []
    for share in params.memory_shares:
        rows = packed_rows(samples, samples.cold(share), range(1, len(samples) + 1))
        point = {"memory_share": share}
        for name, count in (("packed", rows[1]), ("least", min(rows.values()))):
            point |= {
                f"{name}_bytes": count * row,
                f"{name}_x": count / samples.num_nodes,
            }
        points.append(point)
    return {"points": points, "row_bytes": row, **samples.counts}


class PackingSearchParams(PlanningParams):
    """Parameters of `packing-search`.

    Attributes:
        memory_share: rows held in memory, a share of all nodes.
        limits: disk-space limits, as shares of the bytes of packed chunks alone (the
            paper's 3x and 5x of Friendster's features are 0.56 and 0.93 of the 5.39x
            without a limit).
        search_points: segment lengths that brute force tries.
    """

    memory_share: float = Field(default=0.1, ge=0, le=1)
    limits: list[float] = Field(default_factory=lambda: [0.56, 0.93])
    search_points: int = Field(default=8, ge=1, le=1024)


@study(
    "packing-search",
    "heuristic and brute-force search for a disk cache",
    lambda params: 10.0 + 20.0 * len(params.limits),
)
def packing_search(params: PackingSearchParams, context: StudyContext) -> JsonDict:
    """Run both searches for each limit, with the system's own code.

    Returns:
        `cases`, one for each limit: `limit` (share of packing alone), `limit_bytes`,
            `limit_x` (over the bytes of the
        feature table) and for `heuristic` and `brute_force`: `segment`, `threshold`,
        `seconds` of the search, `amplification` of its reads, `disk_bytes`; None where
        no layout fits the limit. `packed_x`: packing alone over the feature table.
        `batches`.
    """
    samples = sampled(params, context)
    row = params.row_bytes or samples.row_bytes
    cold = samples.cold(params.memory_share)
    packed = packed_rows(samples, cold, [1])[1] * row
    features = row * samples.num_nodes
    cases: list[JsonDict] = []
    for limit in params.limits:
        case: JsonDict = {
            "limit": limit,
            "limit_bytes": int(limit * packed),
            "limit_x": limit * packed / features,
        }
        for name in ("heuristic", "brute_force"):
            context.progress(
                f"{name.replace('_', ' ')}, limit {limit:g} of packing alone"
            )
            search = searching(samples, cold, params, limit=case["limit_bytes"])
            try:
                found = (
                    search.heuristic()
                    if name == "heuristic"
                    else search.brute_force(params.search_points)
                )
            except BudgetError:
                case[name] = None
                continue
            case[name] = {**asdict(found.shape), "seconds": search.seconds}
            found = search.measure(found) if name == "heuristic" else found
            case[name] |= {
                "amplification": found.read_amplification,
                "disk_bytes": found.disk_bytes,
            }
        cases.append(case)
    return {"cases": cases, "packed_x": packed / features, "batches": len(samples)}

"""Report of an epoch on one rank and on all ranks: mini-batches, digests, spans of
stages and lanes, counters."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge as in_order_of_time
from itertools import islice, repeat
from typing import Any, TypeVar

from harness.records.latency import merged
from harness.records.record import OfflineWork
from harness.wire.protocol import (
    CHUNK_ROWS,
    Batches,
    BatchRow,
    Checks,
    EpochDone,
    Event,
    Spans,
)
from harness.wire.spots import Spot, look_at
from systems.interface import Batch, StageSpan
from systems.readings import Latencies, wall_seconds
from workloads.accelerator import LaneSpan
from workloads.feature_table import batch_feature_digest
from workloads.sampling.digest import EpochDigest, structure_digest

T = TypeVar("T")


@dataclass
class EpochLog:
    """Log of an epoch's mini-batches on one rank: a small tuple for each, digests and
    spot-checked rows. `with_features`: whether to digest the feature rows of every
    mini-batch; `checking_s` sums the seconds. `nonce`, `looked_at`: number that decides
    the rows to spot-check, and indices of the mini-batches to spot-check. `changed`:
    indices of those whose rows changed during their training step."""

    with_features: bool
    nonce: bytes = b""
    looked_at: frozenset[int] = frozenset()
    rows: list[BatchRow] = field(default_factory=list)
    structure: EpochDigest = field(default_factory=EpochDigest)
    features: EpochDigest = field(default_factory=EpochDigest)
    spots: list[Spot] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    checking_s: float = 0.0
    _digest: str = ""

    def digest(self, batch: Batch) -> None:
        """Digest a mini-batch's structure, and its feature rows from the table that
        training reads, where requested."""
        value = structure_digest(batch.sampled)
        self.structure.add(value)
        self._digest = f"{value:016x}"
        if batch.table is None:
            return
        if self.with_features:
            began = time.monotonic()
            self.features.add(
                batch_feature_digest(batch.sampled, batch.table, batch.rows)
            )
            self.checking_s += time.monotonic() - began
        if batch.sampled.index in self.looked_at:
            self.spots.append(look_at(batch, self.nonce))

    def look_again(self, batch: Batch) -> None:
        """Look at the spot-checked rows of a mini-batch again after its training step;
        note whether they changed."""
        if (
            batch.sampled.index in self.looked_at
            and look_at(batch, self.nonce) != self.spots[-1]
        ):
            self.changed.append(batch.sampled.index)

    def add(self, batch: Batch, loss: float, correct: int) -> None:
        """Add a trained mini-batch: mean loss over its seed nodes (nan without
        training), and correct seed nodes."""
        sampled = batch.sampled
        sizes = (sampled.index, sampled.num_nodes, sampled.num_edges, sampled.num_seeds)
        self.rows.append(
            (
                *sizes,
                loss if math.isfinite(loss) else None,
                correct,
                self._digest,
                time.monotonic(),
            )
        )


@dataclass
class EpochReport:
    """One rank's part of an epoch, as plain data for the exchange between ranks."""

    start: float
    end: float
    log: EpochLog
    spans: list[StageSpan]
    lanes: list[LaneSpan]
    counters: dict[str, Any]
    latencies: Latencies = field(default_factory=dict)
    offline: OfflineWork | None = None


def events(epoch: int, parts: list[EpochReport]) -> Iterator[Event]:
    """Yield the events of an epoch over all ranks: its tables in parts of bounded size,
    then its numbers. Mini-batches are numbered over all ranks; in a run of several,
    names of threads begin with the rank."""
    world = len(parts)

    def number(rank: int, batch: int) -> int:
        return batch * world + rank if batch >= 0 else batch

    structure = EpochDigest()
    features = EpochDigest()
    changed = [
        number(rank, index)
        for rank, part in enumerate(parts)
        for index in part.log.changed
    ]
    for rank, part in enumerate(parts):
        structure.join(part.log.structure)
        features.join(part.log.features)
        for spot in part.log.spots:
            yield Checks(
                epoch=epoch, rows=[spot._replace(batch=number(rank, spot.batch))]
            )
    batches = [(rank, row) for rank, part in enumerate(parts) for row in part.log.rows]
    for rows in _chunks((number(rank, row[0]), *row[1:]) for rank, row in batches):
        yield Batches(epoch=epoch, rows=rows)
    whose = [f"rank {rank} " if world > 1 else "" for rank in range(world)]
    # Each rank's spans are sorted.
    spans = in_order_of_time(
        *(zip(repeat(rank), part.spans) for rank, part in enumerate(parts)),
        key=lambda entry: entry[1].start,
    )
    stages = (
        (s.stage, number(rank, s.batch), whose[rank] + s.thread, s.start, s.end)
        for rank, s in spans
    )
    for part_of_stages in _chunks(stages):
        yield Spans(epoch=epoch, rows=part_of_stages)
    lanes = (
        (s.lane, number(at, s.batch), "lane", s.start, s.end)
        for at, part in enumerate(parts)
        for s in part.lanes
    )
    for part_of_lanes in _chunks(lanes):
        yield Spans(epoch=epoch, kind="lane", rows=part_of_lanes)
    trained = [
        row[3:6] for _, row in batches if row[4] is not None
    ]  # seed nodes, loss, correct
    seen = sum(seeds for seeds, _, _ in trained)
    offline = [part.offline for part in parts if part.offline is not None]
    yield EpochDone(
        epoch=epoch,
        start=min(part.start for part in parts),
        end=max(part.end for part in parts),
        batches=len(batches),
        digest=structure.hexdigest(),
        feature_digest=features.hexdigest() if parts[0].log.with_features else None,
        loss=sum((loss or 0.0) * seeds for seeds, loss, _ in trained) / seen
        if seen
        else None,
        accuracy=sum(correct for _, _, correct in trained) / seen if seen else None,
        counters=_finite(summed([part.counters for part in parts])),
        latencies=merged(part.latencies for part in parts),
        stages_s=wall_seconds([span for part in parts for span in part.spans]),
        checking_s=max(part.log.checking_s for part in parts),
        changed=changed[:CHUNK_ROWS],
        offline=OfflineWork.joined(offline) if offline else None,
    )


def _chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield rows in lists of a bounded length: whole tables would count against the
    run's cap."""
    left = iter(rows)
    while chunk := list(islice(left, CHUNK_ROWS)):
        yield chunk


def summed(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Add the counters of all ranks, mappings by key; None for a counter that no rank
    has."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part[name] for part in parts if part.get(name) is not None]
        if values and isinstance(values[0], Mapping):
            found[name] = summed(values)
        else:
            found[name] = sum(values) if values else None
    return found


def _finite(content: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by None."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    return (
        None if isinstance(content, float) and not math.isfinite(content) else content
    )

"""Report of an epoch on one rank and on all ranks: mini-batches, digests, spans of stages and lanes, counters."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.wire.protocol import BatchRow, Event
    from harness.wire.spots import Spot
    from systems.interface import Batch, StageSpan
    from workloads.accelerator import LaneSpan


class EpochLog:
    """Log of an epoch's mini-batches: a small tuple for each, digests and sums.

    `with_features`: whether to digest the feature rows of every mini-batch; `checking_s` sums the seconds.
    `nonce`, `looked_at`: number that decides the rows to spot-check, and indices of the mini-batches to spot-check.
    """

    def __init__(self, *, with_features: bool, nonce: bytes = b"", looked_at: frozenset[int] = frozenset()) -> None:
        from workloads.sampling.digest import EpochDigest

        self.rows: list[BatchRow] = []
        self.structure = EpochDigest()
        self.features = EpochDigest()
        self.spots: list[Spot] = []
        self.checking_s = 0.0
        self._with_features = with_features
        self._nonce = nonce
        self._looked_at = looked_at
        self._digest = ""
        self._loss = 0.0
        self._correct = 0
        self._seen = 0

    def digest(self, batch: Batch) -> None:
        """Digest a mini-batch's structure, and its feature rows from the table that training reads, where requested."""
        from workloads.feature_table import batch_feature_digest
        from workloads.sampling.digest import structure_digest

        value = structure_digest(batch.sampled)
        self.structure.add(value)
        self._digest = f"{value:016x}"
        if batch.table is None:
            return
        if self._with_features:
            began = time.monotonic()
            self.features.add(batch_feature_digest(batch.sampled, batch.table, batch.rows))
            self.checking_s += time.monotonic() - began
        if batch.sampled.index in self._looked_at:
            from harness.wire.spots import look_at

            self.spots.append(look_at(batch, self._nonce))

    def add(self, batch: Batch, loss: float, correct: int, seen: int) -> None:
        """Add a trained mini-batch.

        Args:
            batch, loss: the mini-batch, and the mean loss over its seed nodes (nan without training).
            correct, seen: seed nodes classified correctly, seed nodes trained.
        """
        sampled = batch.sampled
        finite = math.isfinite(loss)
        sizes = (sampled.index, sampled.num_nodes, sampled.num_edges, sampled.num_seeds)
        self.rows.append((*sizes, loss if finite else None, correct, self._digest, time.monotonic()))
        if finite:
            self._loss += loss * seen
            self._correct += correct
            self._seen += seen

    def join(self, other: EpochLog) -> None:
        """Add another rank's mini-batches."""
        self.rows += other.rows
        self.structure.join(other.structure)
        self.features.join(other.features)
        self.spots += other.spots
        self._loss += other._loss
        self._correct += other._correct
        self._seen += other._seen

    def mean_loss(self) -> float | None:
        """Return the mean loss over seed nodes; None without real training."""
        return self._loss / self._seen if self._seen else None

    def accuracy(self) -> float | None:
        """Return the share of seed nodes classified correctly in training; None without real training."""
        return self._correct / self._seen if self._seen else None


@dataclass
class EpochReport:
    """One rank's part of an epoch, as plain data for the exchange between ranks."""

    start: float
    end: float
    log: EpochLog
    spans: list[StageSpan]
    lanes: list[LaneSpan]
    counters: dict[str, Any]
    user_s: float = 0.0

    def numbered(self, rank: int, world: int) -> EpochReport:
        """Number mini-batches over all ranks and prefix threads with the rank, in a run of several; return itself."""
        if world == 1:
            return self

        def number(batch: int) -> int:
            return batch * world + rank if batch >= 0 else batch

        self.log.rows = [(number(row[0]), *row[1:]) for row in self.log.rows]
        self.log.spots = [replace(spot, batch=number(spot.batch)) for spot in self.log.spots]
        self.spans = [
            replace(span, batch=number(span.batch), thread=f"rank {rank} {span.thread}") for span in self.spans
        ]
        self.lanes = [replace(span, batch=number(span.batch)) for span in self.lanes]
        return self


def joined(parts: list[EpochReport]) -> tuple[EpochLog, list[StageSpan], list[LaneSpan]]:
    """Join the log, spans and lanes of all ranks."""
    log = parts[0].log
    for part in parts[1:]:
        log.join(part.log)
    spans = sorted((span for part in parts for span in part.spans), key=lambda span: span.start)
    return log, spans, [span for part in parts for span in part.lanes]


def tables(epoch: int, log: EpochLog, spans: list[StageSpan], lanes: list[LaneSpan]) -> Iterator[Event]:
    """Yield the events with an epoch's tables, each of bounded size.

    Args:
        epoch, log: number of the epoch, and the log of its mini-batches.
        spans, lanes: spans of the stages, and of the lanes of a device.
    """
    from harness.wire.protocol import CHUNK_ROWS, Batches, Checks, Spans

    for spot in log.spots:
        rows = [(spot.batch, list(spot.nodes), spot.digest, [list(values) for values in spot.values])]
        yield Checks(epoch=epoch, rows=rows)
    for at in range(0, len(log.rows), CHUNK_ROWS):
        yield Batches(epoch=epoch, rows=log.rows[at : at + CHUNK_ROWS])
    of_stages = [(span.stage, span.batch, span.thread, span.start, span.end) for span in spans]
    of_lanes = [(span.lane, span.batch, "lane", span.start, span.end) for span in lanes]
    for at in range(0, len(of_stages), CHUNK_ROWS):
        yield Spans(epoch=epoch, rows=of_stages[at : at + CHUNK_ROWS])
    for at in range(0, len(of_lanes), CHUNK_ROWS):
        yield Spans(epoch=epoch, kind="lane", rows=of_lanes[at : at + CHUNK_ROWS])

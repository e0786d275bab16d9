"""Bytes that a training writes to its drive: W(E) = once + E x (each + epoch), in the
terms of its cost in time (rule 14)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from harness.judge.counted import Counted
from harness.records.record import EpochRecord, Record, Work


@dataclass(frozen=True)
class Wear:
    """Bytes written by a training.

    Attributes:
        once_bytes: by offline work whatever the number of epochs, and after the last
            epoch.
        each_bytes: by the offline work of one fresh epoch, in episodes as long as the
            run's.
        epoch_bytes: within an epoch, without the offline work in it: the median of the
            measured epochs.
    """

    once_bytes: float
    each_bytes: float
    epoch_bytes: float

    @classmethod
    def of(cls, record: Record) -> Wear | None:
        """Return the wear of a run; None where no epoch was measured."""
        if not record.measured:
            return None
        offline = record.offline
        served = sum(work.epochs for work in offline)
        of_offline = sum(_bytes_of(work) for work in offline)
        once = _bytes_of(record.preprocess)
        if record.preprocess.offline is not None:
            once -= _bytes_of(record.preprocess.offline)
        if record.readings.closing is not None:
            once += record.readings.closing.bytes_written or 0
        return cls(
            once_bytes=float(max(0, once)),
            each_bytes=of_offline / served if served else 0.0,
            epoch_bytes=statistics.median(map(_online_bytes, record.measured)),
        )

    @property
    def fresh_epoch_bytes(self) -> float:
        """Bytes written for an epoch with all of its work."""
        return self.each_bytes + self.epoch_bytes

    def training_bytes(self, epochs: int) -> float:
        """Return the bytes that a training of `epochs` epochs writes."""
        return self.once_bytes + epochs * self.fresh_epoch_bytes


def written_bytes(epoch: EpochRecord) -> int:
    """Return the bytes written to the disk within an epoch, the larger of the system's
    and the kernel's count."""
    return max(Counted(epoch).written_bytes, epoch.device_written_bytes or 0)


def _online_bytes(epoch: EpochRecord) -> int:
    """Return the bytes written within an epoch, without those of offline work in it."""
    within = epoch.offline.bytes_written if epoch.offline else 0
    return max(0, written_bytes(epoch) - within)


def _bytes_of(work: Work) -> int:
    """Return the bytes that offline work writes, whichever run wrote them."""
    return work.bytes_written + work.made_bytes_written

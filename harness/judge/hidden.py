"""Rules 15 and 17: work and reads that the numbers of a run would not show."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from harness.foreign import is_foreign
from harness.judge.counted import Counted
from harness.judge.metrics import usable_processors
from harness.judge.noise import BUSY, busy_share
from harness.judge.registry import Finding, RunContext, rule
from harness.records.record import EpochRecord, Record
from workloads.units import format_bytes

# An epoch is another kind of work beyond this many medians; beside it, what the
# counters grow by by chance.
MEDIANS = 2.0
CHANCE_S = 0.1
CHANCE_BYTES = 1 << 20
BUSY_S = 0.5
# Topology that is read through the page cache, in no counter of a system: a page for
# each node whose neighbours are drawn, and an id of 8 bytes for each edge. In the
# reference runs it is less than half of that.
PAGE_BYTES = 4096
ID_BYTES = 8
UNCOUNTED_SHARE = 0.02
# Requests below this size on average are not the page cache's.
LEAST_CACHED_BYTES = PAGE_BYTES // 2
FEW_REQUESTS = 1000


@rule("15", of=["ok"], evidence=True)
def measured_epochs_are_alike(record: Record, context: RunContext) -> Finding | None:
    """Work for several epochs within one of them is hidden by every median, and an
    epoch costs what the mean costs.

    Checks that no measured epoch takes more than twice the median and 0.1 s (without
    the offline work that the harness times in it) and at the same time works that much
    more than the median epoch by the kernel's counters: bytes written, more than 1 MiB
    beyond; bytes read, more than its own mini-batches' rows and topology take if each
    is read at every use, since a cache may still fill; or processor seconds in user
    mode, more than 0.5 s beyond, if other programs used less than a fifth of the
    processors. Applies from three measured epochs on.
    """
    measured = record.measured
    if len(measured) < 3:
        return None
    usual_s = _usual(measured, lambda epoch: epoch.online_s)
    for epoch in measured:
        more = (
            _more_work(record, epoch)
            if epoch.online_s > MEDIANS * usual_s + CHANCE_S
            else ""
        )
        if more:
            return Finding(
                False,
                f"epoch {epoch.epoch}: {epoch.online_s:.2f} s, {usual_s:.2f} s usual; "
                f"{more}",
            )
    return Finding(True, f"median {usual_s:.2f} s")


def _usual(
    epochs: Sequence[EpochRecord], count: Callable[[EpochRecord], float | None]
) -> float:
    """Return the median of a number over the epochs in which it is known; 0 if it is
    known in none."""
    known = [found for epoch in epochs if (found := count(epoch)) is not None]
    return statistics.median(known) if known else 0.0


def _more_work(record: Record, epoch: EpochRecord) -> str:
    """Return by how much an epoch worked for others than itself; empty if it did
    not."""
    written = _usual(record.measured, lambda one: one.device_written_bytes)
    if (epoch.device_written_bytes or 0) > MEDIANS * written + CHANCE_BYTES:
        return (
            f"{format_bytes(epoch.device_written_bytes or 0)} written, "
            f"{format_bytes(int(written))} usual"
        )
    read = _usual(record.measured, lambda one: one.device_bytes)
    own = _rows_bytes(record, epoch) + _topology_bytes(record, epoch)
    if (epoch.device_bytes or 0) > max(MEDIANS * read + CHANCE_BYTES, own):
        return (
            f"{format_bytes(epoch.device_bytes or 0)} read, {format_bytes(int(read))} "
            "usual"
        )
    user_s = _usual(record.measured, lambda one: one.user_s)
    if _is_quiet(record, epoch) and (epoch.user_s or 0.0) > MEDIANS * user_s + BUSY_S:
        return f"{epoch.user_s or 0.0:.2f} processor seconds, {user_s:.2f} usual"
    return ""


def _rows_bytes(record: Record, epoch: EpochRecord) -> int:
    """Return the bytes of an epoch's feature rows if each is read at every use, in
    whole pages."""
    pages = -(-record.config.dataset.row_bytes // PAGE_BYTES) + (
        record.config.dataset.row_bytes % PAGE_BYTES > 0
    )
    return (epoch.nodes or 0) * pages * PAGE_BYTES


def _topology_bytes(record: Record, epoch: EpochRecord) -> int:
    """Return the bytes of topology that may be read through the page cache in an
    epoch."""
    dataset = record.config.dataset
    whole = ID_BYTES * (dataset.num_nodes + 1 + dataset.num_edges)
    return whole + PAGE_BYTES * (epoch.nodes or 0) + ID_BYTES * (epoch.edges or 0)


def _is_quiet(record: Record, epoch: EpochRecord) -> bool:
    """Return whether other programs used less than a fifth of the processors in an
    epoch."""
    processors = usable_processors(record)
    if not processors or epoch.host_user_s is None or epoch.user_s is None:
        return False
    return busy_share([epoch], processors) <= BUSY


@rule("17", of=["ok"], evidence=True, capped=True, reads=True, faithful=True)
def reads_are_counted(record: Record, context: RunContext) -> Finding | None:
    """A system that counts fewer reads than it makes looks as if memory had served its
    rows.

    Compares each epoch's device bytes, less those of offline work, with the bytes that
    the system counts and the topology that may be read through the page cache: once as
    a whole, and for each node of a mini-batch 4 KiB, for each edge 8 bytes; 2 % and 1
    MiB more are allowed. Beyond these, more than 1,000 uncounted requests with less
    than 2 KiB on average are not the page cache's. Does not apply where the page cache
    serves rows, which it does not count.
    """
    counted = [
        epoch
        for epoch in record.epochs
        if epoch.device_bytes is not None and _counts_rows(epoch)
    ]
    if (
        not counted
        or is_foreign(record.system)
        or any(gate.io_bytes is None for gate in record.readings.gates)
    ):
        return None
    for epoch in counted:
        own = Counted(epoch)
        offline_bytes = epoch.offline.bytes_read if epoch.offline else 0
        read_bytes = epoch.device_bytes or 0
        read_requests = epoch.device_requests or 0
        beside_bytes = read_bytes - own.read_bytes - offline_bytes
        beside_requests = read_requests - own.requests
        chance = CHANCE_BYTES + int(UNCOUNTED_SHARE * read_bytes)
        allowed = chance + _topology_bytes(record, epoch)
        reported = (
            f"epoch {epoch.epoch}: {format_bytes(max(0, beside_bytes))} in "
            f"{max(0, beside_requests):,} uncounted reads"
        )
        if beside_bytes > allowed:
            return Finding(
                False, f"{reported}, at most {format_bytes(allowed)} of topology"
            )
        few = FEW_REQUESTS + int(UNCOUNTED_SHARE * read_requests)
        if (
            beside_requests > few
            and chance < beside_bytes < LEAST_CACHED_BYTES * beside_requests
        ):
            return Finding(False, f"{reported}, too small for the page cache")
    return Finding(True, "every epoch")


def _counts_rows(epoch: EpochRecord) -> bool:
    """Return whether the system counts which rows it reads: the page cache's hits are
    unknown to it."""
    own = Counted(epoch)
    return own.rows > 0 and own.hits is not None and "page_cache" not in own.hits

"""A system's own counters of an epoch, as numbers; a counter that it does not keep is
zero."""

from __future__ import annotations

from harness.records.record import EpochRecord


class Counted:
    """Counters that a system reports for an epoch.

    Attributes:
        requests_by_size: number of read requests, by bytes of a request.
        useful_bytes, written_bytes: bytes of the rows and lists that were needed, and
            bytes written.
        rows: feature rows of all mini-batches, one for each use.
        misses: rows that were read; None: not counted.
        hits: rows that were not read, by tier; None: not counted.
    """

    def __init__(self, epoch: EpochRecord) -> None:
        self._counters = epoch.counters
        sizes = epoch.counters.get("requests_by_size") or {}
        self.requests_by_size = {int(size): count for size, count in sizes.items()}
        self.useful_bytes = self._number("bytes_useful")
        self.written_bytes = self._number("bytes_written")
        self.rows = self._number("rows")
        self.misses: int | None = epoch.counters.get("misses")
        self.hits: dict[str, int] | None = epoch.counters.get("hits")

    def _number(self, name: str) -> int:
        return int(self._counters.get(name) or 0)

    @property
    def requested_bytes(self) -> int:
        """Bytes of the requests, by their sizes."""
        return sum(size * count for size, count in self.requests_by_size.items())

    @property
    def read_bytes(self) -> int:
        """Bytes read, by the counter of bytes or by the requests, whichever is more."""
        return max(self._number("bytes_read"), self.requested_bytes)

    @property
    def requests(self) -> int:
        """Read requests, by their counter or by their sizes, whichever is more."""
        sized: int = sum(self.requests_by_size.values())
        return max(self._number("io_requests"), sized)

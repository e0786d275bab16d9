"""Latencies of the requests of an epoch, as the native readers and writers count them:
submission to completion, by direction and size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systems import _native
from systems.readings import Latencies

#: Bytes of the largest request of each size class; the last class has all larger ones.
SIZES = tuple(512 << step for step in range(12))
_DIRECTIONS = ("read", "write")
_LARGER = "larger"


def size_class(nbytes: int) -> str:
    """Return the size class of a request, as `Latencies` names it."""
    return next((str(size) for size in SIZES if nbytes <= size), _LARGER)


class LatencyMeter:
    """Requests of this process since the last restart.

    Every ring and every pool of threads counts its own requests without a lock; the
    meter subtracts two sums of their counts. Its buckets are at most 3.1 % wide, or
    256 ns.
    """

    def __init__(self) -> None:
        self._bounds_ns = _native.latency_bounds_ns()
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self._before = self._counts()

    def found(self) -> Latencies:
        """Return the latencies since the last restart; empty without a request."""
        # Counts are modulo 2^32, and so is their difference.
        counts = self._counts() - self._before
        found: Latencies = {}
        for direction, of_direction in zip(_DIRECTIONS, counts, strict=True):
            for size, of_size in zip((*SIZES, _LARGER), of_direction, strict=True):
                if histogram := self._histogram(of_size):
                    found.setdefault(direction, {})[str(size)] = histogram
        return found

    def _counts(self) -> NDArray[np.uint32]:
        """Return the counts so far: uint32 [directions, size classes, buckets]."""
        counts: NDArray[np.uint32] = _native.latency_counts()
        shape = (len(_DIRECTIONS), len(SIZES) + 1, len(self._bounds_ns))
        return counts.reshape(shape)

    def _histogram(self, counts: NDArray[np.uint32]) -> str:
        filled = np.flatnonzero(counts)
        pairs = zip(self._bounds_ns[filled], counts[filled], strict=True)
        return " ".join(f"{bound_ns}:{requests}" for bound_ns, requests in pairs)

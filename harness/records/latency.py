"""Latency histograms of requests in a record (`systems.readings.Latencies`): merged,
and their percentiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from harness.foreign import is_foreign
from systems.readings import Latencies
from workloads.units import format_bytes

#: Percentiles of tables, by their heads.
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "p99.99": 99.99}
_NS = 1e-9


class LatencyRow(NamedTuple):
    """Latencies of one direction and size class: `size` in bytes (`larger`: above
    1 MiB), number of requests, seconds by percentile, longest in seconds."""

    direction: str
    size: str
    requests: int
    percentiles_s: dict[str, float]
    longest_s: float

    @property
    def size_text(self) -> str:
        """Largest request of the size class, with a unit."""
        known = self.size.isdecimal()
        return format_bytes(int(self.size)) if known else "larger"


#: Reasons why an epoch has no latencies.
_FAULTS = "its pages fault, and the kernel keeps no latency of a fault"
_ELSEWHERE = "its reads are not made by this project's readers"
_NO_READS = "no request was made, or the record is of an older version"


def no_latencies(system: str, counters: Iterable[Mapping[str, Any]]) -> str:
    """Return why epochs of a system with these counters have no latencies."""
    if is_foreign(system):
        return _ELSEWHERE
    for counted in counters:
        observed = counted.get("observed") or {}
        if observed.get("major_faults") and not counted.get("io_requests"):
            return _FAULTS
    return _NO_READS


def _pairs(histogram: str) -> list[tuple[int, int]]:
    """Return the (nanoseconds, requests) of a histogram, ascending."""
    found = []
    for pair in histogram.split():
        latency_ns, _, requests = pair.partition(":")
        found.append((int(latency_ns), int(requests)))
    return found


def _text(counts: Mapping[int, int]) -> str:
    return " ".join(
        f"{latency_ns}:{counts[latency_ns]}" for latency_ns in sorted(counts)
    )


def merged(parts: Iterable[Latencies]) -> Latencies:
    """Add histograms of several epochs, ranks or runs."""
    sums: dict[str, dict[str, Counter[int]]] = {}
    for part in parts:
        for direction, by_size in part.items():
            for size, histogram in by_size.items():
                of_direction = sums.setdefault(direction, {})
                sum_of_size = of_direction.setdefault(size, Counter())
                sum_of_size.update(dict(_pairs(histogram)))
    found: Latencies = {}
    for direction, counts in sums.items():
        found[direction] = {size: _text(counts[size]) for size in _in_order(counts)}
    return found


def _in_order(sizes: Iterable[str]) -> list[str]:
    """Return size classes, smallest first."""
    return sorted(sizes, key=lambda size: int(size) if size.isdecimal() else 1 << 62)


def all_sizes(latencies: Latencies, direction: str) -> str:
    """Return the histogram of a direction over all sizes; empty without a request."""
    by_size = latencies.get(direction, {})
    joined = merged({direction: {"all": part}} for part in by_size.values())
    return joined.get(direction, {}).get("all", "")


def percentile_s(histogram: str, percent: float) -> float | None:
    """Return the seconds within which `percent` of the requests were completed; None
    without a request. At most 3.1 % too long, as the histogram's buckets are."""
    pairs = _pairs(histogram)
    requests = sum(count for _, count in pairs)
    reached = 0
    for latency_ns, count in pairs:
        reached += count
        if 100 * reached >= percent * requests:
            return latency_ns * _NS
    return None


def rows(latencies: Latencies) -> list[LatencyRow]:
    """Return a row for each direction and size class."""
    found = []
    for direction, by_size in sorted(latencies.items()):
        for size in _in_order(by_size):
            histogram = by_size[size]
            pairs = _pairs(histogram)
            requests = sum(count for _, count in pairs)
            longest_s = pairs[-1][0] * _NS
            known = {}
            for head, percent in PERCENTILES.items():
                known[head] = percentile_s(histogram, percent) or 0.0
            found.append(LatencyRow(direction, size, requests, known, longest_s))
    return found

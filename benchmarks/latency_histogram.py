"""What does the readers' latency histogram cost, and does it agree with fio?

    python benchmarks/latency_histogram.py [--folder DIR] [--size 1GiB] [--rounds 15]

Processor seconds a request of 512-byte reads at depth 256, with and without the
histogram, in turns; then p99 of 4 KiB reads at equal depth, ours and fio's, on the same
file. Ends with code 1 above 1 % or beyond 15 %.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np
from _disk import data_file, parser

from harness.records.latency import all_sizes, percentile_s
from harness.ssd.fio import FioJob, run_fio
from systems import _native
from systems.engine.io.latency import LatencyMeter
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader

MOST_COST = 0.01
MOST_DIFFERENCE = 0.15
ROWS = 100_000


class Gather:
    """Random reads of distinct blocks of a file, one request each."""

    def __init__(self, path: Path, block: int, depth: int) -> None:
        self._blocks = path.stat().st_size // block
        self._rng = np.random.default_rng(1)
        self._out = aligned_empty(ROWS * block).reshape(ROWS, block)
        self._reader = RowReader(
            path,
            data_offset=0,
            num_rows=self._blocks,
            row_bytes=block,
            depth=depth,
            merge=False,
        )

    def cpu_s_per_request(self) -> float:
        """Read once and return processor seconds of this thread and the kernel for
        it."""
        ids = self._rng.integers(0, self._blocks, ROWS)
        before_s = time.thread_time()
        self._reader.read(ids, self._out)
        return (time.thread_time() - before_s) / ROWS


def cost(path: Path, rounds: int) -> float:
    """Return the share that the histogram adds to the processor time of a request."""
    gather = Gather(path, 512, 256)
    gather.cpu_s_per_request()
    spent_s: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds):
        # Either goes first as often, so that a drift hits both alike.
        for measured in (number % 2 == 0, number % 2 == 1):
            _native.measure_latency(measured)
            spent_s[measured].append(gather.cpu_s_per_request())
    _native.measure_latency(True)
    ratios = [a / b for a, b in zip(spent_s[True], spent_s[False], strict=True)]
    median_us = {on: 1e6 * statistics.median(times) for on, times in spent_s.items()}
    print(f"with {median_us[True]:.3f} µs a request, without {median_us[False]:.3f} µs")
    return statistics.median(ratios) - 1


def p99_ratios(path: Path, depth: int, rounds: int, seconds: float) -> list[float]:
    """Return our p99 of 4 KiB reads over fio's, for each round."""
    ours = Gather(path, 4096, depth)
    meter = LatencyMeter()
    job = FioJob(
        file=path,
        block_bytes=4096,
        depth=depth,
        seconds=seconds,
        # As our window does: one entry into the kernel for a sixteenth of the queue.
        batch=max(1, depth // 16),
    )
    ratios = []
    for _ in range(rounds):
        meter.restart()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ours.cpu_s_per_request()
        own_s = percentile_s(all_sizes(meter.found(), "read"), 99.0)
        fio_s = run_fio([job])[0].latency_s[99.0]
        assert own_s is not None
        ratios.append(own_s / fio_s)
        print(f"depth {depth}: p99 {1e6 * own_s:,.0f} µs, fio {1e6 * fio_s:,.0f} µs")
    return ratios


def main() -> int:
    options = parser(__doc__ or "")
    options.set_defaults(size="1GiB", rounds=15)
    options.add_argument("--depths", type=int, nargs="*", default=[1, 16, 64])
    args = options.parse_args()
    with data_file(args.folder, args.size) as path:
        added = cost(path, args.rounds)
        print(f"processor time added: {100 * added:.2f} % (at most 1 %)")
        reached = added <= MOST_COST
        for depth in args.depths:
            ratio = statistics.median(p99_ratios(path, depth, 5, args.seconds))
            print(f"depth {depth}: p99 ours / fio {ratio:.3f} (within 15 %)")
            reached = reached and abs(ratio - 1) <= MOST_DIFFERENCE
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())

"""How near is a random gather of 512-byte rows to fio? One thread, direct I/O, equal
block size and depth; and how much faster are two threads?

    python benchmarks/gather_rows.py [--size 4GiB] [--folder DIR] [--rounds 5] \\
        [--depth 256]

On a drive in memory the processor is the limit, and a row takes at most 2.4 µs:

    outcore ssd emulate memory --size 8GiB -- \\
        sh -c 'python benchmarks/gather_rows.py --folder $OUTCORE_DATA --memory'

Rows a second; ours is the time of `RowReader.read`: planning, reading and placing the
rows in a table. Rows of a call are distinct and not adjacent, so that each is a
request, as for fio. Ends with code 1 below 0.95, with `--memory` below 1.0, above
2.4 µs or below 1.8 times with two threads.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from _disk import RAMP_S, data_file, fio, interleave, parser, verdict

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader

ROW = 512


MOST_US_PER_ROW = 2.4
LEAST_OF_TWO = 1.8


class Gather:
    """Readers of a file's rows, one for each thread."""

    def __init__(self, path: Path, args: argparse.Namespace, threads: int) -> None:
        self._args = args
        self._num_rows = path.stat().st_size // ROW
        self._readers = [
            RowReader(
                path,
                data_offset=0,
                num_rows=self._num_rows,
                row_bytes=ROW,
                depth=args.depth,
                mode=args.mode,
            )
            for _ in range(threads)
        ]
        self.mode = self._readers[0].mode

    def rows_per_s(self) -> float:
        """Read with all threads at once; return the sum of their rows a second."""
        with ThreadPoolExecutor(len(self._readers)) as pool:
            return sum(pool.map(self._read, range(len(self._readers))))

    def _read(self, thread: int) -> float:
        args = self._args
        rng = np.random.default_rng(thread)
        out = aligned_empty(args.rows * ROW).reshape(args.rows, ROW)
        rows = 0
        seconds = 0.0
        ramp = time.perf_counter() + RAMP_S
        while seconds < args.seconds:
            ids = 2 * rng.permutation(self._num_rows // 2)[: args.rows]
            stats = self._readers[thread].read(ids, out)
            assert stats.requests == stats.rows
            assert stats.bytes_read == stats.rows * ROW
            if time.perf_counter() - stats.seconds >= ramp:
                rows = rows + stats.rows
                seconds = seconds + stats.seconds
        return rows / seconds


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--depth", type=int, default=256)
    options.add_argument(
        "--rows", type=int, default=100_000, help="of one read, as of one mini-batch"
    )
    options.add_argument(
        "--mode", default="auto", choices=["auto", "io_uring", "pread"]
    )
    options.add_argument(
        "--memory", action="store_true", help="the folder is on a drive in memory"
    )
    args = options.parse_args()
    job = {"pattern": "random", "block": ROW, "depth": args.depth}
    with data_file(args.folder, args.size) as path:
        one = Gather(path, args, 1)
        two = Gather(path, args, 2)
        print(f"{one.mode}, depth {args.depth}, {args.rows} rows a read; rows/s:")
        medians = interleave(
            args.rounds,
            {
                "fio": lambda: fio(path, **job, seconds=args.seconds)["iops"],
                "RowReader": one.rows_per_s,
                "RowReader, two threads": two.rows_per_s,
            },
        )
    ratio = medians["RowReader"] / medians["fio"]
    both = medians["RowReader, two threads"] / medians["RowReader"]
    reached = verdict("RowReader / fio", ratio, 1.0 if args.memory else 0.95)
    print(f"a row takes {1e6 / medians['RowReader']:.2f} µs")
    if args.memory:
        reached &= verdict("two threads / one", both, LEAST_OF_TWO)
        reached &= 1e6 / medians["RowReader"] <= MOST_US_PER_ROW
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())

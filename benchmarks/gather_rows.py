"""How near is a random gather of 512-byte rows to fio? One thread, direct I/O, equal
block size and depth.

    python benchmarks/gather_rows.py [--size 4GiB] [--folder DIR] [--rounds 5] \\
        [--depth 256]

Rows a second; ours is the time of `RowReader.read`: planning, reading and placing the
rows in a table. Rows of a call are distinct and not adjacent, so that each is a
request, as for fio. Ends with code 1 below 0.95.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from _disk import RAMP_S, data_file, fio, interleave, parser, verdict

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader

ROW = 512


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--depth", type=int, default=256)
    options.add_argument(
        "--rows", type=int, default=100_000, help="of one read, as of one mini-batch"
    )
    options.add_argument(
        "--mode", default="auto", choices=["auto", "io_uring", "pread"]
    )
    args = options.parse_args()
    with data_file(args.folder, args.size) as path:
        num_rows = path.stat().st_size // ROW
        reader = RowReader(
            path,
            data_offset=0,
            num_rows=num_rows,
            row_bytes=ROW,
            depth=args.depth,
            mode=args.mode,
        )
        print(f"{reader.mode}, depth {args.depth}, {args.rows} rows a read; rows/s:")
        rng = np.random.default_rng(1)
        out = aligned_empty(args.rows * ROW).reshape(args.rows, ROW)

        def ours() -> float:
            rows = 0
            seconds = 0.0
            ramp = time.perf_counter() + RAMP_S
            while seconds < args.seconds:
                ids = 2 * rng.permutation(num_rows // 2)[: args.rows]
                stats = reader.read(ids, out)
                assert stats.requests == stats.rows
                assert stats.bytes_read == stats.rows * ROW
                if time.perf_counter() - stats.seconds >= ramp:
                    rows = rows + stats.rows
                    seconds = seconds + stats.seconds
            return rows / seconds

        medians = interleave(
            args.rounds,
            {
                "fio": lambda: fio(
                    path,
                    pattern="random",
                    block=ROW,
                    depth=args.depth,
                    seconds=args.seconds,
                )["iops"],
                "RowReader": ours,
            },
        )
    return (
        0
        if verdict("RowReader / fio", medians["RowReader"] / medians["fio"], 0.95)
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())

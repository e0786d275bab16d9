"""Sequential reading in 1 MiB requests through the engine, against fio with the same block size and depth.

    python benchmarks/sequential_read.py [--size 4GiB] [--folder DIR] [--rounds 9] [--depth 16]

Bytes a second into one reused buffer. Ends with code 1 below 0.95.
"""

from __future__ import annotations

import sys
import time

from _disk import data_file, fio, interleave, parser, verdict

from systems.engine import RowReader, aligned_empty

REQUEST = 1 << 20


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--depth", type=int, default=16)
    options.set_defaults(rounds=9)
    args = options.parse_args()
    with data_file(args.folder, args.size) as path:
        size = path.stat().st_size
        reader = RowReader(path, data_offset=0, num_rows=size // 4096, row_bytes=4096, depth=args.depth)
        buffer = aligned_empty(256 * REQUEST)
        buffer[:] = 0  # its pages exist, as fio's do
        print(f"{reader.mode}, depth {args.depth}; bytes/s:")

        def ours() -> float:
            # From the file's start, as fio: a host may cache parts of a virtual disk, and both must meet the same.
            place, done, start = 0, 0, time.perf_counter()
            while time.perf_counter() - start < args.seconds:
                count = min(buffer.nbytes, size - place)
                reader.read_range(place, count, buffer, request_bytes=REQUEST)
                done, place = done + count, (place + count) % size
            return done / (time.perf_counter() - start)

        medians = interleave(
            args.rounds,
            {
                "fio": lambda: fio(path, pattern="read", block=REQUEST, depth=args.depth, seconds=args.seconds)[
                    "bytes_per_s"
                ],
                "RowReader.read_range": ours,
            },
        )
    return 0 if verdict("read_range / fio", medians["RowReader.read_range"] / medians["fio"], 0.95) else 1


if __name__ == "__main__":
    sys.exit(main())

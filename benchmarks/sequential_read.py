"""Sequential reading in 1 MiB requests through the engine, against fio with the same block size and depth.

    python benchmarks/sequential_read.py [--size 4GiB] [--folder DIR] [--rounds 9] [--depth 16]

Bytes a second by `systems.engine.io.stream` into a reused buffer. Ends with code 1 below 0.95.
"""

from __future__ import annotations

import sys
import time

from _disk import RAMP_S, data_file, fio, interleave, parser, verdict

from systems.engine.io.memory import aligned_empty
from systems.engine.io.stream import stream

REQUEST = 1 << 20


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--depth", type=int, default=16)
    options.set_defaults(rounds=9)
    args = options.parse_args()
    with data_file(args.folder, args.size) as path:
        size = path.stat().st_size
        buffer = aligned_empty(2 * args.depth * REQUEST)
        print(f"depth {args.depth}; bytes/s:")

        def ours() -> float:
            # Starts where fio starts: a host may cache parts of a virtual disk, which must serve both alike.
            done, start = 0, time.perf_counter() + RAMP_S
            while time.perf_counter() < start + args.seconds:
                for _, piece in stream(path, 0, size, buffer, request_bytes=REQUEST, depth=args.depth):
                    now = time.perf_counter()
                    done += piece.nbytes if now >= start else 0
                    if now >= start + args.seconds:
                        break
            return done / (time.perf_counter() - start)

        medians = interleave(
            args.rounds,
            {
                "fio": lambda: fio(path, pattern="sequential", block=REQUEST, depth=args.depth, seconds=args.seconds)[
                    "bytes_per_s"
                ],
                "stream": ours,
            },
        )
    return 0 if verdict("stream / fio", medians["stream"] / medians["fio"], 0.95) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measurement of a device without fio: direct reads from threads, a lower bound, since
the interpreter takes its share. A program, so that it can join a cap; it imports
nothing but the standard library and prints JSON."""

from __future__ import annotations

import json
import mmap
import os
import random
import sys
import threading
import time


def measure(
    path: str, block_bytes: int, depth: int, seconds: float, sequential: bool
) -> dict[str, float]:
    """Measure direct reads of `block_bytes` by `depth` threads; return `iops`,
    `bytes_per_s` and `seconds`.

    Args:
        path: file to read, of at least one block.
        depth: number of threads, each with one read in flight.
        sequential: whether the threads read consecutive blocks; else random ones.

    Raises:
        SystemExit: the file is smaller than a block, or a read fails.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    blocks = os.fstat(fd).st_size // block_bytes
    if blocks == 0:
        raise SystemExit(f"{path} is smaller than {block_bytes} bytes")
    counts = [0] * depth
    errors: list[OSError] = []
    begin = time.monotonic()
    end = begin + seconds

    def reader(index: int) -> None:
        buffer = [
            memoryview(mmap.mmap(-1, max(block_bytes, mmap.PAGESIZE)))[:block_bytes]
        ]
        draw = random.Random().randrange
        position = index
        count = 0
        try:
            while time.monotonic() < end:
                os.preadv(
                    fd,
                    buffer,
                    (position % blocks if sequential else draw(blocks)) * block_bytes,
                )
                position += depth
                count += 1
        except OSError as error:
            errors.append(error)
        counts[index] = count

    threads = [threading.Thread(target=reader, args=(index,)) for index in range(depth)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begin
    os.close(fd)
    if errors:
        raise SystemExit(f"{path}: {errors[0].strerror}")
    return {
        "iops": sum(counts) / took,
        "bytes_per_s": sum(counts) * block_bytes / took,
        "seconds": took,
    }


def main(arguments: list[str]) -> None:
    """Measure the points of `PATH SECONDS BLOCK:DEPTH:random|sequential …`; print one
    JSON list."""
    path, seconds, *points = arguments
    results = []
    for point in points:
        block, depth, pattern = point.split(":")
        results.append(
            measure(
                path, int(block), int(depth), float(seconds), pattern == "sequential"
            )
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])

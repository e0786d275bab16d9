"""Packing mini-batches and reading them back, against fio's sequential rates on the same disk.

    python benchmarks/packing.py [--size 2GiB] [--folder DIR] [--rounds 3] [--batches 300] [--rows 15000]
                                 [--row-bytes 512] [--memory 256MiB] [--threads 8]

- packed reads: `PackedReader.start` over fio's 1 MiB sequential reads of the same file; at least 0.9.
- batched packing: the time that fio needs to read the table once and then write the packed bytes once, over the time of
  packing; at least 0.6. fio writes as packing does: as many bytes into a new file with reserved blocks, unsynced.
- batched over individual packing: rows a second; at least 3. Individual packing packs only some of the mini-batches.

All files are cold and read with direct I/O. Ends with code 1 if a target is missed.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt
from _disk import RAMP_S, data_file, fio, fio_write, interleave, parser, sync_disk, verdict

from systems.engine.io.memory import aligned_empty, evict
from systems.engine.io.row_reads import RowTable
from systems.engine.store.packed_store import PackedReader, PendingBatch
from systems.engine.store.packed_writer import PackedWriter
from workloads.units import parse_bytes

REQUEST = 1 << 20
SLOTS = 6  # mini-batches read ahead
Ids = npt.NDArray[np.int64]


def mini_batches(count: int, rows: int, num_rows: int) -> list[Ids]:
    """Draw ascending unique rows of each mini-batch uniformly, as they are left by caches of the frequent rows."""
    rng = np.random.default_rng(0)
    return [np.unique(rng.integers(0, num_rows, rows)) for _ in range(count)]


def pack(folder: Path, table: RowTable, batches: Sequence[Ids], method: str, memory: int, threads: int) -> float:
    """Pack into the folder; return the seconds without those for reserving the regions."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    evict(table.path)
    with PackedWriter(folder, table, memory_bytes=memory, threads=threads) as writer:
        for batch in batches:
            writer.append(batch, {"nodes": batch})
        sync_disk()
        stats = writer.pack(method)  # type: ignore[arg-type]
    return stats.seconds


def read_all(folder: Path, seconds: float) -> float:
    """Read mini-batches in order, repeatedly; return bytes a second, measured after a ramp as for fio."""
    with closing(PackedReader(folder, request_bytes=REQUEST)) as reader:
        done, start, under_way = 0, time.perf_counter() + RAMP_S, deque[PendingBatch]()
        memory = [aligned_empty(int((reader.feature_bytes + reader.structure_bytes).max())) for _ in range(SLOTS)]
        for number in itertools.count():
            if number >= SLOTS:
                batch = under_way.popleft().result().index
                now = time.perf_counter()
                if now >= start:
                    done += int(reader.feature_bytes[batch] + reader.structure_bytes[batch])
                if now >= start + seconds:
                    for pending in under_way:
                        pending.result()
                    break
            wanted, slot = number % reader.num_batches, memory[number % SLOTS]
            cut = int(reader.feature_bytes[wanted])
            under_way.append(reader.start(wanted, slot[:cut], slot[cut:]))
        return done / (now - start)


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--batches", type=int, default=300)
    options.add_argument("--rows", type=int, default=15000)
    options.add_argument("--row-bytes", type=int, default=512)
    options.add_argument("--memory", default="256MiB")
    options.add_argument("--threads", type=int, default=8)
    options.add_argument("--individual", type=int, default=15, help="mini-batches that are packed individually")
    options.set_defaults(rounds=3, size="2GiB")
    args = options.parse_args()
    memory = parse_bytes(args.memory)
    values: dict[str, list[float]] = {}
    with data_file(args.folder, args.size) as path:
        table = RowTable(path, 0, path.stat().st_size // args.row_bytes, args.row_bytes)
        batches = mini_batches(args.batches, args.rows, table.num_rows)
        rows, some = sum(map(len, batches)), sum(map(len, batches[: args.individual]))
        whole, part = path.parent / "batched", path.parent / "individual"
        print(f"{rows:,} rows of {args.row_bytes} bytes for {len(batches)} mini-batches; table of {args.size}:")
        for number in range(args.rounds + 1):
            read = fio(path, pattern="sequential", block=REQUEST, depth=16, seconds=args.seconds)["bytes_per_s"]
            write = fio_write(path.parent, rows * args.row_bytes, depth=16, sync=False)
            batched = pack(whole, table, batches, "batched", memory, args.threads)
            individual = pack(part, table, batches[: args.individual], "individual", memory, args.threads)
            least = path.stat().st_size / read + rows * args.row_bytes / write
            found = {
                "fio sequential read, bytes/s": read,
                "fio sequential write, bytes/s": write,
                "batched packing, s": batched,
                "table read and packed written by fio, s": least,
                "individual packing, s for all": individual * rows / some,
                "packing over individual": individual * rows / some / batched,
                "fio over batched packing": least / batched,
            }
            if number:  # the first round warms up
                for name, value in found.items():
                    values.setdefault(name, []).append(value)
        for name, several in values.items():
            print(f"  {name:44s} {statistics.median(several):>14,.4g}   ({min(several):,.4g} to {max(several):,.4g})")
        each = ", ".join(f"{ratio:.3f}" for ratio in values["fio over batched packing"])
        print(f"  fio over batched packing, each round: {each}")
        print("reading the packed file, bytes/s:")
        packed = whole / "packed.bin"
        evict(packed)
        reads = interleave(
            args.rounds,
            {
                "fio": lambda: fio(packed, pattern="sequential", block=REQUEST, depth=16, seconds=args.seconds)[
                    "bytes_per_s"
                ],
                "packed reads": lambda: read_all(whole, args.seconds),
            },
        )
    medians = {name: statistics.median(several) for name, several in values.items()}
    reached = [
        verdict("packed reads / fio", reads["packed reads"] / reads["fio"], 0.9),
        verdict("fio's time / batched packing", medians["fio over batched packing"], 0.6),
        verdict("batched / individual", medians["packing over individual"], 3.0),
    ]
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Export of a graph of 40 M edges and 1 GiB of features against plain writing of as many bytes to the same disk.

    python benchmarks/data_export.py [--disk-class CLASS] [--folder DIR] [--rounds 3] [--formats graphbolt,ginex]

An export reads the evicted dataset, converts, writes, reads every piece back from the disk and compares it, and syncs.
Plain writing takes bytes from memory, each once, in order, with a sync at the end: blocks of 4 MiB through the page
cache, the same past it, and fio's of 1 MiB with eight in flight; the fastest counts. Beside it the most that an export
can reach on this disk: fio writes once, and meanwhile two more read as many bytes each, as an export reads and reads
back. Bytes a second, in turns.

Ends with code 1 where an export has less than half of the fastest plain write. Where fio's three streams have less than
half themselves (a disk that reads no faster than it writes, on one budget for both, has a third at most), an export
must have 0.7 of theirs.

With `--disk-class` everything runs held to an SSD class. The kernel limits reads and writes separately and not those
through the page cache, so that way of writing is left out. Rates are by the clock; in the ratios to plain writing,
exports and fio's streams take at least the seconds that their reads and writes need of the class's one budget.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from _disk import fio_write, interleave, parser, sync_disk, verdict

from harness.isolation import Limits, select
from harness.ssd.classes import DiskClass, parse_disk_class
from harness.ssd.device import block_device
from harness.ssd.fio import FioJob, run_fio
from systems.engine.io.memory import evict
from workloads.dataset import PARTS, Dataset
from workloads.direct_files import aligned_empty, open_direct, write_at
from workloads.exporters import FORMATS, export_dataset
from workloads.making.make import MakeSpec, make_dataset
from workloads.tempfolder import TemporaryFolder

NODES, EDGES, DIM = 2**21, 40_000_000, 128
BLOCK = 4 << 20
TARGET = 0.5
OF_THE_MOST = 0.7
MOST = "fio write and two reads at once"


def plain_write(folder: Path, nbytes: int, *, direct: bool) -> float:
    """Write `nbytes` in order and sync; return bytes a second."""
    path, block = folder / "plain", aligned_empty(BLOCK)
    block[:] = np.random.default_rng(0).integers(0, 256, BLOCK, dtype=np.uint8)
    sync_disk()
    start = time.perf_counter()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    handle = open_direct(path, flags) if direct else os.open(path, flags, 0o644)
    for at in range(0, nbytes // BLOCK * BLOCK, BLOCK):
        write_at(handle, block, at, path)
    os.fsync(handle)
    seconds = time.perf_counter() - start
    os.close(handle)
    path.unlink()
    return nbytes // BLOCK * BLOCK / seconds


def three_streams(folder: Path, source: Path) -> float:
    """Write as many bytes as `source` has while two others read it, all by fio; return bytes written a second."""
    total = source.stat().st_size // BLOCK * BLOCK
    job = FioJob(
        file=source, block_bytes=1 << 20, depth=8, pattern="sequential", seconds=60, once=True, exact_latency=False
    )
    with ThreadPoolExecutor(2) as threads:
        reads = [threads.submit(run_fio, [job]) for _ in range(2)]
        seconds = total / fio_write(folder, total, depth=8, sync=True)
        return total / max(seconds, *(read.result()[0].seconds for read in reads))


def export(dataset: Dataset, folder: Path, format_name: str) -> float:
    """Export the evicted dataset; return bytes written a second."""
    for part in PARTS:
        evict(dataset.file(part))
    sync_disk()
    start = time.perf_counter()
    made = export_dataset(dataset, folder / format_name, format_name)
    seconds = time.perf_counter() - start
    shutil.rmtree(made.path)
    return made.nbytes / seconds


def held(disk_class: DiskClass, folder: Path) -> int:
    """Run this benchmark again with its disk held to a class; return its exit code."""
    limits = disk_class.limits(block_device(folder))
    with select().backend.create("data-export", Limits(io=limits)) as cap:
        return subprocess.run(cap.command([sys.executable, *sys.argv, "--held"]), check=False).returncode


def most_of_a_budget(disk_class: DiskClass | None) -> float:
    """Return the bytes a second of an export whose reads and writes share a class's one budget."""
    if disk_class is None or not disk_class.read_bytes_per_s:
        return float("inf")
    return disk_class.read_bytes_per_s / (2 + disk_class.write_cost)


def main() -> int:
    options = parser(__doc__ or "")
    options.set_defaults(rounds=3)
    options.add_argument("--disk-class", help="as `outcore run --disk-class`; default: the bare disk")
    options.add_argument("--held", action="store_true", help="used by the benchmark itself")
    options.add_argument("--formats", default=",".join(FORMATS))
    options.add_argument("--nodes", type=int, default=NODES)
    options.add_argument("--edges", type=int, default=EDGES)
    args = options.parse_args()
    disk_class = parse_disk_class(args.disk_class) if args.disk_class else None
    if disk_class is not None and not args.held:
        return held(disk_class, args.folder)
    with TemporaryFolder(args.folder, "benchmark") as made:
        folder = Path(made)
        spec = MakeSpec("kronecker", nodes=args.nodes, edges=args.edges, dim=DIM, labels="random", features="random")
        dataset = make_dataset(folder / "graph", spec)
        total = dataset.total_bytes
        print(f"{dataset.num_edges:,} edges, {dataset.feature_bytes / 2**30:.2f} GiB of features; bytes/s:")
        runs: dict[str, Callable[[], float]] = {
            "plain direct write": lambda: plain_write(folder, total, direct=True),
            "fio direct write": lambda: fio_write(folder, total // BLOCK * BLOCK, depth=8, sync=True),
        }
        if disk_class is None:
            runs["plain write"] = lambda: plain_write(folder, total, direct=False)
        plain = [*runs]
        runs[MOST] = lambda: three_streams(folder, dataset.file("features"))
        names = args.formats.split(",")
        for name in names:
            runs[f"export {name}"] = lambda name=name: export(dataset, folder, name)  # type: ignore[misc]
        medians = interleave(args.rounds, runs)
    budget = most_of_a_budget(disk_class)
    best, most = max(medians[name] for name in plain), medians[MOST]
    limit = min(budget, most) / best
    print(f"{MOST} / plain write: {limit:.3f}, the most that an export can reach on this disk")
    reached = True
    for name in names:
        rate = medians[f"export {name}"]
        half = verdict(f"export {name} / plain write", min(budget, rate) / best, TARGET)
        share = verdict(f"export {name} / {MOST}", rate / most, OF_THE_MOST)
        reached &= half or (share and limit < TARGET)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())

"""Data preparation of mariusgnn, storage-bound, against fio reading in order: how well it drives the disk.

    python benchmarks/marius_data_prep.py [--nodes 1M] [--edges 20M] [--folder DIR] [--rounds 5] [--buffer 8]

Fills the buffer again and again with other partitions (ordering `rotation`), rows and edge buckets, graph put together
included; bytes a second against fio's 1 MiB sequential reads of the partition file. Ends with code 1 below 0.85. Then
tells how long preparation took against one pass over what it reads and writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _disk import RAMP_S, fio, interleave, parser, verdict

from systems.engine import evict
from systems.engine.partitioned import FEATURES, TOPOLOGY
from systems.interface import DiskProfile, MemoryBudget, Runtime, StageClock
from systems.mariusgnn import SYSTEM
from workloads.accelerator import make_accelerator
from workloads.dataset import Dataset
from workloads.units import format_bytes
from workloads.workload import ModelSpec, SamplerSpec, Workload

REQUEST = 1 << 20


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--nodes", default="1M")
    options.add_argument("--edges", default="20M")
    options.add_argument("--dim", default="128")
    options.add_argument("--partitions", type=int, default=32)
    options.add_argument("--buffer", type=int, default=8)
    options.add_argument("--depth", type=int, default=32)
    args = options.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="outcore-bench-") as name:
        root = Path(name)
        made = [
            "data", "make", "g", "--kind", "kronecker", "--nodes", args.nodes, "--edges", args.edges, "--dim", args.dim,
            "--train-fraction", "0.01",
        ]  # fmt: skip
        subprocess.run(
            [sys.executable, "-c", "from harness.cli import main; main()", *made, "--json"],
            env={**os.environ, "OUTCORE_DATA": str(root / "data")}, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        dataset = Dataset.open(root / "data" / "g")
        workload = Workload(dataset, SamplerSpec(fanout=(5,), batch_size=50, max_batches=4), ModelSpec(layers=1))
        runtime = Runtime(make_accelerator("cpu"), DiskProfile(), root / "artefacts", root / "scratch", 2)
        chosen = SYSTEM.info.options.model_validate(
            {
                "partitions": args.partitions, "buffer": args.buffer, "ordering": "rotation", "io_depth": args.depth,
            }
        )  # fmt: skip
        system = SYSTEM(workload, runtime, MemoryBudget(None), chosen, StageClock())
        try:
            system.plan()
            start = time.perf_counter()
            system.prepare()
            seconds = time.perf_counter() - start
            moved = 2 * (dataset.feature_bytes + dataset.topology_bytes)
            print(f"prepared in {seconds:.1f} s, {format_bytes(moved / seconds)}/s read and written")
            files = {path.name: path for path in system.files()}
            for path in files.values():
                evict(path)
            epoch = 0

            def ours() -> float:
                nonlocal epoch
                done, spent, start = 0, 0.0, time.perf_counter()
                while spent < args.seconds:
                    before = time.perf_counter()
                    stats = system._buffer.load(system.partitions_of(epoch))  # type: ignore[union-attr]
                    now = time.perf_counter()
                    epoch += 1
                    if before >= start + RAMP_S:
                        done, spent = done + stats.bytes_read, spent + now - before
                return done / spent

            def theirs() -> float:
                read = fio(files[FEATURES], pattern="read", block=REQUEST, depth=args.depth, seconds=args.seconds)
                return float(read["bytes_per_s"])

            print(f"{system.notes()}; {format_bytes(files[TOPOLOGY].stat().st_size)} of topology; bytes/s:")
            medians = interleave(args.rounds, {"fio": theirs, "data preparation": ours})
        finally:
            system.close()
    return 0 if verdict("data preparation / fio", medians["data preparation"] / medians["fio"], 0.85) else 1


if __name__ == "__main__":
    sys.exit(main())

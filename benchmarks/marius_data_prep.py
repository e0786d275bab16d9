"""Data preparation of mariusgnn, storage-bound, against fio's sequential reads on the same disk.

    python benchmarks/marius_data_prep.py [--nodes 1M] [--edges 20M] [--folder DIR] [--rounds 5] [--buffer 8]
        [--base GRAPH --expand N] [--memory 64MiB ...]

First the graph is cut into partitions under each budget of `--memory` (by default without one): bytes read and written
a second over fio's 1 MiB sequential reads; at least 0.3. Then the buffer is filled repeatedly with other partitions
(ordering `rotation`), their rows and edge buckets, and the graph is built from them: at least 0.85 of the same. Ends
with code 1 below either. A base graph with hubs (`--base web-NotreDame.txt.gz --expand 5 --edges 37M`) and 256
partitions is the hard case for cutting.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _disk import RAMP_S, fio, interleave, parser, verdict

from systems.engine.io.memory import evict
from systems.interface import DiskProfile, MemoryBudget, Runtime, StageClock
from systems.mariusgnn import SYSTEM
from systems.mariusgnn.partitioned import FEATURES, TOPOLOGY
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.tempfolder import TemporaryFolder
from workloads.units import format_bytes, parse_bytes
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
    options.add_argument("--base", default="", help="graph to expand, for a graph with hubs")
    options.add_argument("--expand", default="5", help="copies of it")
    options.add_argument("--memory", nargs="+", default=["none"], help="budgets to cut the graph within")
    options.add_argument("--cores", type=int, default=2)
    args = options.parse_args()
    with TemporaryFolder(args.folder, "benchmark") as name:
        root = Path(name)
        made = [
            "data",
            "make",
            "g",
            "--kind",
            "kronecker",
            "--edges",
            args.edges,
            "--dim",
            args.dim,
            "--train-fraction",
            "0.01",
            *(["--base", args.base, "--expand", args.expand] if args.base else []),
            *(["--nodes", args.nodes] if not args.base else []),
        ]
        subprocess.run(
            [sys.executable, "-c", "from harness.cli import main; main()", *made, "--json"],
            env={**os.environ, "OUTCORE_DATA": str(root / "data")},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        dataset = Dataset.open(root / "data" / "g")
        workload = Workload(dataset, SamplerSpec(fanout=(5,), batch_size=50, max_batches=4), ModelSpec(layers=1))
        chosen = SYSTEM.info.options.model_validate(
            {"partitions": args.partitions, "buffer": args.buffer, "ordering": "rotation", "io_depth": args.depth}
        )

        def make(budget: int | None, number: int) -> SYSTEM:
            place = root / f"artefacts-{number}"
            runtime = Runtime(make_accelerator("cpu"), DiskProfile(), place, root / "scratch", args.cores)
            return SYSTEM(workload, runtime, MemoryBudget(budget), chosen, StageClock())

        whole = fio(
            dataset.file("features"), pattern="sequential", block=REQUEST, depth=args.depth, seconds=args.seconds
        )["bytes_per_s"]
        slowest = 1e9
        for number, budget in enumerate(args.memory):
            rates = []
            for _ in range(args.rounds):
                for part in ("indptr", "indices", "features"):
                    evict(dataset.file(part))
                system = make(None if budget == "none" else parse_bytes(budget), number)
                system.plan()
                start = time.perf_counter()
                system.prepare()
                seconds = time.perf_counter() - start
                assert system._prepared is not None
                facts = system._prepared.facts
                rates.append((facts["bytes_read"] + facts["bytes_written"]) / seconds)
                notes = system.notes()["partitions"]
                system.close()
                shutil.rmtree(root / f"artefacts-{number}")
            rate = statistics.median(rates)
            slowest = min(slowest, rate / whole)
            print(
                f"budget {budget}: {notes}; {seconds:.1f} s, {facts['reads']} reads, {facts['writes']} writes, "
                f"{format_bytes(rate)}/s read and written, {rate / whole:.2f} of fio"
            )
        system = make(None, len(args.memory))
        try:
            system.plan()
            system.prepare()
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
                read = fio(files[FEATURES], pattern="sequential", block=REQUEST, depth=args.depth, seconds=args.seconds)
                return float(read["bytes_per_s"])

            print(f"{system.notes()}; {format_bytes(files[TOPOLOGY].stat().st_size)} of topology; bytes/s:")
            medians = interleave(args.rounds, {"fio": theirs, "data preparation": ours})
        finally:
            system.close()
    cut = verdict("cutting the graph / fio", slowest, 0.3)
    return 0 if verdict("data preparation / fio", medians["data preparation"] / medians["fio"], 0.85) and cut else 1


if __name__ == "__main__":
    sys.exit(main())

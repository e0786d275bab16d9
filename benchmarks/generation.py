"""Generation: `kronecker` of 1 B edges against fio writing as many bytes to the same disk; `fractal` of 100 M edges.

kronecker, from drawing the base graph to CSC on disk, hashed and synced: at least 0.7 of fio's bandwidth with direct
1 MiB writes to a new file and a sync at the end, in at most 1 GiB of memory. fractal, counting and writing without the
SVD of the base: at least 10 M edges a second of processor time. Every run is a separate process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from _disk import fio_write, interleave, parser, sync_disk, verdict

GIB = 1 << 30
NODES, EDGES = 50_000_000, 1_000_000_000
FRACTAL_BASE_NODES, FRACTAL_BASE_EDGES, FRACTAL_EXPAND = 1_000_000, 32_000_000, 4


class _Measured(Exception):
    """Exception that ends the writer's context without a dataset, since only the topology is measured."""


def child(kind: str, folder: str, nodes: int, edges: int, threads: int) -> None:
    """Generate once, in a fresh process; print seconds, bytes, edges and the peak of resident memory."""
    from workloads.kronecker import GenerateSpec, plan_topology
    from workloads.kronecker.rmat import rmat_base
    from workloads.making.writer import DatasetWriter

    base = None
    if kind == "fractal":
        base = rmat_base(FRACTAL_BASE_NODES, FRACTAL_BASE_EDGES, 1, threads, permute=False)
        spec = GenerateSpec("fractal", expand=FRACTAL_EXPAND, base=base, seed=1, threads=threads, max_memory=4 * GIB)
    else:
        spec = GenerateSpec("kronecker", nodes=nodes, edges=edges, seed=1, threads=threads)
    try:
        with DatasetWriter(Path(folder) / kind) as writer:
            stages: dict[str, float] = {}
            start = time.monotonic()
            counted: dict[str, float] = {}

            def stage_began(stage: str, fraction: float) -> None:
                stages.setdefault(stage, time.monotonic())
                counted.setdefault(stage, time.process_time())

            plan = plan_topology(spec, stage_began)
            planned = time.monotonic()
            used = time.process_time() - counted.get("counting", time.process_time())
            count_cpu, used = used, time.process_time()
            plan.write(writer, lambda stage, fraction: None)
            end, used = time.monotonic(), time.process_time() - used
            raise _Measured
    except _Measured:
        pass
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(
        json.dumps(
            {
                "seconds": end - start,
                "write_s": end - planned,
                "count_s": planned - stages.get("counting", planned),
                "cpu_s": used + count_cpu,
                "bytes": plan.data_bytes,
                "edges": plan.num_edges,
                "peak_bytes": int(peak.split()[1]) * 1024,
            }
        )
    )


def generate(kind: str, folder: str, options: argparse.Namespace, threads: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", kind, "--folder", folder]
    command += ["--nodes", str(options.nodes), "--edges", str(options.edges), "--threads", str(threads)]
    sync_disk()
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def main() -> None:
    options_parser = parser(__doc__ or "")
    options_parser.set_defaults(rounds=3)
    options_parser.add_argument("--nodes", type=int, default=NODES)
    options_parser.add_argument("--edges", type=int, default=EDGES)
    options_parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options_parser.add_argument("--only", choices=["kronecker", "fractal"])
    options_parser.add_argument("--child", help=argparse.SUPPRESS)
    options = options_parser.parse_args()
    if options.child:
        child(options.child, options.folder, options.nodes, options.edges, options.threads)
        return
    reached = True
    if options.only != "fractal":
        peaks: list[float] = []

        def ours() -> float:
            made = generate("kronecker", options.folder, options, options.threads)
            peaks.append(made["peak_bytes"])
            return made["bytes"] / made["seconds"]

        total = 8 * (options.nodes + 1) + 4 * options.edges
        print(f"kronecker, {options.edges:,} edges, {total / 1e9:.2f} GB, bytes/s:")
        rates = interleave(
            options.rounds,
            {"outcore kronecker": ours, "fio write": lambda: fio_write(options.folder, total, depth=8, sync=True)},
        )
        reached &= verdict("kronecker over fio", rates["outcore kronecker"] / rates["fio write"], 0.7)
        reached &= verdict("1 GiB over peak memory", GIB / max(peaks), 1.0)
    if options.only != "kronecker":
        made = generate("fractal", options.folder, options, options.threads)
        wall = made["count_s"] + made["write_s"]
        print(
            f"fractal, {made['edges']:,} edges, {options.threads} threads: count {made['count_s']:.2f} s and write "
            f"{made['write_s']:.2f} s, {made['cpu_s']:.2f} s of processor, SVD and sorting of the base "
            f"{made['seconds'] - wall:.2f} s, peak {made['peak_bytes'] / GIB:.2f} GiB"
        )
        print(f"  {made['edges'] / wall / options.threads / 1e6:.1f} M edges/s and core by the wall clock")
        reached &= verdict("fractal, M edges/s of processor time", made["edges"] / made["cpu_s"] / 1e6, 10.0)
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()

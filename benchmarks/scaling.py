"""How do time and memory grow with the edges? Generation, sampling, ranking,
changesets, packing and epochs.

    python -m benchmarks.scaling [--edges 10M,40M,160M,640M,1600M] [--cap 4GiB] \\
        [--folder /var/tmp] [SYSTEM ...]

Datasets have the shape of papers100M: 14.4 edges a node, 32 float16 columns; 1,600 M
edges are its size. Each step is a separate process in a cgroup of `--cap` and starts
with its files evicted; its memory is read from outside: `anonymous` is its own memory
with kernel memory, without page cache. Epochs are runs of `outcore run` (200
mini-batches of 100, fan-out 10,10,10, `null` accelerator) under the same cap.

A slope is that of a straight line through the logarithms, by least squares. Exit 1 if a
step fails, a slope of time is above 1.1 (0.1 for the fixed costs of small sizes),
generation and verification of the largest size take over 15 minutes, or a step holds
more memory than its budget and its bytes per node (none per edge). Epochs of systems
other than `outcore` are printed but not judged: a system that relies on the page cache
is steeper where its data outgrow the cap. `scaling.csv`, `scaling.png` and
`scaling.svg` are written to `--out`.

Measurements are appended to `scaling.jsonl` there at once and not repeated: a run of
hours continues where it was stopped, and `--seconds` stops it before the next step
(exit 3). Datasets stay in `--folder` until all steps of their size are done.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness.isolation import Cap, Limits, select
from systems.engine.io.memory import evict
from workloads.dataset import PARTS, Dataset
from workloads.units import format_bytes, parse_bytes, parse_count
from workloads.workload import ModelSpec, SamplerSpec, Workload

NODES = 111_059_956
EDGES = 1_615_685_872
DIM = 32
DTYPE = "float16"
BATCHES = 200
BATCH_SIZE = 100
FANOUT = (10, 10, 10)
STEPS = ("generation", "verification", "sampling", "ranking", "changesets", "packing")
SYSTEMS = (
    "pyg+",
    "dgl-ondisk",
    "ali+pg",
    "ginex",
    "ginex-pg",
    "mariusgnn",
    "gnndrive",
    "diskgnn",
    "outcore",
)
OPTIONS = {"gnndrive": ["extractors=2"], "ali+pg": ["list_threads=2"]}
MOST_MINUTES = 15.0
STEEPEST = 1.1
EPOCH = "epoch "
SLACK_BYTES = 64 << 20
#: Memory budget of a step, beside its bytes per node.
GIVEN_BYTES = {"generation": 1 << 30, "ranking": 1 << 30, "packing": 256 << 20}
RANK_BYTES = 16  # added to the budget of ranking per node
#: Most bytes that a step may hold per node; none per edge.
NODE_BYTES = {
    "generation": 16,
    "verification": 0,
    "sampling": 8,
    "ranking": 40,
    "changesets": 16,
    "packing": 8,
}


def workload(dataset: Dataset) -> Workload:
    sampler = SamplerSpec(fanout=FANOUT, batch_size=BATCH_SIZE, max_batches=BATCHES)
    return Workload(dataset, sampler, ModelSpec(layers=len(FANOUT)))


def generation(folder: Path, nodes: int, edges: int) -> dict[str, Any]:
    from workloads.making.make import MakeSpec, make_dataset

    made = make_dataset(
        folder / "graph",
        MakeSpec("kronecker", nodes=nodes, edges=edges, dim=DIM, dtype=DTYPE),
    )
    return {"bytes": made.total_bytes, "made_edges": made.num_edges}


def verification(folder: Path) -> dict[str, Any]:
    faults = Dataset.open(folder / "graph").verify()
    if faults:
        sys.exit(f"the dataset is damaged: {faults[0]}")
    return {}


def sampling(folder: Path) -> dict[str, Any]:
    """Sample the epoch's mini-batches from the memory-mapped graph and store them."""
    from systems.engine.io.topology import mapped_sampler
    from systems.engine.store.batch_store import BatchWriter
    from workloads.sampling.make import make_seed_plan

    work = workload(Dataset.open(folder / "graph"))
    sampler = mapped_sampler(work)
    writer = BatchWriter(folder / "samples")
    nodes = 0
    for number, seeds in enumerate(make_seed_plan(work).batches(0)):
        batch = sampler.sample(0, number, seeds)
        nodes += batch.num_nodes
        writer.append(batch)
    np.save(folder / "samples.npy", writer.close().entries)
    return {"rows": nodes}


def ranking(folder: Path, budget: int) -> dict[str, Any]:
    from systems.engine.rank.pagerank import PageRankFacts, reverse_pagerank

    facts = PageRankFacts()
    reverse_pagerank(
        workload(Dataset.open(folder / "graph")),
        weighted=True,
        budget_bytes=budget,
        facts=facts,
    )
    return {"held_edges": facts.held_edges, "bytes": facts.reads.bytes_read}


def _samples(folder: Path) -> Any:
    from systems.engine.io.regions import RegionIndex
    from systems.engine.store.batch_store import BatchReader

    return BatchReader(folder / "samples", RegionIndex(np.load(folder / "samples.npy")))


def changesets(folder: Path) -> dict[str, Any]:
    from systems.engine.cache.changeset import ChangesetPlan

    reader = _samples(folder)
    nodes = Dataset.open(folder / "graph").num_nodes
    plan = ChangesetPlan(
        reader.nodes, reader.index.counts, num_nodes=nodes, capacity=nodes // 10
    )
    plan.look_ahead()
    hits = sum(change.hits for change in plan.changesets())
    return {"hits": hits}


def packing(folder: Path) -> dict[str, Any]:
    from systems.engine.io.row_reads import RowTable
    from systems.engine.store.packed_writer import PackedWriter

    reader = _samples(folder)
    table = RowTable.of(Dataset.open(folder / "graph"))
    shutil.rmtree(folder / "packed", ignore_errors=True)
    (folder / "packed").mkdir()
    with PackedWriter(
        folder / "packed", table, memory_bytes=GIVEN_BYTES["packing"]
    ) as writer:
        for number in range(len(reader)):
            nodes = np.sort(reader.nodes(number))
            writer.append(nodes, {"nodes": nodes})
        stats = writer.pack("batched")
    return {"bytes": stats.bytes_read}


def child(step: str, folder: Path, nodes: int, edges: int, cap: int) -> None:
    """Run one step in this process; print its seconds and facts."""
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "generation": lambda: generation(folder, nodes, edges),
        "verification": lambda: verification(folder),
        "sampling": lambda: sampling(folder),
        "ranking": lambda: ranking(folder, GIVEN_BYTES["ranking"] + RANK_BYTES * nodes),
        "changesets": lambda: changesets(folder),
        "packing": lambda: packing(folder),
    }
    print(
        json.dumps({"standing": True}), flush=True
    )  # memory held before the step is the interpreter's
    sys.stdin.readline()
    start = time.monotonic()
    facts = steps[step]()
    print(json.dumps({"seconds": time.monotonic() - start, **facts}), flush=True)


@contextmanager
def watched(cap: Cap) -> Iterator[list[int]]:
    """Collect anonymous and kernel bytes of a cap, fifty times a second."""
    seen: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            memory = cap.memory()
            seen.append(memory.anon + memory.shmem + memory.kernel)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def measure(
    step: str, folder: Path, nodes: int, edges: int, cap_bytes: int
) -> dict[str, Any]:
    """Run a step under the cap; return seconds, anonymous bytes beyond the
    interpreter's and facts, or its failure."""
    graph = folder / "graph"
    for part in PARTS if graph.is_dir() else ():
        evict(Dataset.open(graph).file(part))
    for path in (folder / "samples",):
        if path.is_file():
            evict(path)
    command = [
        sys.executable,
        "-m",
        "benchmarks.scaling",
        "--child",
        step,
        "--folder",
        str(folder),
        "--nodes",
        str(nodes),
        "--edges",
        str(edges),
        "--cap",
        str(cap_bytes),
    ]
    limits = Limits(memory_bytes=cap_bytes)
    with (
        select().backend.create(f"scaling-{step}-{os.getpid()}", limits) as cap,
        watched(cap) as seen,
    ):
        process = subprocess.Popen(
            cap.command(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        memory = cap.memory()
        standing = memory.anon + memory.shmem + memory.kernel
        seen.clear()
        out, err = process.communicate("go\n")
        kills = cap.memory().oom_kills
        peak = max(seen, default=standing)
    if process.returncode:
        why = (
            "out of memory"
            if kills
            else (err.strip().splitlines() or ["no reason given"])[-1]
        )
        return {"step": step, "failed": why}
    return {
        "step": step,
        "anonymous": max(0, peak - standing),
        **json.loads(out.splitlines()[-1]),
    }


def epoch(system: str, folder: Path, cap: str) -> dict[str, Any]:
    """Run two epochs under the cap, the first as warm-up."""
    options = [word for option in OPTIONS.get(system, []) for word in ("-o", option)]
    command = [
        sys.executable,
        "-c",
        "from harness.cli import main; main()",
        "run",
        system,
        "--dataset",
        "graph",
        "--memory",
        cap,
        "--device",
        "emulated:null",
        "--device-memory",
        "64MiB",
        "--batch-size",
        str(BATCH_SIZE),
        "--max-batches",
        str(BATCHES),
        "--fanout",
        ",".join(map(str, FANOUT)),
        "--epochs",
        "2",
        "--warmup",
        "1",
        "--timeout",
        "30min",
        *options,
        "--json",
    ]
    environment = {
        **os.environ,
        "OUTCORE_DATA": str(folder),
        "OUTCORE_RESULTS": str(folder / "results"),
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    shutil.rmtree(folder / ".outcore" / "artefacts", ignore_errors=True)
    step = f"epoch {system}"
    try:
        record = json.loads(done.stdout)
    except ValueError:
        return {
            "step": step,
            "failed": (done.stderr.strip().splitlines() or ["no reason given"])[-1],
        }
    if record["status"] != "ok":
        return {"step": step, "failed": f"{record['status']}: {record['reason']}"}
    memory = record["memory"]
    return {
        "step": step,
        "seconds": record["summary"]["epoch_s"]["median"],
        "anonymous": max(0, memory["demand_peak_bytes"] - memory["floor_bytes"]),
        "verdict": record["verdict"],
        "prepared_s": record["preprocess"]["seconds"],
    }


def slope(edges: list[int], values: list[float]) -> float:
    """Return the slope of the straight line through the logarithms."""
    return float(np.polyfit(np.log(edges), np.log(np.maximum(values, 1e-9)), 1)[0])


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    """Draw seconds and anonymous bytes by edges, log-log."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, 2, figsize=(10, 7.6), sharex=True, layout="constrained"
    )
    marks = "os^vDP*Xd"
    names = list(dict.fromkeys(row["step"] for row in rows if "seconds" in row))
    epochs = [name for name in names if name.startswith(EPOCH)]
    panels = (
        ([name for name in STEPS if name in names], "Steps"),
        (epochs, f"Epochs of {BATCHES} mini-batches"),
    )
    for line, (shown, title) in zip(axes, panels, strict=True):
        for number, step in enumerate(shown):
            own = [row for row in rows if row["step"] == step and "seconds" in row]
            for axis, key, unit in (
                (line[0], "seconds", 1.0),
                (line[1], "anonymous", 2.0**20),
            ):
                axis.plot(
                    [row["edges"] / 1e6 for row in own],
                    [max(row[key] / unit, 1e-3) for row in own],
                    marker=marks[number % len(marks)],
                    markersize=5,
                    linewidth=1.2,
                    linestyle=("-", "--", ":")[number % 3],
                    color=plt.cm.viridis(number / len(shown) * 0.9),
                    label=step.removeprefix(EPOCH),
                )
        for axis, what, label in (
            (line[0], "time", "s"),
            (line[1], "own memory", "MiB"),
        ):
            axis.set(xscale="log", yscale="log", ylabel=label, title=f"{title}: {what}")
            axis.grid(alpha=0.3)
        line[1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8)
    for axis in axes[1]:
        axis.set(xlabel="edges (millions)")
    for suffix in ("png", "svg"):
        figure.savefig(out / f"scaling.{suffix}", dpi=200)


def judge(rows: list[dict[str, Any]], largest: int) -> bool:
    """Print slopes and limits; return whether all limits are kept."""
    kept = True
    for step in dict.fromkeys(row["step"] for row in rows):
        own = [row for row in rows if row["step"] == step]
        for row in own:
            if "failed" in row:
                print(f"{step}, {row['edges'] / 1e6:,.0f} M edges: {row['failed']}")
                kept = False
        own = [row for row in own if "seconds" in row]
        if len(own) < 2:
            continue
        edges = [row["edges"] for row in own]
        rise = slope(edges, [row["seconds"] for row in own])
        held = slope(edges, [row["anonymous"] for row in own])
        # Other systems may fit the cap at small sizes only, so their slopes are not
        # judged.
        good = rise <= STEEPEST or (
            step.startswith(EPOCH) and step != f"{EPOCH}outcore"
        )
        message = ""
        if step in NODE_BYTES:
            allowed = (
                NODE_BYTES[step] * own[-1]["nodes"]
                + SLACK_BYTES
                + GIVEN_BYTES.get(step, 0)
            )
            good &= own[-1]["anonymous"] <= allowed
            message = f", at most {format_bytes(allowed)} allowed"
        kept &= good
        print(
            f"{step:24s} time ~ edges^{rise:5.2f}, memory ~ edges^{held:5.2f}; largest "
            f"{own[-1]['seconds']:9.2f} s, "
            f"{format_bytes(own[-1]['anonymous'])}{message}{'' if good else '  MISSED'}"
        )
    made = [
        row
        for row in rows
        if row["step"] in ("generation", "verification") and row["edges"] == largest
    ]
    minutes = sum(row.get("seconds", 0.0) for row in made) / 60
    print(f"generated and verified in {minutes:.1f} min (at most {MOST_MINUTES:.0f})")
    return kept and minutes <= MOST_MINUTES


class Measured:
    """Rows of a run that may be stopped and continued; each is written at once.

    Args:
        path: file with a line of JSON for each row; made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.rows: list[dict[str, Any]] = [
            json.loads(line) for line in lines if line.endswith("}")
        ]

    def has(self, edges: int, step: str) -> bool:
        """Return whether the step was measured; failed steps are measured again."""
        return any(
            row["edges"] == edges and row["step"] == step and "seconds" in row
            for row in self.rows
        )

    def add(self, row: dict[str, Any]) -> None:
        """Add a row, in place of a failed one if there is one."""
        same = [
            old
            for old in self.rows
            if (old["edges"], old["step"]) == (row["edges"], row["step"])
        ]
        self.rows = [old for old in self.rows if old not in same] + [row]
        whole = "".join(json.dumps(old) + "\n" for old in self.rows)
        beside = self._path.with_suffix(".new")
        beside.write_text(whole, encoding="utf-8")
        beside.replace(self._path)
        print(json.dumps(row), flush=True)

    def in_order(self) -> list[dict[str, Any]]:
        """Return the rows by size."""
        return sorted(self.rows, key=lambda row: int(row["edges"]))


def measure_size(
    edges: int,
    systems: list[str],
    options: argparse.Namespace,
    done: Measured,
    until: float,
) -> bool:
    """Measure all missing steps of one size; return False if time ran out before the
    end."""
    nodes = max(1, round(edges / EDGES * NODES))
    cap = parse_bytes(options.cap)
    steps = [step for step in STEPS if not done.has(edges, step)]
    missing = [system for system in systems if not done.has(edges, f"epoch {system}")]
    folder = Path(options.folder, f"outcore-scaling-{edges}")
    if not steps and not missing:
        shutil.rmtree(folder, ignore_errors=True)
        return True
    folder.mkdir(parents=True, exist_ok=True)
    for step in STEPS:
        # If a stopped run measured a step but its files are gone, the step is repeated,
        # and not recorded again.
        lost = (step == "generation" and not (folder / "graph").is_dir()) or (
            step == "sampling"
            and "sampling" not in steps
            and {"changesets", "packing"} & {*steps}
            and not (folder / "samples").is_file()
        )
        if step not in steps and not lost:
            continue
        if time.monotonic() > until:
            return False
        row = {
            "edges": edges,
            "nodes": nodes,
            **measure(step, folder, nodes, edges, cap),
        }
        if step in steps:
            done.add(row)
        if "failed" in row and step in ("generation", "sampling"):
            break  # later steps need its files
    shutil.rmtree(folder / "packed", ignore_errors=True)
    for system in missing if (folder / "graph").is_dir() else ():
        if time.monotonic() > until:
            return False
        done.add({"edges": edges, "nodes": nodes, **epoch(system, folder, options.cap)})
    shutil.rmtree(folder, ignore_errors=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--edges", default="10M,40M,160M,640M,1600M")
    parser.add_argument("--cap", default="4GiB")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--out", default=".")
    parser.add_argument(
        "--epochs-at", default="", help="edges at which epochs are run; default: all"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="start no step after this time",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(
            options.child,
            Path(options.folder),
            options.nodes,
            int(options.edges),
            parse_bytes(options.cap),
        )
        return 0
    sizes = [min(parse_count(size), EDGES) for size in options.edges.split(",")]
    at = (
        [min(parse_count(size), EDGES) for size in options.epochs_at.split(",")]
        if options.epochs_at
        else sizes
    )
    out = Path(options.out)
    until = time.monotonic() + options.seconds
    out.mkdir(parents=True, exist_ok=True)
    done = Measured(out / "scaling.jsonl")
    whole = all(
        measure_size(
            edges, options.systems if edges in at else [], options, done, until
        )
        for edges in sizes
    )
    rows = done.in_order()
    with (out / "scaling.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(
            file, list(dict.fromkeys(key for row in rows for key in row)), restval=""
        )
        table.writeheader()
        table.writerows(rows)
    draw(rows, out)
    kept = judge(rows, max(sizes))
    if not whole:
        print("stopped before the end: run the same command to continue")
        return 3
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

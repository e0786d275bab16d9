"""Does every run fit the budget that its plan accepted? Graphs of unusual shapes, at
the least budget, under a cap.

A plan promises that a run in its budget is never killed. For each system and shape,
bisection finds the least host budget that `plan()` accepts, without a cap; then runs
are made with that budget and with more. If the kernel kills one of them, the system's
planner is at fault, and BROKEN is printed.

    python benchmarks/plan_promise.py --systems dgl-ondisk,pyg+ --shapes hubs,star
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import Record, RunConfig
from harness.run.orchestrator import execute
from harness.run.planning import planner_of
from harness.run.series import Series
from harness.settings import RunSettings, strict
from systems.registry import load, names
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import OutcoreError
from workloads.making.writer import DatasetWriter
from workloads.sampling.distinct import distinct
from workloads.units import format_bytes

MIB = 1 << 20
SETTINGS: dict[str, Any] = {
    "fanout": [10, 10],
    "batch_size": 100,
    "max_batches": 30,
    "epochs": 2,
    "warmup": 1,
    "hidden": 16,
    "timeout": "180s",
}


@dataclass(frozen=True)
class Shape:
    """Graph and settings of its runs.

    Attributes:
        edges: `hubs`, `star`, `chain`, `isolated`, `loops` or `components`.
        train: share of training nodes.
        settings: settings of the run beyond `SETTINGS`.
    """

    edges: str
    nodes: int = 120_000
    dim: int = 64
    dtype: str = "float32"
    train: float = 0.05
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return f"{self.edges}-{self.nodes}-{self.dim}-{self.dtype}-{self.train}"


SHAPES = {
    "hubs": Shape("hubs"),
    "star": Shape("star"),
    "chain": Shape("chain"),
    "isolated": Shape("isolated"),
    "loops": Shape("loops"),
    "components": Shape("components"),
    "three hops of hubs": Shape("hubs", settings=(("fanout", [10, 10, 10]),)),
    "large mini-batches": Shape(
        "hubs",
        nodes=400_000,
        dim=128,
        settings=(("fanout", [10, 10, 10]), ("batch_size", 1000), ("max_batches", 10)),
    ),
    "all neighbours": Shape(
        "hubs", nodes=20_000, settings=(("fanout", [-1, 5]), ("batch_size", 20))
    ),
    "dim 1": Shape("hubs", dim=1),
    "dim 1024": Shape("hubs", nodes=40_000, dim=1024, settings=(("batch_size", 20),)),
    "float16": Shape("components", dim=129, dtype="float16"),
    "batches of 1": Shape(
        "hubs", train=0.004, settings=(("batch_size", 1), ("max_batches", 0))
    ),
    # Ids, logs and holes in the heap grow with the mini-batches of an epoch; they once
    # killed diskgnn and outcore.
    "thousands of batches": Shape(
        "components",
        dim=16,
        train=0.5,
        settings=(("batch_size", 20), ("max_batches", 0)),
    ),
    "one batch": Shape(
        "loops", nodes=30_000, train=0.1, settings=(("batch_size", 100_000),)
    ),
    "all nodes trained": Shape(
        "chain", nodes=600_000, dim=4, train=0.9, settings=(("batch_size", 4000),)
    ),
}


def edges_of(
    kind: str, nodes: int, rng: np.random.Generator
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the edges of a graph as (targets, sources), int64 each."""
    ids = np.arange(nodes)
    few = (rng.integers(0, nodes, 4 * nodes), rng.integers(0, nodes, 4 * nodes))
    if kind == "chain":
        return ids[1:], ids[:-1]
    if kind == "star":
        return np.concatenate([np.zeros(nodes - 1, np.int64), ids[1:]]), np.concatenate(
            [ids[1:], np.zeros_like(ids[1:])]
        )
    if kind == "isolated":
        return few[0][: nodes // 50] // 100, few[1][: nodes // 50]
    if kind == "loops":
        return np.concatenate([ids, few[0]]), np.concatenate([ids, few[1]])
    if kind == "components":
        giant = nodes // 2
        inner = (few[0] % giant, few[1] % giant)
        small = ids[giant:-2:3]
        return np.concatenate([inner[0], small, small + 1]), np.concatenate(
            [inner[1], small + 1, small + 2]
        )
    hubs = rng.choice(
        nodes, 20, replace=False
    )  # each with a tenth of all nodes as in-neighbours
    fans = [
        (np.full(nodes // 10, hub), rng.choice(nodes, nodes // 10, replace=False))
        for hub in hubs
    ]
    back = (few[0], hubs[rng.integers(0, len(hubs), len(few[0]))])
    return np.concatenate([few[0], back[0], *(a for a, _ in fans)]), np.concatenate(
        [few[1], back[1], *(b for _, b in fans)]
    )


def make(root: Path, shape: Shape) -> Dataset:
    """Make the shape's dataset if it does not exist, and open it."""
    path = root / shape.name
    if path.is_dir():
        return Dataset.open(path)
    rng = np.random.default_rng(11)
    targets, sources = edges_of(shape.edges, shape.nodes, rng)
    codes = distinct(targets.astype(np.int64) * shape.nodes + sources)
    indptr = np.zeros(shape.nodes + 1, np.int64)
    np.cumsum(np.bincount(codes // shape.nodes, minlength=shape.nodes), out=indptr[1:])
    order = rng.permutation(shape.nodes)
    train = max(1, int(shape.nodes * shape.train))
    with DatasetWriter(path, recipe={"source": "plan_promise"}) as writer:
        writer.write("indptr", indptr)
        writer.write("indices", (codes % shape.nodes).astype(np.int32))
        writer.write(
            "features",
            rng.standard_normal((shape.nodes, shape.dim), np.float32).astype(
                shape.dtype
            ),
        )
        writer.write("labels", rng.integers(0, 4, shape.nodes))
        writer.write("train", np.sort(order[:train]))
        writer.write("valid", np.sort(order[train : train + 10]))
        writer.write("test", np.sort(order[train + 10 : train + 20]))
        writer.num_classes = 4
    return Dataset.open(path)


def config_of(
    series: Series,
    name: str,
    dataset: Dataset,
    shape: Shape,
    memory: str,
    **options: Any,
) -> RunConfig:
    """Resolve a configuration of `name` on `shape`, on the processor if the system runs
    there."""
    device = "cpu" if "cpu" in load(name).info.devices else "emulated:null"
    settings = {
        **SETTINGS,
        **dict(shape.settings),
        "dataset": dataset.path.name,
        "device": device,
        "memory": memory,
    }
    if device != "cpu":
        settings["device_memory"] = "64MiB"
    settings["options"] = options
    return resolve(
        PlannedRun(name, strict(RunSettings, settings, "")),
        series.data_root,
        series.isolation.name,
    )


def least_budget(series: Series, config: RunConfig, dataset: Dataset) -> int | None:
    """The least host budget that the plan accepts, to 64 KiB; None where it takes
    none."""
    with closing(
        make_accelerator(config.device, memory_bytes=config.device_memory_bytes)
    ) as accelerator:
        return planner_of(series, config, dataset, accelerator, None).least(
            config.device_memory_bytes, step=64 << 10
        )


def judged(record: Record) -> str:
    """Return `kept`, `refused`, or the broken promise."""
    if record.status == "ok":
        return "kept"
    if record.status == "oom" and "the plan does not fit" in record.reason:
        return "refused"
    return f"BROKEN {record.status}: {record.reason[:150]}"


def main() -> int:
    """Check all systems and shapes; return 1 if a plan was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", default="all")
    parser.add_argument("--shapes", default="all")
    parser.add_argument(
        "--above", default="1,1.3", help="budgets, as multiples of the least one"
    )
    parser.add_argument("--data", type=Path, default=Path("data/plan-promise"))
    parser.add_argument("--results", type=Path, default=Path("results/plan-promise"))
    arguments = parser.parse_args()
    systems = names() if arguments.systems == "all" else arguments.systems.split(",")
    shapes = list(SHAPES) if arguments.shapes == "all" else arguments.shapes.split(",")
    arguments.data.mkdir(parents=True, exist_ok=True)
    broken = 0
    for shape_name in shapes:
        shape = SHAPES[shape_name]
        dataset = make(arguments.data, shape)
        with Series(arguments.results, arguments.data) as series:
            series.prepare(
                [config_of(series, name, dataset, shape, "+64MiB") for name in systems],
                dataset,
            )
            for name in systems:
                least = least_budget(
                    series, config_of(series, name, dataset, shape, "+64MiB"), dataset
                )
                if least is None:
                    print(
                        f"{shape_name:22} {name:14} loads what is larger than 512 MiB",
                        flush=True,
                    )
                    continue
                for times in map(float, arguments.above.split(",")):
                    budget = int(least * times)
                    config = config_of(series, name, dataset, shape, f"+{budget}")
                    began = time.monotonic()
                    try:
                        record = execute(series, config, dataset)
                    except OutcoreError as error:
                        print(f"{shape_name:22} {name:14} {error}", flush=True)
                        continue
                    memory = record.memory
                    planned = sum(
                        item.bytes for item in memory.plan if item.tier == "host"
                    )
                    held = (
                        memory.demand_peak_bytes
                        - memory.floor_bytes
                        - memory.training_bytes
                    )
                    outcome = judged(record)
                    broken += outcome.startswith("BROKEN")
                    reported = {
                        "budget": budget,
                        "planned": planned,
                        "held": max(0, held),
                        "floor": memory.floor_bytes,
                        "training": memory.training_bytes,
                    }
                    numbers = ", ".join(
                        f"{word} {format_bytes(value)}"
                        for word, value in reported.items()
                    )
                    print(
                        f"{shape_name:22} {name:14} {numbers}, "
                        f"{time.monotonic() - began:.0f} s: {outcome}",
                        flush=True,
                    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

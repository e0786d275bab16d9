"""A plain direct-read system, and the hooks through which a cheat changes it in one
respect."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from systems.engine.io.reader import RowReader
from systems.interface import (
    Batch,
    Counters,
    Options,
    Plan,
    PlanItem,
    System,
    SystemInfo,
)
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import largest_batch
from workloads.sampling.make import make_sampler, make_seed_plan

Ids = npt.NDArray[np.int64]
NAME = "tests.harness.cheats.act:Cheating"
COPY = "copy.npy"


class Act:
    """Hooks of the honest system; a cheat overrides some of them."""

    #: name of the rule that catches the cheat; empty where its work is measured all the
    #: same, so that it gains nothing.
    rule: ClassVar[str] = ""
    #: error by which a wall of the sandbox stops the cheat; empty where a rule catches
    #: it.
    wall: ClassVar[str] = ""
    #: whether the system says that its mini-batches equal the workload's.
    faithful: ClassVar[bool] = True
    #: settings of the cheat's run that differ from the other cheats'.
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, system: Cheating) -> None:
        self.system = system

    def prepare(self) -> None:
        """Prepare before the first epoch."""

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Return (index, seed nodes) of the mini-batches to train."""
        return list(enumerate(self.system.seed_plan.batches(epoch)))

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Sample one mini-batch."""
        return self.system.sampler.sample(epoch, index, seeds)

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Return feature rows [n, dim] of a mini-batch."""
        return self.system.read(nodes)

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Return the batch for the training step."""
        return Batch(sampled, torch.from_numpy(np.ascontiguousarray(rows)))

    def between(self) -> None:
        """Run when the harness asks for counters, after an epoch's last gate."""

    def counters(self, counters: Counters) -> Counters:
        """Return the counters to report for the epoch."""
        return counters

    def files(self) -> list[Path]:
        """Return the files to report."""
        return []

    def close(self) -> None:
        """Clean up at the end."""


CHEATS: dict[str, type[Act]] = {"honest": Act}


def cheat(rule: str, *, wall: str = "") -> Callable[[type[Act]], type[Act]]:
    """Register a cheat under its class's name, with the rule that has to catch it, or
    the error of a wall."""

    def register(act: type[Act]) -> type[Act]:
        act.rule = rule
        act.wall = wall
        name = "".join(
            f"_{c.lower()}" if c.isupper() else c for c in act.__name__
        ).lstrip("_")
        CHEATS[name] = act
        return act

    return register


def together(cheats: str) -> type[Act]:
    """Return the class of a cheat, or one with the hooks of several, whose names `+`
    joins: the first comes first."""
    acts = tuple(CHEATS[name] for name in cheats.split("+"))
    settings = {name: value for act in acts for name, value in act.settings.items()}
    faithful = all(act.faithful for act in acts)
    several: type[Act] = type(
        cheats, acts, {"settings": settings, "faithful": faithful}
    )
    return several if len(acts) > 1 else acts[0]


def on_device(act: Act, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
    """Return the batch with its rows in device memory, to which they were copied."""
    accelerator = act.system.runtime.accelerator
    table = accelerator.allocate(*rows.shape, torch.float32)
    accelerator.copy(table, torch.from_numpy(rows), batch=sampled.index).wait()
    return Batch(sampled, table, on_release=lambda: accelerator.free(table))


class CheatingOptions(Options):
    """Choice of a cheat, and its argument."""

    cheat: str = Field(
        "honest", description="name of the cheat, or of several, joined by +"
    )
    place: str = Field("", description="a path or an address that it uses")


class Cheating(System):
    """System that samples, reads every row directly and trains, without a cache or
    threads."""

    info: ClassVar[SystemInfo] = SystemInfo(
        name="cheating",
        paper="–",
        summary="a system for tests",
        devices=("cpu", "emulated"),
        faithful=True,
        options=CheatingOptions,
    )
    options: CheatingOptions

    @classmethod
    def is_faithful(cls, options: Options) -> bool:
        """Return what the cheat says."""
        import tests.harness.cheats  # noqa: F401  registers all

        assert isinstance(options, CheatingOptions)
        return together(options.cheat).faithful

    def plan(self) -> Plan:
        """Plan rows of the largest mini-batch, the sampler's arrays and the reader."""
        import tests.harness.cheats  # noqa: F401  registers all

        self.act = together(self.options.cheat)(self)
        dataset = self.workload.dataset
        self.bounds = largest_batch(self.workload, epochs=self.runtime.epochs)
        rows = self.bounds.max_nodes * dataset.dim * dataset.feature_dtype.itemsize
        items: tuple[PlanItem, ...] = (
            PlanItem("rows of a mini-batch", 2 * rows),
            PlanItem("reader", 4 << 20),
            PlanItem("graph", 16 * dataset.num_nodes + 4 * self.bounds.max_nbytes),
        )
        if "device" in self.act.settings:
            items += (PlanItem("rows on the device", rows, "device"),)
        return Plan(items).require(self.info.name, self.budget)

    def prepare(self) -> None:
        """Open the files."""
        dataset = self.workload.dataset
        self.sampler = make_sampler(self.workload)
        self.seed_plan = make_seed_plan(self.workload)
        self.row_bytes = dataset.dim * dataset.feature_dtype.itemsize
        self.reader = self.open_table()
        self._counters = Counters()
        self.act.prepare()

    def open_table(self, path: Path | None = None) -> RowReader:
        """Open the dataset's features, or a copy of that file."""
        dataset = self.workload.dataset
        return RowReader(
            path or dataset.file("features"),
            data_offset=dataset.data_offset("features"),
            num_rows=dataset.num_nodes,
            row_bytes=self.row_bytes,
            depth=64,
        )

    def read(self, nodes: Ids) -> npt.NDArray[Any]:
        """Read rows from the dataset and count the reads."""
        dataset = self.workload.dataset
        out = np.empty((len(nodes), dataset.dim), dtype=dataset.feature_dtype)
        stats = self.reader.read(nodes, out)
        counters = self._counters
        counters.misses += len(nodes)
        counters.io_requests += stats.requests
        counters.bytes_read += stats.bytes_read
        counters.bytes_useful += stats.bytes_useful
        for size, count in stats.requests_by_size.items():
            counters.requests_by_size[size] = (
                counters.requests_by_size.get(size, 0) + count
            )
        return out

    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield every mini-batch, one after the other."""
        self._counters = Counters(queue_depth=64)
        for index, seeds in self.act.seeds(k):
            with self.clock.stage("sample", index):
                sampled = self.act.sample(k, index, seeds)
            with self.clock.stage("extract", index):
                rows = self.act.rows(k, index, sampled.nodes)
            self._counters.rows += sampled.num_nodes
            yield self.act.batch(sampled, rows)

    def counters(self) -> Counters:
        """Return counters of the last epoch; a row that was not read counts as a
        hit."""
        self.act.between()
        counters = replace(self._counters)
        counters.hits = (
            {"host": counters.rows - counters.misses}
            if counters.rows > counters.misses
            else {}
        )
        return self.act.counters(counters)

    def files(self) -> list[Path]:
        """Return the files that the cheat reports."""
        return self.act.files()

    def notes(self) -> dict[str, str]:
        """Return the reader's mode."""
        return {"io": self.reader.mode}

    def close(self) -> None:
        """Close the files."""
        if hasattr(self, "reader"):
            self.reader.close()
        if hasattr(self, "act"):
            self.act.close()


class PreparesInLibraries(Cheating):
    """Cheat that prepares while only its libraries should be loaded."""

    @classmethod
    def load_libraries(cls) -> None:
        """Prepare, hoping that no clock runs."""
        time.sleep(1.5)


class BallastInLibraries(Cheating):
    """Cheat that holds memory as if it were a library's, so that its cap is larger by
    as much."""

    ballast: ClassVar[npt.NDArray[Any] | None] = None

    @classmethod
    def load_libraries(cls) -> None:
        """Hold 80 MiB."""
        cls.ballast = np.ones(80 << 20, np.uint8)


class BallastInCalibration(BallastInLibraries):
    """Cheat that holds less than libraries may, and holds it in the calibration
    alone."""

    @classmethod
    def load_libraries(cls) -> None:
        """Hold 60 MiB in the calibration."""
        if _in_calibration():
            cls.ballast = np.ones(60 << 20, np.uint8)


class CopiesInLibraries(Cheating):
    """Cheat that copies the features in the calibration, hoping that the run may use
    the copy."""

    @classmethod
    def load_libraries(cls) -> None:
        """Copy them in the calibration alone, to the folder of artefacts."""
        if _in_calibration():
            spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
            shutil.copy(
                Path(spec["dataset"], "features.npy"), Path(spec["artefacts"], COPY)
            )


def _in_calibration() -> bool:
    return any(
        "calibrate" in part
        for part in Path(f"/proc/{os.getpid()}/cgroup").read_text().split("/")
    )

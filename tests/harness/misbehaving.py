"""A system for tests that fails as a broken one would: exhausts memory, hangs, kills
itself, sends nonsense."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from systems.interface import (
    Batch,
    Counters,
    Options,
    Plan,
    PlanItem,
    System,
    SystemInfo,
)
from workloads.errors import DataIOError
from workloads.sampling.make import make_sampler, make_seed_plan

Behaviour = Literal[
    "good",
    "hog",
    "hang",
    "sigkill",
    "bug",
    "nonsense",
    "flood",
    "budget",
    "io",
    "exit",
    "no-memory",
    "hide",
]


class MisbehavingOptions(Options):
    """Choice of a misbehaviour, and its timing."""

    behaviour: Behaviour = Field("good", description="what to do in the measured epoch")
    rank: int = Field(-1, ge=-1, description="only this rank misbehaves; -1: all")
    prepare_seconds: float = Field(
        0.0, ge=0, description="sleep this long in preparation, and say so"
    )
    extract_seconds: float = Field(
        0.0, ge=0, description="sleep this long in each batch's extract stage"
    )


class Misbehaving(System):
    """System that loads all features and yields every mini-batch; it misbehaves in
    epoch 1 as its options say."""

    info: ClassVar[SystemInfo] = SystemInfo(
        name="misbehaving",
        paper="–",
        summary="a system for tests",
        devices=("cpu", "emulated"),
        faithful=True,
        options=MisbehavingOptions,
        data_parallel=True,
    )
    options: MisbehavingOptions

    def plan(self) -> Plan:
        """Plan the features, or more than any budget."""
        nbytes = (
            1 << 50
            if self.options.behaviour == "budget"
            else self.workload.dataset.feature_bytes
        )
        return Plan((PlanItem("features", nbytes),)).require(
            self.info.name, self.budget, "raise memory"
        )

    def prepare(self) -> None:
        """Load all features; ranks print at the interpreter's end whether they are
        still in their group."""
        if self.runtime.world > 1:
            atexit.register(
                lambda: print(
                    "still in the group:",
                    torch.distributed.is_initialized(),
                    file=sys.stderr,
                )
            )
        for step in range(20 if self.options.prepare_seconds else 0):
            self.runtime.progress("sleeping", step / 20)
            time.sleep(self.options.prepare_seconds / 20)
        self._features = self.workload.dataset.load("features")
        self._sampler = make_sampler(self.workload)
        self._plan = make_seed_plan(self.workload)
        self._rows = 0

    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield every mini-batch, and misbehave at the second of epoch 1."""
        self._rows = 0
        for index, seeds in enumerate(self._plan.batches(k)):
            if k == 1 and index == 1 and self.options.rank in (-1, self.runtime.rank):
                self._misbehave()
            with self.clock.stage("sample", index):
                sampled = self._sampler.sample(k, index, seeds)
            with self.clock.stage("extract", index):
                time.sleep(self.options.extract_seconds)
                table = torch.from_numpy(self._features[sampled.nodes])
            self._rows += sampled.num_nodes
            yield Batch(sampled, table)

    def notes(self) -> dict[str, str]:
        """Hide that the run was slowed, if the options say so."""
        return {"test_clock": ""} if self.options.behaviour == "hide" else {}

    def _misbehave(self) -> None:
        behaviour = self.options.behaviour
        if behaviour == "hog":
            self._hog = [np.ones(1 << 24, dtype=np.uint8) for _ in range(4096)]
        elif behaviour == "hang":
            time.sleep(600)
        elif behaviour == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif behaviour == "bug":
            raise ZeroDivisionError("a bug in a system")
        elif behaviour in ("nonsense", "flood"):
            self._talk(b"{]\n" if behaviour == "nonsense" else b"x" * (3 << 20))
            time.sleep(600)
        elif behaviour == "io":
            raise DataIOError("the file ended early", path="features.npy", offset=4096)
        elif behaviour == "exit":
            os._exit(0)
        elif behaviour == "no-memory":
            # An address space too small for the next allocation, as `ulimit -v` or a
            # container sets it.
            raise MemoryError("cannot allocate")

    @staticmethod
    def _talk(data: bytes) -> None:
        """Write to every pipe that is open for writing: one of them goes to the
        orchestrator."""
        for link in list(Path("/proc/self/fd").iterdir()):
            try:
                if int(link.name) > 2 and link.is_fifo():
                    os.write(int(link.name), data)
            except OSError:
                continue

    def counters(self) -> Counters:
        """Count every row as a hit."""
        return Counters(rows=self._rows, hits={"host": self._rows})

    def close(self) -> None:
        """Use ctypes, as a system with native code would."""
        ctypes.CDLL(None)

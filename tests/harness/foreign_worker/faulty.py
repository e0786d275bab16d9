"""The template's worker with one fault of `-o fault=NAME`, which `outcore check` has to
find."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import outcore_worker
from outcore_worker import Log, Refused, main, rows_digest

ROOT = Path(__file__).resolve().parents[3]
_SPEC = importlib.util.spec_from_file_location(
    "template", ROOT / "outcore" / "template" / "foreign" / "worker.py"
)
_TEMPLATE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_TEMPLATE)


class Faulty(_TEMPLATE.NewSystem):
    @property
    def fault(self) -> str:
        return self.run.options.fault

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        if run.options.fault == "clock":
            began = time.monotonic()
            slow = SimpleNamespace(
                monotonic=lambda: began + (time.monotonic() - began) / 2
            )
            outcore_worker.time = slow  # type: ignore[assignment]
        if run.options.fault == "leaves":
            os._exit(3)
        if run.options.fault == "features in the floor":
            self.loaded = run.data.load("features")

    def step(self) -> Any:
        inner = super().step()

        def step() -> None:
            if self.fault == "features in the step":
                self.loaded = self.run.data.load("features")
            inner()

        return step

    def plan(self) -> dict[str, int]:
        return {"buffer": 1 << 40} if self.fault == "plan" else {}

    def counters(self) -> dict[str, Any]:
        return {"bytes_read": "many"} if self.fault == "counter" else {}

    def prepare(self) -> Any:
        if self.fault == "refuses":
            raise Refused("this graph is not for me", "choose another")
        if self.fault == "crashes":
            raise RuntimeError("no luck")
        if self.fault == "too much memory":
            self.held = np.ones(1 << 28)
        return super().prepare()

    def epoch(self, number: int, log: Log) -> None:
        self.log = log
        self.last = log.batch
        self.left_out = False
        log.batch = self.reported  # type: ignore[method-assign]
        if self.fault == "same mini-batches":
            size = self.run.config.batch_size
            order = self.run.seeds(0)
            whole = len(order) // size * size
            again = np.roll(order[:whole].reshape(-1, size), number, 0).reshape(-1)
            self.run.seeds = lambda _: np.concatenate([again, order[whole:]])
        super().epoch(
            {"order": 0, "two epochs": number % 2}.get(self.fault, number), log
        )
        if self.fault == "spots":
            log.spots = [
                (spot[0], [], rows_digest(np.zeros(0, np.int64), rows), [])
                for spot, rows in self.none(log)
            ]
        if self.fault == "process":
            subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(60)"],
                start_new_session=True,
            )
        if self.fault == "file":
            Path(tempfile.gettempdir(), "forgotten").write_text("x")

    def none(self, log: Log) -> Any:
        rows = np.zeros((0, self.run.data.dim), np.float32)
        return [(spot, rows) for spot in log.spots]

    def reported(
        self, nodes: Any, rows: Any, edges: int, seeds: Any, loss: float, correct: int
    ) -> None:
        index = len(self.log.rows)
        if self.fault == "one mini-batch less" and not self.left_out:
            self.left_out = True
            return
        if self.fault == "seed twice" and index == 2:
            seeds = np.concatenate([seeds[:-1], seeds[:1]])
        if self.fault == "rows":
            rows = rows[::-1]
        if self.fault == "number":
            self.last(nodes, rows, edges, seeds, loss, correct, index=0)
            return
        self.last(
            nodes,
            rows,
            edges,
            seeds,
            float("nan") if self.fault == "loss" and index == 5 else loss,
            correct,
        )

    def sample(self, seeds: Any) -> Any:
        if self.fault == "two epochs":
            self.random = np.random.default_rng(int(seeds[0]))
        if self.fault == "third hop":
            self.run.config.fanout = self.run.config.fanout[:2]
        if self.fault == "hops reversed":
            self.run.config.fanout = sorted(self.run.config.fanout)
        if self.fault == "hop":
            self.run.config.fanout = self.run.config.fanout[:1]
        return super().sample(seeds)

    def neighbours(self, nodes: Any, fanout: int) -> Any:
        if self.fault == "one draw a node" and not hasattr(self, "ranks"):
            self.ranks = self.random.random(len(self.indptr))
        if self.fault == "out-neighbours" and not hasattr(self, "ranks"):
            sources = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
            self.ranks = order = np.argsort(self.indices, kind="stable")
            degrees = np.bincount(self.indices, minlength=len(self.indptr) - 1)
            self.indptr = np.concatenate([[0], np.cumsum(degrees)])
            self.indices = sources[order]
        if self.fault in ("window", "one draw a node"):
            degrees = self.indptr[nodes + 1] - self.indptr[nodes]
            take = np.minimum(degrees, fanout)
            # The same place in a node's list each time, or another.
            start = (
                self.random.random(len(nodes))
                if self.fault == "window"
                else self.ranks[nodes]
            )
            start = (start * np.maximum(degrees, 1)).astype(np.int64)
            owner = np.repeat(np.arange(len(nodes)), take)
            place = np.arange(len(owner)) - np.repeat(np.cumsum(take) - take, take)
            return self.indices[
                self.indptr[nodes][owner] + (start[owner] + place) % degrees[owner]
            ]
        if self.fault == "hubs" and not hasattr(self, "ranks"):
            out = np.bincount(self.indices, minlength=len(self.indptr) - 1)
            self.ranks = out > np.quantile(out, 0.9)
        if self.fault == "hubs":  # one list in twenty-five yields its hubs first
            degrees = self.indptr[nodes + 1] - self.indptr[nodes]
            owner = np.repeat(np.arange(len(nodes)), degrees)
            place = np.arange(len(owner)) - np.repeat(
                np.cumsum(degrees) - degrees, degrees
            )
            lists = self.indices[self.indptr[nodes][owner] + place]
            first = (self.random.random(len(nodes)) < 0.04)[owner] & self.ranks[lists]
            return lists[
                np.lexsort((self.random.random(len(owner)) - 2 * first, owner))[
                    place < fanout
                ]
            ]
        if self.fault == "fan-out":
            return super().neighbours(nodes, fanout - 1)
        if self.fault == "with replacement":
            degrees = self.indptr[nodes + 1] - self.indptr[nodes]
            some = degrees > 0
            draws = (
                self.random.random((int(some.sum()), fanout)) * degrees[some][:, None]
            ).astype(np.int64)
            return self.indices[self.indptr[nodes][some][:, None] + draws].reshape(-1)
        return super().neighbours(nodes, fanout)


if __name__ == "__main__":
    main(Faulty)

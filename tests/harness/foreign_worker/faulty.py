"""The template's worker with one fault of `-o fault=NAME`, which `outcore check` has to find."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from outcore_worker import Log, Refused, main

ROOT = Path(__file__).resolve().parents[3]
_SPEC = importlib.util.spec_from_file_location("template", ROOT / "outcore" / "template" / "foreign" / "worker.py")
_TEMPLATE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_TEMPLATE)


class Faulty(_TEMPLATE.NewSystem):
    @property
    def fault(self) -> str:
        return self.run.options.fault

    def prepare(self) -> Any:
        if self.fault == "refuses":
            raise Refused("this graph is not for me", "choose another")
        if self.fault == "crashes":
            raise RuntimeError("no luck")
        if self.fault == "too much memory":
            self.held = np.ones(1 << 28)
        return super().prepare()

    def epoch(self, number: int, log: Log) -> None:
        self.log, self.last, self.left_out = log, log.batch, False
        log.batch = self.told  # type: ignore[method-assign]
        if self.fault == "same mini-batches":
            size, order = self.run.config.batch_size, self.run.seeds(0)
            whole = len(order) // size * size
            again = np.roll(order[:whole].reshape(-1, size), number, 0).reshape(-1)
            self.run.seeds = lambda _: np.concatenate([again, order[whole:]])
        super().epoch(0 if self.fault == "order" else number, log)
        if self.fault == "process":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        if self.fault == "file":
            Path(tempfile.gettempdir(), "forgotten").write_text("x")
        if self.fault == "shared memory":
            Path(f"/dev/shm/outcore-forgotten-{os.getpid()}").write_bytes(b"x" * 100)

    def told(self, nodes: Any, rows: Any, edges: int, seeds: Any, loss: float, correct: int) -> None:
        index = len(self.log.rows)
        if self.fault == "one mini-batch less" and not self.left_out:
            self.left_out = True
            return
        if self.fault == "seed twice" and index == 2:
            seeds = np.concatenate([seeds[:-1], seeds[:1]])
        if self.fault == "rows":
            rows = rows[::-1]
        self.last(nodes, rows, edges, seeds, float("nan") if self.fault == "loss" and index == 5 else loss, correct)

    def sample(self, seeds: Any) -> Any:
        if self.fault == "hops reversed":
            self.run.config.fanout = sorted(self.run.config.fanout)
        if self.fault == "hop":
            self.run.config.fanout = self.run.config.fanout[:1]
        return super().sample(seeds)

    def neighbours(self, nodes: Any, fanout: int) -> Any:
        if self.fault == "fan-out":
            return super().neighbours(nodes, fanout - 1)
        if self.fault == "with replacement":
            degrees = self.indptr[nodes + 1] - self.indptr[nodes]
            some = degrees > 0
            draws = (self.random.random((int(some.sum()), fanout)) * degrees[some][:, None]).astype(np.int64)
            return self.indices[self.indptr[nodes][some][:, None] + draws].reshape(-1)
        return super().neighbours(nodes, fanout)


if __name__ == "__main__":
    main(Faulty)

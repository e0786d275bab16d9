"""Link of a host to the driver: starts the host's process, forwards orders to it, and
reports that it lives. Needs the standard library alone, so that a host that lacks a
package can report it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Variables that Ray sets for its workers.
_RAYS = ("RAY_", "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES")
#: Environment variable with the label, as `harness.records.hosts.HOST_LABEL`.
LABEL = "OUTCORE_HOST_LABEL"
_LOG_BYTES = 64 * 1024


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment without Ray's variables."""
    return {
        key: value for key, value in environment.items() if not key.startswith(_RAYS)
    }


class Node:
    """The process of one host. `content`: the sweep's content as JSON
    (`harness.hosts.orders`). `label`: operator's label of the host."""

    def __init__(self, content: str, label: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open until the end
        self._began: float | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.hosts.host", str(os.getpid())],
            env=own_environment(os.environ) | {LABEL: label},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )
        self._content: str | None = content

    def perform(self, order: str) -> dict[str, Any]:
        """Execute an order (JSON) and return its answer; the run's archive as bytes."""
        try:
            answer = self._answer(order)
        except (OSError, ValueError):
            answer = self._ended(order)
        self._began = None
        if archive := answer.get("archive"):
            path = Path(archive)
            answer["archive"] = path.read_bytes()
            path.unlink()
        return answer

    def busy_s(self) -> float:
        """Return the seconds since the order under way began; 0 while none is, or while
        it waits for another on this machine."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def _answer(self, order: str) -> dict[str, Any]:
        orders = self._process.stdin
        answers = self._process.stdout
        assert orders is not None
        assert answers is not None
        if self._content is not None:
            print(self._content, file=orders)
            self._content = None
        print(order, file=orders, flush=True)
        while True:
            message: dict[str, Any] = json.loads(answers.readline())
            if message != {"began": True}:
                return message
            self._began = time.monotonic()

    def _ended(self, order: str) -> dict[str, Any]:
        """Return the answer of a process that has ended: its exit code, and the last
        line of its log."""
        self._process.kill()
        code = self._process.wait()
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - _LOG_BYTES))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        task = json.loads(order)["task"]
        message = f"{task} ended with exit code {code}: {' '.join(lines[-1:])}"
        fix = "run `outcore doctor` there"
        if "ModuleNotFoundError" in message:
            fix = "pip install 'outcore[hosts]' there, the same commit"
        return {"error": message, "fix": fix}

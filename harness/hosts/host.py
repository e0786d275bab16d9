"""Orders of the driver on one host of a fleet: describe the host, make the datasets, run one cell at a time.

Every order is a process of its own, `python -m harness.hosts.host ORDER PARENT`, without Ray's variables for workers
(above all `OMP_NUM_THREADS`, which would slow some systems and not others). The kernel ends it with the worker that
started it, so a lost host leaves no run behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from harness.records.environment import HOST_LABEL
from workloads.errors import HostError, OutcoreError

# Variables that Ray sets for its workers.
_RAYS = ("RAY_", "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES")


class Order(BaseModel):
    """One order.

    Attributes:
        task: `describe` the host, `prepare` its datasets, or `run` one cell.
        experiments: experiments of the sweep, as plain data.
        fresh: whether to run cells again that have a record on the host.
        number: number of the cell, in the sweep's order.
        out: path of a run's archive.
    """

    task: Literal["describe", "prepare", "run"]
    experiments: list[dict[str, Any]]
    isolation: str
    fresh: bool = False
    number: int = -1
    out: str = ""


class Host:
    """The driver's access to one host, a Ray actor or a local object; its fingerprint has the operator's `label`."""

    def __init__(self, experiments: list[dict[str, Any]], isolation: str, fresh: bool, label: str) -> None:
        self._experiments = experiments
        self._isolation = isolation
        self._fresh = fresh
        self._label = label

    def describe(self) -> dict[str, Any]:
        """Return `machine` (equal for two hosts on one machine), `fingerprint`, `commit` and `dirty`."""
        return self._ask("describe")[0]

    def prepare(self) -> list[dict[str, Any]]:
        """Make the missing datasets and return the configuration of every run, in the sweep's order.

        Raises:
            OutcoreError: the order failed on the host.
        """
        configs: list[dict[str, Any]] = self._ask("prepare")[0]["configs"]
        return configs

    def run(self, number: int) -> bytes:
        """Run one cell, or find its record of an earlier sweep; return the run's folder as a `.tar.gz`.

        Raises:
            OutcoreError: the run could not be recorded.
        """
        return self._ask("run", number)[1]

    def _ask(self, task: Literal["describe", "prepare", "run"], number: int = -1) -> tuple[dict[str, Any], bytes]:
        with tempfile.TemporaryDirectory(prefix="outcore-order-") as folder:
            file, out = Path(folder, "order.json"), Path(folder, "run.tar.gz")
            order = Order(
                task=task,
                experiments=self._experiments,
                isolation=self._isolation,
                fresh=self._fresh,
                number=number,
                out=str(out),
            )
            file.write_text(order.model_dump_json(), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "harness.hosts.host", str(file), str(os.getpid())],
                env=own_environment(os.environ) | {HOST_LABEL: self._label},
                capture_output=True,
                check=False,
            )
            said = done.stdout.decode(errors="replace").strip().splitlines()
            try:
                content: dict[str, Any] = json.loads(said[-1])
            except (IndexError, ValueError):
                last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
                raise HostError(
                    f"{task} on host {self._label} ended with exit code {done.returncode}: {' '.join(last)}",
                    "run `outcore doctor` there",
                ) from None
            if "error" in content:
                raise HostError(f"host {self._label}: {content['error']}", content["fix"])
            return content, out.read_bytes() if out.exists() else b""


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment without Ray's variables."""
    return {key: value for key, value in environment.items() if not key.startswith(_RAYS)}


def roots() -> tuple[Path, Path]:
    """Return this host's folders of datasets and results: OUTCORE_DATA, OUTCORE_RESULTS, else below the home folder."""
    home = Path.home() / "outcore"
    return (
        Path(os.environ.get("OUTCORE_DATA") or home / "data"),
        Path(os.environ.get("OUTCORE_RESULTS") or home / "results"),
    )


def obey(order: Order) -> dict[str, Any]:
    """Execute an order in this process.

    Raises:
        OutcoreError: the order cannot be executed.
    """
    from harness.isolation.select import select
    from harness.plan.experiment import parse_experiment
    from harness.records import environment
    from harness.results import store as results
    from harness.results.archive import pack
    from harness.run.series import Series
    from harness.run.sweep import Sweep

    data_root, results_root = roots()
    data_root.mkdir(parents=True, exist_ok=True)
    if order.task == "describe":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return {"machine": boot, "fingerprint": environment.this_host(data_root), **environment.code()}
    experiments = [parse_experiment(content) for content in order.experiments]
    sweep = Sweep(experiments, results_root, data_root, _Silent(), fresh=order.fresh, isolation=order.isolation)
    if order.task == "prepare":
        sweep.make_datasets()
        configs = sweep.configs(select(sweep.isolation).backend.name)
        return {"configs": [config.model_dump(mode="json") for config in configs]}
    with Series(results_root, data_root, isolation=sweep.isolation) as series:
        record = sweep.run(series, only=order.number).records[0]
    pack(results_root, [results.runs_folder(results_root) / record.run_id], [], Path(order.out))
    return {"run": record.run_id}


class _Silent:
    """Progress without output: the driver reports the cells."""

    def title(self, text: str) -> None:
        """Ignore the text."""

    def __call__(self, text: str) -> None:
        """Ignore the text."""


def main(argv: list[str]) -> int:
    """Execute the order in the file `argv[0]`; print the answer as JSON on the last line of standard output."""
    from harness.worker.main import die_with_parent

    die_with_parent(int(argv[1]))
    try:
        answer = obey(Order.model_validate_json(Path(argv[0]).read_text(encoding="utf-8")))
    except OutcoreError as error:
        answer = {"error": error.message, "fix": error.fix}
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

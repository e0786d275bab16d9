"""Orders of the driver on one host of a fleet: make the datasets, run one cell; one
order at a time on a machine. An order is a process of its own, `python -m
harness.hosts.host ORDER PARENT`, without Ray's variables for workers (such as
`OMP_NUM_THREADS`, which slows some systems and not others). The kernel ends it with the
worker that started it."""

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

from harness.atomic import locked
from harness.isolation import select
from harness.plan.experiment import parse_experiment
from harness.progress import Progress
from harness.records.environment import HOST_LABEL, code, this_host
from harness.results.archive import pack
from harness.results.store import runs_folder
from harness.run.places import Places
from harness.run.series import Series
from harness.run.sweep import Sweep
from harness.wire.pipes import die_with_parent
from workloads.errors import OutcoreError

# Variables that Ray sets for its workers.
_RAYS = ("RAY_", "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES")


class Order(BaseModel):
    """One order. `task`: `prepare` the datasets of the sweep, or `run` one cell.
    `label`: operator's label of the host, which becomes part of its fingerprint.
    `commit`: commit of the driver's code; None where unknown. `experiments`:
    experiments of the sweep, as plain data. `fresh`: whether to run cells again that
    have a record on the host. `number`: number of the cell, in the sweep's order.
    `out`: path of a run's archive."""

    task: Literal["prepare", "run"]
    label: str
    commit: str | None
    experiments: list[dict[str, Any]]
    isolation: str
    fresh: bool = False
    number: int = -1
    out: str = ""


def perform(order: Order) -> dict[str, Any]:
    """Execute an order in a process of its own while no other runs on this machine;
    return the answer.

    Returns:
        For `prepare` the host's `fingerprint` and all runs' `configs` in the sweep's
        order, for `run` the run's folder as a `.tar.gz` in `archive`; else `error`,
        `fix` and `kind` (`code` for other code than the driver's, `datasets` where the
        host cannot make them, or empty).
    """
    # One machine may be several nodes of a cluster.
    machine = locked(Path(tempfile.gettempdir(), "outcore-hosts.lock"))
    with machine, tempfile.TemporaryDirectory(prefix="outcore-order-") as folder:
        file = Path(folder, "order.json")
        out = Path(folder, "run.tar.gz")
        file.write_text(
            order.model_copy(update={"out": str(out)}).model_dump_json(),
            encoding="utf-8",
        )
        command = [
            sys.executable,
            "-m",
            "harness.hosts.host",
            str(file),
            str(os.getpid()),
        ]
        environment = own_environment(os.environ) | {HOST_LABEL: order.label}
        done = subprocess.run(
            command, env=environment, capture_output=True, check=False
        )
        try:
            answer: dict[str, Any] = json.loads(
                done.stdout.decode(errors="replace").strip().splitlines()[-1]
            )
        except (IndexError, ValueError):
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            fault = (
                f"{order.task} ended with exit code {done.returncode}: {' '.join(last)}"
            )
            answer = {"error": fault, "fix": "run `outcore doctor` there", "kind": ""}
        return answer | ({"archive": out.read_bytes()} if out.exists() else {})


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment without Ray's variables."""
    return {
        key: value for key, value in environment.items() if not key.startswith(_RAYS)
    }


def roots() -> tuple[Path, Path]:
    """Return this host's folders of datasets and results: OUTCORE_DATA,
    OUTCORE_RESULTS, else below the home folder."""
    home = Path.home() / "outcore"
    data = os.environ.get("OUTCORE_DATA")
    results = os.environ.get("OUTCORE_RESULTS")
    return Path(data or home / "data"), Path(results or home / "results")


def obey(order: Order) -> dict[str, Any]:
    """Execute an order in this process; raise OutcoreError if the order cannot be
    executed."""
    own = code()["commit"]
    if own and order.commit and own != order.commit:
        fault = (
            f"host {order.label} runs commit {own[:12]}, this process "
            f"{order.commit[:12]}"
        )
        return {
            "error": fault,
            "fix": "install the same commit on every host",
            "kind": "code",
        }
    data_root, results_root = roots()
    data_root.mkdir(parents=True, exist_ok=True)
    experiments = [parse_experiment(content) for content in order.experiments]
    quiet = Progress(quiet=True)  # the driver reports the cells
    sweep = Sweep(
        experiments,
        results_root,
        data_root,
        quiet,
        fresh=order.fresh,
        isolation=order.isolation,
    )
    try:
        sweep.make_datasets()
        if order.task == "prepare":
            configs = sweep.configs(select(sweep.isolation).backend.name)
            plain = [config.model_dump(mode="json") for config in configs]
            return {"configs": plain, "fingerprint": this_host(data_root)}
    except OutcoreError as error:
        return {
            "error": f"host {order.label}: {error.message}",
            "fix": error.fix,
            "kind": "datasets",
        }
    with Series(
        results_root, data_root, isolation=sweep.isolation, places=Places.of(data_root)
    ) as series:
        record = sweep.run(series, only=order.number).records[0]
    pack(results_root, [runs_folder(results_root) / record.run_id], [], Path(order.out))
    return {"run": record.run_id}


def main(argv: list[str]) -> None:
    """Execute the order in the file `argv[0]`; print the answer as JSON on the last
    line of standard output."""
    die_with_parent(int(argv[1]))
    try:
        answer = obey(
            Order.model_validate_json(Path(argv[0]).read_text(encoding="utf-8"))
        )
    except OutcoreError as error:
        answer = {"error": error.message, "fix": error.fix, "kind": ""}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

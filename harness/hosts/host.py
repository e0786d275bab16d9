"""Process of a host that executes the orders of a sweep, `python -m harness.hosts.host
PARENT LABEL`. It reads the sweep's content and then orders, a line of JSON each, and
writes a line for each order that begins and for each answer. It runs without Ray's
variables for workers (such as `OMP_NUM_THREADS`, which slows some systems and not
others), and the kernel ends it with its parent."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from harness.atomic import locked
from harness.hosts.modules import write_modules
from harness.hosts.orders import Content, Greeting, Order, codes_of
from harness.isolation import select
from harness.plan.experiment import parse_experiment
from harness.progress import Progress
from harness.records.environment import code, describe
from harness.results.archive import pack
from harness.results.store import runs_folder
from harness.run.places import Places
from harness.run.series import Series
from harness.run.sweep import Sweep
from harness.wire.pipes import die_with_parent
from workloads.errors import InputError, OutcoreError
from workloads.tempfolder import TemporaryFolder

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def roots() -> tuple[Path, Path]:
    """Return this host's folders of datasets and results: OUTCORE_DATA,
    OUTCORE_RESULTS, else below the home folder."""
    home = Path.home() / "outcore"
    data = os.environ.get("OUTCORE_DATA")
    results = os.environ.get("OUTCORE_RESULTS")
    return Path(data or home / "data"), Path(results or home / "results")


class Host:
    """Execution of one sweep's orders on this host, one at a time on a machine. A
    context manager, within which runs share a series.

    Raises:
        InputError: an experiment is invalid here, like one of an unknown system.
        DataIOError: the folders of datasets and results cannot be made.
    """

    def __init__(self, content: Content) -> None:
        self._data_root, self._results_root = roots()
        for root in (self._data_root, self._results_root):
            try:
                root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError.from_os(error, f"{root} cannot be made") from error
        self._close = ExitStack()
        self._series: Series | None = None
        self._runs = ExitStack()
        # What a killed process leaves is removed by the next one.
        archives = TemporaryFolder(self._results_root, "order")
        self._archives = self._close.enter_context(archives)
        if content.modules:
            # A system of the current folder is found there, also by the workers.
            own = TemporaryFolder(self._results_root, "modules")
            folder = self._close.enter_context(own)
            write_modules(content.modules, folder)
            os.chdir(folder)
        self._sweep = Sweep(
            [parse_experiment(experiment) for experiment in content.experiments],
            self._results_root,
            self._data_root,
            Progress(quiet=True),  # the driver reports the cells
            fresh=content.fresh,
            retry=content.retry,
            isolation=content.isolation,
        )

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *exc: object) -> None:
        """End the series, and remove the modules that were sent."""
        self._end_series()
        self._close.close()

    def perform(self, order: Order) -> dict[str, Any]:
        """Execute an order and return its answer.

        Returns:
            For `greet` the fields of `Greeting`; for `prepare` all runs' `configs` in
            the sweep's order; for `run` the path of the run's `archive`, a `.tar.gz`
            that the reader removes.

        Raises:
            OutcoreError: the order cannot be executed.
        """
        if order.task == "greet":
            return self._greet().model_dump(mode="json")
        if order.task == "prepare":
            self._sweep.make_datasets()
            configs = self._sweep.configs(select(self._sweep.isolation).backend.name)
            return {"configs": [config.model_dump(mode="json") for config in configs]}
        try:
            record = self._sweep.one(self._open_series(), order.number)
        finally:
            if order.shared:
                self._end_series()
        return {"archive": str(self._packed(record.run_id))}

    def _greet(self) -> Greeting:
        boot = _BOOT_ID.read_bytes() if _BOOT_ID.exists() else b""
        return Greeting(
            commit=code()["commit"],
            codes=codes_of(self._sweep.planned),
            environment=describe(self._data_root),
            machine=hashlib.sha256(boot).hexdigest()[:12],
        )

    def _open_series(self) -> Series:
        if self._series is None:
            series = Series(
                self._results_root,
                self._data_root,
                isolation=self._sweep.isolation,
                places=Places.of(self._data_root),
            )
            self._series = self._runs.enter_context(series)
        return self._series

    def _end_series(self) -> None:
        self._series = None
        self._runs.close()

    def _packed(self, run: str) -> Path:
        """Return the archive of a run."""
        archive = self._archives / f"{run}.tar.gz"
        pack(self._results_root, [runs_folder(self._results_root) / run], [], archive)
        return archive


def answer_to(host: Host, order: Order) -> dict[str, Any]:
    """Return the answer to an order, or its `error` and `fix`."""
    try:
        return host.perform(order)
    except OutcoreError as error:
        return {"error": error.message, "fix": error.fix}
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        return {"error": message, "fix": "run `outcore doctor` there"}


def serve(lines: Iterable[str], out: IO[str]) -> None:
    """Execute the orders in `lines`, of which the first is the sweep's content; write
    `{"began": true}` when an order begins, as no other runs on this machine any more,
    and its answer."""
    # One machine may be several nodes of a cluster.
    lock = Path(tempfile.gettempdir(), "outcore-hosts.lock")
    orders = iter(lines)
    content = Content.model_validate_json(next(orders))
    with ExitStack() as stack:
        host: Host | None = None
        for line in orders:
            order = Order.model_validate_json(line)
            # A greeting disturbs no run, and waits for none.
            alone = nullcontext() if order.task == "greet" else locked(lock)
            with alone:
                _write(out, {"began": True})
                try:
                    host = host or stack.enter_context(Host(content))
                    answer = answer_to(host, order)
                except OutcoreError as error:
                    answer = {"error": error.message, "fix": error.fix}
            _write(out, answer)


def _write(out: IO[str], message: dict[str, Any]) -> None:
    print(json.dumps(message), file=out, flush=True)


def main(argv: list[str]) -> None:
    """Serve standard input and output. What else writes to standard output, such as a
    library, writes to standard error instead."""
    die_with_parent(int(argv[0]))
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray's workers have a low priority
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, out)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Phase `check`: facts of the machine, conformance of every system on the GPU, and
under torch's stream sanitizer."""

from __future__ import annotations

import os
import resource
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _outcore import outcore

from gpu.steps import Result, Setting, Step
from harness.check.case import cases
from harness.check.drive import drive
from harness.check.rules import judge
from harness.check.runner import check_system
from harness.records.environment import code, describe, gpus
from systems.registry import load, names

#: Systems whose copies run beside training, on streams of their own.
OVERLAPPING = ("gnndrive", "diskgnn", "outcore")


def jobs() -> int:
    """Return the steps that run at once: a check waits for its own small files and
    kernels most of the time."""
    return max(1, min(4, (os.cpu_count() or 1) // 4))


def steps(setting: Setting) -> list[Step]:
    """Return the steps: facts, each system, and those whose copies overlap once
    more."""
    kind = setting.device.partition(":")[0]
    found = [Step("machine", machine)]
    checked = [name for name in names() if kind in load(name).info.devices]
    found += [
        Step(f"conformance {name}", partial(conformance, name), 240.0)
        for name in checked
    ]
    sanitizer = {"TORCH_CUDA_SANITIZER": "1"} if setting.real else {}
    return found + [
        Step(f"streams {name}", partial(streams, name), 240.0, sanitizer)
        for name in OVERLAPPING
    ]


def machine(setting: Setting) -> Result:
    """Return versions, devices and limits of this machine, and what `outcore doctor`
    says of it."""
    found: dict[str, Any] = {
        "code": code(),
        "environment": describe(setting.folder),
        "gpus": gpus(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": _triton(),
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "doctor": outcore(setting.folder, "doctor"),
    }
    if setting.real:
        seen = torch.cuda.get_device_properties(setting.device)
        found["device"] = {
            name: str(getattr(seen, name))
            for name in dir(seen)
            if not name.startswith("_")
        }
    return found


def _triton() -> str:
    try:
        import triton
    except ImportError:
        return "not installed"
    return str(triton.__version__)


def conformance(name: str, setting: Setting) -> Result:
    """Check a system on the device as `outcore check NAME --quick --device DEVICE`
    does."""
    results = check_system(
        name, quick=True, device=setting.device, logs=setting.folder / "checks" / name
    )
    return {
        "checks": [one.as_dict() for one in results],
        "faults": [
            f"{one.name}: {one.detail} (log: {one.log})"
            for one in results
            if not one.ok
        ],
    }


def streams(name: str, setting: Setting) -> Result:
    """Run a system while torch watches for memory that two streams use without waiting
    for each other.

    A system's copies are started by its own threads, and torch watches the thread that
    imports it, so the others are watched too.
    """
    if setting.real:
        _watch_every_thread()
    system = load(name)
    kinds = ("run", "abandon", "loss")
    chosen = [
        case
        for case in cases(system.info.devices, True, True, setting.device)
        if case.kind in kinds
    ]
    with tempfile.TemporaryDirectory(
        prefix="outcore-streams-", dir="/var/tmp"
    ) as folder:
        seen = [drive(Path(folder), case, system) for case in chosen]
    faults = [
        f"{one.name}: {one.detail}"
        for one in judge(seen, system.info.faithful)
        if not one.ok
    ]
    return {"cases": len(seen), "watched": setting.real, "faults": faults}


def _watch_every_thread() -> None:
    """Enter torch's stream sanitizer in every thread, one operation at a time, since
    its records have no lock.

    It watches tensors by their first address; a table is read in some rows while others
    are written, so tables are watched row by row.
    """
    from torch.cuda import _sanitizer as sanitizer
    from torch.utils import _python_dispatch

    from workloads.accelerators.cuda import CudaAccelerator

    theirs: Any = sanitizer.cuda_sanitizer
    mode: Any = _python_dispatch.TorchDispatchMode
    lock = threading.RLock()
    run = threading.Thread.run
    allocate = CudaAccelerator.allocate
    handler = theirs.dispatch.event_handler
    judge_launch = handler._handle_kernel_launch
    tables: dict[int, int] = {}  # first address and the one past the last
    rows: dict[
        int, list[int]
    ] = {}  # addresses of the rows of the operation under way, by that of their tensor

    def noted(self: CudaAccelerator, *asked: Any) -> torch.Tensor:
        table = allocate(self, *asked)
        begin = table.data_ptr()
        end = table.data_ptr() + table.nbytes
        with lock:
            tables[begin] = end
            for address in [
                one for one in handler.tensors_accessed.accesses if begin <= one < end
            ]:
                handler.tensors_accessed.delete_tensor(
                    address
                )  # of a table that was there before
        return table

    def by_row(
        stream: int,
        read: set[int],
        written: set[int],
        outputs: set[int],
        operator: str,
        names: Any,
    ) -> Any:
        sets = (
            {one for begin in part for one in rows.get(begin, [begin])}
            for part in (read, written, outputs)
        )
        named = {
            one: names[begin]
            for begin in list(names)
            for one in rows.get(begin, [begin])
        }
        return judge_launch(stream, *sets, operator, named)

    class Watch(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            with lock:
                rows.clear()
                rows.update(addresses(func, args, tables))
                found = theirs.dispatch.__torch_dispatch__(
                    func, types, args, kwargs or {}
                )
            if _comes_back(func, found, args, kwargs or {}):
                # The operation has waited for its stream, which the sanitizer does not
                # see.
                torch.cuda.current_stream().synchronize()
            return found

    def watched(self: threading.Thread) -> None:
        with Watch():
            run(self)

    if theirs.enabled:  # by TORCH_CUDA_SANITIZER, in this thread, without the lock
        theirs.disable()
    handler._handle_kernel_launch = by_row
    CudaAccelerator.allocate = noted  # type: ignore[method-assign, assignment]
    threading.Thread.run = watched  # type: ignore[method-assign]
    Watch().__enter__()


def addresses(
    func: Any, args: Sequence[Any], tables: dict[int, int]
) -> dict[int, list[int]]:
    """Return the addresses of the rows that an operation reads or writes in tables, by
    the address of their tensor.

    Args:
        func, args: the operation and its arguments.
        tables: first address of each table, and the one past its last.
    """
    found = {}
    for one in args:
        if isinstance(one, torch.Tensor) and one.dim() > 1 and one.numel():
            begin = one.data_ptr()
            step = one.stride(0) * one.element_size()
            if any(first <= begin < last for first, last in tables.items()):
                found[begin] = [begin + row * step for row in range(one.shape[0])]
    by_number = (
        torch.ops.aten.index_copy_.default,
        torch.ops.aten.index_select.default,
    )
    if func in by_number and args[0].data_ptr() in found:
        every = found[args[0].data_ptr()]
        found[args[0].data_ptr()] = [every[row] for row in args[2].tolist()]
    return found


def _comes_back(
    func: Any, found: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> bool:
    """Return whether a copy's result is on the host and comes from the device, and the
    host has waited for it."""
    aten = torch.ops.aten
    if func not in (
        aten._to_copy.default,
        aten.copy_.default,
        aten._local_scalar_dense.default,
    ):
        return False
    if kwargs.get("non_blocking") or any(one is True for one in args):
        return False
    on_host = not isinstance(found, torch.Tensor) or found.device.type == "cpu"
    return on_host and any(
        isinstance(one, torch.Tensor) and one.device.type == "cuda" for one in args
    )

"""Trial of an accelerator on small tables: it allocates, pins, copies, reads by
zero-copy, and compares every row.

A process of its own makes the trial
(`python -m workloads.accelerators.trial cuda 128 float32`): it starts the driver, may
die with it, and leaves compiled kernels in Triton's cache. It prints one JSON object:
`failed`, the step and its error (empty where all steps work), and the accelerator's
`notes`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import closing

import torch
from torch import Tensor

from workloads.accelerator import Accelerator
from workloads.accelerators.make import make_accelerator
from workloads.errors import OutcoreError
from workloads.feature_table import SplitTable

_ROWS = 256


def try_out(accelerator: Accelerator, dim: int, dtype: torch.dtype) -> str:
    """Return the first step that fails with its error; empty where all work. Tables
    have 256 rows of `dim` elements."""
    expected = (torch.arange(_ROWS * dim) % 251).to(dtype).view(_ROWS, dim)
    order = torch.randperm(_ROWS, generator=torch.Generator().manual_seed(0))
    found: dict[str, Tensor] = {}

    def allocate() -> None:
        found["table"] = accelerator.allocate(_ROWS, dim, dtype)

    def pin() -> None:
        found["host"] = (
            accelerator.host_buffer(expected.nbytes).view(dtype).view(_ROWS, dim)
        )
        found["host"].copy_(expected)

    def copy() -> Tensor:
        accelerator.copy(found["table"], found["host"], order).wait()
        return found["table"][order]

    def read() -> Tensor:
        accelerator.copy(found["table"], found["host"]).wait()
        half = SplitTable(found["table"][: _ROWS // 2], found["host"][_ROWS // 2 :])
        return accelerator.gather(half, order)

    def unpin() -> None:
        accelerator.free_host(found["host"])
        accelerator.free(found["table"])

    steps: dict[str, tuple[Callable[[], Tensor | None], Tensor]] = {
        "allocating device memory": (allocate, expected),
        "pinning host memory": (pin, expected),
        "copying rows": (copy, expected),
        "reading host memory from the device": (read, expected[order]),
        "unpinning host memory": (unpin, expected),
    }
    for name, (step, wanted) in steps.items():
        try:
            rows = step()
            if rows is not None and not torch.equal(rows.cpu(), wanted):
                return f"{name}: other rows arrive"
        except (OutcoreError, RuntimeError, AssertionError) as error:
            return (
                f"{name}: "
                f"{(str(error).strip().splitlines() or [type(error).__name__])[0]}"
            )
    return ""


def main(name: str, dim: int, dtype: torch.dtype) -> None:
    """Try the device called `name`, and print the result."""
    memory = None if name == "cpu" else _ROWS * dim * dtype.itemsize
    try:
        with closing(make_accelerator(name, memory_bytes=memory)) as accelerator:
            result = {
                "failed": try_out(accelerator, dim, dtype),
                "notes": accelerator.notes(),
            }
    except (OutcoreError, RuntimeError, AssertionError) as error:
        result = {"failed": str(error), "notes": {}}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), getattr(torch, sys.argv[3]))

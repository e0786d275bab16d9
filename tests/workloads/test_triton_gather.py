"""Triton's gather kernels without a GPU: right under the interpreter, and compiled to
loads of 16 bytes a thread."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).with_name("triton_programs.py")
KERNEL = Path(__file__).parents[2] / "workloads/accelerators/triton_gather.py"
#: Beside multiples of 4, 8 and 16 bytes and of a warp's and a program's width, and one
#: past the widest program.
FEW = (1, 7, 8, 33, 64, 257)
DIMS = (2, 3, 4, 5, 15, 16, 17, 31, 32, 63, 65, 127, 128, 129, 255, 256)
WIDE = (511, 512, 513, 768, 1000, 1023, 1024, 1025)
#: Dimensions whose rows of either dtype are multiples of 16 bytes.
ALIGNED = (8, 64, 128, 256, 768, 1024)

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None,
        reason="Triton is not installed: scripts/setup --triton",
    ),
]


def run(program: str, numbers: tuple[int, ...], cache: Path, **environment: str) -> Any:
    """Run one of the programs in a process of its own, since Triton reads its settings
    when it is imported."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS), program, ",".join(map(str, numbers))],
        env={
            **os.environ,
            "TRITON_CACHE_DIR": str(cache),
            "PYTHONPATH": os.pathsep.join(sys.path),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


SLOW = pytest.mark.slow("workloads/accelerators/triton_gather.py", seconds=30)


@pytest.mark.parametrize(
    "dims",
    [FEW, pytest.param(DIMS, marks=SLOW), pytest.param(WIDE, marks=SLOW)],
    ids=["few", "narrow", "wide"],
)
def test_rows_are_those_of_numpy(tmp_path: Path, dims: tuple[int, ...]) -> None:
    assert run("check", dims, tmp_path, TRITON_INTERPRET="1") == []


@pytest.mark.parametrize(
    ("capability", "dims"),
    [
        (80, (8, 256)),
        pytest.param(80, ALIGNED, marks=SLOW),
        pytest.param(90, ALIGNED, marks=SLOW),
    ],
)
def test_a_thread_moves_sixteen_bytes_at_once(
    tmp_path: Path, capability: int, dims: tuple[int, ...]
) -> None:
    """Every store of the compiled kernel is one of feature rows; a row is loaded from
    either part of the table."""
    found = run("compile", (capability, *dims), tmp_path)
    for case, kernel in found.items():
        assert kernel["kernels"] and kernel["machine code"], case
        assert set(kernel["stores"]) == {128}, (case, kernel)
        assert kernel["loads"].count(128) >= 2 * len(kernel["stores"]), (case, kernel)


@SLOW
def test_rows_of_any_width_compile(tmp_path: Path) -> None:
    found = run("compile", (80, 1, 3, 7, 129, 1023), tmp_path)
    assert all(kernel["machine code"] for kernel in found.values()), found

"""Programs for tests of the Triton kernels, each in a process of its own:
`python triton_programs.py PROGRAM ARGUMENT`.

`check DIMS` compares gathered rows with NumPy's, under Triton's interpreter
(TRITON_INTERPRET=1); `compile CAPABILITY` compiles for a GPU that is not there. Both
take all calls through `gather_rows` and print JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from workloads.accelerators import triton_gather

ROWS = 41
HOST_FROM = (0, 17, 41)
GUARD = 16
REGIONS = (1, 3)  # of the host part, whose rows one program reads
DTYPES = {"float32": torch.float32, "float16": torch.float16}


def guarded(values: np.ndarray, shift: int = 0) -> torch.Tensor:
    """Return a contiguous copy between bytes 0xEE; it begins `shift` elements past a
    multiple of 16 bytes."""
    size = values.nbytes
    lead = GUARD + shift * values.itemsize
    memory = np.full(size + 4 * GUARD + lead, 0xEE, dtype=np.uint8)
    lead += -memory.ctypes.data % GUARD
    memory[lead : lead + size] = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    tensor = torch.from_numpy(memory)[lead : lead + size].view(
        torch.from_numpy(values[:0]).dtype
    )
    return tensor.view(values.shape)


def untouched(tensor: torch.Tensor) -> bool:
    """Return whether the bytes around a guarded tensor are as they were."""
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
    first = tensor.storage_offset() * tensor.element_size()
    around = np.concatenate([whole[:first], whole[first + tensor.nbytes :]])
    return bool((around == 0xEE).all())


def cases() -> Iterator[tuple[int, int, int]]:
    """Yield (rows on the device, gathered rows, rows before the tables): a few that can
    go wrong."""
    for cut in HOST_FROM:
        yield cut, 37, 0
    yield 17, 1, 0
    yield 17, 0, 0
    # parts of larger tables, whose rows may begin at no multiple of 16 bytes
    yield 17, 37, 1


def check(dims: list[int]) -> list[str]:
    """Return a line for each case in which `gather_rows` differs from NumPy."""
    found = []
    rng = np.random.default_rng(0)
    for dim in dims:
        for name in DTYPES:
            # Every bit pattern, NaNs included, has to arrive unchanged.
            bits = rng.integers(
                0, 256, (ROWS, dim * np.dtype(name).itemsize), dtype=np.uint8
            )
            whole = bits.view(name)
            for cut, count, shift in cases():
                rows = (
                    np.concatenate(
                        [[ROWS - 1, 0, cut, cut - 1], rng.integers(0, ROWS, ROWS)]
                    )[:count]
                    % ROWS
                )
                before = np.full((count + 3, dim), -1, dtype=name)
                for regions in REGIONS:
                    triton_gather._REGION_BYTES = max(1, whole[cut:].nbytes // regions)
                    own, host, out = (
                        guarded(part, shift * dim)
                        for part in (whole[:cut], whole[cut:], before)
                    )
                    triton_gather.gather_rows(own, host, torch.from_numpy(rows), out)
                    same = (
                        out.numpy().tobytes()
                        == np.concatenate([whole[rows], before[count:]]).tobytes()
                    )
                    if not (same and untouched(out)):
                        of = f"{regions} regions of the host's"
                        found.append(
                            f"dim {dim} {name}, {cut} on the device, {count} rows, "
                            f"{shift} before them, {of}"
                        )
    return found


def compiled(capability: int, dims: list[int]) -> dict[str, Any]:
    """Compile what calls of `gather_rows` launch on a GPU of this capability; return
    facts of each kernel's PTX by `dim dtype`: widths in bits of the loads and stores of
    device memory, and whether `ptxas` took it."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    target = GPUTarget("cuda", capability, 32)
    loaded: list[bytes] = []

    def load(name: str, binary: bytes, *_: Any) -> tuple[int, int, int, int, int]:
        loaded.append(binary)
        return 1, 1, 32, 0, 1024

    class Absent:
        """Driver of a GPU that compiles for `target` and launches nothing."""

        utils = SimpleNamespace(
            load_binary=load, get_device_properties=lambda _: {"max_shared_mem": 101376}
        )

        def get_current_target(self) -> GPUTarget:
            return target

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, _: int) -> int:
            return 0

        def launcher_cls(self, *_: Any) -> Any:
            return lambda *_, **__: None

    driver.set_active(Absent())
    found: dict[str, Any] = {}
    kernels = [
        one for one in vars(triton_gather).values() if isinstance(one, JITFunction)
    ]
    for dim in dims:
        for name, dtype in DTYPES.items():
            for kernel in kernels:
                kernel.device_caches.clear()
            loaded.clear()
            tables = [torch.zeros(64, dim, dtype=dtype) for _ in range(3)]
            assert all(table.data_ptr() % 16 == 0 for table in tables)
            triton_gather.gather_rows(tables[0], tables[1], torch.arange(64), tables[2])
            made = [
                binary
                for kernel in kernels
                for cache in kernel.device_caches.values()
                for binary in cache[0].values()
            ]
            ptx = "\n".join(binary.asm["ptx"] for binary in made)
            found[f"{dim} {name}"] = {
                "kernels": len(made),
                "loads": widths(ptx, "ld"),
                "stores": widths(ptx, "st"),
                "machine code": bool(loaded)
                and all(binary[:4] == b"\x7fELF" for binary in loaded),
            }
    return found


def widths(ptx: str, what: str) -> list[int]:
    """Return the bits that one thread moves by each instruction `ld.global` or
    `st.global`."""
    moves = re.findall(
        rf"\b{what}\.global(?:\.[a-z_:0-9]+?)*?(?:\.v(\d))?\.[a-z](\d+)\s", ptx
    )
    return [int(count or 1) * int(bits) for count, bits in moves]


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[2].split(",")]
    if sys.argv[1] == "check":
        print(json.dumps(check(numbers)))
    else:
        print(json.dumps(compiled(numbers[0], numbers[1:])))

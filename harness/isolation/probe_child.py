"""Program inside the cap during the probe: it reads, allocates or pins more than the cap holds. Imports nothing but the
standard library, and few megabytes of it, so that a cap of 48 MiB is enough. Each step is printed on stdout; the kernel
is expected to kill the process before the last line of `allocate` and `pin`."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

_STEP = 1 << 20


def say(text: str) -> None:
    """Write one line to the prober, past any buffer."""
    os.write(1, text.encode() + b"\n")


def read(path: str) -> None:
    """Read the whole file through the page cache, then wait while the prober reads the counters."""
    fd = os.open(path, os.O_RDONLY)
    total = 0
    while chunk := len(os.read(fd, _STEP)):
        total += chunk
    say(f"read {total}")
    os.read(0, 1)


def allocate(total: int) -> None:
    """Touch `total` bytes of anonymous memory, a page at a time."""
    with mmap.mmap(-1, total) as memory:
        for offset in range(0, total, mmap.PAGESIZE):
            memory[offset] = 1
            if offset % (8 * _STEP) == 0:
                say(f"allocated {offset}")
        say(f"escaped {total}")


def pin(total: int, kind: str) -> None:
    """Take `total` bytes in pieces of one kind and touch them from the host. Raises SystemExit: no CUDA device or
    context. Kinds: `registered` pins own pages, as runs do; `pinned` and `managed` are allocated by CUDA."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, device = ctypes.c_void_p(), ctypes.c_int()
    for code in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0)):
        if code:
            raise SystemExit(f"no CUDA device ({code})")
    if code := cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        raise SystemExit(f"no CUDA context ({code})")
    cuda.cuCtxSetCurrent(context)
    say("ready")
    os.read(0, 1)
    piece, done, held = 64 * _STEP, 0, []
    while done < total:
        pointer = ctypes.c_void_p()
        if kind == "managed":
            code = cuda.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(piece), 1)
        elif kind == "pinned":
            code = cuda.cuMemHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(piece), 0)
        else:
            held.append(mmap.mmap(-1, piece))
            pointer.value = ctypes.addressof(ctypes.c_char.from_buffer(held[-1]))
            code = cuda.cuMemHostRegister_v2(pointer, ctypes.c_size_t(piece), 0)
        if code or pointer.value is None:
            say(f"refused {done}")
            return
        ctypes.memset(pointer.value, 1, piece)
        done += piece
        say(f"pinned {done}")
    say(f"escaped {done}")


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(sys.argv[2])
    elif sys.argv[1] == "allocate":
        allocate(int(sys.argv[2]))
    else:
        pin(int(sys.argv[2]), sys.argv[1])

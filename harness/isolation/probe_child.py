"""Program inside the cap during the probe: it reads, allocates or pins more than the
cap holds. Imports nothing but the standard library, and few megabytes of it, so that a
cap of 48 MiB is enough. Each step is printed on stdout; the kernel is expected to kill
the process before the last line of `allocate` and `pin`."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import sys
from contextlib import suppress

_STEP = 1 << 20


def say(text: str) -> None:
    """Write one line to the prober, past any buffer."""
    os.write(1, text.encode() + b"\n")


def read(path: str) -> None:
    """Read the whole file through the page cache, then wait while the prober reads the
    counters."""
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
    """Take `total` bytes in pieces of one kind and touch them from the host. Raises
    SystemExit: no CUDA device or context. Kinds: `registered` pins own pages, as runs
    do; `pinned` and `managed` are allocated by CUDA."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    device = ctypes.c_int()
    for code in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0)):
        if code:
            raise SystemExit(f"no CUDA device ({code})")
    if code := cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        raise SystemExit(f"no CUDA context ({code})")
    cuda.cuCtxSetCurrent(context)
    say("ready")
    os.read(0, 1)
    piece = 64 * _STEP
    done = 0
    held = []
    while done < total:
        pointer = ctypes.c_void_p()
        if kind == "managed":
            code = cuda.cuMemAllocManaged(
                ctypes.byref(pointer), ctypes.c_size_t(piece), 1
            )
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


def keep(total: int) -> None:
    """Keep up to `total` bytes in each kind of kernel object; print its bytes and name,
    and wait after each."""
    say("0 nothing")
    os.read(0, 1)
    for kind, keep_more in KINDS.items():
        nbytes = 0
        with suppress(OSError):  # refused, or a limit of the kernel
            while nbytes < total and (part := keep_more()):
                nbytes += part
        say(f"{nbytes} {kind}")
        os.read(0, 1)


def tcp() -> int:
    """Fill the receive queue of a connection of this process to itself; return the
    bytes."""
    server = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(server.getsockname(), timeout=1)
    receiver, _ = server.accept()
    receiver.detach()
    return _filled(sender.detach())


def unix() -> int:
    """Fill a pair of UNIX sockets; return the bytes."""
    sender, receiver = socket.socketpair()
    receiver.detach()
    return _filled(sender.detach())


def pipe() -> int:
    """Fill a pipe; return its bytes."""
    _, writing = os.pipe()
    return _filled(writing)


def _filled(descriptor: int) -> int:
    """Write until a queue is full; return its bytes. The descriptors stay open."""
    os.set_blocking(descriptor, False)
    nbytes = 0
    with suppress(BlockingIOError):
        while True:
            nbytes += os.write(descriptor, bytes(1 << 16))
    return nbytes


def messages() -> int:
    """Fill a message queue of System V; return its bytes."""
    libc = ctypes.CDLL(None, use_errno=True)
    queue = _done(libc.msgget(0, 0o600))
    body = ctypes.create_string_buffer(b"\1" + bytes(7 + 8192))
    nbytes = 0
    while libc.msgsnd(queue, body, ctypes.c_size_t(8192), 0o4000) == 0:
        nbytes += 8192
    return nbytes


def key() -> int:
    """Add a key to the key ring of the process; return its bytes."""
    libc = ctypes.CDLL(None, use_errno=True)
    name = os.urandom(8).hex().encode()
    body = bytes(30_000)
    added = libc.syscall(
        ctypes.c_long(_ADD_KEY),
        b"user",
        name,
        body,
        ctypes.c_size_t(len(body)),
        ctypes.c_int(-2),
    )
    _done(added)
    return len(body)


def attribute() -> int:
    """Set an extended attribute of a file in memory; return its bytes."""
    file = os.memfd_create("outcore")
    value = bytes(60_000)
    os.setxattr(file, "user.rows", value)
    return len(value)


def _done(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


_ADD_KEY = 248 if os.uname().machine == "x86_64" else 217
KINDS = {
    "TCP sockets": tcp,
    "UNIX sockets": unix,
    "pipes": pipe,
    "message queues": messages,
    "keys": key,
    "extended attributes": attribute,
}


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(sys.argv[2])
    elif sys.argv[1] == "keep":
        keep(int(sys.argv[2]))
    elif sys.argv[1] == "allocate":
        allocate(int(sys.argv[2]))
    else:
        pin(int(sys.argv[2]), sys.argv[1])

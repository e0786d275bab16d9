"""Program inside the cap during the probe: it reads, allocates or pins more than the cap holds. Imports nothing but the
standard library, and few megabytes of it, so that a cap of 48 MiB is enough. Each step is printed on stdout; the kernel
is expected to kill the process before the last line of `allocate` and `pin`."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import socket
import sys
from collections.abc import Iterator

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


def keep(total: int) -> None:
    """Keep up to `total` bytes in each kind of kernel object; print its name and bytes, and wait after each."""
    held: list[object] = []
    for kind, fill in KINDS.items():
        held.clear()
        say(f"0 {kind}")
        os.read(0, 1)
        nbytes = 0
        try:
            for part in fill(held):
                nbytes += part
                if nbytes >= total:
                    break
        except OSError:  # refused, or a limit of the kernel
            pass
        say(f"{nbytes} {kind}")
        os.read(0, 1)


def tcp(held: list[object]) -> Iterator[int]:
    """Fill the receive queues of connections of this process to itself."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        while True:
            sender = socket.create_connection(server.getsockname(), timeout=1)
            held += [sender, server.accept()]
            yield from _sent(sender)


def unix(held: list[object]) -> Iterator[int]:
    """Fill pairs of UNIX sockets."""
    while True:
        sender, receiver = socket.socketpair()
        held += [sender, receiver]
        yield from _sent(sender)


def _sent(sender: socket.socket) -> Iterator[int]:
    sender.setblocking(False)
    try:
        while True:
            yield sender.send(bytes(1 << 16))
    except BlockingIOError:
        return


def pipes(held: list[object]) -> Iterator[int]:
    """Fill pipes."""
    while True:
        ends = os.pipe()
        held += [os.fdopen(end, "rb" if end == ends[0] else "wb", 0) for end in ends]
        os.set_blocking(ends[1], False)
        try:
            while True:
                yield os.write(ends[1], bytes(1 << 16))
        except BlockingIOError:
            continue


def messages(held: list[object]) -> Iterator[int]:
    """Fill message queues of System V."""
    libc = _libc()
    body = ctypes.create_string_buffer(b"\1" + bytes(7) + bytes(8192))
    while True:
        queue = _done(libc.msgget(0, 0o600))
        while libc.msgsnd(queue, body, ctypes.c_size_t(8192), 0o4000) == 0:
            yield 8192


def keys(held: list[object]) -> Iterator[int]:
    """Add keys to the key ring of the process."""
    libc = _libc()
    for number in itertools.count():
        name, body = b"outcore-%d" % number, bytes(30_000)
        _done(libc.syscall(ctypes.c_long(_ADD_KEY), b"user", name, body, ctypes.c_size_t(len(body)), ctypes.c_int(-2)))
        yield len(body)


def attributes(held: list[object]) -> Iterator[int]:
    """Set extended attributes of files in memory."""
    file = os.memfd_create("outcore")
    held.append(os.fdopen(file, "rb"))
    for number in itertools.count():
        os.setxattr(file, f"user.{number}", bytes(60_000))
        yield 60_000


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _done(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


_ADD_KEY = 248 if os.uname().machine == "x86_64" else 217
KINDS = {
    "TCP sockets": tcp,
    "UNIX sockets": unix,
    "pipes": pipes,
    "message queues": messages,
    "keys": keys,
    "extended attributes": attributes,
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

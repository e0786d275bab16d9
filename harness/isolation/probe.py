"""Proof that a cap holds (methodology rule 6): a process inside reads, allocates and
pins past it, for real. Takes about a second; with a GPU also one start of its driver
for each kind of memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.isolation.base import Cap, Isolation, Limits
from harness.isolation.mounts import IN_MEMORY, mount_of
from harness.isolation.walls import sandbox
from harness.isolation.walls.needs import Needs
from workloads.errors import HostError

CAP_BYTES = 48 << 20
FILE_BYTES = 96 << 20
_CHILD = Path(__file__).with_name("probe_child.py")
_TIMEOUT_S = 60.0
KEPT_BYTES = 8 << 20
_PYTHON = (sys.executable, "-S", "-E")


@dataclass(frozen=True)
class ProbeResult:
    """Outcome of a probe. `page_cache_charged`: whether the pages of a file larger than
    the cap were charged to it and reclaimed in it. `allocation_stopped`: whether a
    process that touched more memory than the cap was killed, and the kill counted.
    `pinned_stopped`: whether pinning more own pages than the cap, as runs do, was
    stopped; None without a GPU. `escapes`: kinds of memory that were not stopped, one
    sentence each, for the record."""

    page_cache_charged: bool
    allocation_stopped: bool
    pinned_stopped: bool | None
    escapes: tuple[str, ...]
    seconds: float

    @property
    def proven(self) -> bool:
        """Whether runs may rely on the cap."""
        return (
            self.page_cache_charged
            and self.allocation_stopped
            and self.pinned_stopped is not False
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for the record."""
        return asdict(self) | {"escapes": list(self.escapes), "proven": self.proven}


def probe(isolation: Isolation, folder: Path, gpu: bool = False) -> ProbeResult:
    """Try to break a small cap of `isolation`, with a file of 96 MiB made in `folder`
    (on a disk) and removed again. Raises HostError: the probe itself cannot run (no
    space, a file system in memory)."""
    begin = time.monotonic()
    escapes: list[str] = []
    read = _reads(isolation, folder, escapes)
    if read:  # else nothing is charged
        _keeps(isolation, escapes)
    allocated = _allocates(isolation, escapes)
    pinned = _pins(isolation, escapes) if gpu else None
    return ProbeResult(
        read, allocated, pinned, tuple(escapes), time.monotonic() - begin
    )


def _reads(isolation: Isolation, folder: Path, escapes: list[str]) -> bool:
    if (mount := mount_of(folder)).kind in IN_MEMORY:
        raise HostError(
            f"{folder} is on {mount.kind}, whose pages are memory",
            "give a folder on a disk",
        )
    with (
        _cold_file(folder) as file,
        isolation.create("probe-read", Limits(CAP_BYTES)) as cap,
    ):
        cap.bring(Needs(read_only=(file, _CHILD)))
        with _started(cap, "read", str(file)) as child:
            message = _line(child)
            now = cap.memory()
    if not message.startswith("read"):
        escapes.append("reading a file inside the cap did not end well")
        return False
    # Charged: the cache is in the cap. Reclaimed: twice the cap was read, and it never
    # held more than the cap.
    charged = now.page_cache > CAP_BYTES // 4 and now.peak <= CAP_BYTES
    if not charged:
        escapes.append("page cache: a file read inside the cap is not charged to it")
    return charged


def _keeps(isolation: Isolation, escapes: list[str]) -> None:
    """Keep bytes in objects of the kernel; name the kinds that are not charged. The
    sockets of ranks are counted at every gate instead (`memory_is_charged`)."""
    with isolation.create("probe-keep", Limits(2 * CAP_BYTES)) as cap:
        cap.bring(Needs(read_only=(_CHILD,)))
        with _started(cap, "keep", str(KEPT_BYTES)) as child:
            assert child.stdin is not None
            before = 0
            while line := _line(child):
                nbytes, kind = line.split(" ", 1)
                now = cap.memory().usage
                if int(nbytes) >= KEPT_BYTES and now - before < KEPT_BYTES // 2:
                    escapes.append(
                        f"{kind}: bytes kept in them are not charged to the cap"
                    )
                before = now
                child.stdin.write(b"g")
                child.stdin.flush()


def _allocates(isolation: Isolation, escapes: list[str]) -> bool:
    with isolation.create("probe-allocate", Limits(CAP_BYTES)) as cap:
        cap.bring(Needs(read_only=(_CHILD,)))
        # A child that is not stopped takes no more than twice the cap from the host.
        with _started(cap, "allocate", str(2 * CAP_BYTES)) as child:
            output = _output(child)
        kills = cap.memory().oom_kills
    stopped = b"escaped" not in output and kills > 0
    if not stopped:
        escapes.append("anonymous memory: allocating past the cap is not stopped")
    return stopped


def _pins(isolation: Isolation, escapes: list[str]) -> bool | None:
    """Pin own pages past a cap of 256 MiB above a CUDA context's usage. Memory that
    CUDA itself pins or manages is tried too, but only reported: runs use neither."""
    results = {}
    for kind in ("registered", "pinned", "managed"):
        with isolation.create(f"probe-{kind}", Limits()) as cap:
            cap.bring(Needs(read_only=(_CHILD,), gpu=True))
            # Drivers may lie where only the caller's library path leads, so the sandbox
            # is left out.
            with _started(cap, kind, str(1 << 30), sandboxed=False) as child:
                if not _line(child).startswith("ready"):
                    return None  # no CUDA device after all
                cap.set_memory(cap.memory().usage + (256 << 20))
                # A refusal with an error counts as stopped: the bytes were not
                # allocated.
                results[kind] = b"escaped" not in _output(child, b"g")
            if not results[kind]:
                escapes.append(
                    f"{kind} CUDA memory: it is not charged to the cap on this host"
                )
    return results["registered"]


@contextmanager
def _started(
    cap: Cap, *arguments: str, sandboxed: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the program that runs in the cap as a worker does; kill it at the end."""
    argv = [*_PYTHON, str(_CHILD), *arguments]
    command, descriptors = (
        cap.worker_command(argv) if sandboxed else (cap.command(argv), [])
    )
    pipe = subprocess.PIPE
    null = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=null, pass_fds=descriptors
    ) as child:
        sandbox.close(descriptors)
        try:
            yield child
        finally:
            child.kill()


def _line(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().decode().strip()


def _output(child: subprocess.Popen[bytes], message: bytes | None = None) -> bytes:
    """Send the child `message`; return its output up to its end. One that hangs (no OOM
    killer) was not stopped."""
    try:
        return child.communicate(message, timeout=_TIMEOUT_S)[0]
    except subprocess.TimeoutExpired:
        return b"escaped"


@contextmanager
def _cold_file(folder: Path) -> Iterator[Path]:
    """Yield a file that is not in the page cache: pages that another cgroup holds would
    not be charged."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(
                tempfile.NamedTemporaryFile(
                    prefix=".outcore-probe-", dir=folder, buffering=0
                )
            )
            for _ in range(FILE_BYTES >> 20):
                file.write(b"\1" * (1 << 20))
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            message = f"the probe cannot write {FILE_BYTES >> 20} MiB in {folder}"
            raise HostError.from_os(
                error, message, "choose another --data-root"
            ) from error
        yield Path(file.name)

"""Processes of a cap: its owner, encoded in its name, so that a dead owner's cap is
removed; joining and killing."""

from __future__ import annotations

import os
import re
import signal
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from harness.isolation.files import read_text

PARENT = "outcore"
_NAME = re.compile(r"run_(\d+)_(\d+)_(\d+)_([A-Za-z0-9.]+)$")
# The shell joins every group itself and then becomes the work: memory of the work is
# charged to the cap from its first page on. `$$` is the shell's own pid, which exec
# keeps.
_JOIN = (
    'while [ "$1" != -- ]; do echo $$ > "$1" || { echo "outcore: cannot join '
    '$1" >&2; exit 125; }; shift; done; '
    'shift; exec "$@"'
)


def pid_namespace() -> int:
    """Return the number of this process's pid namespace; pids of another namespace mean
    nothing here."""
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def start_time(pid: int) -> int | None:
    """Return the start of `pid` in clock ticks since boot; None where there is none or
    only its zombie, which has left its groups already. Pid and start identify a
    process; a pid alone is used again."""
    fields = read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (
        int(fields[19]) if len(fields) >= 20 and fields[0] not in ("Z", "X") else None
    )


def cap_name(run_id: str) -> str:
    """Return a unique name for a cap of this process, without dashes, which systemd
    reads as nesting."""
    safe = re.sub(r"[^A-Za-z0-9.]", ".", run_id)[:60] or "run"
    began = start_time(os.getpid()) or 0
    process = f"{pid_namespace()}_{os.getpid()}_{began}"
    return f"run_{process}_{safe}.{uuid.uuid4().hex[:6]}"


def holds_groups(parent: Path) -> bool:
    """Return whether this user may make groups in `parent`, found by trying, since
    another user may own it."""
    probe = parent / cap_name("probe")
    with suppress(OSError):
        probe.mkdir()
        probe.rmdir()
        return True
    return False


def is_left_over(name: str) -> bool:
    """Return whether the cap's owner is dead. Other programs' names and other pid
    namespaces are never left over."""
    match = _NAME.match(name)
    return (
        match is not None
        and int(match[1]) == pid_namespace()
        and start_time(int(match[2])) != int(match[3])
    )


def joining(groups: Sequence[Path], argv: Sequence[str]) -> list[str]:
    """Return `argv` behind a shell that first writes itself into the `cgroup.procs` of
    each group. The exit status is 125 where the kernel refuses. Descriptors, signals
    and the pid are those of the work."""
    return [
        "/bin/sh",
        "-c",
        _JOIN,
        "outcore",
        *(str(group / "cgroup.procs") for group in groups),
        "--",
        *argv,
    ]


def kill_all(pids: Callable[[], list[int]], timeout_s: float = 10.0) -> bool:
    """Kill with SIGKILL until no process is left, since a dying one may just have
    forked; return False on timeout. A process leaves its group, and loses its
    environment, before it is gone: every process seen is awaited."""
    deadline = time.monotonic() + timeout_s
    pause = 0.001
    seen: dict[int, int | None] = {}
    while True:
        left = [pid for pid in pids() if pid not in (0, os.getpid())]
        seen.update((pid, start_time(pid)) for pid in left if pid not in seen)
        if not left and all(
            begun is None or start_time(pid) != begun for pid, begun in seen.items()
        ):
            return True
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def threads_of(pid: int) -> set[int]:
    """Return thread ids of a process, empty once it is gone."""
    with suppress(OSError):
        return {int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()}
    return set()

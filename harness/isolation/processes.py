"""Processes of a cap: its owner, encoded in its name, so that a dead owner's cap is removed; joining and killing."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from harness.isolation.files import read_text

PARENT = "outcore"
_NAME = re.compile(r"run_(\d+)_(\d+)_(\d+)_([A-Za-z0-9.]+)$")
# The shell joins every group itself and then becomes the work: memory of the work is charged to the cap from its
# first page on. `$$` is the shell's own pid, which exec keeps.
_JOIN = (
    'while [ "$1" != -- ]; do echo $$ > "$1" || { echo "outcore: cannot join $1" >&2; exit 125; }; shift; done; '
    'shift; exec "$@"'
)
_LOOK_AGAIN_S = 0.005
# Root may write to everything, so the work gets a read-only view of the groups and of the paths before `--`, and loses
# the two capabilities that give another view: mounting, and entering the view of a process that still has them.
_CONFINE = (
    'while [ "$1" != -- ]; do mount --rbind "$1" "$1" && mount -o remount,bind,ro "$1" || '
    '{ echo "outcore: cannot make $1 read-only" >&2; exit 125; }; shift; done; shift; '
    'for at in $(awk \'$3 == "cgroup" || $3 == "cgroup2" {print $2}\' /proc/self/mounts); do '
    'mount -o remount,bind,ro "$at" || { echo "outcore: cannot make $at read-only" >&2; exit 125; }; done; '
    'exec setpriv --bounding-set=-sys_admin,-sys_ptrace --inh-caps=-sys_admin,-sys_ptrace -- "$@"'
)


def pid_namespace() -> int:
    """Return the number of this process's pid namespace; pids of another namespace mean nothing here."""
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def start_time(pid: int, thread: int | None = None) -> int | None:
    """Return the start of `pid`, or of one of its threads, in clock ticks since boot; None where there is none or only
    its zombie, which has left its groups already. Pid and start identify a process; a pid alone is used again."""
    fields = read_text(Path(f"/proc/{pid}/task/{thread or pid}/stat")).rpartition(")")[2].split()
    return int(fields[19]) if len(fields) >= 20 and fields[0] not in ("Z", "X") else None


def cap_name(run_id: str) -> str:
    """Return a unique name for a cap of this process, without dashes, which systemd reads as nesting."""
    safe = re.sub(r"[^A-Za-z0-9.]", ".", run_id)[:60] or "run"
    return f"run_{pid_namespace()}_{os.getpid()}_{start_time(os.getpid()) or 0}_{safe}.{uuid.uuid4().hex[:6]}"


def holds_groups(parent: Path) -> bool:
    """Return whether this user may make groups in `parent`, found by trying, since another user may own it."""
    probe = parent / cap_name("probe")
    with suppress(OSError):
        probe.mkdir()
        probe.rmdir()
        return True
    return False


def is_left_over(name: str) -> bool:
    """Return whether the cap's owner is dead. Other programs' names and other pid namespaces are never left over."""
    match = _NAME.match(name)
    return match is not None and int(match[1]) == pid_namespace() and start_time(int(match[2])) != int(match[3])


def joining(groups: Sequence[Path], argv: Sequence[str]) -> list[str]:
    """Return `argv` behind a shell that first writes itself into the `cgroup.procs` of each group. The exit status is
    125 where the kernel refuses. Descriptors, signals and the pid are those of the work."""
    return ["/bin/sh", "-c", _JOIN, "outcore", *(str(group / "cgroup.procs") for group in groups), "--", *argv]


def confined(argv: Sequence[str], read_only: Sequence[Path] = ()) -> list[str]:
    """Return `argv` that, for root, sees cgroups and `read_only` read-only and stays in its group; else unchanged."""
    return _confined(argv, read_only) if can_confine() else list(argv)


def _confined(argv: Sequence[str], read_only: Sequence[Path] = ()) -> list[str]:
    places = map(str, read_only)
    return ["unshare", "--mount", "--propagation=private", "/bin/sh", "-c", _CONFINE, "outcore", *places, "--", *argv]


@functools.cache
def can_confine() -> bool:
    """Return whether this process can start others that cannot change their cgroups; for root, found by trying."""
    with suppress(OSError, subprocess.TimeoutExpired):
        tried = _confined(["true"])
        return os.geteuid() == 0 and subprocess.run(tried, capture_output=True, timeout=20).returncode == 0
    return False


def strays(groups: Sequence[Path], pids: Collection[int]) -> list[int]:
    """Return the live processes of `pids` with a thread outside one of the v1 `groups` and the groups below it. A
    thread that begins or ends is in one list and not in the other, so threads found outside are checked twice."""

    def outside(among: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
        held = [
            {int(word) for folder, _, _ in os.walk(group) for word in read_text(Path(folder, "tasks")).split()}
            for group in groups
        ]
        return {(pid, thread) for pid, thread in among if not all(thread in tasks for tasks in held)}

    found = outside([(pid, thread) for pid in pids for thread in threads_of(pid)])
    if found:
        time.sleep(_LOOK_AGAIN_S)
        found = {(pid, thread) for pid, thread in outside(found) if start_time(pid, thread) is not None}
    return sorted({pid for pid, _ in found})


def threads_of(pid: int) -> set[int]:
    """Return thread ids of a process, empty once it is gone."""
    with suppress(OSError):
        return {int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()}
    return set()


def children(pid: int) -> set[int]:
    """Return the child processes of `pid`, zombies included."""
    listed = [read_text(Path(f"/proc/{pid}/task/{thread}/children")) for thread in threads_of(pid)]
    return {int(word) for text in listed for word in text.split()}


def descendants(pid: int) -> set[int]:
    """Return all processes started by `pid`, directly or not, without processes orphaned by their parent."""
    found: set[int] = set()
    todo = {pid}
    while todo:
        new = children(todo.pop()) - found
        found |= new
        todo |= new
    return found


def kill_all(pids: Callable[[], list[int]], timeout_s: float = 10.0) -> bool:
    """Kill with SIGKILL until no process is left, since a dying one may just have forked; return False on timeout. A
    process leaves its group, and loses its environment, before it is gone: every process seen is awaited."""
    deadline = time.monotonic() + timeout_s
    pause = 0.001
    seen: dict[int, int | None] = {}
    while True:
        left = [pid for pid in pids() if pid not in (0, os.getpid())]
        seen.update((pid, start_time(pid)) for pid in left if pid not in seen)
        if not left and all(begun is None or start_time(pid) != begun for pid, begun in seen.items()):
            return True
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.05)

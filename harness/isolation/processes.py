"""Killing every process of a cap, and joining a cap before the work starts."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from harness.isolation.files import read_text
from harness.isolation.owner import start_time

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


def joining(groups: Sequence[Path], argv: Sequence[str]) -> list[str]:
    """Return `argv` behind a shell that first writes itself into the `cgroup.procs` of each group. The exit status is
    125 where the kernel refuses. Descriptors, signals and the pid are those of the work."""
    return ["/bin/sh", "-c", _JOIN, "outcore", *(str(group / "cgroup.procs") for group in groups), "--", *argv]


def confined(argv: Sequence[str], read_only: Sequence[Path] = ()) -> list[str]:
    """Return `argv` that, for root, sees all cgroups and the paths in `read_only` read-only and cannot leave its own
    group; otherwise unchanged."""
    return _confined(argv, read_only) if can_confine() else list(argv)


def _confined(argv: Sequence[str], read_only: Sequence[Path] = ()) -> list[str]:
    places = map(str, read_only)
    return ["unshare", "--mount", "--propagation=private", "/bin/sh", "-c", _CONFINE, "outcore", *places, "--", *argv]


@functools.cache
def can_confine() -> bool:
    """Return whether this process can start others that cannot change their cgroups; for root, found by trying."""
    if os.geteuid() != 0:
        return False
    try:
        return subprocess.run(_confined(["true"]), capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
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
    try:
        return {int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:
        return set()


def descendants(pid: int) -> set[int]:
    """Return all processes started by `pid`, directly or not, without processes orphaned by their parent."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        one = todo.pop()
        for thread in threads_of(one):
            for word in read_text(Path(f"/proc/{one}/task/{thread}/children")).split():
                if int(word) not in found:
                    found.add(int(word))
                    todo.append(int(word))
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

"""Ending every process of a cap, and joining a cap before the work starts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.isolation.owner import start_time

# The shell joins every group itself and then becomes the work: memory of the work is charged to the cap from its
# first page on. `$$` is the shell's own pid, which exec keeps.
_JOIN = (
    'while [ "$1" != -- ]; do echo $$ > "$1" || { echo "outcore: cannot join $1" >&2; exit 125; }; shift; done; '
    'shift; exec "$@"'
)


def joining(groups: Sequence[Path], argv: Sequence[str]) -> list[str]:
    """`argv` behind a shell that first writes itself into the `cgroup.procs` of each group.

    The exit status is 125 where the kernel refuses. Descriptors, signals and the pid are those of the work.
    """
    return ["/bin/sh", "-c", _JOIN, "outcore", *(str(group / "cgroup.procs") for group in groups), "--", *argv]


def pids_in(group: Path) -> list[int]:
    """Processes of a group and of the groups below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        try:
            found += [int(word) for word in Path(folder, "cgroup.procs").read_text().split()]
        except OSError:
            continue  # the group went away between the walk and the read
    return found


def kill_all(pids: Callable[[], list[int]], timeout_s: float = 10.0) -> bool:
    """SIGKILL until nothing is left, since what dies may just have forked; False where something outlives it.

    A process leaves its group, and loses its environment, a moment before it is gone: all that were seen are awaited.
    """
    deadline = time.monotonic() + timeout_s
    pause = 0.001
    seen: dict[int, int | None] = {}
    while True:
        left = [pid for pid in pids() if pid not in (0, os.getpid())]
        seen.update((pid, start_time(pid)) for pid in left if pid not in seen)
        if not left and all(begun is None or start_time(pid) != begun for pid, begun in seen.items()):
            return True
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def remove_group(group: Path, timeout_s: float = 5.0) -> bool:
    """Remove a group and those below it; the kernel refuses while dead processes are still being cleaned up."""
    deadline = time.monotonic() + timeout_s
    while True:
        # Bottom first: a group with children cannot go.
        for folder in sorted((Path(f) for f, _, _ in os.walk(group)), key=lambda f: len(f.parts), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                pass
        if not group.exists():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)

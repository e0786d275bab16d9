"""Cap names that encode their owner, so that caps of dead orchestrators are recognised and removed."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path

from harness.isolation.files import read_text

PARENT = "outcore"
_NAME = re.compile(r"run_(\d+)_(\d+)_(\d+)_([A-Za-z0-9.]+)$")


def pid_namespace() -> int:
    """Return the number of this process's pid namespace; pids of another namespace mean nothing here."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def start_time(pid: int, thread: int | None = None) -> int | None:
    """Return the start of `pid`, or of one of its threads, in clock ticks since boot; None where there is none or only
    its zombie, which has left its groups already. Pid and start identify one process for the life of the host, while a
    pid alone is used again."""
    stat = read_text(Path(f"/proc/{pid}/task/{thread or pid}/stat"))
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def cap_name(run_id: str) -> str:
    """Return a unique name for a cap of this process, without dashes, which systemd reads as nesting."""
    safe = re.sub(r"[^A-Za-z0-9.]", ".", run_id)[:60] or "run"
    return f"run_{pid_namespace()}_{os.getpid()}_{start_time(os.getpid()) or 0}_{safe}.{uuid.uuid4().hex[:6]}"


def holds_groups(parent: Path) -> bool:
    """Return whether this user may make groups in `parent`, found by trying, since another user may own it."""
    probe = parent / cap_name("probe")
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def is_left_over(name: str) -> bool:
    """Return whether the cap's owner is dead. Other programs' names and other pid namespaces are never left over."""
    match = _NAME.match(name)
    if not match or int(match.group(1)) != pid_namespace():
        return False
    return start_time(int(match.group(2))) != int(match.group(3))

"""Cgroup that an engine made for a container, found on the host: the same files as for Outcore's own caps."""

from __future__ import annotations

import os
from pathlib import Path

from harness.isolation import mounts
from harness.isolation.cgroup1 import V1Readings
from harness.isolation.cgroup2 import V2Readings
from harness.isolation.groups import Readings
from workloads.errors import HostError


def readings_of(pid: int, proc: Path = Path("/proc")) -> Readings:
    """Return the counters of the container with host process `pid`. Only resetting a peak needs a privilege: root.

    Raises:
        HostError: the container's cgroup is not visible here.
    """
    own = mounts.groups_of(proc, pid)
    memory, blkio, unified = mounts.v1("memory", proc), mounts.v1("blkio", proc), mounts.v2(proc)
    if memory is not None:
        io = _folder(blkio.mount, own.get("blkio", "")) if blkio else None
        return V1Readings(_folder(memory.mount, own.get("memory", "")), io)
    if unified is None:
        raise HostError("no cgroup is mounted here", "mount -t cgroup2 none /sys/fs/cgroup")
    return V2Readings(_folder(unified.mount, own.get("", "")))


def _folder(mount: Path, path: str) -> Path:
    folder = Path(os.path.normpath(mount / path.lstrip("/")))
    if path in ("", "/") or not folder.is_dir():
        raise HostError(
            "the container's cgroup cannot be seen from here: the engine runs in another machine or container",
            "run Outcore on the host of the engine",
        )
    return folder

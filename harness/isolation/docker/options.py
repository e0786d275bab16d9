"""Options for the container of a cap: limits, mounts, user, security, devices."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.isolation import mounts
from harness.isolation.base import IoLimit, Limits
from harness.isolation.blocks import disks
from harness.isolation.cgroup1 import SWAP_SLACK
from harness.isolation.docker.engine import LABEL
from harness.isolation.docker.image import Image
from harness.isolation.files import numbered
from harness.isolation.walls import syscalls
from harness.isolation.walls.needs import Needs
from harness.isolation.walls.sandbox import hidden_inside
from workloads.errors import HostError, InputError

Lock = Literal["ipc_lock", "ulimit"] | int

_NO_LIMIT = (
    1 << 62
)  # the engine cannot remove a limit; the kernel shows this one as none
_FORWARDED = (
    *(
        "OMP_ MKL_ KMP_ GOMP_ OPENBLAS_ TORCH_ PYTORCH_ CUDA_ TRITON_ NCCL_ MALLOC_ "
        "OUTCORE_ PYTHONHASHSEED"
    ).split(),
    *"LANG LC_ TZ".split(),
)
_GPU_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@dataclass
class Wanted:
    """One container to be made.

    Attributes:
        name: name that encodes its owner (`cap_name`).
        engine: its version.
        lock: how the work locks memory, for io_uring's registered buffers: `ipc_lock`
            (a capability that only root inside has), `ulimit` (no limit, if the engine
            may raise it), or a limit in bytes.
    """

    name: str
    limits: Limits
    image: Image
    needs: Needs = field(default_factory=Needs)
    lock: Lock = "ipc_lock"
    engine: str = ""

    def options(self) -> dict[str, Any]:
        """Return the arguments of docker-py's `containers.create`. Raises InputError: a
        path to be mounted, or the GPU, is missing. Raises HostError: a device to be
        limited is missing."""
        from docker.types import Mount, Ulimit

        shown = [path for path, _ in self.mounts()]
        binds = [
            Mount(str(path), str(path), type="bind", read_only=read_only)
            for path, read_only in self.mounts()
        ]
        v1 = mounts.v1("memory") is not None
        profile = json.dumps(syscalls.profile(self.needs.sockets))
        options: dict[str, Any] = {
            "name": self.name,
            "labels": {f"{LABEL}.cap": self.name},
            "entrypoint": [],
            "stdin_open": True,
            "user": f"{os.geteuid()}:{os.getegid()}",
            "group_add": sorted(str(group) for group in os.getgroups()),
            "environment": self._environment(),
            "mounts": binds,
            "working_dir": "/",
            "read_only": True,
            # Files in /tmp are charged to the container; hidden folders are empty and
            # read-only.
            "tmpfs": {"/tmp": "mode=1777,exec"}
            | {str(path): "ro" for path in hidden_inside(self.needs, shown)},
            "ipc_mode": "private",
            "shm_size": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2,
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges", f"seccomp={profile}"],
            "cap_add": ["IPC_LOCK"] if self.lock == "ipc_lock" else [],
            "ulimits": [Ulimit(name="core", soft=0, hard=0)],
            "cpuset_cpus": numbered(
                self.limits.processors or sorted(os.sched_getaffinity(0))
            ),
            "log_config": {"Type": "none"},
            **({} if self.limits.memory_bytes is None else self.memory_options()),
            **throttles(self.limits.io, count=v1),
        }
        if self.lock != "ipc_lock":
            lock = -1 if self.lock == "ulimit" else self.lock
            options["ulimits"].append(Ulimit(name="memlock", soft=lock, hard=lock))
        if v1:
            options["mem_swappiness"] = 0
        if self.needs.gpu:
            options |= _gpu_options(self.image.layout)
        return options

    def _environment(self) -> dict[str, str]:
        """Return the environment variables that change measurements; none that names a
        person or a place."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if key.startswith(_FORWARDED)
        }
        fixed = {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
        if self.image.layout == "host":
            fixed["PATH"] = os.pathsep.join(
                [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
            )
            if "PYTHONPATH" in os.environ:
                fixed["PYTHONPATH"] = os.environ["PYTHONPATH"]
        return kept | fixed

    def memory_options(self) -> dict[str, int]:
        """Return the limits of memory, and of memory with swap, for a new or a running
        container."""
        limit = self.limits.memory_bytes
        if limit is None:
            return {"mem_limit": _NO_LIMIT, "memswap_limit": _NO_LIMIT}
        return {
            "mem_limit": limit,
            "memswap_limit": limit
            + (SWAP_SLACK if mounts.v1("memory") is not None else 0),
        }

    def mounts(self) -> list[tuple[Path, bool]]:
        """Return (path, read-only) of every mount, where writable wins. Raises
        InputError: a path is missing."""
        found = dict.fromkeys(self.image.mounts(), True) | self.needs.mounts()
        for path in found:
            if not path.exists():
                raise InputError(
                    f"the container needs {path}, which is not there",
                    "make it, or name another",
                )
        return sorted(found.items(), key=lambda item: len(item[0].parts))


def throttles(
    limits: Sequence[IoLimit],
    *,
    count: bool,
    sys_: Path = Path("/sys"),
    dev: Path = Path("/dev"),
) -> dict[str, Any]:
    """Return device limits as the engine takes them: by path, a list for each kind.

    Args:
        count: whether to name disks without a limit, with 0, which means none to v1: it
            counts a disk only once a limit was written for it. v2 counts all disks, and
            refuses 0.

    Raises:
        HostError: a device is missing.
    """
    counted = [dev / disk.name for disk in disks(sys_)] if count else []
    wanted = {str(node): IoLimit("") for node in counted if node.exists()}
    for limit in limits:
        name = (sys_ / "dev" / "block" / limit.device).resolve().name
        if not (dev / name).exists() or ":" in name:
            raise HostError(
                f"there is no device {limit.device} under /dev to limit",
                "name a whole disk",
            )
        wanted[str(dev / name)] = limit
    options: dict[str, Any] = {}
    for path, limit in wanted.items():
        for key, rate in limit.named("docker").items():
            # One kind of limit is enough to make the kernel count an unlimited disk.
            if rate or (count and key == "device_read_iops"):
                options.setdefault(key, []).append({"Path": path, "Rate": rate or 0})
    return options


def _gpu_options(layout: str) -> dict[str, Any]:
    """Return the options for a GPU: with the host's /usr its device nodes, else the
    engine's NVIDIA runtime."""
    from docker.types import DeviceRequest

    if layout != "host":
        return {
            "device_requests": [
                DeviceRequest(count=-1, capabilities=[["gpu", "compute", "utility"]])
            ]
        }
    nodes = [
        *_GPU_NODES,
        *(str(node) for node in sorted(Path("/dev").glob("nvidia[0-9]*"))),
    ]
    if not any(Path(node).exists() for node in nodes):
        raise InputError(
            "the run wants a GPU, and there is none under /dev",
            "use device cpu or emulated:NAME",
        )
    return {"devices": [f"{node}:{node}:rw" for node in nodes if Path(node).exists()]}

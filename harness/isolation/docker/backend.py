"""Caps that are containers of a Docker Engine on this host, chosen by name only:
`--isolation docker`. A container adds to a cgroup: a read-only root, no network, no
privileges, no view of other processes, and an image that can be distributed. `auto`
never selects it, since a host's engine may serve another purpose."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.isolation import mounts
from harness.isolation.base import Availability, Isolation, Limits
from harness.isolation.docker.cap import DockerCap
from harness.isolation.docker.engine import LABEL, asking, connect, socket_present
from harness.isolation.docker.image import HOST_IMAGE, Image, find, wanted
from harness.isolation.docker.options import Lock, Wanted
from harness.isolation.processes import cap_name, is_left_over
from workloads.errors import HostError, OutcoreError

_RING = (
    "import ctypes,os; p=(ctypes.c_char*120)(); l=ctypes.CDLL(None,use_errno=True); "
    "f=l.syscall(ctypes.c_long(425),ctypes.c_uint(2),ctypes.byref(p)); print('ring' if "
    "f>=0 else os.strerror(ctypes.get_errno()))"
)
_TRIAL_S = 60.0


@dataclass(frozen=True)
class Trial:
    """Findings from a first container: the reason for a lack of io_uring rings (empty
    with them), how runs lock memory, and the engine's settings."""

    image: Image
    io_uring: str
    lock: Lock
    engine: dict[str, Any]


@dataclass
class Docker(Isolation):
    """Caps that are containers. A run may lock `memlock_bytes`, charged to the cap;
    None: what the engine grants."""

    name: ClassVar[str] = "docker"
    memlock_bytes: int | None = None

    @classmethod
    def available(cls) -> Availability:
        """Return whether a container starts, is capped by this host's kernel and is
        readable here, found by trying."""
        try:
            trial = _trial(wanted())
        except OutcoreError as error:
            return Availability(False, error.message, error.fix)
        if not trial.engine["memory_limit"]:
            why = "the engine cannot limit memory on this kernel"
            return Availability(False, why, "boot with cgroup_enable=memory")
        return Availability(True, trial.io_uring, "", trial.engine["io_limits"], True)

    def create(self, run_id: str, limits: Limits) -> DockerCap:
        """Create a cap; its container starts with the first command. Raises HostError:
        no engine, no image."""
        trial = _trial(wanted())
        caveats = list(self.caveats)
        if trial.io_uring:
            caveats.append(f"containers get no io_uring ({trial.io_uring})")
        if trial.lock not in ("ipc_lock", "ulimit"):
            caveats.append(
                "the engine may not raise the memlock limit: io_uring's buffers may "
                "stay unregistered"
            )
        if not trial.engine["swap_limit"]:
            caveats.append(
                "no swap accounting: the kernel may swap the run's memory (boot with "
                "swapaccount=1)"
            )
        lock = trial.lock if self.memlock_bytes is None else self.memlock_bytes
        asked = Wanted(
            cap_name(run_id),
            limits,
            trial.image,
            lock=lock,
            engine=trial.engine["engine"],
        )
        return DockerCap(connect(), asked, caveats)

    def holder_cap(self) -> DockerCap | None:
        """Return a container of the image where Outcore's libraries are inside the
        image; else None."""
        trial = _trial(wanted())
        return (
            self.create("holder", Limits())
            if trial.image.layout == "image" and not trial.image.worker
            else None
        )

    def describe(self) -> dict[str, Any]:
        """Return engine and image, for the record."""
        trial = _trial(wanted())
        image = {
            "image": trial.image.name,
            "image_id": trial.image.identity,
            "layout": trial.image.layout,
        }
        return trial.engine | image | {"io_uring": trial.io_uring or "allowed"}

    @classmethod
    def sweep(cls) -> list[str]:
        """Remove the containers of dead orchestrators; return their names, none where
        there is no engine."""
        found: list[Any] = []
        if socket_present():
            with suppress(HostError):
                client = connect()
                with asking("list containers"):
                    found = client.containers.list(
                        all=True, filters={"label": f"{LABEL}.cap"}, ignore_removed=True
                    )
        removed = []
        for container in found:
            name = container.labels.get(f"{LABEL}.cap", "")
            if is_left_over(name):
                with (
                    suppress(HostError),
                    asking("remove a container"),
                ):  # another orchestrator sweeps too
                    container.remove(force=True, v=True)
                    removed.append(name)
        return sorted(removed)


@functools.cache
def _trial(image: str) -> Trial:
    """Start a container as runs do and inspect it, once per process. Raises
    OutcoreError: no container can run here."""
    client = connect()
    found = find(client, image)
    with asking("describe itself"):
        info = client.info()
        version = client.version()
    if mapped := _maps_users(info):
        fault = (
            f"this engine maps users ({mapped}), so a run in it could not use the "
            "files of its caller"
        )
        raise HostError(fault, "use an engine that runs as root, without userns-remap")
    warnings = " ".join(info.get("Warnings") or [])
    engine = {
        "engine": version.get("Version", ""),
        "api": version.get("ApiVersion", ""),
        "runtimes": sorted(info.get("Runtimes") or {}),
        "storage": info.get("Driver", ""),
        "cgroup_driver": info.get("CgroupDriver", ""),
        "memory_limit": bool(info.get("MemoryLimit")),
        "swap_limit": bool(info.get("SwapLimit")) or mounts.version() == "v2",
        "io_limits": "blkio throttle" not in warnings and "io.max" not in warnings,
    }
    # The trial runs Python, which a third party's image may lack and the host's image
    # always has.
    tried = found if found.worker == () else find(client, HOST_IMAGE)
    return Trial(found, _ring(client, tried), _lock(client, tried), engine)


def _maps_users(info: dict[str, Any]) -> str:
    """Return `rootless` or `userns` where users inside differ from users outside; empty
    where they are the same."""
    options = [
        str(option).split(",")[0].removeprefix("name=")
        for option in info.get("SecurityOptions") or []
    ]
    return next((option for option in options if option in ("rootless", "userns")), "")


def _lock(client: Any, image: Image) -> Lock:
    """Return how work locks memory: by capability for root, else by a limit that the
    engine may fail to raise."""
    if os.geteuid() == 0:
        return "ipc_lock"
    cap = DockerCap(
        client, Wanted(cap_name("trial"), Limits(64 << 20), image, lock="ulimit")
    )
    try:
        cap.command(["true"])
        return "ulimit"
    except HostError as error:
        if "rlimit" not in error.message:
            raise
        import resource

        return resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    finally:
        cap.close()


def _ring(client: Any, image: Image) -> str:
    """Return the reason for no io_uring ring in a container; empty with one."""
    with DockerCap(client, Wanted(cap_name("trial"), Limits(64 << 20), image)) as cap:
        command = cap.command([sys.executable, "-S", "-E", "-c", _RING])
        null = subprocess.DEVNULL
        done = subprocess.run(
            command,
            stdin=null,
            capture_output=True,
            text=True,
            timeout=_TRIAL_S,
            check=False,
        )
        fault = done.stdout.strip()
        if done.returncode or not fault:
            last = (
                done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            )[-1]
            fault = (
                f"a container of {image.name} starts, and Python in it does not "
                f"({last})"
            )
            raise HostError(fault, "see docs/containers.md, or unset OUTCORE_IMAGE")
    return "" if fault == "ring" else fault

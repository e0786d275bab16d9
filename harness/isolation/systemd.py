"""Caps by systemd: a slice with `MemoryMax=`, and one scope in it per process; for
users without root too. The slice starts before the run, so that its counters are
readable from outside at every moment and several processes (ranks) can share it.
`systemd-run --scope` makes the scope, joins it and then executes the work itself.
Device limits need the io controller, which systemd gives to the system's manager,
rarely to a user's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from harness.isolation import mounts
from harness.isolation.base import Availability, IoLimit, Isolation, Limits
from harness.isolation.cgroup2 import Cgroup2Cap
from harness.isolation.files import numbered
from harness.isolation.processes import PARENT, cap_name, is_left_over
from workloads.errors import HostError

_RUNNING = Path("/run/systemd/system")  # folder of a host that systemd runs


def slice_name(name: str) -> str:
    """Return the slice of a cap; the dash puts it below `outcore.slice`."""
    return f"{PARENT}-{name}.slice"


def memory_properties(limit_bytes: int | None) -> list[str]:
    """Return the properties for a memory limit."""
    return [
        f"MemoryMax={'infinity' if limit_bytes is None else limit_bytes}",
        "MemorySwapMax=0",
    ]


def io_properties(limits: Sequence[IoLimit]) -> list[str]:
    """Return the properties for device limits; systemd takes the device's node."""
    rates = [
        (limit.device, *rate)
        for limit in limits
        for rate in limit.named("systemd").items()
    ]
    return [
        f"{name}=/dev/block/{device} {value}"
        for device, name, value in rates
        if value is not None
    ]


def _manager() -> str:
    """Return the option for the system's manager as root, for the user's own
    otherwise."""
    return "--system" if os.geteuid() == 0 else "--user"


def scope_command(name: str, argv: Sequence[str]) -> list[str]:
    """Return `argv` started in a scope of the slice; it keeps its descriptors, and the
    pid becomes the work's."""
    options = [
        "--scope",
        "--quiet",
        "--collect",
        f"--slice={slice_name(name)}",
        "-p",
        "MemorySwapMax=0",
    ]
    return ["systemd-run", _manager(), *options, "--", *argv]


def systemctl(*arguments: str) -> str:
    """Run `systemctl`; return its output. Raises HostError: it fails; its message is
    passed on."""
    command = ["systemctl", _manager(), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(
            f"systemctl {arguments[0]} did not work ({error})", "use --isolation none"
        ) from error
    if done.returncode:
        fault = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise HostError(
            f"systemctl {arguments[0]} did not work ({fault})", "use --isolation none"
        )
    return done.stdout


def set_properties(name: str, *properties: str) -> None:
    """Change a running slice until the next boot at most."""
    systemctl("set-property", "--runtime", slice_name(name), *properties)


class SystemdCap(Cgroup2Cap):
    """Cap of a slice: a v2 group, changed through systemd, which would undo a direct
    write."""

    def __init__(self, name: str, group: Path, caveats: Sequence[str] = ()) -> None:
        super().__init__(group, caveats)
        self._name = name

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` in a scope of the slice."""
        return scope_command(self._name, argv)

    def set_memory(self, limit_bytes: int | None) -> None:
        """Set `MemoryMax=` of the slice."""
        set_properties(self._name, *memory_properties(limit_bytes))

    def set_processors(self, processors: Sequence[int]) -> None:
        """Set `AllowedCPUs=` of the slice, which a manager without the cpuset
        controller ignores."""
        set_properties(self._name, f"AllowedCPUs={numbered(processors)}")

    def set_io(self, limits: Sequence[IoLimit]) -> None:
        """Set the device limits of the slice."""
        if properties := io_properties(limits):
            set_properties(self._name, *properties)

    def _remove(self) -> bool:
        systemctl("stop", slice_name(self._name))
        return not self.group.exists()


class Systemd(Isolation):
    """Caps by the system's manager as root, by the user's own otherwise."""

    name: ClassVar[str] = "systemd"

    @classmethod
    def available(cls) -> Availability:
        """Return whether a slice with a memory controller can be started, found by
        trying."""
        if shutil.which("systemd-run") is None or not _RUNNING.is_dir():
            return Availability(
                False,
                "systemd does not run this host",
                "use cgroup2 or cgroup1 as root",
            )
        hierarchy = mounts.v2()
        if hierarchy is None or "memory" not in hierarchy.controllers:
            return Availability(
                False,
                "systemd runs without cgroup v2's memory controller",
                "use cgroup1 as root",
            )
        try:
            cap = cls().create("available", Limits(memory_bytes=64 << 20))
        except HostError as error:
            return Availability(
                False, error.message, "loginctl enable-linger, or run as root"
            )
        with cap:
            io = (cap.group / "io.max").exists()
        return Availability(
            True,
            "" if io else "the io controller is not delegated to this user",
            "",
            io,
            True,
        )

    def create(self, run_id: str, limits: Limits) -> SystemdCap:
        """Start a new slice under the limits. Raises HostError: no manager or memory
        controller, or a refusal."""
        name = cap_name(run_id)
        hierarchy = mounts.v2()
        if hierarchy is None:
            raise HostError(
                "cgroup v2 is not mounted", "use --isolation cgroup1 as root"
            )
        systemctl("start", slice_name(name))
        # The group appears with the first accounting property; until then the slice has
        # no controller.
        set_properties(
            name, "MemoryAccounting=yes", "IOAccounting=yes", *memory_properties(None)
        )
        control = systemctl(
            "show", "-p", "ControlGroup", "--value", slice_name(name)
        ).strip()
        group = hierarchy.mount / control.lstrip("/")
        cap = SystemdCap(name, group, self.caveats)
        if not (group / "memory.max").exists():
            cap.close()
            raise HostError(
                "systemd does not delegate the memory controller to this user",
                "run as root",
            )
        cap.restrict(limits)
        return cap

    @classmethod
    def sweep(cls) -> list[str]:
        """Stop the slices of dead orchestrators; return the names of their caps."""
        listing = ""
        if _RUNNING.is_dir():
            with suppress(HostError):
                listing = systemctl(
                    "list-units",
                    "--plain",
                    "--no-legend",
                    "--type=slice",
                    f"{PARENT}-*.slice",
                )
        removed = []
        for name in left_over_slices(listing):
            with suppress(HostError):  # a process in it may not end
                systemctl("stop", slice_name(name))
                removed.append(name)
        return removed


def left_over_slices(listing: str) -> list[str]:
    """Return names of caps whose owner is dead, from `systemctl list-units --plain
    --no-legend`."""
    ours = re.findall(rf"^\s*{PARENT}-(\S+)\.slice\b", listing, re.MULTILINE)
    return [name for name in ours if is_left_over(name)]

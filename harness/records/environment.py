"""Environment of a run for its record (methodology rule 23): code, versions, processor,
memory, kernel, disk, cgroup.

It identifies no person and no machine: no host name, user, home folder, serial number
or address. The drive is identified by a salted digest (`harness.ssd.identity`).
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import resource
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from harness.isolation import mounts
from harness.isolation.files import read_text
from harness.records import steady
from harness.records.hosts import HOST_LABEL, host_fingerprint, profile_digests
from harness.ssd.device import block_device
from harness.ssd.fio import fio_path
from workloads.errors import OutcoreError

_PACKAGES = (
    "outcore",
    "torch",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "scipy",
    "torch_geometric",
    "dgl",
)
_REPOSITORY = Path(__file__).resolve().parents[2]


def describe(data: Path) -> dict[str, Any]:
    """Return all facts needed to judge a run and to repeat it; `disk` is the device
    under `data`."""
    found = {
        "code": code(),
        "versions": versions(),
        "cpu": cpu(),
        "memory": memory(),
        "kernel": {
            "release": platform.release(),
            "machine": platform.machine(),
            "page_bytes": os.sysconf("SC_PAGE_SIZE"),
            "transparent_hugepages": steady.huge_pages() or "",
            "swappiness": read_text(Path("/proc/sys/vm/swappiness")).strip(),
            "psi": Path("/proc/pressure/io").exists(),
            "virtual_machine": "hypervisor" in read_text(Path("/proc/cpuinfo")),
        },
        "cgroup": mounts.version(),
        "memlock_bytes": memlock_bytes(),
        "steady": steady.settings(),
        "gpu": gpus(),
        "disk": disk(data),
        "accelerators": profile_digests(),
        **_label(),
    }
    return found | {"host_fingerprint": host_fingerprint(found)}


def this_host(data: Path) -> str:
    """Return the `host_fingerprint` of this host with the device under `data`."""
    return host_fingerprint(
        {
            "cpu": cpu(),
            "memory": memory(),
            "gpu": gpus(),
            "disk": disk(data),
            **_label(),
        }
    )


def _label() -> dict[str, str]:
    """Return the label of this host in its fleet (`harness/hosts`); empty for a host
    outside a fleet."""
    label = os.environ.get(HOST_LABEL)
    return {"host_label": label} if label else {}


@functools.cache
def code(repository: Path = _REPOSITORY) -> dict[str, Any]:
    """Return the git commit, and whether tracked files differ from it; None outside a
    checkout.

    An image of Outcore is no checkout: its build sets `OUTCORE_COMMIT` to the commit,
    with the suffix `-dirty`. `refused`: git does not trust the checkout, which another
    user owns; nothing is known of it.
    """
    git = ["git", "-C", str(repository)]
    found = _run(*git, "rev-parse", "--show-toplevel", "HEAD").splitlines()
    # A repository around an installed Outcore, such as that of a user's own project, is
    # no checkout of it.
    if len(found) == 2 and Path(found[0]).resolve() == repository.resolve():
        return {
            "commit": found[1],
            "dirty": bool(_run(*git, "status", "--porcelain", "--untracked-files=no")),
        }
    reported = re.fullmatch(
        r"([0-9a-f]{40})(-dirty)?", os.environ.get("OUTCORE_COMMIT", "")
    )
    if reported:
        return {"commit": reported[1], "dirty": bool(reported[2])}
    unknown: dict[str, Any] = {"commit": None, "dirty": None}
    return unknown | {"refused": True} if git_refusal(repository) else unknown


def git_refusal(repository: Path = _REPOSITORY) -> str:
    """Return the command by which git trusts a checkout that it refuses, as another
    user owns it; empty if it does."""
    command = ["git", "-C", str(repository), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return trust_fix(done.stderr)


def trust_fix(stderr: str) -> str:
    """Return git's own remedy for a checkout of another owner ("dubious ownership"),
    found in its messages; else nothing."""
    found = re.search(r"git config --global --add safe\.directory .+", stderr)
    return found[0].strip() if found else ""


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of all packages that may influence a number, if
    installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    if fio_path():
        found["fio"] = _run("fio", "--version").removeprefix("fio-")
    found["libc"] = " ".join(platform.libc_ver())
    return found


def cpu() -> dict[str, Any]:
    """Return the processor's model, all and usable processors, sockets and frequency
    governor."""
    text = read_text(Path("/proc/cpuinfo"))
    model = re.search(
        r"^(?:model name|Model|Processor)\s*:\s*(.+)$", text, re.MULTILINE
    )
    governor = read_text(
        Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    ).strip()
    return {
        "model": model.group(1).strip() if model else platform.machine(),
        "processors": os.cpu_count() or 1,
        "usable": len(os.sched_getaffinity(0)),
        "sockets": len(
            set(re.findall(r"^physical id\s*:\s*(\d+)$", text, re.MULTILINE))
        )
        or 1,
        "governor": governor or None,
    }


def memory() -> dict[str, int]:
    """Return the host's bytes of memory and of swap."""
    return {
        "total_bytes": psutil.virtual_memory().total,
        "swap_bytes": psutil.swap_memory().total,
    }


def memlock_bytes() -> int | None:
    """Return the bytes that this process may lock, as io_uring's registered buffers
    need; None: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def disk(data: Path) -> dict[str, Any] | None:
    """Return the device under `data`: model, file system, mount options, read-ahead,
    scheduler; None without one."""
    try:
        found = block_device(data).as_dict()
    except (OutcoreError, OSError):
        return None
    # Mount options may hold folder names (overlays) or user ids.
    found["mount_options"] = ",".join(
        option
        for option in found["mount_options"].split(",")
        if not re.match(r"(\w*dir|\w*uid|\w*gid|\w*user\w*|\w*name|\w*addr)=", option)
    )
    return found


@functools.cache
def gpus() -> list[dict[str, Any]]:
    """Return model, memory and driver of each GPU; empty without one."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return []
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        handles = map(
            pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount())
        )
        found = (
            (
                pynvml.nvmlDeviceGetName(one),
                int(pynvml.nvmlDeviceGetMemoryInfo(one).total),
            )
            for one in handles
        )
        return [
            {"model": model, "memory_bytes": total, "driver": driver}
            for model, total in found
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _run(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

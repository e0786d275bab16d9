"""Settings of the host that make times noisy: turbo, simultaneous multithreading, idle
states, governor, huge pages, swap; and what its neighbours take."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import psutil

from harness.isolation.files import read_text

_SYSTEM = Path("/sys")


def settings(system: Path = _SYSTEM) -> dict[str, Any]:
    """Return the settings by name; None where the kernel shows none, as in most virtual
    machines.

    `turbo`, `smt`: whether it is on; `idle_exit_us`: longest exit latency of the
    enabled idle states in microseconds; `governor`, `huge_pages`: the chosen one;
    `swap_bytes`: of the host.

    Args:
        system: folder that stands for /sys.
    """
    first = system / "devices/system/cpu/cpu0"
    return {
        "turbo": _turbo(system),
        "smt": _switch(system / "devices/system/cpu/smt/active"),
        "idle_exit_us": _idle_exit_us(first / "cpuidle"),
        "governor": read_text(first / "cpufreq/scaling_governor").strip() or None,
        "huge_pages": huge_pages(system),
        "swap_bytes": psutil.swap_memory().total,
    }


def huge_pages(system: Path = _SYSTEM) -> str | None:
    """Return when the kernel backs memory with transparent huge pages: `always`,
    `madvise` or `never`; None where it has none."""
    pages = read_text(system / "kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(.*?)\]", pages)
    return chosen[1] if chosen else pages.strip() or None


def _turbo(system: Path) -> bool | None:
    off = _switch(system / "devices/system/cpu/intel_pstate/no_turbo")
    if off is not None:
        return not off
    return _switch(system / "devices/system/cpu/cpufreq/boost")


def _switch(file: Path) -> bool | None:
    text = read_text(file).strip()
    return text == "1" if text in ("0", "1") else None


def _idle_exit_us(states: Path) -> int | None:
    """Return the longest exit latency of the enabled idle states; None without any."""
    enabled = [
        int(read_text(state / "latency") or 0)
        for state in states.glob("state*")
        if read_text(state / "disable").strip() != "1"
    ]
    return max(enabled, default=None)


def neighbours(seconds: float = 1.0) -> dict[str, float]:
    """Return the shares of all processors that other programs (`busy`) and the
    hypervisor (`stolen`) take while this process sleeps for some seconds."""
    before = psutil.cpu_times()
    own = time.process_time()
    began = time.monotonic()
    time.sleep(seconds)
    after = psutil.cpu_times()
    own = time.process_time() - own
    total = (time.monotonic() - began) * (psutil.cpu_count() or 1)
    names = ("user", "nice", "system", "irq", "softirq")
    busy = sum(getattr(after, name) - getattr(before, name) for name in names)
    stolen = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)
    return {"busy": max(0.0, busy - own) / total, "stolen": max(0.0, stolen) / total}

"""Checks of `outcore doctor --ci`: host settings that make times noisy, each with the
command that sets it.

A new check is an entry of `CHECKS`: its name, and a function of the settings that
`harness/records/steady.py` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.doctor import Finding, Found
from harness.records import steady
from workloads.units import format_bytes

# Longest exit latency of an idle state, in microseconds, that a read of a fast drive
# does not notice.
MOST_IDLE_EXIT_US = 10
# Most of all processors that other programs, or the hypervisor, may take.
MOST_NEIGHBOURS = 0.02
_CPU = "/sys/devices/system/cpu"
_OF_HOST = "set it on the host of this virtual machine, or ask its operator"


def diagnose(
    settings: Mapping[str, Any] | None = None,
    neighbours: Mapping[str, float] | None = None,
) -> list[Finding]:
    """Check the settings and the neighbours: by default those of this host, in a
    second."""
    found = steady.settings() if settings is None else settings
    around = steady.neighbours() if neighbours is None else neighbours
    findings = [Finding(name, *check(found)) for name, check in CHECKS.items()]
    return [*findings, Finding("neighbours", *_neighbours(around))]


def _hidden(what: str) -> Found:
    return "degraded", f"the kernel does not show {what}", _OF_HOST


def _turbo(settings: Mapping[str, Any]) -> Found:
    turbo = settings["turbo"]
    if turbo is None:
        return _hidden("whether turbo is on")
    if not turbo:
        return "ok", "off: one speed, however many cores work"
    if Path(f"{_CPU}/intel_pstate/no_turbo").exists():
        fix = f"echo 1 | sudo tee {_CPU}/intel_pstate/no_turbo"
    else:
        fix = f"echo 0 | sudo tee {_CPU}/cpufreq/boost"
    return "degraded", "on: speed follows temperature and the other cores", fix


def _smt(settings: Mapping[str, Any]) -> Found:
    if settings["smt"] is None:
        return _hidden("whether two threads share a core")
    if not settings["smt"]:
        return "ok", "off: no two threads share a core"
    fix = f"echo off | sudo tee {_CPU}/smt/control"
    return "degraded", "on: a thread slows another of its core", fix


def _idle_states(settings: Mapping[str, Any]) -> Found:
    longest = settings["idle_exit_us"]
    if longest is None:
        return _hidden("idle states")
    detail = f"a processor wakes up within {longest} µs"
    if longest <= MOST_IDLE_EXIT_US:
        return "ok", detail
    return "degraded", detail, f"sudo cpupower idle-set -D {MOST_IDLE_EXIT_US}"


def _governor(settings: Mapping[str, Any]) -> Found:
    governor = settings["governor"]
    if governor is None:
        return _hidden("a frequency governor")
    if governor == "performance":
        return "ok", governor
    fix = "sudo cpupower frequency-set -g performance"
    return "degraded", f"{governor}: speed follows the load", fix


def _huge_pages(settings: Mapping[str, Any]) -> Found:
    chosen = settings["huge_pages"]
    if chosen is None:
        return "ok", "the kernel has none"
    if chosen != "always":
        return "ok", f"{chosen}: only where a program asks for them"
    fix = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    return "degraded", "always: the kernel compacts memory while a run works", fix


def _swap(settings: Mapping[str, Any]) -> Found:
    swap = settings["swap_bytes"]
    if not swap:
        return "ok", "none"
    detail = f"{format_bytes(swap)}: what is swapped out delays the next run"
    return "degraded", detail, "sudo swapoff -a"


def _neighbours(shares: Mapping[str, float]) -> Found:
    detail = (
        f"other programs take {100 * shares['busy']:.0f} % of the processors, the "
        f"hypervisor {100 * shares['stolen']:.0f} %"
    )
    if max(shares.values()) <= MOST_NEIGHBOURS:
        return "ok", detail
    if shares["stolen"] > MOST_NEIGHBOURS:
        return "degraded", detail, "use a machine that is not shared"
    return "degraded", detail, "end the programs that `top -o %CPU` shows"


CHECKS: dict[str, Callable[[Mapping[str, Any]], Found]] = {
    "turbo": _turbo,
    "SMT": _smt,
    "idle states": _idle_states,
    "governor": _governor,
    "huge pages": _huge_pages,
    "swap": _swap,
}

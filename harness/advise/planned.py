"""A system's division of the memory: its own plan, made without running the system."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from systems.interface import DiskProfile, System
    from workloads.accelerator import Accelerator
    from workloads.workload import Workload


@dataclass(frozen=True)
class Planned:
    """One system's plan: bytes by host and device buffer, or why the budget does not hold it (`refused`)."""

    system: System | None
    host: dict[str, int]
    device: dict[str, int]
    refused: str = ""

    def left(self, budget: int) -> int:
        """Return the bytes of the host budget that no buffer takes, which the page cache may use."""
        return max(0, budget - sum(self.host.values()))


def plan_of(
    name: str,
    workload: Workload,
    accelerator: Accelerator,
    profile: DiskProfile,
    *,
    host: int,
    device: int | None,
    cores: int,
    epochs: int,
    options: dict[str, Any],
) -> Planned:
    """Ask a system for its plan; nothing is allocated and nothing written.

    Args:
        host, device: budgets in bytes.
        cores, epochs: processor cores, and epochs of the whole training.
        options: options set by the user; others have their defaults.
    """
    from systems.interface import MemoryBudget, Runtime, StageClock, reserve_bytes
    from systems.registry import load
    from workloads.errors import OutcoreError

    found = load(name)
    folder = Path(tempfile.gettempdir())
    runtime = Runtime(accelerator, profile, folder / "artefacts", folder / "scratch", cores, epochs=epochs)
    system: System | None = None
    try:
        budget = MemoryBudget(host=host - reserve_bytes(host), device=device)
        system = found(workload, runtime, budget, found.info.options.model_validate(options), StageClock())
        plan = system.plan()
    except OutcoreError as error:
        return Planned(None, {}, {}, f"{error.message}; {error.fix}" if error.fix else error.message)
    tiers: dict[str, dict[str, int]] = {"host": {"reserve": reserve_bytes(host)}, "device": {}, "disk": {}}
    for item in plan.items:
        tiers[item.tier][item.name] = tiers[item.tier].get(item.name, 0) + item.bytes
    return Planned(system, tiers["host"], tiers["device"])

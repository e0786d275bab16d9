"""The advice: every system's forecast at the given memory, ranked by the time of the whole training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.advise.forecasts import Conditions, Forecast, forecast
from harness.advise.planned import plan_of
from harness.advise.share import Share, implied_share, take_share

if TYPE_CHECKING:
    from harness.advise.implied import ImpliedGraph
    from systems.interface import DiskProfile
    from workloads.workload import Workload

_UNFAITHFUL = "trains on other mini-batches than the rest, so its time does not compare"
_GROWTH = 2


@dataclass(frozen=True)
class Setting:
    """The conditions of the advice.

    Attributes:
        device, device_memory: `cpu`, `cuda` or `emulated:<profile>`, and its memory in bytes.
        host: host budget in bytes.
        options: options of single systems, by name.
    """

    workload: Workload
    device: str
    device_memory: int | None
    host: int
    epochs: int
    cores: int
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Advice:
    """The ranking of the systems and its evidence.

    Attributes:
        ranked: forecasts of systems that can run, least time first.
        refused: forecasts of systems that cannot run or do not compare, by name.
        share: sampled mini-batches.
        changes: change of memory or disk (twice as much, twice as fast) -> forecast of the system ranked first then.
    """

    ranked: list[Forecast]
    refused: list[Forecast]
    share: Share
    changes: dict[str, Forecast]


def advise(
    setting: Setting,
    profile: DiskProfile,
    *,
    batches: int,
    systems: list[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    graph: ImpliedGraph | None = None,
) -> Advice:
    """Rank the systems for a setting on a disk.

    Args:
        batches: mini-batches of an epoch to sample.
        systems: names of the systems to rank; None: all installed systems.
        graph: implied graph to sample where the setting's dataset is only outlines.
    """
    from systems.registry import names
    from workloads.accelerators.make import make_accelerator

    # The planned device may have more memory than this host has free: none of it is used.
    accelerator = make_accelerator(setting.device, memory_bytes=setting.device_memory, touch=False)
    try:
        if graph is None:
            share = take_share(setting.workload, accelerator, batches, progress)
        else:
            share = implied_share(setting.workload, graph, accelerator, batches, progress)
        chosen = list(names() if systems is None else systems)

        def ranked(at: Setting, disk: DiskProfile) -> list[Forecast]:
            found = []
            for name in chosen:
                progress(f"forecast of {name}")
                found.append(_one(name, at, disk, share, accelerator))
            return sorted(found, key=lambda entry: (entry.total_s(at.epochs), entry.system))

        now = ranked(setting, profile)
        changes = {}
        for text, at, disk in (
            ("twice the memory", replace(setting, host=_GROWTH * setting.host), profile),
            ("a disk twice as fast", setting, _faster(profile, _GROWTH)),
        ):
            able = [entry for entry in ranked(at, disk) if not entry.refused]
            if able:
                changes[text] = able[0]
        able = [entry for entry in now if not entry.refused]
        return Advice(able, [entry for entry in now if entry.refused], share, changes)
    finally:
        accelerator.close()


def _one(name: str, setting: Setting, profile: DiskProfile, share: Share, accelerator: Any) -> Forecast:
    from systems.registry import load

    found = load(name)
    options = found.info.options.model_validate(setting.options.get(name, {}))
    if not found.is_faithful(options):
        return Forecast(name, refused=_UNFAITHFUL)
    if accelerator.kind not in found.info.devices:
        return Forecast(name, refused=f"does not run on {setting.device}")
    bus = getattr(getattr(accelerator, "profile", None), "bus_bytes_per_s", None)
    conditions = Conditions(setting.host, setting.epochs, setting.cores, profile, bus.value if bus else 0.0)
    own = setting.options.get(name, {})
    planned = plan_of(
        name,
        share.whole,
        accelerator,
        profile,
        host=setting.host,
        device=setting.device_memory,
        cores=setting.cores,
        epochs=setting.epochs,
        options=own,
    )
    lowered = planned.system.lowered if planned.system else {}
    return replace(forecast(name, share, planned, conditions), options={key: low for key, (low, _) in lowered.items()})


def _faster(profile: DiskProfile, factor: float) -> DiskProfile:
    points = tuple(
        replace(point, iops=factor * point.iops, bytes_per_s=factor * point.bytes_per_s) for point in profile.points
    )
    return replace(profile, points=points)

"""Choice of an accelerator by the name that a user writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workloads.accelerator import Accelerator, CpuAccelerator
from workloads.errors import InputError

if TYPE_CHECKING:
    from workloads.accelerators.pool import DevicePool


def make_accelerator(
    name: str,
    *,
    memory_bytes: int | None = None,
    training_bytes: int | None = None,
    pool: DevicePool | None = None,
    touch: bool = True,
) -> Accelerator:
    """Make the accelerator called `name`.

    Args:
        name: `cpu`, `cuda` (or `cuda:1`), `emulated:<profile>`.
        memory_bytes: capacity of the device tier; None: all free memory (`cuda`), size
            of the pool (`emulated`).
        training_bytes: part of a CUDA device's memory that training takes, as
            calibrated; None: not known.
        pool: shared memory that stands for an emulated device's memory; None: a private
            pool is made.
        touch: as for `DevicePool.create`, of the private pool.

    Raises:
        InputError: the device or profile is unknown, or `memory_bytes` does not go with
            the device.
        HostError: this host lacks the CUDA device or the memory of the private pool.
    """
    if name == "cpu":
        if memory_bytes is not None:
            raise InputError(
                "device cpu has no memory of its own",
                "leave --device-memory out, or use emulated:a10g",
            )
        return CpuAccelerator()
    if name == "cuda" or (name.startswith("cuda:") and name[5:].isdecimal()):
        from workloads.accelerators.cuda import CudaAccelerator

        return CudaAccelerator(name, memory_bytes, training_bytes)
    if name.startswith("emulated:"):
        from workloads.accelerators.emulated import EmulatedAccelerator
        from workloads.accelerators.late import LateAccelerator
        from workloads.accelerators.profile import load_profile

        profile = load_profile(name.removeprefix("emulated:"))
        kind = LateAccelerator if profile.late else EmulatedAccelerator
        return kind(profile, memory_bytes, pool, touch=touch)
    raise InputError(
        f"device is {name!r}, which is not known", "use cpu, cuda or emulated:<profile>"
    )

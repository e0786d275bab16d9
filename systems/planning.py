"""A system's plans under any budget, without preparation: the least memory that it
accepts, and what `auto` becomes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from systems.interface import (
    MemoryBudget,
    Options,
    PlanItem,
    Runtime,
    StageClock,
    System,
)
from workloads.accelerators.make import make_accelerator
from workloads.errors import BudgetError, HostError
from workloads.workload import Workload

MIB = 1 << 20
_MOST_BYTES = 1 << 50
#: Value of an option left at `auto` that no plan decides.
LATER = "decided in preparation or by mini-batch"


def least(fits: Callable[[int], bool], *, step: int = MIB, rest: int = 0) -> int | None:
    """Return the least size that fits and is, with `rest`, a multiple of `step`; by
    doubling and bisection.

    The size returned was tried; where larger sizes may fit less well, a smaller one may
    fit too. None: no size up to 1 PiB fits.
    """

    def size(count: int) -> int:
        return count * step - rest % step

    high = 1
    while not fits(size(high)):
        high *= 2
        if size(high) > _MOST_BYTES:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(size(middle)) else (middle, high)
    return size(high)


@dataclass(frozen=True)
class Planner:
    """Plans of one system for one workload.

    Attributes:
        kind: class of the system.
        options: options as the user gave them.
        device: name of the training device.
        held: buffers of the caller in the system's memory.
        rest: bytes of the user's memory setting beside the budget (floor and training
            working set of a cap); None: the setting is the budget itself, written
            `+76MiB`.
    """

    kind: type[System]
    workload: Workload
    runtime: Runtime
    options: Options
    device: str
    held: tuple[PlanItem, ...] = ()
    rest: int | None = None

    def make(
        self, host: int | None, device: int | None, clock: StageClock | None = None
    ) -> System:
        """Return the system within `host` and `device` bytes, not planned yet."""
        budget = MemoryBudget.beside(host, device, self.held)
        return self.kind(
            self.workload, self.runtime, budget, self.options, clock or StageClock()
        )

    def planned(self, host: int | None, device: int | None) -> System:
        """Return the system with its plan made.

        Raises:
            BudgetError: the plan does not fit; names the least memory that does.
        """
        system = self.make(host, device)
        try:
            system.plan()
        except BudgetError as error:
            system.close()
            raise self.refusal(error, host, device) from error
        return system

    def fits(self, host: int | None, device: int | None) -> bool:
        """Return whether the system accepts these bytes, with a plan that they hold."""
        left = MemoryBudget.beside(host, device, self.held).host
        if left is not None and left <= 0:
            return False
        with closing(self.make(host, device)) as system:
            try:
                planned = system.plan().total("host")
                return left is None or planned <= left
            except BudgetError:
                return False

    def least(self, device: int | None, step: int = MIB) -> int | None:
        """Return the least host bytes that the system accepts, in steps (with `rest`);
        None: no memory helps."""
        fitting = self.fits(None, device)
        return (
            least(lambda host: self.fits(host, device), step=step, rest=self.rest or 0)
            if fitting
            else None
        )

    def least_device(self) -> int | None:
        """Return the least whole MiB of device memory, in bytes, with unlimited host
        memory; None: none helps."""

        def fits(device: int) -> bool:
            try:
                accelerator = make_accelerator(
                    self.device, memory_bytes=device, touch=False
                )
            except HostError:
                return False
            with closing(accelerator):
                return replace(
                    self, runtime=replace(self.runtime, accelerator=accelerator)
                ).fits(None, device)

        return least(fits)

    def written(self, host: int) -> str:
        """Return host bytes found by `least` as a memory setting in the form that the
        user chose."""
        return (
            f"+{host // MIB}MiB"
            if self.rest is None
            else f"{(host + self.rest) // MIB}MiB"
        )

    def refusal(
        self, error: BudgetError, host: int | None, device: int | None
    ) -> BudgetError:
        """Return the error of a refused plan with the least memory that would do;
        `error` itself where none would."""
        try:
            if host is not None and (found := self.least(device)) is not None:
                fault = self.written(found)
            elif (
                device is not None
                and (found := self.least_device()) is not None
                and found > device
            ):
                fault = (
                    f"{(found + self.runtime.accelerator.training_bytes) // MIB}MiB of "
                    "device memory"
                )
            else:
                return error
        except (
            Exception
        ):  # a system of the user's own: its fault must not hide the refusal
            return error
        return BudgetError(
            error.message,
            f"{fault} is the least that fits with these settings: {error.fix}",
        )

    def chosen(self, system: System) -> dict[str, int | str]:
        """Return what each option left at `auto` became in the plan of `system`: a
        number, bytes of a size, a word."""
        known = system.chosen()
        found = {}
        for name in type(self.options).model_fields:
            asked = getattr(self.options, name)
            if asked == "auto" or (type(asked) is int and asked == 0 and name in known):
                found[name] = known.get(name, LATER)
        return found

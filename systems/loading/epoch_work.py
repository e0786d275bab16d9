"""Offline work of single epochs: have a system do it once for the epochs that share it,
before the first of them."""

from __future__ import annotations

import numbers
from typing import Any

from systems.interface import System


class EpochWork:
    """Caller of `System.prepare_epochs`, for epochs in any order."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._served = range(0)
        self._never = False

    def needed(self, epoch: int) -> bool:
        """Return whether `epoch` needs work that no earlier call served."""
        return not self._never and epoch not in self._served

    def do(self, epoch: int) -> int:
        """Have the system do the work of `epoch`; return the number of epochs that it
        serves, 0 where none needs any.

        Raises:
            ValueError: the system returned something else than a number of epochs.
        """
        # Systems are code of others, which no type checker has seen.
        served: Any = self._system.prepare_epochs(epoch)
        if (
            isinstance(served, bool)
            or not isinstance(served, numbers.Integral)
            or int(served) < 0
        ):
            fix = (
                "return how many epochs the work serves, as a whole number, 0 where no "
                "epoch needs any"
            )
            raise ValueError(
                f"prepare_epochs({epoch}) returned {served!r}, which is not a number "
                f"of epochs; {fix}"
            )
        self._never = served == 0
        self._served = range(epoch, epoch + int(served))
        return int(served)

    def prepare(self, epoch: int) -> None:
        """Do the work of `epoch` if it needs any."""
        if self.needed(epoch):
            self.do(epoch)

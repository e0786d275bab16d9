"""`gnndrive` whose rank 1 is killed in the middle of an extraction, as by the
kernel."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from systems.gnndrive.extractor import Extractor
from systems.gnndrive.options import GnnDriveOptions
from systems.gnndrive.system import GnnDrive
from systems.interface import SystemInfo


class KilledRankOptions(GnnDriveOptions):
    """GNNDrive's options, and when rank 1 is killed."""

    killed_at: int = Field(
        0, description="first mini-batch whose extraction rank 1 does not survive"
    )


class KilledRank(GnnDrive):
    """GNNDrive whose rank 1 is killed."""

    info: ClassVar[SystemInfo] = replace(
        GnnDrive.info, name="killed-rank", options=KilledRankOptions
    )

    def _make_extractor(self) -> Extractor:
        extractor = super()._make_extractor()
        load = extractor.load
        options = self.options
        assert isinstance(options, KilledRankOptions)

        def dying(nodes, slots, batch):  # type: ignore[no-untyped-def]
            if self.runtime.rank == 1 and batch >= options.killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return load(nodes, slots, batch)

        extractor.load = dying  # type: ignore[method-assign]
        return extractor

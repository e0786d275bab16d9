"""Systems with demand caches that only tests have."""

from __future__ import annotations

from systems.engine.io.row_reads import RowReadOptions
from systems.interface import SystemInfo
from systems.parts.kinds.demand import Demand
from systems.parts.kinds.direct_rows import DirectRows
from systems.parts.kinds.graphs import Mapped
from systems.parts.kinds.neighbours import Neighbours
from systems.parts.kinds.ranked import Ranked
from systems.parts.kinds.ring import Ring
from systems.parts.kinds.static_device import StaticDevice
from systems.parts.kinds.tables import Tables
from systems.parts.options import SamplingOptions
from systems.parts.path import Path
from systems.parts.system import PathSystem


class TierOptions(SamplingOptions, RowReadOptions):
    """Options of both systems."""

    near: str = "100KiB"
    far: str = "400KiB"
    policy: str = "lru"


class TwoDemandTiers(PathSystem):
    """A small cache in front of a larger one."""

    info = SystemInfo(
        name="two-demand-tiers",
        summary="two demand caches in host memory",
        options=TierOptions,
    )
    options: TierOptions

    def path(self) -> Path:
        """Both caches, then the disk."""
        options = self.options
        near = Demand("near cache", policy="fifo", size=options.near, least_batches=0)
        far = Demand(
            "far cache", policy=options.policy, size=options.far, least_batches=0
        )
        return Path(
            sample=Neighbours(Mapped(), self.workers, options.prefetch),
            tiers=[near, far],
            rows=DirectRows(options=options, readers=3),
            copy=Tables(3, host=4),
        )


class DeviceAndHost(PathSystem):
    """A static cache on the device, and a demand cache behind it."""

    info = SystemInfo(
        name="device-and-host",
        summary="static device cache, demand cache in host",
        options=TierOptions,
    )
    options: TierOptions

    def path(self) -> Path:
        """Device, host, disk."""
        options = self.options
        return Path(
            sample=Neighbours(Mapped(), self.workers, options.prefetch),
            tiers=[
                StaticDevice(order=Ranked(), size=options.near),
                Demand(size=options.far, least_batches=0),
            ],
            rows=DirectRows(options=options, readers=1),
            copy=Ring(ahead=3, buffers=2),
        )


class DeviceBehindHost(TwoDemandTiers):
    """Tiers in an order that cannot work."""

    def path(self) -> Path:
        """Static cache last."""
        path = super().path()
        return Path(
            path.sample,
            path.rows,
            path.copy,
            [path.tiers[0], StaticDevice(order=Ranked())],
        )

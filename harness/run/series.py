"""Series of runs on this host: one lock, isolation backend, probe, device profile, holder and cache for all runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.cache import Cache
from harness.isolation.base import Availability, Cap, IoLimit, IoStats, Isolation, Limits, MemoryStats
from harness.isolation.docker.foreign import image_of
from harness.isolation.owner import cap_name, is_left_over
from harness.isolation.select import select, sweep_all
from harness.records.record import RunConfig
from harness.results import store as results
from harness.run.holder import Holder
from harness.run.turns import Turn
from harness.ssd.profile import forget, quick_profile, slower_than
from systems.interface import DiskProfile, SystemInfo
from workloads.errors import HostError, InputError

if TYPE_CHECKING:
    from harness.isolation.probe import ProbeResult
    from harness.run.partitions import MadePartition
    from harness.telemetry.recorder import Recorder
    from workloads.accelerators.pool import DevicePool
    from workloads.dataset import Dataset
    from workloads.workload import Workload

_LOCK = ".lock"
_SCRATCH = ".outcore"


class Series:
    """Shared state of all runs of one `bench` or `run`; a context manager that cleans up."""

    def __init__(
        self,
        results_root: Path,
        data_root: Path,
        *,
        isolation: str = "auto",
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.turn = Turn.of_environment()
        self.results_root = results_root
        self.data_root = data_root
        self._progress = progress
        self._selection = select(isolation)
        self.isolation: Isolation = self._selection.backend
        self.availability: Availability = self._selection.availability
        self.cache = Cache(results_root)
        self.probe: ProbeResult | None = None
        self.bare_profile: DiskProfile | None = None
        self._profiles: dict[tuple[IoLimit, ...], DiskProfile] = {}
        self._limits: dict[str, tuple[IoLimit, ...]] = {}
        self._holder: Holder | None = None
        self._lock: IO[str] | None = None
        self._data_path: Path | None = None
        self._features: Path | None = None

    def __enter__(self) -> Series:
        self._take_lock()
        try:
            self.turn.take()
            self.sweep()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the holder, release the lock and the turn."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self.turn.close()

    def _take_lock(self) -> None:
        """Lock the results root: two orchestrators would disturb each other's measurements and records."""
        try:
            self.results_root.mkdir(parents=True, exist_ok=True)
            self._lock = (self.results_root / _LOCK).open("a")
        except OSError as error:
            raise InputError(
                f"results root {self.results_root} cannot be written: {error.strerror}", "choose another --results-root"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            self._lock = None
            raise InputError(
                f"another outcore is running on results root {self.results_root}",
                "wait for it, or choose another --results-root",
            ) from error

    def sweep(self) -> list[str]:
        """Remove remains of killed orchestrators: caps and their processes, half-written runs, scratch folders."""
        left = sweep_all()
        left += results.sweep_partial(self.results_root)
        for folder in sorted(self.scratch_root.iterdir()):
            if is_left_over(folder.name.rpartition("-")[0]):
                shutil.rmtree(folder, ignore_errors=True)
                left.append(folder.name)
        return left

    def prepare(self, configs: Sequence[RunConfig], dataset: Dataset) -> None:
        """Probe the cap, profile the device and start the holder, once before the first supported run."""
        self._data_path = dataset.path
        configs = [config for config in configs if not self.unsupported(config)]
        if not configs:
            return
        systems = sorted({config.system for config in configs if image_of(config.system) is None})
        self._holder = Holder(systems, self.isolation.holder_cap())
        self._features = dataset.file("features")
        if any(config.memory != "none" for config in configs) and self.availability.proves_memory:
            self._progress("proving the cap")
            self.probe = self._probe(gpu=any(config.device.startswith("cuda") for config in configs))
        # The holder's imports would disturb the profile.
        ready = self._holder.wait_ready()
        self._progress("profiling the device")
        self.bare_profile = self._measured()
        for limits in {self.limits(config) for config in configs if self.limits(config)}:
            self._profiles[limits] = self._measured(limits) or DiskProfile()
        held = self.bare_profile
        if held is not None and any(slower_than(held, limited) for limited in self._profiles.values()):
            # The bare device was measured in a slow moment.
            self._progress("the device is faster under limits than it was bare: profiling it again")
            self.bare_profile = self._measured(held=held) or held
        if not ready:
            self._progress("the holder did not start; runs pay for their own library pages")

    def _probe(self, *, gpu: bool) -> ProbeResult | None:
        from harness.isolation.probe import probe

        folder = Path(tempfile.mkdtemp(prefix=self.scratch_prefix, dir=self.scratch_root))
        try:
            return probe(self.isolation, folder, gpu=gpu)
        except HostError as error:
            self._progress(str(error))
            return None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _measured(
        self, limits: tuple[IoLimit, ...] = (), *, held: DiskProfile | None = None, cached: bool = True
    ) -> DiskProfile | None:
        """Profile the device, under limits where given; None if it cannot be measured, which rule 10 then reports.

        With a `held` profile the better rate of each point counts.
        """
        assert self._features is not None
        try:
            return quick_profile(
                self._features,
                Limits(io=limits) if limits else None,
                isolation=self.isolation if limits else None,
                cache=self.results_root / "cache" if cached else None,
                held=held,
            )
        except HostError as error:
            self._progress(str(error))
            return None

    def limits(self, config: RunConfig) -> tuple[IoLimit, ...]:
        """Return the I/O limits of a run's disk class; empty if this host cannot enforce any (a caveat)."""
        name = config.disk_class
        if name not in self._limits:
            self._limits[name] = self._find_limits(name)
        return self._limits[name]

    def _find_limits(self, name: str) -> tuple[IoLimit, ...]:
        from harness.ssd.classes import parse_disk_class
        from harness.ssd.device import block_device

        disk_class = parse_disk_class(name)
        if disk_class is None or not self.availability.io_limits:
            return ()
        try:
            return disk_class.limits(block_device(self._data_path or self.data_root))
        except HostError:
            return ()

    def profile(self, config: RunConfig) -> DiskProfile | None:
        """Return the device's profile under the run's limits, with the class's `write_cost`."""
        from harness.ssd.classes import parse_disk_class

        limits, disk_class = self.limits(config), parse_disk_class(config.disk_class)
        if not limits or disk_class is None:
            return self.bare_profile
        found = self._profiles.get(limits)
        return None if found is None else replace(found, write_cost=disk_class.write_cost)

    def measure_again(self, config: RunConfig) -> bool:
        """Profile the device again, bare and under the run's limits; return False if it cannot be measured.

        The better rate of each point counts: a virtual disk has slow moments, and a valid run may beat a profile taken
        in one. Under limits, fio never exceeds them. The cached profile, too slow for later series, is removed.
        """
        if self.bare_profile is None or self._features is None:
            return False
        again = self._measured(held=self.bare_profile, cached=False)
        if again is None:
            return False
        self.bare_profile = again
        forget(self._features, self.results_root / "cache")
        limits = self.limits(config)
        if limits in self._profiles:
            held = self._profiles[limits]
            self._profiles[limits] = self._measured(limits, held=held, cached=False) or held
        return True

    def disk_plain(self, config: RunConfig) -> dict[str, Any]:
        """Return the run's profile as plain data for the worker."""
        profile = self.profile(config)
        return asdict(profile) if profile else {}

    def disk_record(self, config: RunConfig) -> dict[str, Any]:
        """Return both profiles and the limits for the record."""
        profile = self.profile(config)
        return {
            "bare": asdict(self.bare_profile) if self.bare_profile else None,
            "limited": asdict(profile) if profile else None,
            "limits": [asdict(limit) for limit in self.limits(config)],
        }

    def caveats(self, config: RunConfig) -> list[str]:
        """Return the caveats of this host for a run."""
        found = list(self.isolation.caveats)
        if config.disk_class != "none" and not self.limits(config):
            found.append(f"disk class {config.disk_class} is not in force: this host cannot limit the device")
        return found

    def info(self, system: str) -> SystemInfo:
        """Return the description of a system."""
        from harness.isolation.docker.foreign import system_info

        return system_info(system)

    def is_faithful(self, config: RunConfig) -> bool:
        """Return whether the run's mini-batches have to equal the workload's."""
        from harness.isolation.docker.foreign import is_faithful

        return is_faithful(config.system, config.options)

    def unsupported(self, config: RunConfig) -> str:
        """Return the reason why this host cannot execute a run; empty if it can."""
        if image_of(config.system) is not None and self.isolation.name != "docker":
            return f"{config.system} is a container image: run it with --isolation docker"
        kind = config.device.partition(":")[0]
        devices = self.info(config.system).devices
        if kind not in devices:
            return f"{config.system} runs on {', '.join(devices)}, not on {kind}"
        if config.ranks > 1 and not self.info(config.system).data_parallel:
            return f"{config.system} trains in one process"
        if kind == "cuda":
            import torch

            if not torch.cuda.is_available():
                return "this host has no CUDA device that torch can use"
            if torch.cuda.device_count() < config.ranks:
                return f"this host has {torch.cuda.device_count()} CUDA devices for {config.ranks} ranks"
        return ""

    def workload(self, config: RunConfig, dataset: Dataset) -> Workload:
        """Return the workload of a run, as its worker builds it."""
        from harness.worker.build import workload_of

        made = self.made_partition(config, dataset)
        return workload_of(config, dataset, partition=None if made is None else made.path)

    def made_partition(self, config: RunConfig, dataset: Dataset) -> MadePartition | None:
        """Return the partition of the training nodes with the seconds spent on it; None without a partition."""
        from harness.run.partitions import partition

        return partition(self.results_root, config, dataset, self._progress)

    @contextmanager
    def device_pools(self, config: RunConfig, run_id: str) -> Iterator[list[DevicePool]]:
        """Yield shared memory for each rank's emulated device, allocated and touched outside the cap for each run."""
        if not config.device.startswith("emulated:"):
            yield []
            return
        from workloads.accelerators.pool import DevicePool

        with ExitStack() as stack:
            yield [
                stack.enter_context(DevicePool.create(config.device_memory_bytes or 0, f"{run_id}-{rank}"))
                for rank in range(config.ranks)
            ]

    def recorder(
        self,
        cap: Cap,
        config: RunConfig,
        look: Callable[[MemoryStats], object] | None = None,
        share: Callable[[], float | None] = lambda: None,
    ) -> Recorder:
        """Return the telemetry recorder of one run, outside the cap.

        Args:
            cap, config: cap and configuration of the run.
            look, share: function called with each sample's memory, and reader of the phase's completed share (0 to 1).
        """
        from harness.telemetry import Recorder

        kind, _, index = config.device.partition(":")
        return Recorder(cap, self.disks, gpu=int(index or 0) if kind == "cuda" else None, look=look, share=share)

    def disk_io(self) -> IoStats | None:
        """Return the reads of the whole device under the data since boot; None if unknown."""
        from harness.telemetry.sources import DiskSource

        source = DiskSource(self.disks)
        try:
            sample = source.read()
        finally:
            source.close()
        return None if sample is None else IoStats(512 * sample.read_sectors, sample.reads)

    @cached_property
    def disks(self) -> list[str]:
        """Disks under the data, as `major:minor`; empty where they are not known."""
        from harness.ssd.device import block_device

        return list(block_device(self._data_path or self.data_root).numbers)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Host, versions and device for the record."""
        from harness.records.environment import describe

        found = describe(self._data_path or self.data_root)
        held = self.isolation.describe()
        return found | {"probe": self.probe.as_dict() if self.probe else None} | ({"container": held} if held else {})

    @property
    def scratch_root(self) -> Path:
        """Folder of the runs' scratch folders, on the disk of the data."""
        return self._folder("scratch")

    @cached_property
    def scratch_prefix(self) -> str:
        """Prefix of scratch folders that names the owner, so that a dead owner's folders can be recognised."""
        return f"{cap_name('run')}-"

    def artefacts(self, system: str) -> Path:
        """Return the folder of a system's artefacts."""
        return self._folder("artefacts", system.replace(":", "-").replace(os.sep, "-"))

    def _folder(self, *names: str) -> Path:
        folder = self.data_root.joinpath(_SCRATCH, *names)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"data root {self.data_root} cannot be written: {error.strerror}", "choose another --data-root"
            ) from error
        return folder

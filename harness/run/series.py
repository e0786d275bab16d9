"""Series of runs on this host: one lock, isolation backend, probe, device profile,
holder and cache for all runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.cache import Cache
from harness.foreign import is_foreign
from harness.foreign.systems import folder_of, image_of, system_info
from harness.isolation import select, sweep_all
from harness.isolation.base import IoLimit, IoStats, Limits
from harness.isolation.probe import ProbeResult, probe
from harness.isolation.processes import cap_name, is_left_over
from harness.records.environment import describe, this_host
from harness.records.record import RunConfig
from harness.results import store as results
from harness.run.holder import Holder
from harness.run.places import Places
from harness.run.turns import Turn
from harness.ssd.classes import parse_disk_class
from harness.ssd.device import block_device
from harness.ssd.profile import forget, quick_profile, slower_than
from harness.telemetry.recorder import DiskSource
from systems.readings import DiskProfile
from workloads.dataset import Dataset
from workloads.errors import DataIOError, HostError, InputError
from workloads.tempfolder import try_lock

Progress = Callable[[str], None]

_LOCK = ".lock"


class Series:
    """Shared state of all runs of one `bench` or `run`; a context manager that cleans
    up."""

    def __init__(
        self,
        results_root: Path,
        data_root: Path,
        *,
        isolation: str = "auto",
        progress: Progress = lambda text: None,
        places: Places | None = None,
    ) -> None:
        self.turn = Turn.of_environment()
        self.results_root = results_root
        self.data_root = data_root
        self.progress = progress
        self.places = places or Places.below(data_root)
        selection = select(isolation)
        self.isolation = selection.backend
        self.availability = selection.availability
        self.cache = Cache(results_root / "cache")
        self.probe: ProbeResult | None = None
        self.bare_profile: DiskProfile | None = None
        self._profiles: dict[tuple[IoLimit, ...], DiskProfile] = {}
        self._limits: dict[str, tuple[IoLimit, ...]] = {}
        self._close = ExitStack()
        self._data_path: Path | None = None
        self._features: Path | None = None

    def __enter__(self) -> Series:
        self._close.callback(self.turn.close)
        self._take_lock()
        try:
            self.turn.take()
            self._sweep()
        except BaseException:
            self._close.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        """End the holder, release the lock and the turn."""
        self._close.close()

    def _take_lock(self) -> None:
        """Lock the results root: two orchestrators would disturb each other's
        measurements and records."""
        try:
            self.results_root.mkdir(parents=True, exist_ok=True)
            lock = self._close.enter_context((self.results_root / _LOCK).open("a"))
        except OSError as error:
            message = f"results root {self.results_root} cannot be written"
            raise InputError.from_os(
                error, message, "choose another --results-root"
            ) from error
        if not try_lock(lock.fileno()):
            self._close.close()
            message = f"another outcore is running on results root {self.results_root}"
            raise InputError(message, "wait for it, or choose another --results-root")

    def _sweep(self) -> None:
        """Remove remains of killed orchestrators: caps and their processes,
        half-written runs, scratch folders."""
        sweep_all()
        results.sweep_partial(self.results_root)
        for folder in self.scratch_root.iterdir():
            if is_left_over(folder.name.rpartition("-")[0]):
                shutil.rmtree(folder, ignore_errors=True)

    def prepare(
        self, configs: Sequence[RunConfig], dataset: Dataset, *, profiled: bool = True
    ) -> None:
        """Probe the cap, profile the device (unless not `profiled`) and start the
        holder, once before the first supported run."""
        self._data_path = dataset.path
        configs = [config for config in configs if not self.unsupported(config)]
        if not configs:
            return
        systems = sorted(
            {config.system for config in configs if not is_foreign(config.system)}
        )
        holder = Holder(systems, self.cache, self.isolation.holder_cap())
        self._close.callback(holder.close)
        self._features = dataset.file("features")
        if (
            any(config.memory != "none" for config in configs)
            and self.availability.proves_memory
        ):
            self.progress("proving the cap")
            gpu = any(config.device.startswith("cuda") for config in configs)
            try:
                with self.scratch() as folder:
                    self.probe = probe(self.isolation, folder, gpu=gpu)
            except HostError as error:
                self.progress(str(error))
        # The holder's imports would disturb the profile.
        ready = holder.wait_ready()
        if profiled:
            self._profile(configs)
        if not ready:
            self.progress(
                "the holder did not start; runs pay for their own library pages"
            )

    def _profile(self, configs: Sequence[RunConfig]) -> None:
        """Profile the device, bare and under the limits of the runs."""
        self.progress("profiling the device")
        self.bare_profile = self._measured()
        for limits in {
            self.limits(config) for config in configs if self.limits(config)
        }:
            self._profiles[limits] = self._measured(limits) or DiskProfile()
        held = self.bare_profile
        if held is not None and any(
            slower_than(held, limited) for limited in self._profiles.values()
        ):
            # The bare device was measured in a slow moment.
            self.progress(
                "the device is faster under limits than it was bare: profiling it again"
            )
            self.bare_profile = self._measured(held=held) or held

    def _measured(
        self,
        limits: tuple[IoLimit, ...] = (),
        *,
        held: DiskProfile | None = None,
        cached: bool = True,
    ) -> DiskProfile | None:
        """Profile the device, under limits where given; None if it cannot be measured,
        which rule 10 then reports. With a `held` profile the better rate of each point
        counts."""
        assert self._features is not None
        under, isolation = (
            (Limits(io=limits), self.isolation) if limits else (None, None)
        )
        cache = self.results_root / "cache" if cached else None
        try:
            return quick_profile(
                self._features, under, isolation=isolation, cache=cache, held=held
            )
        except HostError as error:
            self.progress(str(error))
            return None

    def limits(self, config: RunConfig) -> tuple[IoLimit, ...]:
        """Return the I/O limits of a run's disk class; empty if this host cannot
        enforce any (a caveat)."""
        name = config.disk_class
        if name not in self._limits:
            self._limits[name] = ()
            disk_class = parse_disk_class(name)
            if disk_class is not None and self.availability.io_limits:
                with suppress(HostError):
                    self._limits[name] = disk_class.limits(
                        block_device(self._data_path or self.data_root)
                    )
        return self._limits[name]

    def profile(self, config: RunConfig) -> DiskProfile | None:
        """Return the device's profile under the run's limits, with the class's
        `write_cost`."""
        limits = self.limits(config)
        disk_class = parse_disk_class(config.disk_class)
        if not limits or disk_class is None:
            return self.bare_profile
        found = self._profiles.get(limits)
        return found and replace(found, write_cost=disk_class.write_cost)

    def measure_again(self, config: RunConfig) -> bool:
        """Profile the device again, bare and under the run's limits; return False if it
        cannot be measured. The better rate of each point counts: a virtual disk has
        slow moments, and a valid run may beat a profile taken in one. Under limits, fio
        never exceeds them. The cached profile, too slow for later series, is
        removed."""
        if self.bare_profile is None or self._features is None:
            return False
        if (again := self._measured(held=self.bare_profile, cached=False)) is None:
            return False
        self.bare_profile = again
        forget(self._features, self.results_root / "cache")
        limits = self.limits(config)
        if limits in self._profiles:
            held = self._profiles[limits]
            self._profiles[limits] = (
                self._measured(limits, held=held, cached=False) or held
            )
        return True

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
            found.append(
                f"disk class {config.disk_class} is not in force: this host cannot "
                "limit the device"
            )
        return found

    def unsupported(self, config: RunConfig) -> str:
        """Return the reason why this host cannot execute a run; empty if it can."""
        if image_of(config.system) is not None and self.isolation.name != "docker":
            return (
                f"{config.system} is a container image: run it with --isolation docker"
            )
        if (folder := folder_of(config.system)) is not None and folder.missing:
            return folder.missing
        kind = config.device.partition(":")[0]
        info = system_info(config.system)
        if kind not in info.devices:
            return f"{config.system} runs on {', '.join(info.devices)}, not on {kind}"
        if config.ranks > 1 and not info.data_parallel:
            return f"{config.system} trains in one process"
        if kind == "cuda":
            import torch

            if not torch.cuda.is_available():
                return "this host has no CUDA device that torch can use"
            if torch.cuda.device_count() < config.ranks:
                return (
                    f"this host has {torch.cuda.device_count()} CUDA devices for "
                    f"{config.ranks} ranks"
                )
        return ""

    def disk_io(self) -> IoStats | None:
        """Return the reads of the whole device under the data since boot; None if
        unknown."""
        with closing(DiskSource(self.disks)) as source:
            sample = source.read()
        return (
            None if sample is None else IoStats(512 * sample.read_sectors, sample.reads)
        )

    @cached_property
    def disks(self) -> list[str]:
        """Disks under the data, as `major:minor`; empty where they are not known."""
        return list(block_device(self._data_path or self.data_root).numbers)

    @cached_property
    def host(self) -> str:
        """Fingerprint of this host with the device under the data."""
        return this_host(self._data_path or self.data_root)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Host, versions and device for the record."""
        found = describe(self._data_path or self.data_root)
        held = self.isolation.describe()
        return (
            found
            | {"probe": self.probe.as_dict() if self.probe else None}
            | ({"container": held} if held else {})
        )

    @property
    def hidden(self) -> tuple[Path, ...]:
        """Folders of data and results, of which a worker sees its own parts alone."""
        return (
            self.data_root,
            self.places.scratch,
            self.places.artefacts,
            self.results_root,
        )

    @property
    def scratch_root(self) -> Path:
        """Folder of the runs' scratch folders."""
        return self.places.scratch_folder()

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a new scratch folder, and remove it; its name states the owner, so that
        a dead owner's are recognised. Raises DataIOError: no folder can be made."""
        root = self.scratch_root
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"{cap_name('run')}-", dir=root))
        except OSError as error:
            message = f"no scratch folder can be made under {root}"
            raise DataIOError.of(
                error, message, root, "choose another --scratch"
            ) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def artefacts(self, system: str) -> Path:
        """Return the folder of a system's artefacts."""
        return self.places.artefacts_of(system)

    @property
    def frozen(self) -> Cache:
        """State of frozen artefacts (`harness/results/frozen.py`); no worker sees its
        folder."""
        return Cache(self.places.artefacts_of(".frozen"))

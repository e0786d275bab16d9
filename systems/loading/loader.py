"""The loader: a system, planned within a budget and driven epoch by epoch for a training loop of one's own.

It is what the harness's worker is to a run, without the cap, the clocks and the trainer: the loop that asks for
mini-batches trains on them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from systems.engine.artefacts import in_use
from systems.engine.bounds import batch_bounds
from systems.interface import (
    DiskProfile,
    MemoryBudget,
    Options,
    Plan,
    PlanItem,
    Runtime,
    StageClock,
    System,
    reserve_bytes,
    wall_seconds,
)
from systems.loading.batches import Edges, Form, handed_out_items, resolve_form
from systems.loading.epoch import Epoch
from systems.loading.request import bounds_of, check_options, check_usable, memory_bytes, open_dataset
from systems.registry import load
from workloads.accelerator import Accelerator, make_accelerator
from workloads.dataset import Dataset
from workloads.errors import InputError
from workloads.sampling.make import make_seed_plan
from workloads.tempfolder import locked, remove_stale, temporary_prefix, try_lock
from workloads.units import parse_bytes
from workloads.workload import ModelSpec, SamplerName, SamplerSpec, Workload


class Loader:
    """An iterable of mini-batches; each iteration is the next epoch, and `len` is mini-batches an epoch.

    Use it as a context manager, or `close()` it: a system has threads, open files and caches. One iteration goes on at
    a time; beginning another ends it. Not for several processes: each makes its own, with `rank` and `world`.

    Args:
        dataset: an opened dataset, its folder, or its name under `$OUTCORE_DATA`.
        system: a name of the registry, or `package.module:Class`.
        memory: host memory that the loader may hold, page cache that it fills included: `8GiB`, or `0.25x` of the
            feature table; None: no limit. Your model and the interpreter are not part of it. Planned, not enforced:
            a cgroup does that.
        fanout: neighbours a node and hop, next to the seed nodes first; -1: all.
        batch_size: seed nodes of a mini-batch.
        device: `cpu` or `cuda`, where `x` and the structure are wanted.
        device_memory: device memory that the loader may hold; None on `cuda`: half of what is free now.
        options: the system's own options (`outcore systems NAME` lists them).
        split: seed nodes: `train`, `valid` or `test`; or
        nodes: any nodes, int64 [n].
        epochs: how many epochs will be asked for, where that is known: what is prepared offline is then prepared once
            for all of them.
        seed: keys shuffling and every draw. Equal seeds give equal mini-batches, whatever the system.
        sampler: `neighbor`, `layerwise` or `shadow`, with `layers` of the model for the last.
        shuffle: the seed nodes, anew every epoch; None: only those of `train`.
        max_batches: at most so many mini-batches an epoch; 0: all.
        form: `pyg` (`torch_geometric.data.Data`), `plain` (`MiniBatch`, the same attributes), `dgl` (input nodes,
            output nodes, blocks), or `auto`: `pyg` where it is installed.
        edges: `hops` or `layers`, see `systems.loading.batches`; DGL's blocks are always layers.
        copy: give each mini-batch rows of its own. Otherwise `x` is the system's memory, until the next is asked for.
        faithful: refuse a system whose mini-batches are not the workload's; False takes its own.
        keep_order: mini-batches in the seed plan's order, also where a system would give them out as they are ready.
        cores: threads to plan for; 0: the cores this process may use.
        artefacts: folder where prepared work is kept for the next loader of the same kind; None: a folder beside the
            dataset that goes with the loader.
        disk: what the dataset's device was measured to do, for systems that choose by it; of a drive that
            `outcore ssd profile` measured: `harness.ssd.drive.read_drive(path).disk_profile()`.
        rank, world: this process among those that share every step's seed nodes.

    Raises:
        InputError, DatasetError: an argument is wrong; the message says which.
        BudgetError: the plan does not fit `memory` or `device_memory`; names the part that does not.
        HostError: a library or a device is missing.
    """

    def __init__(
        self,
        dataset: Dataset | Path | str,
        *,
        system: str = "gnndrive",
        memory: str | int | None = None,
        fanout: Sequence[int] = (10, 10, 10),
        batch_size: int = 1000,
        device: str = "cpu",
        device_memory: str | int | None = None,
        options: Mapping[str, Any] | None = None,
        split: str = "train",
        nodes: npt.ArrayLike | None = None,
        epochs: int = 0,
        seed: int = 0,
        sampler: SamplerName = "neighbor",
        replace: bool = False,
        layers: int = 0,
        shuffle: bool | None = None,
        max_batches: int = 0,
        form: Form = "auto",
        edges: Edges = "hops",
        copy: bool = False,
        faithful: bool = True,
        keep_order: bool = True,
        cores: int = 0,
        artefacts: Path | str | None = None,
        disk: DiskProfile | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self._class = load(system)
        chosen = check_options(self._class, options or {})
        check_usable(self._class, chosen, device, faithful)
        self._form = resolve_form(form, edges, sampler)
        self._edges: Edges = edges
        self._copy = copy
        opened = open_dataset(dataset, split, nodes)
        own_shuffle = shuffle if shuffle is not None else split == "train" and nodes is None
        spec = SamplerSpec(sampler, tuple(fanout), replace, batch_size, own_shuffle, max_batches)
        model = ModelSpec(layers=layers or len(spec.fanout))
        self.workload = Workload(opened, spec, model, seed, rank, world)
        #: Whether the mini-batches are the workload's, as every faithful system's are.
        self.faithful = self._class.is_faithful(chosen)
        self._batches = make_seed_plan(self.workload).num_batches
        self._host = memory_bytes(memory, opened.feature_bytes)
        self._epochs = epochs
        self._next = 0
        self._prepared = False
        self._running: weakref.ref[Epoch] | None = None
        self._used: set[str] = set()
        self._class.load_libraries()
        self._held = _Held()
        self._finalizer = weakref.finalize(self, self._held.close)
        try:
            self._open(chosen, device, device_memory, artefacts, disk or DiskProfile(), cores, keep_order)
        except BaseException:
            self.close()
            raise

    def _open(
        self,
        options: Options,
        device: str,
        device_memory: str | int | None,
        artefacts: Path | str | None,
        disk: DiskProfile,
        cores: int,
        keep_order: bool,
    ) -> None:
        """Folders, device, bounds, then the system and its plan."""
        dataset = self.workload.dataset
        self._private = artefacts is None
        scratch = self._held.folder(dataset.path.parent if artefacts is None else Path(artefacts))
        kept = scratch / "artefacts" if artefacts is None else Path(artefacts) / self._class.info.name.replace(":", "-")
        kept.mkdir(parents=True, exist_ok=True)
        self._held.stack.enter_context(in_use(kept))
        bounds_of(self.workload, kept)
        bounds = batch_bounds(self.workload)
        row_bytes = dataset.dim * dataset.feature_dtype.itemsize
        on_device = device != "cpu"
        reserve = () if self._host is None else (PlanItem("reserve", reserve_bytes(self._host)),)
        own = Plan((*reserve, *handed_out_items(bounds, row_bytes, on_device)))
        whole = MemoryBudget(self._host, _device_bytes(device, device_memory))
        own.require("the loader", whole, "raise memory, or lower batch_size or fanout")
        budget = MemoryBudget(
            None if whole.host is None else whole.host - own.total("host"),
            None if whole.device is None else whole.device - own.total("device"),
        )
        self._clock = StageClock()
        accelerator = self._held.accelerator = make_accelerator(device, memory_bytes=budget.device)
        runtime = Runtime(
            accelerator=accelerator,
            disk=disk,
            artefacts=kept,
            scratch=scratch / "run",
            cores=cores or len(os.sched_getaffinity(0)),
            keep_order=keep_order,
            epochs=self._epochs,
        )
        runtime.scratch.mkdir()
        self._system = self._held.system = self._class(self.workload, runtime, budget, options, self._clock)
        plan = self._system.plan()
        #: Every buffer that the loader and its system hold.
        self.plan = Plan((*own.items, *plan.items))
        self._bounds = bounds

    @property
    def system(self) -> str:
        """The system's name."""
        return self._class.info.name

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration is of."""
        return self._next

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be of `epoch`, as when training goes on from a checkpoint.

        Raises:
            InputError: it is negative.
        """
        if epoch < 0:
            raise InputError(f"epoch is {epoch}", "give 0 or more")
        self._next = epoch

    def prepare(self) -> None:
        """The system's offline work and allocation; the first iteration does it where nobody asked before."""
        self._check_open()
        if not self._prepared:
            self._system.prepare()
            self._prepared = True

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Any]:
        self._end("another iteration of this loader began")
        self.prepare()
        number = self._next
        self._next += 1
        accelerator = self._held.accelerator
        assert accelerator is not None
        found = Epoch(
            self,
            self._system,
            number,
            accelerator,
            self._clock,
            form=self._form,
            edges=self._edges,
            copy=self._copy,
            shadow=self.workload.sampler.name == "shadow",
            largest=self._bounds.max_nodes,
            count=len(self),
        )
        self._running = weakref.ref(found)
        return found

    def began(self) -> None:
        """Called when an epoch's first mini-batch is there: what only the epochs before it needed is removed."""
        if not self._private:
            return
        root = self._system.runtime.artefacts
        used = {path.relative_to(root).parts[0] for path in self._system.files() if path.is_relative_to(root)}
        for name in self._used - used:
            shutil.rmtree(root / name, ignore_errors=True)
        self._used = used

    def counters(self) -> dict[str, Any]:
        """Rows, hits by tier, misses, reads and bytes of the last epoch (`systems.interface.Counters`)."""
        self._check_open()
        return self._system.counters().as_dict()

    def stages(self) -> dict[str, float]:
        """Seconds of each stage since the last call; `train` is the time that the loop held a mini-batch."""
        return wall_seconds(self._clock.drain())

    def notes(self) -> dict[str, str]:
        """What the system says of itself."""
        self._check_open()
        return self._system.notes()

    def _end(self, why: str) -> None:
        running = None if self._running is None else self._running()
        self._running = None
        if running is not None:
            running.end(why)

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise InputError("the loader is closed", "make another")

    def close(self) -> None:
        """End the epoch under way, every thread, file and buffer. May be called more than once."""
        try:
            self._end("the loader was closed")
        finally:
            self._finalizer()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Loader of {self.workload.dataset.name} by {self.system}, {len(self)} mini-batches an epoch>"


class _Held:
    """What a loader holds, given back together: at `close`, when nobody has the loader any more, or at exit."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        self.system: System | None = None
        self.accelerator: Accelerator | None = None
        self._process = os.getpid()

    def folder(self, root: Path) -> Path:
        """A folder of this loader's own under `root`; if the process is killed, the next loader removes it.

        Raises:
            InputError: `root` cannot be written.
        """
        try:
            root.mkdir(parents=True, exist_ok=True)
            with locked(root):
                remove_stale(root)
                made = Path(tempfile.mkdtemp(prefix=temporary_prefix("loader"), dir=root))
                handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
                try_lock(handle)
        except OSError as error:
            raise InputError(
                f"{root} cannot be written: {error.strerror}", "give artefacts=, a folder on the dataset's disk"
            ) from error
        self.stack.callback(os.close, handle)
        self.stack.callback(shutil.rmtree, made, True)
        return made

    def close(self) -> None:
        """In the order that owes nothing: system, device, folders. A forked child has none of it."""
        if os.getpid() != self._process:
            return
        system, self.system = self.system, None
        accelerator, self.accelerator = self.accelerator, None
        with self.stack:
            try:
                if system is not None:
                    system.close()
            finally:
                if accelerator is not None:
                    accelerator.close()


def _device_bytes(device: str, device_memory: str | int | None) -> int | None:
    if device == "cpu":
        if device_memory is not None:
            raise InputError("device_memory is given, and cpu has no memory of its own", "leave it out")
        return None
    if device_memory is not None:
        return parse_bytes(device_memory, "device_memory")
    accelerator = make_accelerator(device)
    free = accelerator.memory_bytes
    accelerator.close()
    return None if free is None else free // 2

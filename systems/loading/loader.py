"""The loader: a system, planned within a budget and driven epoch by epoch for a user's own training loop.

Counterpart of the harness's worker without the cap, the clocks and the trainer: the user's loop trains.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from systems.engine.store.artefacts import in_use
from systems.interface import MemoryBudget, Plan, Runtime, StageClock
from systems.loading.batches import Edges, Form, HandOut, handed_out_items, resolve_form
from systems.loading.epoch import Epoch
from systems.loading.graphs import as_dataset
from systems.loading.request import bounds_of, check_options, check_usable, memory_bytes, open_dataset
from systems.loading.weights import EdgeWeights
from systems.loading.words import check_words, fan_out, seed_nodes
from systems.planning import Planner
from systems.readings import DiskProfile, wall_seconds
from systems.registry import load
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import BudgetError, InputError, require
from workloads.sampling.bounds import batch_bounds
from workloads.sampling.listing import find
from workloads.sampling.make import make_seed_plan
from workloads.tempfolder import TemporaryFolder
from workloads.units import parse_memory_bytes
from workloads.workload import ModelSpec, SamplerSpec, Workload

if TYPE_CHECKING:
    from torch_geometric.data import Data


class Loader:
    """Iterable of mini-batches; each iteration runs the next epoch, and `len` is the number of mini-batches an epoch.

    Use it as a context manager or call `close()`: a system has threads, open files and caches. Only one iteration is
    active at a time; starting another ends it. Each process needs its own loader, with `rank` and `world`.

    Args:
        dataset: opened dataset, its folder, or its name under `$OUTCORE_DATA`; or a graph to write as one, out of core:
            a `torch_geometric.data.Data`, or a file of one (`.pt`, or `.npz` of the same names).
        system: name in the registry, or `package.module:Class`.
        memory: host memory that the loader may hold, including page cache that it fills: `8GiB`, or `0.25x` of the
            feature table; None: unlimited. Excludes the user's model and the interpreter. Planned, not enforced (use a
            cgroup).
        fanout, num_neighbors: neighbours per node and hop, nearest the seed nodes first; -1: all.
        batch_size: seed nodes of a mini-batch.
        device: `cpu` or `cuda`, the place of `x` and the structure.
        device_memory: device memory that the loader may hold; None on `cuda`: half of the memory free now.
        options: the system's own options (`outcore systems NAME` lists them); `auto` as in runs, see `chosen`.
        split: seed nodes: `train`, `valid` (`val`) or `test`.
        nodes: seed nodes, instead of a split: ids, int64 [n], or a mask, bool [N], as list, array or tensor.
        input_nodes: PyG's name of both: a split's name, ids or a mask.
        epochs: number of epochs that will be requested, if known; offline preparation then covers all of them at once.
        seed: key of shuffling and of every draw. Equal seeds give equal mini-batches, whatever the system.
        sampler: `neighbor`, `layerwise`, `shadow`, or your own `package.module:NAME` (`workloads.sampling.listing`).
        layers: layers of the model, for `shadow`; 0: the number of hops.
        shuffle: shuffle the seed nodes anew every epoch; None: only those of `train`.
        max_batches: most mini-batches an epoch; 0: all.
        drop_last: leave out an epoch's last mini-batch if it is short.
        form: `pyg` (`torch_geometric.data.Data`), `plain` (`MiniBatch`, the same attributes), `dgl` (input nodes,
            output nodes, blocks), or `auto`: `pyg` if installed, else `plain`.
        edges: `hops` or `layers`, see `systems.loading.batches`; DGL's blocks are always layers.
        edge_weight: hand out the weights of the sampled edges, as `edge_weight` (DGL: `edata`).
        copy: copy each mini-batch's rows. Otherwise `x` is the system's memory, valid until the next mini-batch.
        faithful: refuse a system whose mini-batches differ from the workload's; False accepts the system's own.
        keep_order: yield mini-batches in the seed plan's order, even if a system could yield them as they complete.
        cores, num_workers: threads to plan for; 0: the cores this process may use.
        artefacts: folder that keeps prepared artefacts for later loaders; None: a temporary folder beside the dataset.
        disk: measured profile of the dataset's device, for systems that choose by it; for a drive measured by `outcore
            ssd profile`: `harness.ssd.drive.read_drive(path).disk_profile()`.
        rank: number of this process among those that share every step's seed nodes.
        world: number of processes that share every step's seed nodes.
        words: other arguments of PyG's `NeighborLoader`; the default passes, else the error says what to use instead.

    Raises:
        InputError, DatasetError: an argument is wrong; the message names it.
        BudgetError: the plan does not fit `memory` or `device_memory`; names the item, and the least memory that does.
        HostError: a library or a device is missing.
    """

    def __init__(
        self,
        dataset: Dataset | Path | str | Data,
        *,
        system: str = "gnndrive",
        memory: str | int | None = None,
        fanout: Sequence[int] | None = None,
        num_neighbors: Sequence[int] | None = None,
        batch_size: int = 1000,
        device: str = "cpu",
        device_memory: str | int | None = None,
        options: Mapping[str, Any] | None = None,
        split: str = "train",
        nodes: npt.ArrayLike | None = None,
        input_nodes: npt.ArrayLike | str | None = None,
        epochs: int = 0,
        seed: int = 0,
        sampler: str = "neighbor",
        replace: bool = False,
        layers: int = 0,
        shuffle: bool | None = None,
        max_batches: int = 0,
        drop_last: bool = False,
        form: Form = "auto",
        edges: Edges = "hops",
        edge_weight: bool = False,
        copy: bool = False,
        faithful: bool = True,
        keep_order: bool = True,
        cores: int = 0,
        num_workers: int = 0,
        artefacts: Path | str | None = None,
        disk: DiskProfile | None = None,
        rank: int = 0,
        world: int = 1,
        **words: Any,
    ) -> None:
        check_words(words, inspect.signature(Loader).parameters)
        hops = fan_out(fanout, num_neighbors)
        split, nodes = seed_nodes(split, nodes, input_nodes)
        require(isinstance(sampler, str), f"sampler is a {type(sampler).__name__}", "give a name, such as neighbor")
        require(num_workers >= 0, f"num_workers is {num_workers}", "give the number of threads; 0: all cores")
        require(not (cores and num_workers), "cores and num_workers are both given", "give one of them")
        self._class = load(system)
        chosen = check_options(self._class, options or {})
        check_usable(self._class, chosen, device, faithful)
        self._form: Form = resolve_form(form, edges, sampler)
        self._edges: Edges = edges
        self._copy = copy
        #: Whether the mini-batches equal the workload's, as every faithful system's do.
        self.faithful = self._class.is_faithful(chosen)
        self._next = 0
        self._prepared = False
        self._private = artefacts is None
        self._running: weakref.ref[Epoch] | None = None
        self._used: set[str] = set()
        # Released together: at `close`, on garbage collection of the loader, or at exit.
        self._resources = contextlib.ExitStack()
        self._finalizer = weakref.finalize(self, _release, self._resources, os.getpid())
        try:
            supervised = nodes is None and split == "train"
            opened = open_dataset(as_dataset(dataset, artefacts, memory, supervised, self._resources), split, nodes)
            if drop_last:
                max_batches = _whole_steps(opened, batch_size * world, max_batches)
            own_shuffle = shuffle if shuffle is not None else supervised
            spec = SamplerSpec(sampler, hops, replace, batch_size, own_shuffle, max_batches)
            model = ModelSpec(layers=layers or len(spec.fanout))
            self.workload = Workload(opened, spec, model, seed, rank, world)
            self._batches = make_seed_plan(self.workload).num_batches
            host = memory_bytes(memory, opened.feature_bytes)
            self._weights = EdgeWeights(opened) if edge_weight else None
            self._class.load_libraries()
            scratch, kept = self._make_folders(artefacts)
            bounds_of(self.workload, kept)
            self._bounds = batch_bounds(self.workload)
            handed_out = handed_out_items(self._bounds, opened.row_bytes, device != "cpu", edge_weight)
            whole = host, _device_bytes(device, device_memory)
            budget = MemoryBudget.beside(*whole, handed_out)
            self._clock = StageClock()
            accelerator = make_accelerator(device, memory_bytes=budget.device)
            self._resources.callback(accelerator.close)
            runtime = Runtime(
                accelerator=accelerator,
                disk=disk or DiskProfile(),
                artefacts=kept,
                scratch=scratch,
                cores=cores or num_workers or len(os.sched_getaffinity(0)),
                keep_order=keep_order,
                epochs=epochs,
            )
            planner = Planner(self._class, self.workload, runtime, chosen, device, handed_out, rest=0)
            try:
                fix = "raise memory, or lower batch_size or fanout"
                own = Plan(budget.held).require("the loader", MemoryBudget(*whole), fix)
                self._system = planner.make(*whole, self._clock)
                self._resources.callback(self._system.close)
                #: Every buffer that the loader and its system hold.
                self.plan = Plan((*own.items, *self._system.plan().items))
            except BudgetError as error:
                raise planner.refusal(error, *whole) from error
            #: Values of the system's options that were left at `auto`: numbers, bytes of sizes, words.
            self.chosen = planner.chosen(self._system)
        except BaseException:
            self.close()
            raise

    def _make_folders(self, artefacts: Path | str | None) -> tuple[Path, Path]:
        """Make the folders of the loader's own files and of its artefacts, both under `artefacts` if that is given."""
        root = self.workload.dataset.path.parent if artefacts is None else Path(artefacts)
        try:
            root.mkdir(parents=True, exist_ok=True)
            # If the process is killed, the next loader removes it.
            scratch = self._resources.enter_context(TemporaryFolder(root, "loader"))
        except OSError as error:
            fix = "give artefacts=, a folder on the dataset's disk"
            raise InputError.from_os(error, f"{root} cannot be written", fix) from error
        kept = scratch / "artefacts" if artefacts is None else Path(artefacts) / self._class.info.name.replace(":", "-")
        kept.mkdir(parents=True, exist_ok=True)
        self._resources.enter_context(in_use(kept))
        (scratch / "run").mkdir()
        return scratch / "run", kept

    @property
    def system(self) -> str:
        """Name of the system."""
        return self._class.info.name

    @property
    def num_classes(self) -> int:
        """Number of classes of the labels."""
        return self.workload.dataset.num_classes

    @property
    def num_features(self) -> int:
        """Number of feature columns."""
        return self.workload.dataset.dim

    @property
    def epoch(self) -> int:
        """Number of the epoch that the next iteration runs."""
        return self._next

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, such as when training resumes from a checkpoint.

        Raises:
            InputError: `epoch` is negative.
        """
        require(epoch >= 0, f"epoch is {epoch}", "give 0 or more")
        self._next = epoch

    def prepare(self) -> None:
        """Run the system's offline work and allocation once; the first iteration calls this if the user did not."""
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
        shadow, device = find(self.workload.sampler.name).one_subgraph, self._system.runtime.accelerator.torch_device
        hand_out = HandOut(self._form, self._edges, shadow, device, self._weights)
        found = Epoch(self._system, number, self.began, hand_out, self._copy, self._bounds.max_nodes, len(self))
        self._running = weakref.ref(found)
        return found

    def began(self) -> None:
        """Remove artefacts that only earlier epochs needed; called when an epoch's first mini-batch has arrived."""
        if not self._private:
            return
        root = self._system.runtime.artefacts
        used = {path.relative_to(root).parts[0] for path in self._system.files() if path.is_relative_to(root)}
        for name in self._used - used:
            shutil.rmtree(root / name, ignore_errors=True)
        self._used = used

    def counters(self) -> dict[str, Any]:
        """Return rows, hits by tier, misses, reads and bytes of the last epoch (`systems.interface.Counters`)."""
        self._check_open()
        return self._system.counters().as_dict()

    def stages(self) -> dict[str, float]:
        """Return seconds of each stage since the last call; `train` is the time that the loop held a mini-batch."""
        return wall_seconds(self._clock.drain())

    def notes(self) -> dict[str, str]:
        """Return the system's notes (`System.notes`)."""
        self._check_open()
        return self._system.notes()

    def _end(self, why: str) -> None:
        running = None if self._running is None else self._running()
        self._running = None
        if running is not None:
            running.end(why)

    def _check_open(self) -> None:
        require(self._finalizer.alive, "the loader is closed", "make another")

    def close(self) -> None:
        """End the current epoch, every thread, file and buffer. May be called more than once."""
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


def _release(resources: contextlib.ExitStack, process: int) -> None:
    """Close system, device and folders, in order of dependence; a no-op in a forked child, which owns none."""
    if os.getpid() == process:
        resources.close()


def _whole_steps(dataset: Dataset, step: int, most: int) -> int:
    """Return the number of whole steps of `step` seed nodes in an epoch, at most `most` (0: all)."""
    nodes = len(dataset.memmap("train"))
    whole = nodes // max(1, step)
    require(whole, f"drop_last leaves nothing of {nodes} seed nodes at {step} a step", "lower batch_size")
    return min(most or whole, whole)


def _device_bytes(device: str, device_memory: str | int | None) -> int | None:
    if device == "cpu":
        require(device_memory is None, "device_memory is given, and cpu has no memory of its own", "leave it out")
        return None
    if device_memory is not None:
        return parse_memory_bytes(device_memory, "device_memory")
    accelerator = make_accelerator(device)
    free = accelerator.memory_bytes
    accelerator.close()
    return None if free is None else free // 2

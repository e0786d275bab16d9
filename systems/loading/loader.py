"""The loader: a system, planned within a budget and driven epoch by epoch for a user's
own training loop.

Counterpart of the harness's worker without the cap, the clocks and the trainer: the
user's loop trains.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import os
import shutil
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch

from systems.engine.store.artefacts import in_use
from systems.interface import MemoryBudget, Options, Plan, PlanItem, Runtime, StageClock
from systems.loading.batches import Edges, Form, HandOut, handed_out_items, resolve_form
from systems.loading.epoch import Epoch
from systems.loading.epoch_work import EpochWork
from systems.loading.graphs import as_dataset
from systems.loading.lease import Lease
from systems.loading.progress import progress_of
from systems.loading.pyg_arguments import check_whole, check_words, fan_out, seed_nodes
from systems.loading.request import (
    SeedNodes,
    bounds_of,
    check_options,
    check_usable,
    device_bytes,
    memory_bytes,
    open_dataset,
)
from systems.loading.shares import (
    NoMiniBatches,
    check_ranks,
    share_of,
    uneven_nodes,
    warning_of,
    whole_steps,
)
from systems.loading.weights import EdgeWeights
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
from workloads.workload import ModelSpec, SamplerSpec, Workload

if TYPE_CHECKING:
    from torch_geometric.data import Data


class Loader:
    """Iterable of mini-batches; each iteration runs the next epoch, and `len` is the
    number of mini-batches an epoch.

    Use it as a context manager or call `close()`: a system has threads, open files and
    caches. Only one iteration is active at a time; starting another ends it. Each
    process needs its own loader, with `rank` and `world`.

    Args:
        dataset: opened dataset, its folder, or its name under `$OUTCORE_DATA`; or a
            graph to write as one, out of core: a `torch_geometric.data.Data`, or a file
            of one (`.pt`, or `.npz` of the same names).
        system: name in the registry, or `package.module:Class`.
        memory: host memory that the loader may hold, including page cache that it
            fills: `8GiB`, or `0.25x` of the feature table; None: unlimited. Excludes
            the user's model and the interpreter. Planned, not enforced (use a cgroup).
        fanout, num_neighbors: neighbours per node and hop, nearest the seed nodes
            first; -1: all.
        batch_size: seed nodes of a mini-batch.
        device: `cpu` or `cuda`, the place of `x` and the structure.
        device_memory: device memory that the loader may hold; None on `cuda`: half of
            the memory free now.
        options: the system's own options (`outcore systems NAME` lists them); `auto` as
            in runs, see `chosen`.
        split: seed nodes: `train`, `valid` (`val`) or `test`.
        nodes: seed nodes, instead of a split: ids, int64 [n], or a mask, bool [N], as
            list, array or tensor.
        input_nodes: PyG's name of both: a split's name, ids or a mask.
        epochs: number of epochs that will be requested, if known; offline preparation
            then covers all of them at once.
        seed: key of shuffling and of every draw. Equal seeds give equal mini-batches,
            whatever the system.
        sampler: `neighbor`, `layerwise`, `shadow`, or your own `package.module:NAME`
            (`workloads.sampling.listing`).
        layers: layers of the model, for `shadow`; 0: the number of hops.
        shuffle: shuffle the seed nodes anew every epoch; None: only those of `train`.
        max_batches: most mini-batches an epoch; 0: all.
        drop_last: leave out an epoch's last mini-batch if it is short.
        form: `pyg` (`torch_geometric.data.Data`), `plain` (`MiniBatch`, the same
            attributes), `dgl` (input nodes, output nodes, blocks), or `auto`: `pyg` if
            installed, else `plain`.
        edges: `hops` or `layers`, see `systems.loading.batches`; DGL's blocks are
            always layers.
        edge_weight: hand out the weights of the sampled edges, as `edge_weight` (DGL:
            `edata`).
        copy: copy each mini-batch's rows. Otherwise `x` is valid until the next
            mini-batch is requested, of this epoch or a later one, and a later access
            raises InputError.
        faithful: refuse a system whose mini-batches differ from the workload's; False
            accepts the system's own.
        keep_order: yield mini-batches in the seed plan's order, even if a system could
            yield them as they complete.
        cores, num_workers: threads to plan for; 0: the cores this process may use.
        artefacts: folder that keeps prepared artefacts for later loaders; None: a
            temporary folder beside the dataset.
        disk: measured profile of the dataset's device, for systems that choose by it;
            for a drive measured by `outcore ssd profile`:
            `harness.ssd.drive.read_drive(path).disk_profile()`.
        rank: number of this process among those that share every step's seed nodes.
        world: number of processes that share every step's seed nodes. Without `shuffle`
            they hand out every node once, and some may have a mini-batch fewer; with
            it, or `drop_last`, all have equal numbers of mini-batches.
        progress: function of the name of a task of preparation and its completed share
            (0 to 1; NaN: unknown); True: a line on stderr; False: none; None: a line if
            stderr is a terminal.
        words: other arguments of PyG's `NeighborLoader`; the default passes, else the
            error says what to use instead.

    Raises:
        InputError, DatasetError: an argument is wrong; the message names it.
        BudgetError: the plan does not fit `memory` or `device_memory`; names the item,
            and the least memory that does.
        HostError: a library or a device is missing.

    Warns:
        UserWarning: attributes of a graph are left out, or nodes of an epoch are, or
            ranks have unequal numbers of mini-batches.
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
        progress: Callable[[str, float], None] | bool | None = None,
        **words: Any,
    ) -> None:
        check_words(words, inspect.signature(Loader).parameters)
        hops = fan_out(fanout, num_neighbors)
        split, nodes = seed_nodes(split, nodes, input_nodes)
        require(
            isinstance(sampler, str),
            f"sampler is a {type(sampler).__name__}",
            "give a name, such as neighbor",
        )
        check_whole(
            cores=cores,
            num_workers=num_workers,
            epochs=epochs,
            seed=seed,
            layers=layers,
        )
        check_whole(max_batches=max_batches, rank=rank, world=world)
        check_whole(1, batch_size=batch_size)
        require(
            not (cores and num_workers),
            "cores and num_workers are both given",
            "give one of them",
        )
        check_ranks(batch_size, rank, world)
        self._report, self._end_report = progress_of(progress)
        self._process = os.getpid()
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
        # Released together: at `close`, on garbage collection of the loader, or at
        # exit.
        self._resources = contextlib.ExitStack()
        self._finalizer = weakref.finalize(self, _release, self._resources, os.getpid())
        try:
            supervised = nodes is None and split == "train"
            given = as_dataset(
                dataset,
                artefacts,
                memory,
                supervised,
                self._resources,
                edge_weight,
                self._report,
            )
            opened = open_dataset(given, split, nodes)
            if drop_last:
                max_batches = whole_steps(
                    len(opened.memmap("train")), batch_size * world, max_batches
                )
            own_shuffle = shuffle if shuffle is not None else supervised
            spec = SamplerSpec(
                sampler, hops, replace, batch_size, own_shuffle, max_batches
            )
            model = ModelSpec(layers=layers or len(spec.fanout))
            trains = nodes is not None or split == "train"
            if rank == 0 and (own_shuffle or trains):
                _warn_of_ranks(opened, spec, world)
            if world > 1 and not (own_shuffle or drop_last):
                share = share_of(opened.load("train"), batch_size, rank, world)
                opened = SeedNodes(opened, share)
                rank = 0
                world = 1
            self.workload = Workload(opened, spec, model, seed, rank, world)
            self._weights = EdgeWeights(opened) if edge_weight else None
            self._class.load_libraries()
            budget = (
                memory_bytes(memory, opened.feature_bytes),
                device_bytes(device, device_memory),
            )
            runtime = {
                "disk": disk or DiskProfile(),
                "cores": cores or num_workers or len(os.sched_getaffinity(0)),
                "keep_order": keep_order,
                "epochs": epochs,
                "progress": self._report,
            }
            self._clock = StageClock()
            self._plan_system(chosen, device, budget, artefacts, runtime)
        except BaseException:
            self.close()
            raise
        finally:
            self._end_report()

    def _plan_system(
        self,
        options: Options,
        device: str,
        memory: tuple[int | None, int | None],
        artefacts: Path | str | None,
        settings: dict[str, Any],
    ) -> None:
        """Make the system within host and device bytes `memory`, and the plan of its
        buffers and the loader's.

        `settings` are those of its `Runtime` beside device and folders.

        Raises:
            BudgetError: the plan does not fit; names the least memory that does.
        """
        idle = not len(self.workload.dataset.memmap("train"))
        scratch, kept = self._make_folders(artefacts)
        handed_out: tuple[PlanItem, ...] = ()
        most_nodes = 0
        self._batches = 0
        if not idle:
            self._batches = make_seed_plan(self.workload).num_batches
            bounds_of(self.workload, kept, self._report)
            bounds = batch_bounds(self.workload)
            most_nodes = bounds.max_nodes
            row_bytes = self.workload.dataset.row_bytes
            handed_out = handed_out_items(
                bounds, row_bytes, device != "cpu", self._weights is not None
            )
        budget = MemoryBudget.beside(*memory, handed_out)
        accelerator = make_accelerator(device, memory_bytes=budget.device)
        self._resources.callback(accelerator.close)
        self._lease = Lease(accelerator, most_nodes)
        self._resources.callback(self._lease.close)
        runtime = Runtime(
            accelerator=accelerator, artefacts=kept, scratch=scratch, **settings
        )
        kind = NoMiniBatches if idle else self._class
        self._planner = Planner(
            kind, self.workload, runtime, options, device, handed_out, rest=0
        )
        self._memory = memory
        try:
            fix = "raise memory, or lower batch_size or fanout"
            own = Plan(budget.held).require("the loader", MemoryBudget(*memory), fix)
            self._system = self._planner.make(*memory, self._clock)
            self._epoch_work = EpochWork(self._system)
            self._resources.callback(self._system.close)
            #: Every buffer that the loader and its system hold.
            self.plan = Plan((*own.items, *self._system.plan().items))
        except BudgetError as error:
            raise self._planner.refusal(error, *memory) from error
        #: Values of the system's options that were left at `auto`: numbers, bytes of
        #: sizes, words.
        self.chosen = {} if idle else self._planner.chosen(self._system)

    def least_memory(self) -> int | None:
        """Return the least `memory` that the loader accepts with these settings, in
        bytes, whole MiB; None: none."""
        self._check_open()
        return self._planner.least(self._memory[1])

    def _make_folders(self, artefacts: Path | str | None) -> tuple[Path, Path]:
        """Make the folders of the loader's own files and of its artefacts, both under
        `artefacts` if that is given."""
        root = (
            self.workload.dataset.path.parent if artefacts is None else Path(artefacts)
        )
        try:
            root.mkdir(parents=True, exist_ok=True)
            # If the process is killed, the next loader removes it.
            scratch = self._resources.enter_context(TemporaryFolder(root, "loader"))
        except OSError as error:
            fix = "give artefacts=, a folder on the dataset's disk"
            raise InputError.from_os(error, f"{root} cannot be written", fix) from error
        kept = (
            scratch / "artefacts"
            if artefacts is None
            else Path(artefacts) / self._class.info.name.replace(":", "-")
        )
        kept.mkdir(parents=True, exist_ok=True)
        self._resources.enter_context(in_use(kept))
        (scratch / "run").mkdir()
        return scratch / "run", kept

    @property
    def system(self) -> str:
        """Name of the system."""
        return self._class.info.name

    @property
    def memory_bytes(self) -> tuple[int | None, int | None]:
        """Host and device memory of the loader in bytes; None: unlimited, or the device
        has none of its own."""
        return self._memory

    @property
    def lowered(self) -> Mapping[str, tuple[int, int]]:
        """Options at `auto` that memory lowers: name -> (value in use, value with
        unlimited memory)."""
        return self._system.lowered

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

    def original_ids(self, n_id: npt.ArrayLike) -> Any:
        """Return the ids that nodes had in the imported graph, to join data of your own
        with mini-batches.

        Args:
            n_id: nodes of mini-batches (`batch.n_id`, DGL's input nodes), integers of
                any shape.

        Returns:
            int64 of the same shape: a tensor on the same device for a tensor, else an
                array. Errors are those of
            `Dataset.original_ids`; `Dataset.nodes_of` is the inverse.
        """
        if not isinstance(n_id, torch.Tensor):
            return self.workload.dataset.original_ids(n_id)
        found = self.workload.dataset.original_ids(n_id.cpu().numpy())
        return torch.from_numpy(found).to(n_id.device)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, such as when training resumes from a
        checkpoint.

        Raises:
            InputError: `epoch` is no whole number, or negative.
        """
        check_whole(epoch=epoch)
        self._next = operator.index(epoch)

    def prepare(self) -> None:
        """Run the system's offline work and allocation once; the first iteration calls
        this if the user did not."""
        self._check_open()
        if not self._prepared:
            try:
                self._system.prepare()
                self._epoch_work.prepare(self._next)
            finally:
                self._end_report()
            self._prepared = True

    def __len__(self) -> int:
        return self._batches

    def __reduce__(self) -> Any:
        fix = (
            "make a loader in every process, with rank and world, and put no "
            "DataLoader around it"
        )
        raise InputError(
            "a loader has threads and open files, so it cannot be copied or sent to a "
            "process",
            fix,
        )

    def __getitem__(self, number: Any) -> Any:
        fault = f"a loader has no mini-batch by number, and {number!r} is asked for"
        raise InputError(
            fault, "iterate over it (for batch in loader), with no DataLoader around it"
        )

    def __iter__(self) -> Iterator[Any]:
        self._check_open()
        self._end("another iteration of this loader began")
        self.prepare()
        number = self._next
        self._epoch_work.prepare(number)
        self._next += 1
        shadow = find(self.workload.sampler.name).one_subgraph
        device = self._system.runtime.accelerator.torch_device
        hand_out = HandOut(self._form, self._edges, shadow, device, self._weights)
        found = Epoch(
            self._system,
            number,
            self.began,
            hand_out,
            self._copy,
            self._lease,
            len(self),
        )
        self._running = weakref.ref(found)
        return found

    def began(self) -> None:
        """Remove artefacts that only earlier epochs needed; called when an epoch's
        first mini-batch has arrived."""
        self._end_report()
        if not self._private:
            return
        root = self._system.runtime.artefacts
        used = {
            path.relative_to(root).parts[0]
            for path in self._system.files()
            if path.is_relative_to(root)
        }
        for name in self._used - used:
            shutil.rmtree(root / name, ignore_errors=True)
        self._used = used

    def counters(self) -> dict[str, Any]:
        """Return rows, hits by tier, misses, reads and bytes of the last epoch
        (`systems.interface.Counters`)."""
        self._check_open()
        return self._system.counters().as_dict()

    def stages(self) -> dict[str, float]:
        """Return seconds of each stage since the last call; `train` is the time that
        the loop held a mini-batch."""
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
        fork = f"the loader is of process {self._process}, and this is a fork of it"
        require(
            os.getpid() == self._process,
            fork,
            "make a loader in every process, with rank and world",
        )
        require(self._finalizer.alive, "the loader is closed", "make another")

    def close(self) -> None:
        """End the current epoch, every thread, file and buffer. May be called more than
        once."""
        try:
            self._end("the loader was closed")
        finally:
            self._finalizer()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Loader of {self.workload.dataset.name} by {self.system}, {len(self)} "
            "mini-batches an epoch>"
        )


def _release(resources: contextlib.ExitStack, process: int) -> None:
    """Close system, device and folders, in order of dependence; a no-op in a forked
    child, which owns none."""
    if os.getpid() == process:
        resources.close()


def _warn_of_ranks(dataset: Dataset, spec: SamplerSpec, world: int) -> None:
    """Warn of nodes that are left out of an epoch, or of ranks that lack a
    mini-batch."""
    nodes = len(dataset.memmap("train"))
    uneven = uneven_nodes(nodes, spec.batch_size, world, spec.max_batches)
    if uneven:
        warnings.warn(
            warning_of(nodes, uneven, world, spec.shuffle), UserWarning, stacklevel=3
        )

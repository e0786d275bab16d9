"""Validation of a loader's arguments: seed nodes, bytes, options and bounds for the
layers below."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash
from pydantic import ValidationError

from systems.engine.io.memory import give_back_free_memory
from systems.engine.store.artefacts import identity, prepare
from systems.interface import Options, Progress, System, silent
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset, find_dataset
from workloads.errors import InputError, require
from workloads.importers.source import as_array
from workloads.manifest import Part
from workloads.sampling.bounds import BatchBounds, keep_bounds, largest_batch
from workloads.sampling.distinct import distinct
from workloads.sampling.make import advise_random, make_sampler, make_seed_plan
from workloads.units import parse_memory_bytes
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]
# Fewest sampled mini-batches for a usable standard deviation.
_SEEN = 8
# A loop may run for thousands of unsampled epochs: the margin covers one extreme
# mini-batch among very many.
_DEVIATIONS = 5.0


class SeedNodes(Dataset):
    """Dataset with other training nodes: the `valid` or `test` split, or arbitrary seed
    nodes.

    Args:
        nodes: int64 [n], distinct.
    """

    def __init__(self, dataset: Dataset, nodes: Ids) -> None:
        super().__init__(dataset.path, dataset.manifest)
        self._nodes = nodes
        # Includes the seed nodes, since prepared artefacts depend on them.
        self.fingerprint = xxhash.xxh3_64_hexdigest(
            self.fingerprint.encode() + nodes.tobytes()
        )

    def load(self, part: Part) -> npt.NDArray[Any]:
        """Load `part` of the dataset; `train` gives the seed nodes."""
        return self._nodes.copy() if part == "train" else super().load(part)

    def memmap(self, part: Part) -> npt.NDArray[Any]:
        """Map `part` of the dataset; `train` gives the seed nodes."""
        return self._nodes if part == "train" else super().memmap(part)


def open_dataset(
    dataset: Dataset | Path | str, split: str, nodes: npt.ArrayLike | None
) -> Dataset:
    """Open a dataset with the requested seed nodes as its training nodes.

    Args:
        dataset: opened dataset, a folder, or a name under `$OUTCORE_DATA` (`data` if
            unset).
        split: `train`, `valid` (or `val`) or `test`.
        nodes: int64 [n] or bool [N] of N nodes, instead of a split.

    Raises:
        DatasetError: the dataset does not exist.
        InputError: the split is unknown, there is no seed node, or a node is not in the
            graph or repeated.
    """
    if not isinstance(dataset, Dataset):
        dataset = find_dataset(str(dataset), os.environ.get("OUTCORE_DATA", "data"))
    if nodes is not None:
        return SeedNodes(dataset, _ids(nodes, dataset.num_nodes))
    part = {"val": "valid"}.get(split, split)
    require(
        part in ("train", "valid", "test"),
        f"split is {split!r}",
        "use train, valid or test, or give nodes",
    )
    found = dataset.load(part)  # type: ignore[arg-type]
    require(
        len(found),
        f"the {split} split of {dataset.name} is empty",
        "use another, or give nodes",
    )
    return dataset if part == "train" else SeedNodes(dataset, found)


def _ids(nodes: Any, num_nodes: int) -> Ids:
    """Return the ids of seed nodes, given as ids (list, array, tensor) or as a mask."""
    try:
        chosen = (
            as_array(nodes, "nodes") if hasattr(nodes, "cpu") else np.asarray(nodes)
        )
    except ValueError:
        raise InputError(
            "nodes is a list of lists of unequal length", "give whole numbers [n]"
        ) from None
    if _is_mask(chosen, num_nodes):
        fault = f"nodes is a mask {list(chosen.shape)}, the graph has {num_nodes} nodes"
        fix = (
            "choose one of its columns (mask[:, 0])"
            if chosen.ndim == 2
            else "give a boolean for every node"
        )
        require(chosen.shape == (num_nodes,), fault, fix)
        chosen = np.flatnonzero(chosen)
    require(chosen.size, "nodes names no node", "give at least one")
    whole = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
    fix = (
        "give ids as whole numbers [n], or a mask as booleans [N] (mask.bool(), "
        "mask.astype(bool))"
    )
    require(whole, f"nodes is {chosen.dtype} {list(chosen.shape)}", fix)
    if len(distinct(chosen)) < len(chosen):
        flags = len(chosen) > 2 and bool(((chosen == 0) | (chosen == 1)).all())
        fault = (
            f"nodes is {chosen.dtype} {list(chosen.shape)} of zeros and ones, a mask "
            "or the ids 0 and 1 repeated"
        )
        require(
            not flags,
            fault,
            "give a mask as booleans (mask.bool(), mask.astype(bool)), or each id once",
        )
        raise InputError("nodes names a node twice", "give each once")
    if not (chosen.min() >= 0 and chosen.max() < num_nodes):
        raise InputError(
            f"nodes run from {chosen.min()} to {chosen.max()}, the graph has "
            f"{num_nodes}",
            "give ids of it",
        )
    return chosen.astype(np.int64)


def _is_mask(chosen: npt.NDArray[Any], num_nodes: int) -> bool:
    """Return whether an array is a mask: booleans, or a uint8 of zeros and ones for
    every node.

    Raises:
        InputError: a uint8 is a mask and distinct ids alike.
    """
    if chosen.dtype == np.bool_:
        return True
    if (
        chosen.dtype != np.uint8
        or chosen.shape != (num_nodes,)
        or chosen.max(initial=0) > 1
    ):
        return False
    distinct_ids = len(distinct(chosen)) == len(chosen)
    if distinct_ids and int(chosen.max(initial=0)) < num_nodes:  # of one node or two
        fault = f"nodes is uint8 {chosen.tolist()} for {num_nodes} nodes, a mask or ids"
        raise InputError(fault, "give a mask as booleans, or ids as int64")
    return True


def memory_bytes(memory: str | int | None, feature_bytes: int) -> int | None:
    """Return the bytes of `8GiB`, of a plain number, or of `0.25x` of the feature
    table; None for None and `none`.

    Raises:
        InputError: `memory` is not a size above zero.
    """
    if isinstance(memory, str):
        memory = memory.strip()
    if memory is None or memory in ("none", "None"):
        return None
    if isinstance(memory, str) and memory.lower().endswith("x"):
        try:
            size = int(float(memory[:-1]) * feature_bytes)
        except (ValueError, OverflowError):
            raise InputError(
                f"memory is {memory!r}", "write a size like 8GiB, or a share like 0.25x"
            ) from None
    else:
        size = parse_memory_bytes(
            memory.removeprefix("+") if isinstance(memory, str) else memory, share=True
        )
    require(size > 0, f"memory is {memory!r}", "give more than nothing")
    return size


def device_bytes(device: str, device_memory: str | int | None) -> int | None:
    """Return the bytes of device memory of a loader; None given on a GPU: half of its
    free memory.

    Raises:
        InputError: `device_memory` is no size, or is given for the processor.
        HostError: there is no such device.
    """
    if device == "cpu":
        require(
            device_memory is None,
            "device_memory is given, and cpu has no memory of its own",
            "leave it out",
        )
        return None
    if device_memory is not None:
        return parse_memory_bytes(device_memory, "device_memory")
    accelerator = make_accelerator(device)
    free = accelerator.memory_bytes
    accelerator.close()
    return None if free is None else free // 2


def check_options(system: type[System], options: Mapping[str, Any]) -> Options:
    """Validate a system's options.

    Raises:
        InputError: an option is unknown, or a value is wrong.
    """
    info = system.info
    try:
        return info.options.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "options"
        if first["type"] == "extra_forbidden":
            known = list(info.options.model_fields)
            near = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            )
            raise InputError(f"{info.name} has no option {name!r}", hint) from error
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(
            f"{info.name}: option {name}: {message}, but is {first['input']!r}",
            f"see `outcore systems {info.name}`",
        ) from error


def check_usable(
    system: type[System], options: Options, device: str, faithful: bool
) -> None:
    """Refuse a system that a user's own loop cannot use, or that is unfaithful without
    consent.

    Raises:
        InputError: gives the reason and an alternative.
    """
    name = system.info.name
    require(
        not device.startswith("emulated"),
        f"device is {device!r}, which computes nothing",
        "use cpu or cuda",
    )
    kind = device.partition(":")[0]
    if kind in ("cpu", "cuda") and kind not in system.info.devices:
        raise InputError(
            f"{name} does not run on {kind}",
            f"use {', '.join(set(system.info.devices) - {'emulated'})}",
        )
    sentence = (
        "hands out rows that hold one model's first layer already, which a model of "
        "your own would apply again"
    )
    require(
        not system.aggregated, f"{name} {sentence}", f"use {name.removesuffix('+pp')}"
    )
    if faithful and not system.is_faithful(options):
        sentence = (
            "samples in its own way: its mini-batches are not the workload's, and "
            "accuracy may be lower"
        )
        fix = "use another system"
        if system.info.faithful:
            sentence = (
                "with these options trains on other mini-batches than the workload's"
            )
            fix = "leave them at their defaults"
        raise InputError(
            f"{name} {sentence}", f"{fix}, or say faithful=False to take its own"
        )


def bounds_of(
    workload: Workload, folder: Path, progress: Progress = silent
) -> BatchBounds:
    """Find the largest mini-batch's sizes by sampling an epoch; keep them in `folder`,
    and for this process's planners.

    The harness samples every epoch of a run, but a user's loop has no last epoch: the
    bound is at least the mean plus five standard deviations, to which the systems add
    their own margin.
    """
    epochs = -(-_SEEN // make_seed_plan(workload).num_batches)

    def make(_: Path) -> dict[str, Any]:
        labels = workload.dataset.memmap("labels")
        advise_random(labels)
        sampler = make_sampler(workload, labels=labels)
        found = largest_batch(
            workload, epochs=epochs, sampler=sampler, progress=progress
        )
        return _widened(found, workload).plain()

    key = identity(workload, layers=workload.model.layers, format=1)
    bounds = BatchBounds.of_plain(prepare(folder, "bounds", key, make).facts)
    give_back_free_memory()
    keep_bounds(workload, bounds)
    return bounds


def _widened(exact: BatchBounds, workload: Workload) -> BatchBounds:
    nodes = exact.nodes_by_batch
    # The last mini-batch of an epoch is often short.
    whole = nodes[:, :-1] if nodes.shape[1] > 1 else nodes
    likely = float(whole.mean() + _DEVIATIONS * whole.std())
    most = min(workload.dataset.num_nodes, max(exact.max_nodes, math.ceil(likely)))
    growth = max(1.0, likely / max(1, exact.max_nodes))
    grown = exact.max_edges, exact.max_nbytes, exact.scratch_bytes
    edges, nbytes, scratch = (math.ceil(size * growth) for size in grown)
    return replace(
        exact, max_nodes=most, max_edges=edges, max_nbytes=nbytes, scratch_bytes=scratch
    )

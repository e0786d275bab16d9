"""Advice for a graph that is not stored here, from its published statistics:
predictions for its full size.

Systems plan with a dataset folder of full size whose files are holes, with only the
seed nodes written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from harness.advise.advice import Advice, AdviceSetting, advise
from harness.advise.implied import ImpliedGraph
from harness.plan.experiment import PlannedRun, resolve
from harness.settings import RunSettings, parse_memory
from harness.worker.build import workload_of
from systems.interface import DiskProfile
from workloads.dataset import Dataset
from workloads.errors import DataIOError, InputError
from workloads.manifest import ALIGNMENT, PARTS, FileEntry, Manifest, Part
from workloads.npyfile import padded_header

_CLASSES = 64
_NOTE = "nothing but holes: a graph known by its statistics alone"
_DISKGNN = "DiskGNN (SIGMOD 2025), Tables 2 and 3"


@dataclass(frozen=True)
class PublishedGraph:
    """Statistics of a graph as a paper trains on it, edges in both directions.

    Attributes:
        dim, dtype: feature dimension and type by the graph's own authors; papers often
            cut or extend features.
        train_share: share of the nodes that are seed nodes.
        accesses: (share of the nodes, most accessed first; their share of all
            accesses), rising, up to (1, 1).
    """

    name: str
    num_nodes: int
    num_edges: int
    dim: int
    dtype: str
    train_share: float
    accesses: tuple[tuple[float, float], ...]
    source: str = _DISKGNN


def _ranks(
    first: float, second: float, third: float
) -> tuple[tuple[float, float], ...]:
    """Return the ranks of Table 3: below 1 %, to 5 %, to 10 %, and the remainder."""
    return (
        (0.01, first),
        (0.05, first + second),
        (0.1, first + second + third),
        (1.0, 1.0),
    )


GRAPHS = {
    graph.name: graph
    for graph in (
        PublishedGraph(
            "friendster",
            66_000_000,
            3_600_000_000,
            128,
            "float32",
            0.01,
            _ranks(0.141, 0.255, 0.182),
        ),
        PublishedGraph(
            "papers100m",
            111_000_000,
            3_300_000_000,
            128,
            "float32",
            0.0109,
            _ranks(0.432, 0.365, 0.112),
        ),
        PublishedGraph(
            "mag240m",
            244_000_000,
            3_400_000_000,
            768,
            "float16",
            0.0045,
            _ranks(0.564, 0.323, 0.073),
        ),
        PublishedGraph(
            "igb260m",
            269_000_000,
            3_900_000_000,
            1024,
            "float32",
            0.0506,
            _ranks(0.225, 0.300, 0.208),
        ),
    )
}


def published(name: str) -> PublishedGraph:
    """Return a graph by its name; raise InputError if no statistics of the graph are
    known."""
    if name.lower() not in GRAPHS:
        raise InputError(
            f"no statistics of {name!r} are carried here", f"known: {', '.join(GRAPHS)}"
        )
    return GRAPHS[name.lower()]


def make_holes(folder: Path, graph: PublishedGraph, seeds: np.ndarray) -> Dataset:
    """Make a dataset of holes, training nodes (int64 [T]) apart; raise DataIOError if
    files cannot be of that size."""
    index = "int32" if graph.num_nodes < 2**31 else "int64"
    shapes: dict[Part, tuple[str, tuple[int, ...]]] = {
        "indptr": ("int64", (graph.num_nodes + 1,)),
        "indices": (index, (graph.num_edges,)),
        "features": (graph.dtype, (graph.num_nodes, graph.dim)),
        "labels": ("int64", (graph.num_nodes,)),
        "train": ("int64", seeds.shape),
        "valid": ("int64", (0,)),
        "test": ("int64", (0,)),
    }
    # Equal statistics give equal datasets; no stored dataset has a file with such a
    # digest.
    digest = xxhash.xxh3_64_hexdigest(repr((graph, seeds.shape)).encode())
    files: dict[Part, FileEntry] = {}
    try:
        folder.mkdir(parents=True)
        for part in PARTS:
            dtype, shape = shapes[part]
            nbytes = (
                ALIGNMENT
                + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            )
            with (folder / f"{part}.npy").open("wb") as file:
                file.write(padded_header(np.dtype(dtype), shape))
                if part == "train":
                    file.write(seeds.tobytes())
                file.truncate(nbytes)
            files[part] = FileEntry(
                dtype=dtype,
                shape=shape,
                data_offset=ALIGNMENT,
                bytes=nbytes,
                xxh3=digest,
            )
    except OSError as error:
        message = f"{folder} cannot hold the outlines of {graph.name}"
        raise DataIOError.of(
            error, message, folder, "point TMPDIR at ext4 or xfs"
        ) from error
    Manifest(
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        dim=graph.dim,
        feature_dtype=graph.dtype,
        index_dtype=index,
        num_classes=_CLASSES,
        files=files,
        notes=(_NOTE,),
    ).write(folder)
    return Dataset.open(folder)


def advise_published(
    graph: PublishedGraph,
    settings: RunSettings,
    profile: DiskProfile,
    *,
    epochs: int,
    batches: int,
    cores: int,
    systems: list[str] | None = None,
    options: dict[str, dict[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Advice, int]:
    """Rank the systems for a published graph on a disk; return the advice and the host
    budget in bytes.

    The forecast leaves out the processor's cost of sampling and uses mini-batches of
    the implied graph.

    Args:
        settings: settings of a run; `dataset` is set here, `memory` has to be a budget
            (`0.1x`, `+8GiB`).
        epochs, batches: epochs of the whole training; mini-batches of an epoch to
            sample.
        options: options of single systems, by name.

    Raises:
        InputError: the memory is no budget, or statistics cannot imply the sampler's
            mini-batches.
    """
    if settings.sampler != "neighbor" or settings.replace:
        message = (
            "only neighbour sampling without replacement is predicted from statistics"
        )
        raise InputError(message, "use --sampler neighbor")
    budget = parse_memory(
        settings.memory, graph.num_nodes * graph.dim * np.dtype(graph.dtype).itemsize
    ).budget_bytes
    if budget is None:
        message = (
            f"{settings.memory} is no budget for data, and nothing can be measured for "
            f"{graph.name}"
        )
        raise InputError(message, "give --memory like +8GiB or 0.1x")
    with tempfile.TemporaryDirectory(
        prefix="outcore-outlines-", ignore_cleanup_errors=True
    ) as temporary:
        folder = Path(temporary)
        implied = ImpliedGraph(
            graph.num_nodes,
            graph.num_edges,
            graph.accesses,
            settings.fanout,
            settings.seed,
        )
        seeds = np.arange(round(graph.train_share * graph.num_nodes), dtype=np.int64)
        # Seed nodes of any rank: the statistics do not give the degrees of labelled
        # nodes.
        seeds = np.sort(
            implied.node_of(seeds * (graph.num_nodes // max(1, len(seeds))))
        )
        dataset = make_holes(folder / graph.name, graph, seeds)
        progress(f"fitting mini-batches to the accesses of {graph.name}")
        implied.fit(settings.batch_size)
        named = settings.model_copy(update={"dataset": str(dataset.path)})
        config = resolve(PlannedRun("gnndrive", named), folder, "none")
        workload = workload_of(config, dataset)
        memory = config.device_memory_bytes
        setting = AdviceSetting(
            workload, config.device, memory, budget, epochs, cores, options or {}
        )
        return advise(
            setting,
            profile,
            batches=batches,
            systems=systems,
            progress=progress,
            graph=implied,
        ), budget

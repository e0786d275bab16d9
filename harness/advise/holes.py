"""A dataset folder of full size whose files are holes, with only the seed nodes written.

Systems plan with it for a graph of which only statistics are known.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from workloads.errors import DataIOError
from workloads.manifest import ALIGNMENT, PARTS, FileEntry, Manifest, Part
from workloads.npyfile import padded_header

if TYPE_CHECKING:
    from harness.advise.published import PublishedGraph
    from workloads.dataset import Dataset

_CLASSES = 64
_NOTE = "nothing but holes: a graph known by its statistics alone"


def make_holes(folder: Path, graph: PublishedGraph, seeds: np.ndarray) -> Dataset:
    """Make a dataset of holes with the training nodes `seeds` (int64 [T]) at `folder`, of use for its sizes alone.

    Raises:
        DataIOError: the file system cannot hold files of that size, even of holes.
    """
    from workloads.dataset import Dataset

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
    # Equal statistics give equal datasets; no stored dataset has a file with such a digest.
    digest = xxhash.xxh3_64_hexdigest(repr((graph, seeds.shape)).encode())
    files: dict[Part, FileEntry] = {}
    try:
        folder.mkdir(parents=True)
        for part in PARTS:
            dtype, shape = shapes[part]
            nbytes = ALIGNMENT + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            with (folder / f"{part}.npy").open("wb") as file:
                file.write(padded_header(np.dtype(dtype), shape))
                if part == "train":
                    file.write(seeds.tobytes())
                file.truncate(nbytes)
            files[part] = FileEntry(dtype=dtype, shape=shape, data_offset=ALIGNMENT, bytes=nbytes, xxh3=digest)
    except OSError as error:
        raise DataIOError(
            f"{folder} cannot hold the outlines of {graph.name}: {error.strerror}",
            path=str(folder),
            errno=error.errno or 0,
            fix="point TMPDIR at ext4 or xfs",
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

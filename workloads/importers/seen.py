"""Notes of a source: each array, column or file is read as a part of the graph, or
listed as left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.arraytypes import ArrayShape
from workloads.errors import require

#: Names that people give to the parts of a graph, for formats without a fixed layout.
FEATURES = ("x", "features", "feat")
LABELS = ("y", "labels", "label")
WEIGHTS = ("edge_weight", "edge_weights", "weight", "weights")
SPLITS = {
    "train": ("train_mask", "train", "train_idx"),
    "valid": ("val_mask", "valid_mask", "valid", "val", "valid_idx", "val_idx"),
    "test": ("test_mask", "test", "test_idx"),
}
#: Use of an array of the nodes' original ids.
ORIGINAL_IDS = "original ids"
Uses = dict[str, str]
"""Name of a file, an array or a column -> its use."""
_MOST_NAMES = 20


def seen(kind: str, uses: Mapping[str, str], present: Iterable[str]) -> list[str]:
    """Return the notes about names of a kind: the names that are read, each with its
    use, and the names left out.

    Args:
        kind: kind of the named things, such as `files` or `columns of nodes`.
        uses: name -> part of the graph that it is read as.
        present: all names in the source.
    """
    read = [f"{name} as {use}" for name, use in uses.items()]
    others = [name for name in present if name not in uses]
    return _listed(f"{kind} read", read) + left_out(kind, others)


def left_out(kind: str, names: list[str], most: int = _MOST_NAMES) -> list[str]:
    """Return a note of unread names of a kind, the first `most`; no note without
    names."""
    return _listed(f"{kind} left out", names, most)


def one_of(names: tuple[str, ...], present: Iterable[str], where: str) -> str | None:
    """Return the only present name among `names`, or None; raises InputError where
    several are present."""
    found = [name for name in present if name in names]
    fault = f"{where} holds {' and '.join(found)}, which mean the same"
    require(len(found) < 2, fault, "remove all but one")
    return found[0] if found else None


def edges_use(shape: ArrayShape, *, columns: bool = False) -> str:
    """Return the use of an array of edges, [2, E] or (`columns`) [E, 2]; with the
    reading of 2 x 2, which is both."""
    reading = "sources above destinations"
    if columns:
        reading = "a source and a destination a row"
    return f"edges (2 x 2: {reading})" if tuple(shape) == (2, 2) else "edges"


def numbers_use(
    use: str, dtype: npt.DTypeLike, kept: npt.DTypeLike = np.float32
) -> str:
    """Return the use of numbers, and the type that a dataset keeps if it may not hold
    all values of `dtype`."""
    source = np.dtype(dtype)
    if np.can_cast(source, kept):
        return use
    return f"{use} ({source.name} kept as {np.dtype(kept).name})"


def features_use(features: Any, dtype: npt.DTypeLike) -> str:
    """Return the use of features (`FeatureRows`) that are of `dtype` in the source."""
    return numbers_use("features", dtype, features.dtype)


def files_in(
    folder: Path, parents: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[str]:
    """Yield the path within `folder` of each file in it, links followed, unless a link
    leads back to a folder above it (`parents`: device and inode of each). Raises
    OSError where a folder cannot be read."""
    status = folder.stat()
    identity = (status.st_dev, status.st_ino)
    if identity in parents:
        return
    for child in sorted(folder.iterdir()):
        if child.is_dir():
            yield from (
                f"{child.name}/{name}" for name in files_in(child, parents | {identity})
            )
        else:
            yield child.name


def _listed(what: str, names: list[str], most: int = _MOST_NAMES) -> list[str]:
    more = len(names) - most
    rest = f" and {more} more" if more > 0 else ""
    listed = ", ".join(names[:most])
    printable = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in listed
    )
    return [f"{what}: {printable}{rest}"] if names else []

"""Importers of published graphs: `.npz` graphs, SNAP edge lists, OGB and IGB folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workloads.errors import DatasetError, InputError
from workloads.importers.igb import open_igb
from workloads.importers.npz import open_npz
from workloads.importers.ogb import open_ogb
from workloads.importers.snap import open_snap
from workloads.importers.source import FeatureSource, GraphSource, ImportOptions

__all__ = ["IMPORTERS", "FeatureSource", "GraphSource", "ImportOptions", "guess_format", "open_source"]

IMPORTERS: dict[str, Callable[[Path, ImportOptions], GraphSource]] = {
    "npz": open_npz,
    "snap": open_snap,
    "ogb": open_ogb,
    "igb": open_igb,
}


def open_source(format_name: str, path: Path, options: ImportOptions) -> GraphSource:
    """Open the graph at `path` with the importer called `format_name`.

    Raises:
        InputError: the format is unknown.
        DatasetError: nothing is at `path`, or it has another format.
    """
    importer = IMPORTERS.get(format_name)
    if importer is None:
        raise InputError(f"--format is {format_name!r}, which is none of {', '.join(IMPORTERS)}", "choose one of them")
    if not path.exists():
        raise DatasetError(f"there is nothing at {path}", "check the path")
    return importer(path, options)


def guess_format(path: Path) -> str:
    """Guess `npz` or `snap` from a file's name (for `--base FILE`)."""
    return "npz" if path.suffix == ".npz" else "snap"

"""Importers of published graphs: `.npz` graphs, SNAP edge lists, OGB and IGB folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workloads.errors import InputError
from workloads.importers.igb import open_igb
from workloads.importers.npz import open_npz
from workloads.importers.ogb import open_ogb
from workloads.importers.snap import open_snap
from workloads.importers.source import GraphSource, ImportOptions

__all__ = ["GraphSource", "ImportOptions", "importer"]

Importer = Callable[[Path, ImportOptions], GraphSource]
_IMPORTERS: dict[str, Importer] = {"npz": open_npz, "snap": open_snap, "ogb": open_ogb, "igb": open_igb}


def importer(format_name: str) -> Importer:
    """Return the function that opens a graph of the format (and raises DatasetError and InputError); raises InputError
    where the format is unknown."""
    if format_name not in _IMPORTERS:
        raise InputError(f"--format is {format_name!r}, which is none of {', '.join(_IMPORTERS)}", "choose one of them")
    return _IMPORTERS[format_name]

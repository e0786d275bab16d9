"""Importers of graphs: published graphs (`.npz`, SNAP, OGB, IGB), PyG's `Data`,
GraphBolt, Parquet, folders of arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from workloads.errors import InputError
from workloads.importers.source import GraphSource, ImportOptions

__all__ = ["FORMATS", "GraphSource", "ImportOptions", "importer"]

Importer = Callable[[Path, ImportOptions], GraphSource]
#: Names of the formats; `pyg` has the function `open_pyg` in the module `pyg`.
FORMATS = ("npz", "snap", "ogb", "igb", "pyg", "graphbolt", "parquet", "arrays")


def importer(format_name: str) -> Importer:
    """Return the function that opens a graph of the format (and raises DatasetError and
    InputError); raises InputError where the format is unknown."""
    if format_name not in FORMATS:
        fault = f"--format is {format_name!r}, which is none of {', '.join(FORMATS)}"
        raise InputError(fault, "choose one of them")
    # Late, since each needs packages of its own (pandas, scipy).
    module = importlib.import_module(f"workloads.importers.{format_name}")
    found: Importer = getattr(module, f"open_{format_name}")
    return found

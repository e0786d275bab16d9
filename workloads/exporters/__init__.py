"""Exporters of datasets to other code: DGL's GraphBolt, Ginex and its relatives, plain
DGL, PyG."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from workloads.dataset import Dataset
from workloads.errors import DatasetError, OutcoreError, check_choice
from workloads.exporters.files import File, write_folder
from workloads.making.progress import Progress, no_progress
from workloads.manifest import Manifest

__all__ = ["FORMATS", "Export", "export_dataset"]

#: Names of the formats; `pyg` has the function `files_of` in the module `pyg`, which
#: declares the files.
FORMATS = ("graphbolt", "ginex", "dgl", "pyg")


@dataclass(frozen=True)
class Export:
    """A finished export.

    Attributes:
        path: its folder.
        nbytes: bytes of its files.
        notes: one sentence for each part of the dataset that the format cannot hold, or
            holds in another way.
    """

    path: Path
    nbytes: int
    notes: list[str]


def export_dataset(
    dataset: Dataset,
    target: Path,
    format_name: str,
    *,
    progress: Progress = no_progress,
) -> Export:
    """Write a dataset in another program's format: streamed, read back and compared,
    whole or not at all.

    Args:
        dataset: the opened dataset.
        target: folder to make.
        format_name: one of `FORMATS`.
        progress: called with the stage and its done fraction.

    Raises:
        InputError: the format is unknown.
        DatasetError: the target exists, the disk is too small (with the bytes needed
            and free), or the dataset is damaged or was replaced meanwhile.
        DataIOError: a file reads back other than it was written.
    """
    check_choice("--format", format_name, FORMATS)
    # Imported late: an importer needs PyYAML.
    module = importlib.import_module(f"workloads.exporters.{format_name}")
    files: list[File] = module.files_of(dataset)
    notes = []
    with _unreplaced(dataset):
        if format_name == "graphbolt" and (count := module.labels_left_out(dataset)):
            notes.append(
                f"{count} labels left out: the format has those of nodes in the three "
                "sets alone"
            )
        nbytes = write_folder(files, target, progress)
    if "edge_weight" in dataset.manifest.files and format_name == "ginex":
        notes.append("edge weights left out: the format has none")
    if format_name == "graphbolt":
        notes.append(
            f"open it as OnDiskDataset({str(target)!r}); by another path add "
            "force_preprocess=False"
        )
    if dataset.feature_dtype != "float32" and format_name == "ginex":
        notes.append(
            f"features converted from {dataset.feature_dtype} to float32, the only "
            "type of the format"
        )
    return Export(target.absolute(), nbytes, notes)


@contextmanager
def _unreplaced(dataset: Dataset) -> Iterator[None]:
    """Report a failure of the block as a replaced dataset, where its manifest has
    changed meanwhile."""
    try:
        yield
    except (OutcoreError, ValueError, LookupError):
        found = dataset.manifest
        with suppress(DatasetError):  # of a dataset that is gone
            found = Manifest.read(dataset.path)
        if (found.fingerprint, found.created) == (
            dataset.fingerprint,
            dataset.manifest.created,
        ):
            raise
        fault = f"{dataset.path} was replaced meanwhile"
        raise DatasetError(fault, "export it again") from None

"""Plain DGL: neighbour lists in CSC, features, labels, splits and number of classes as
`.npy` files, which a program maps."""

from __future__ import annotations

from workloads.dataset import Dataset
from workloads.exporters.files import ArrayFile, File, class_count, stored


def files_of(dataset: Dataset) -> list[File]:
    """Declare the files of a dataset under its parts' names; ids are int64, DGL's
    default."""
    files: list[File] = []
    for part in dataset.manifest.parts:
        values = stored(dataset, part, "int64" if part == "indices" else "")
        files.append(ArrayFile(f"{part}.npy", values))
    return [*files, class_count(dataset)]

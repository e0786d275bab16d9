"""A cold start evicts every file of a dataset, those that it may lack included."""

from __future__ import annotations

from pathlib import Path

from harness.run.cold import dataset_files, evict_files, resident
from workloads.dataset import Dataset
from workloads.importers import snap  # noqa: F401  registers the format
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.node_data import NodeDataSpec


def renumbered(folder: Path) -> Dataset:
    """Import a graph whose nodes are numbered anew, so that it has a map of ids."""
    source = folder / "graph.txt"
    source.write_text("10\t11\n13\t11\n12\t12\n99\t10\n11\t13\n")
    node_data = NodeDataSpec(dim=4, classes=2)
    spec = ImportSpec("snap", node_data=node_data, fractions=(0.4, 0.2, 0.2))
    return import_dataset(source, folder / "graph", spec)


def test_every_array_of_a_dataset_is_evicted(tmp_path: Path) -> None:
    dataset = renumbered(tmp_path)
    arrays = set((tmp_path / "graph").glob("*.npy"))
    assert tmp_path / "graph" / "ids.npy" in arrays
    files = dataset_files(dataset)
    assert set(files) == arrays
    for path in files:
        path.read_bytes()
    assert resident(files) > 0
    evict_files(files, "before a test")
    assert resident(files) == 0

"""A source of an import is known by its content: a dataset is reused only if it is what
an import would write now."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from workloads.errors import DatasetError, InputError
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.source_digest import source_digest

N = 4
EDGES = np.array([[0, 1, 2], [1, 2, 3]])
X = np.arange(8, dtype=np.float32).reshape(N, 2)
Y = np.array([0, 1, 0, 1])
MASK = np.arange(N) == 0


def make_arrays(folder: Path) -> Path:
    folder.mkdir()
    named = {
        "edge_index": EDGES,
        "x": X,
        "y": Y,
        "train_mask": MASK,
        "edge_weight": np.ones(3),
    }
    for name, array in named.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def make_parquet(folder: Path) -> Path:
    folder.mkdir()
    pq.write_table(
        pa.table({"src": EDGES[0], "dst": EDGES[1]}), folder / "edges.parquet"
    )
    (folder / "nodes").mkdir()
    pq.write_table(
        pa.table({"x": list(X), "y": Y}),
        folder / "nodes" / "0.parquet",
        compression="none",
    )
    return folder


def make_graphbolt(folder: Path) -> Path:
    folder.mkdir()
    np.save(folder / "edges.npy", EDGES)
    np.save(folder / "train.npy", np.array([0, 2]))
    np.save(folder / "labels.npy", np.array([0, 1]))
    pairs = (("seeds", "train.npy"), ("labels", "labels.npy"))
    data = [{"name": name, "format": "numpy", "path": path} for name, path in pairs]
    graph = {"nodes": [{"num": N}], "edges": [{"format": "numpy", "path": "edges.npy"}]}
    (folder / "metadata.yaml").write_text(
        json.dumps({"graph": graph, "tasks": [{"train_set": [{"data": data}]}]})
    )
    return folder


def make_ogb(folder: Path) -> Path:
    paper = folder / "processed" / "paper"
    cites = folder / "processed" / "paper___cites___paper"
    for made in (paper, cites):
        made.mkdir(parents=True)
    np.save(paper / "node_feat.npy", X)
    np.save(paper / "node_label.npy", Y)
    np.save(cites / "edge_index.npy", EDGES)
    torch.save(
        {"train": np.array([0]), "valid": np.array([1]), "test": np.array([2])},
        folder / "split_dict.pt",
    )
    return folder


def make_igb(folder: Path) -> Path:
    paper = folder / "processed" / "paper"
    cites = folder / "processed" / "paper__cites__paper"
    for made in (paper, cites):
        made.mkdir(parents=True)
    np.save(paper / "node_feat.npy", X)
    np.save(paper / "node_label_19.npy", Y)
    np.save(cites / "edge_index.npy", EDGES.T.copy())
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {
    "arrays": make_arrays,
    "parquet": make_parquet,
    "graphbolt": make_graphbolt,
    "ogb": make_ogb,
    "igb": make_igb,
}


def edited_in_place(file: Path) -> None:
    """Change the last byte of a file; its size, inode and time stay."""
    kept = file.stat()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    with file.open("r+b") as out:
        out.write(content)
    os.utime(file, ns=(kept.st_atime_ns, kept.st_mtime_ns))


@pytest.mark.parametrize("format_name", MAKERS)
def test_each_file_of_each_folder_is_known_by_its_content(
    tmp_path: Path, format_name: str
) -> None:
    folder = MAKERS[format_name](tmp_path / "g")
    spec = ImportSpec(format_name)
    before = spec.recipe(folder)
    copy = tmp_path / "copy" / "g"
    shutil.copytree(folder, copy)
    assert spec.recipe(copy) == before  # the same content elsewhere is the same source
    files = [path for path in sorted(copy.rglob("*")) if path.is_file()]
    assert len(files) >= 2
    digests = {source_digest(copy)}
    for file in files:
        edited_in_place(file)
        digests.add(source_digest(copy))
    assert len(digests) == len(files) + 1


@pytest.mark.parametrize("link", ["file", "folder", "source"])
def test_what_a_link_leads_to_counts_as_content(tmp_path: Path, link: str) -> None:
    folder = make_parquet(tmp_path / "g")
    target = folder / {"file": "edges.parquet", "folder": "nodes", "source": ""}[link]
    target.rename(tmp_path / "elsewhere")
    target.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "loop").symlink_to(folder) if link == "folder" else None
    before = source_digest(folder)
    assert source_digest(folder) == before
    changed = tmp_path / "elsewhere"
    if changed.is_dir():
        changed = next(
            path for path in sorted(changed.rglob("*.parquet")) if path.is_file()
        )
    edited_in_place(changed)
    assert source_digest(folder) != before


def test_a_link_to_a_folder_of_the_source_is_part_of_the_content(
    tmp_path: Path,
) -> None:
    folder = make_parquet(tmp_path / "g")
    before = source_digest(folder)
    (folder / "again").symlink_to(folder / "nodes")
    assert source_digest(folder) != before


def test_a_name_is_part_of_the_content(tmp_path: Path) -> None:
    folder = make_arrays(tmp_path / "g")
    before = source_digest(folder)
    (folder / "train_mask.npy").rename(folder / "test_mask.npy")
    assert source_digest(folder) != before


@pytest.mark.parametrize(
    "options",
    [
        {"symmetric": True},
        {"symmetric": False},
        {"keep_duplicates": True},
        {"feature_dtype": "float16"},
        {"new_labels": True},
        {"classes": 5},
        {"index_dtype": "int64"},
        {"seed": 1},
        {"fractions": (0.5, 0.1, 0.1)},
        {"format": "parquet"},
    ],
)
def test_another_option_is_another_recipe(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    folder = make_arrays(tmp_path / "g")
    settings: dict[str, Any] = {"format": "arrays"}
    assert ImportSpec(**settings).recipe(folder) != ImportSpec(
        **settings | options
    ).recipe(folder)


def test_a_source_that_changes_while_it_is_imported_is_refused(tmp_path: Path) -> None:
    folder = make_arrays(tmp_path / "g")

    def progress(stage: str, fraction: float) -> None:
        if stage == "writing features":
            np.save(folder / "y.npy", 1 - Y)

    with pytest.raises(DatasetError, match="changed while it was imported"):
        import_dataset(
            folder, tmp_path / "data" / "g", ImportSpec("arrays"), progress=progress
        )
    assert list((tmp_path / "data").iterdir()) == []


def test_a_source_that_is_a_pipe_is_refused_and_one_in_a_folder_is_not_read(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for format_name in ("snap", "arrays"):
        with pytest.raises(DatasetError, match="pipe is no regular file"):
            import_dataset(
                tmp_path / "pipe", tmp_path / "data" / "g", ImportSpec(format_name)
            )
    folder = make_arrays(tmp_path / "g")
    os.mkfifo(folder / "pipe")
    (folder / "broken").symlink_to("nowhere")
    dataset = import_dataset(folder, tmp_path / "data" / "g", ImportSpec("arrays"))
    assert "files left out: broken, pipe" in dataset.manifest.notes


def test_the_data_root_may_lie_in_the_source(tmp_path: Path) -> None:
    folder = make_arrays(tmp_path / "g")
    dataset = import_dataset(folder, folder / "data" / "g", ImportSpec("arrays"))
    assert dataset.num_edges == 3


@pytest.mark.parametrize("path", ["../outside.npy", "absolute"])
def test_metadata_may_name_files_of_their_folder_alone(
    tmp_path: Path, path: str
) -> None:
    folder = make_graphbolt(tmp_path / "g")
    (folder / "labels.npy").rename(tmp_path / "outside.npy")
    named = str(tmp_path / "outside.npy") if path == "absolute" else path
    metadata = (folder / "metadata.yaml").read_text().replace("labels.npy", named)
    (folder / "metadata.yaml").write_text(metadata)
    with pytest.raises(InputError, match="outside its folder"):
        import_dataset(folder, tmp_path / "data" / "g", ImportSpec("graphbolt"))

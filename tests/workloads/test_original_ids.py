"""The map of ids: an import that numbers nodes anew keeps their original ids, through
exports and imports again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError
from workloads.exporters import FORMATS, export_dataset
from workloads.importers import snap
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.node_data import NodeDataSpec

LINES = [(10, 11), (13, 11), (12, 12), (99, 10), (11, 13)]


def imported(
    source: Path, target: Path, format_name: str = "snap", **more: Any
) -> Dataset:
    spec = ImportSpec(
        format_name, node_data=NodeDataSpec(dim=4, classes=2), fractions=(0.4, 0.2, 0.2)
    )
    dataset = import_dataset(source, target, spec, **more)
    assert dataset.verify() == []
    return dataset


def snap_graph(
    folder: Path, lines: list[tuple[int, int]], name: str = "g", **more: Any
) -> Dataset:
    (folder / f"{name}.txt").write_text(
        "".join(f"{source}\t{target}\n" for source, target in lines)
    )
    return imported(folder / f"{name}.txt", folder / "data" / name, **more)


def edges_by_original_id(dataset: Dataset) -> set[tuple[int, int]]:
    indptr = dataset.load("indptr")
    targets = np.repeat(np.arange(dataset.num_nodes), np.diff(indptr))
    ends = dataset.original_ids([dataset.load("indices"), targets])
    return set(map(tuple, ends.T.tolist()))


def test_a_renumbering_import_keeps_the_id_of_each_node(tmp_path: Path) -> None:
    dataset = snap_graph(tmp_path, LINES)
    assert dataset.load("ids").tolist() == [10, 11, 12, 13, 99]
    assert dataset.manifest.files["ids"].dtype == "int64"
    assert edges_by_original_id(dataset) == set(LINES)
    assert dataset.original_ids([[4, 0], [0, 1]]).tolist() == [[99, 10], [10, 11]]
    # `n_id` of PyG's own loaders
    assert dataset.original_ids(torch.tensor([3])).tolist() == [13]
    assert dataset.nodes_of([99, 10, 99]).tolist() == [4, 0, 4]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lines=st.lists(
        st.tuples(*[st.one_of(st.integers(0, 30), st.integers(10**9, 10**18 - 1))] * 2),
        min_size=1,
    ),
    piece=st.sampled_from([1, 7, 1 << 20]),
)
def test_edges_read_by_original_ids_are_those_of_the_text(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int, int]], piece: int
) -> None:
    """For dense and sparse ids (a table of numbers, or a search), in pieces of any
    size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snap, "EDGES_A_CHUNK", piece)
        patch.setattr("workloads.dataset._CHECK_CHUNK", piece)
        dataset = snap_graph(tmp_path_factory.mktemp("g"), lines)
        assert edges_by_original_id(dataset) == set(lines)
        named = sorted({node for line in lines for node in line})
        assert ("ids" in dataset.manifest.files) == (named != list(range(len(named))))
        assert dataset.original_ids(range(dataset.num_nodes)).tolist() == named
        assert dataset.nodes_of(named[::-1]).tolist() == list(range(len(named)))[::-1]


def test_a_dataset_whose_nodes_kept_their_numbers_has_no_map_and_the_same_functions(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    dataset = snap_graph(tmp_path, [(0, 1), (2, 0)])
    assert "ids" not in dataset.manifest.files
    assert not (dataset.path / "ids.npy").exists()
    for one in (dataset, tiny_dataset):
        assert (
            one.original_ids([2, 0]).tolist() == one.nodes_of([2, 0]).tolist() == [2, 0]
        )


@pytest.mark.parametrize("name", ["original_ids", "nodes_of"])
@pytest.mark.parametrize("lines", [LINES, [(0, 1), (2, 0)]])
def test_unknown_nodes_and_other_values_are_refused_in_one_sentence(
    tmp_path: Path, name: str, lines: list[tuple[int, int]]
) -> None:
    dataset = snap_graph(tmp_path, lines)
    for values in (
        [100],
        [0, -1],
        [0.5],
        [True],
        ["a"],
        np.array([2**63], dtype=np.uint64),
    ):
        with pytest.raises(InputError) as caught:
            getattr(dataset, name)(values)
        assert "\n" not in str(caught.value)
        assert "; " in str(caught.value)
    assert getattr(dataset, name)([]).shape == (0,)


def test_an_id_of_several_nodes_names_no_node(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", ids=np.array([7, 8, 7]), **_graph_of_three())
    dataset = imported(tmp_path / "g.npz", tmp_path / "data" / "g", "pyg")
    assert dataset.original_ids([2, 1]).tolist() == [7, 8]
    assert dataset.nodes_of([8]).tolist() == [1]
    with pytest.raises(
        InputError, match="several nodes of g had the id 7; give nodes by number"
    ):
        dataset.nodes_of([8, 7])


def test_an_older_dataset_that_was_renumbered_without_a_map_is_not_taken_for_one_that_kept_its_numbers(
    tmp_path: Path,
) -> None:
    dataset = snap_graph(tmp_path, LINES)
    raw = json.loads((dataset.path / "dataset.json").read_text())
    del raw["files"]["ids"]
    raw["notes"] = ["ids numbered anew (95 unused up to 99)"]  # as it was written
    (dataset.path / "dataset.json").write_text(json.dumps(raw))
    (dataset.path / "ids.npy").unlink()
    older = Dataset.open(dataset.path)
    assert older.verify() == []
    assert older.num_nodes == 5
    for name in ("original_ids", "nodes_of"):
        with pytest.raises(
            DatasetError,
            match=r"numbered anew.* kept no original ids; import it again with --force",
        ):
            getattr(older, name)([0])


def test_a_damaged_map_is_found_and_the_map_is_part_of_the_fingerprint(
    tmp_path: Path,
) -> None:
    dataset = snap_graph(tmp_path, LINES)
    other = snap_graph(
        tmp_path, [(source + 1, target + 1) for source, target in LINES], "other"
    )
    assert other.load("indices").tolist() == dataset.load("indices").tolist()
    assert other.fingerprint != dataset.fingerprint
    with (dataset.path / "ids.npy").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff")
    assert [fault.partition(":")[0] for fault in dataset.verify()] == [
        f"{dataset.path / 'ids.npy'} is corrupted"
    ]
    (dataset.path / "ids.npy").unlink()
    with pytest.raises(DatasetError, match=r"ids\.npy is missing"):
        Dataset.open(dataset.path)


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_export_holds_the_map_and_its_import_keeps_it(
    tmp_path: Path, format_name: str
) -> None:
    dataset = snap_graph(tmp_path, LINES)
    export_dataset(dataset, tmp_path / "out", format_name)
    if format_name == "ginex":  # of which there is no importer
        assert np.fromfile(tmp_path / "out" / "ids.dat", dtype=np.int64).tolist() == [
            10,
            11,
            12,
            13,
            99,
        ]
        return
    reader = "graphbolt" if format_name == "graphbolt" else "arrays"
    again = imported(tmp_path / "out", tmp_path / "data" / "again", reader)
    assert again.load("ids").tolist() == dataset.load("ids").tolist()
    assert edges_by_original_id(again) == set(LINES)
    # of what DGL compares
    copies = {"files left out: metadata.yaml, preprocessed/dataset_hash_value.txt"}
    assert {note for note in again.manifest.notes if "left out" in note} <= copies
    assert any("as original ids" in note for note in again.manifest.notes)


def _graph_of_three() -> dict[str, Any]:
    mask = np.array([True, True, False])
    return {
        "edge_index": np.array([[0, 1], [1, 2]]),
        "x": np.ones((3, 2)),
        "y": np.arange(3),
        "train_mask": mask,
    }


def save(folder: Path, format_name: str, name: str, ids: Any) -> Path:
    """Save a graph of three nodes with a further field; return what to import."""
    content = {**_graph_of_three(), name: ids}
    if format_name == "npz":
        np.savez(folder / "g.npz", **content)
        return folder / "g.npz"
    if format_name == "pt":
        from torch_geometric.data import Data

        tensors = {
            key: torch.from_numpy(value) if hasattr(value, "dtype") else value
            for key, value in content.items()
        }
        torch.save(Data(**tensors), folder / "g.pt")
        return folder / "g.pt"
    (folder / "g").mkdir()
    for key, value in content.items():
        np.save(folder / "g" / f"{key}.npy", value)
    return folder / "g"


@pytest.mark.parametrize("format_name", ["npz", "pt", "arrays"])
@pytest.mark.parametrize("name", ["ids", "n_id"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_ids_beside_a_given_graph_are_kept(
    tmp_path: Path, format_name: str, name: str, dtype: str
) -> None:
    source = save(tmp_path, format_name, name, np.array([70, 5, 200]).astype(dtype))
    reader = "arrays" if format_name == "arrays" else "pyg"
    dataset = imported(source, tmp_path / "data" / "g", reader)
    assert dataset.load("ids").tolist() == [70, 5, 200]
    assert dataset.nodes_of([5, 200]).tolist() == [1, 2]
    assert not any("left out" in note for note in dataset.manifest.notes)
    shown = f"{name}.npy" if format_name == "arrays" else name
    assert any(f"{shown} as original ids" in note for note in dataset.manifest.notes)


@pytest.mark.parametrize("format_name", ["npz", "pt"])
@pytest.mark.parametrize(
    "ids", [np.arange(2), np.ones(3), np.ones((3, 2), dtype=int), ["a", "b", "c"]]
)
def test_a_field_of_that_name_which_holds_no_id_for_each_node_is_left_out_by_name(
    tmp_path: Path, format_name: str, ids: Any
) -> None:
    dataset = imported(
        save(tmp_path, format_name, "ids", ids), tmp_path / "data" / "g", "pyg"
    )
    assert "ids" not in dataset.manifest.files
    assert any("left out: ids" in note for note in dataset.manifest.notes)


def test_arrays_named_ids_that_fit_no_graph_or_no_int64_are_refused(
    tmp_path: Path,
) -> None:
    cases = {
        "short": (
            np.arange(2),
            r"ids\.npy is int64 \[2\]; give the original id of every node, "
            r"integers \[3\], or",
        ),
        "float": (np.ones(3), r"ids\.npy is float64 \[3\]; give the original id"),
        "large": (
            np.array([0, 1, 2**63], dtype=np.uint64),
            r"ids\.npy holds 9223372036854775808; give ids below 2\^63",
        ),
    }
    for name, (ids, message) in cases.items():
        (tmp_path / name).mkdir()
        with pytest.raises(InputError, match=message):
            imported(
                save(tmp_path / name, "arrays", "ids", ids),
                tmp_path / "data" / "g",
                "arrays",
            )
    assert list((tmp_path / "data").iterdir()) == []

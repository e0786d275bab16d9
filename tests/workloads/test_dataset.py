"""The on-disk dataset: parts are read back as written, and any fault is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import make_tiny
from workloads.dataset import PARTS, Dataset, find_dataset, list_datasets
from workloads.errors import DatasetError
from workloads.making.writer import DatasetWriter
from workloads.npyfile import padded_header


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_numpy_opens_every_part_and_data_start_on_a_block(
    tmp_path: Path, dtype: str, index_dtype: str
) -> None:
    dataset = make_tiny(
        tmp_path / "t",
        nodes=300,
        edges=2000,
        dim=7,
        dtype=dtype,
        index_dtype=index_dtype,
    )
    assert dataset.feature_dtype == dtype
    assert dataset.index_dtype == index_dtype
    for part in PARTS:
        array = np.load(dataset.file(part), mmap_mode="r", allow_pickle=False)
        assert dataset.data_offset(part) % 4096 == 0
        assert (
            dataset.file(part).stat().st_size
            == dataset.data_offset(part) + array.nbytes
        )
        np.testing.assert_array_equal(array, dataset.load(part))
        np.testing.assert_array_equal(array, dataset.memmap(part))
    assert dataset.verify() == []


@given(
    shape=st.one_of(
        st.tuples(st.integers(0, 10**12)),
        st.tuples(st.integers(0, 10**12), st.integers(1, 4096)),
    ),
    dtype=st.sampled_from(["int64", "int32", "float32", "float16"]),
)
@settings(max_examples=50, deadline=None)
def test_headers_are_one_block_whatever_the_shape(
    shape: tuple[int, ...], dtype: str
) -> None:
    header = padded_header(np.dtype(dtype), shape)
    assert len(header) == 4096
    import io

    file = io.BytesIO(header)
    assert np.lib.format.read_magic(file) == (1, 0)
    assert np.lib.format.read_array_header_1_0(file) == (shape, False, np.dtype(dtype))
    assert file.tell() == 4096


def test_equal_bytes_have_equal_fingerprints_and_other_bytes_do_not(
    tmp_path: Path,
) -> None:
    one = make_tiny(tmp_path / "one")
    same = make_tiny(tmp_path / "same")
    other = make_tiny(tmp_path / "other", seed=1)
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_digests_are_those_of_the_whole_files(tiny_dataset: Dataset) -> None:
    for part in PARTS:
        expected = xxhash.xxh3_64_hexdigest(tiny_dataset.file(part).read_bytes())
        assert tiny_dataset.manifest.files[part].xxh3 == expected


def test_parts_written_by_other_code_and_cut_short_are_whole(tmp_path: Path) -> None:
    """After `begin` other code writes up to a block past the end; `finish` gets fewer
    rows than were announced."""
    source = make_tiny(tmp_path / "source", nodes=100, edges=500)
    with DatasetWriter(tmp_path / "copy") as writer:
        path, offset = writer.begin("indices", source.index_dtype, 4000)
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(source.load("indices").tobytes() + b"x" * 20000)
        writer.finish("indices", count=500)
        for part in PARTS:
            if part != "indices":
                writer.write(part, source.load(part))
        writer.num_classes = source.num_classes
    copy = Dataset.open(tmp_path / "copy")
    assert copy.verify() == []
    assert copy.fingerprint == source.fingerprint


def copy_of(dataset: Dataset, folder: Path) -> Dataset:
    shutil.copytree(dataset.path, folder)
    return Dataset.open(folder)


@pytest.mark.parametrize("part", PARTS)
def test_verify_finds_one_flipped_bit_in_any_part(
    tiny_dataset: Dataset, tmp_path: Path, part: str
) -> None:
    dataset = copy_of(tiny_dataset, tmp_path / "bad")
    with dataset.file(part).open("r+b") as file:  # type: ignore[arg-type]
        file.seek(-3, 2)
        byte = file.read(1)[0]
        file.seek(-3, 2)
        file.write(bytes([byte ^ 4]))
    faults = dataset.verify()
    assert len(faults) == 1
    assert f"{part}.npy is corrupted" in faults[0]


@pytest.mark.parametrize("part", PARTS)
def test_open_refuses_a_truncated_part(
    tiny_dataset: Dataset, tmp_path: Path, part: str
) -> None:
    dataset = copy_of(tiny_dataset, tmp_path / "bad")
    path = dataset.file(part)  # type: ignore[arg-type]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(DatasetError, match=f"{part}.npy is truncated"):
        Dataset.open(dataset.path)
    assert any("truncated" in fault for fault in dataset.verify())


def test_load_refuses_a_file_truncated_after_opening(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    dataset = copy_of(tiny_dataset, tmp_path / "bad")
    with dataset.file("features").open("r+b") as file:
        file.truncate(8192)
    with pytest.raises(DatasetError, match=r"features.npy is truncated"):
        dataset.load("features")


def test_verify_names_both_of_two_swapped_files(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    """valid and test have the same shape, so only their digests differ."""
    dataset = copy_of(tiny_dataset, tmp_path / "bad")
    valid = dataset.file("valid")
    test = dataset.file("test")
    valid.rename(tmp_path / "kept")
    test.rename(valid)
    (tmp_path / "kept").rename(test)
    assert Dataset.open(dataset.path)
    faults = dataset.verify()
    assert len(faults) == 2
    assert "valid.npy is swapped: it holds what test.npy should" in faults[0]
    assert "test.npy is swapped: it holds what valid.npy should" in faults[1]


def test_open_refuses_a_file_of_equal_size_with_another_shape(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    dataset = copy_of(tiny_dataset, tmp_path / "bad")
    with dataset.file("features").open("r+b") as file:
        file.write(
            padded_header(
                np.dtype("float32"), (dataset.num_nodes // 2, dataset.dim * 2)
            )
        )
    with pytest.raises(
        DatasetError, match=r"features.npy is another file than the manifest's"
    ):
        Dataset.open(dataset.path)


def test_open_refuses_a_missing_file_and_an_invalid_header(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    dataset = copy_of(tiny_dataset, tmp_path / "bad")
    with dataset.file("labels").open("r+b") as file:
        file.write(b"\0" * 64)
    with pytest.raises(DatasetError, match=r"labels.npy is corrupted: its npy header"):
        Dataset.open(dataset.path)
    whole = padded_header(np.dtype("int64"), (dataset.num_nodes,))
    for was, damage in ((b")", b"("), (b": (", b"; ("), (b"descr", b"decsr")):
        with dataset.file("labels").open("r+b") as file:
            file.write(whole.replace(was, damage))
        with pytest.raises(
            DatasetError, match="its npy header is not readable"
        ) as caught:
            Dataset.open(dataset.path)
        assert len(str(caught.value)) < 400  # without the header's 4 KiB of padding
    dataset.file("labels").unlink()
    with pytest.raises(DatasetError, match=r"labels.npy is missing"):
        Dataset.open(dataset.path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "format version 2"),
        ({"num_nodes": 7}, "shape"),
        ({"surprise": 1}, "surprise"),
        ({"feature_dtype": "float16"}, "differs from the files'"),
        ({"num_edges": "many"}, "num_edges"),
    ],
)
def test_open_refuses_a_manifest_that_contradicts_the_files(
    tiny_dataset: Dataset, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    dataset = copy_of(tiny_dataset, tmp_path / "bad")
    path = dataset.path / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DatasetError, match=message):
        Dataset.open(dataset.path)
    path.write_text("{")
    with pytest.raises(DatasetError, match="not JSON"):
        Dataset.open(dataset.path)


def write_parts(path: Path, **changed: np.ndarray) -> Dataset:
    parts = {
        "indptr": np.array([0, 2, 3, 3], dtype=np.int64),
        "indices": np.array([0, 1, 2], dtype=np.int32),
        "features": np.zeros((3, 2), dtype=np.float32),
        "labels": np.array([0, 1, -1], dtype=np.int64),
        "train": np.array([0], dtype=np.int64),
        "valid": np.array([1], dtype=np.int64),
        "test": np.empty(0, dtype=np.int64),
    } | changed
    with DatasetWriter(path) as writer:
        for part, array in parts.items():
            writer.write(part, array)  # type: ignore[arg-type]
        writer.num_classes = 2
    return Dataset.open(path)


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("indptr", [0, 3, 2, 3], "decreases after node 1"),
        ("indptr", [0, 1, 2, 2], "not 0 to 3"),
        ("indices", [0, 3, 1], "indices.npy holds 3 at position 1"),
        ("indices", [0, -1, 1], "indices.npy holds -1 at position 1"),
        ("labels", [0, 2, 1], "labels.npy holds 2 at position 1"),
        ("train", [3], "train.npy holds 3"),
        ("train", [0, 0], "names a node twice"),
        ("valid", [0], "or one of another split"),
        ("test", [2], "a node without a label"),
    ],
)
def test_verify_finds_wrong_contents_behind_right_digests(
    tmp_path: Path, part: str, values: list[int], message: str
) -> None:
    assert write_parts(tmp_path / "good").verify() == []
    dtype = np.int32 if part == "indices" else np.int64
    faults = write_parts(
        tmp_path / "bad", **{part: np.array(values, dtype=dtype)}
    ).verify()
    assert len(faults) == 1
    assert message in faults[0]


@pytest.mark.parametrize(("nodes", "values"), [(1, 1), (2, 1), (2, 2), (64, 3)])
def test_verify_finds_wrong_splits_for_any_size_of_its_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, values: int
) -> None:
    monkeypatch.setattr("workloads.dataset._CHECK_NODES", nodes)
    monkeypatch.setattr("workloads.dataset._CHECK_CHUNK", values)
    assert write_parts(tmp_path / "good").verify() == []

    def message(name: str, **parts: list[int]) -> list[str]:
        changed = {part: np.array(ids, dtype=np.int64) for part, ids in parts.items()}
        return [
            fault.split(".npy ")[1]
            for fault in write_parts(tmp_path / name, **changed).verify()
        ]

    assert message("repeated", train=[1, 0, 1], valid=[]) == [
        "names a node twice, or one of another split"
    ]
    assert message("shared", train=[0, 1], valid=[1]) == [
        "names a node twice, or one of another split"
    ]
    assert message("unlabelled", valid=[2, 1]) == ["names a node without a label"]
    assert message("both", train=[1, 0, 2], valid=[], test=[1]) == [
        "names a node without a label",
        "names a node twice, or one of another split",
    ]


def test_a_missing_dataset_is_one_sentence_with_the_nearest_name(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    root = tiny_dataset.path.parent
    assert find_dataset("tiny", root).fingerprint == tiny_dataset.fingerprint
    assert find_dataset(str(tiny_dataset.path), tmp_path).name == "tiny"
    with pytest.raises(
        DatasetError, match=r"there is no dataset 'tinny'.*did you mean 'tiny'"
    ):
        find_dataset("tinny", root)
    with pytest.raises(DatasetError, match="outcore data make"):
        find_dataset("tiny", tmp_path)
    with pytest.raises(DatasetError, match="there is no dataset at"):
        find_dataset(str(tmp_path / "nowhere"), tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(DatasetError, match="is not a dataset"):
        find_dataset("folder", tmp_path)


def test_list_skips_incomplete_datasets(tiny_dataset: Dataset, tmp_path: Path) -> None:
    copy_of(tiny_dataset, tmp_path / "b")
    copy_of(tiny_dataset, tmp_path / "a")
    copy_of(tiny_dataset, tmp_path / ".hidden")
    copy_of(tiny_dataset, tmp_path / "broken").file("train").unlink()
    (tmp_path / "file").write_text("x")
    assert [dataset.name for dataset in list_datasets(tmp_path)] == ["a", "b"]
    assert list_datasets(tmp_path / "nowhere") == []

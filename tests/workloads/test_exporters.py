"""Exports hold the dataset, byte for byte or converted as documented; a failed export
leaves nothing."""

from __future__ import annotations

import hashlib
import json
import os
import pickletools
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from harness.foreign.systems import folder_of
from harness.isolation import Limits
from tests.harness.cap_tools import CAPPING, MIB, needs_cap, on_disk
from tests.support import default_signals, make_tiny, mounted, needs_dgl
from workloads.dataset import PARTS, Dataset
from workloads.direct_files import PAGE, write_at
from workloads.errors import DataIOError, DatasetError, InputError
from workloads.exporters import FORMATS, export_dataset, ginex
from workloads.exporters import files as exporter_files
from workloads.exporters.graphbolt import GRAPH
from workloads.making import direct_stream
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.writer import DatasetWriter
from workloads.npyfile import padded_header

ROOT = Path(__file__).parents[2]


def export(dataset: Dataset, target: Path, format_name: str, **more: Any) -> Path:
    made = export_dataset(dataset, target, format_name, **more)
    files = [
        path
        for path in made.path.rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    assert sum(path.stat().st_size for path in files) == pytest.approx(
        made.nbytes, abs=8192
    )
    assert [
        path.name for path in target.parent.iterdir() if path.name.startswith(".")
    ] == []
    return made.path


def again(source: Path, target: Path, format_name: str) -> Dataset:
    dataset = import_dataset(source, target, ImportSpec(format_name))
    assert dataset.verify() == []
    return dataset


def edges_of(dataset: Dataset) -> list[tuple[int, int]]:
    """Sources and destinations of all edges, one at a time."""
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    return [
        (int(source), node)
        for node, (a, b) in enumerate(pairwise(indptr))
        for source in indices[a:b]
    ]


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A graph with edge weights, original ids, float16 features, unlabelled nodes, no
    validation and test nodes."""
    root = tmp_path_factory.mktemp("weighted")
    rng = np.random.default_rng(3)
    y = rng.integers(-1, 4, 50)
    arrays = {
        "x": rng.standard_normal((50, 3)).astype(np.float16),
        "y": y,
        "train_mask": (y >= 0) & (y < 3),
    }
    pairs = np.ascontiguousarray(np.unique(rng.integers(0, 50, (200, 2)), axis=0).T)
    arrays["ids"] = rng.permutation(50) * 10**12
    np.savez(
        root / "g.npz",
        edge_index=pairs,
        edge_weight=rng.random(pairs.shape[1]),
        **arrays,
    )
    return import_dataset(root / "g.npz", root / "data", ImportSpec("pyg"))


def test_pyg_opens_the_folder_of_its_format_with_every_tensor_mapped(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    folder = export(tiny_dataset, tmp_path / "out", "pyg")
    tensors = {
        file.stem: torch.from_numpy(np.load(file, mmap_mode="c"))
        for file in folder.glob("*.npy")
    }
    data = Data(**tensors)
    assert data.validate()
    assert data.num_nodes == tiny_dataset.num_nodes
    assert list(zip(*data.edge_index.tolist(), strict=True)) == edges_of(tiny_dataset)
    np.testing.assert_array_equal(data.x, tiny_dataset.load("features"))
    np.testing.assert_array_equal(data.y, tiny_dataset.load("labels"))
    for name, part in (
        ("train_mask", "train"),
        ("val_mask", "valid"),
        ("test_mask", "test"),
    ):
        np.testing.assert_array_equal(
            data[name].nonzero().view(-1), tiny_dataset.load(part)
        )  # type: ignore[arg-type]


@pytest.mark.parametrize("format_name", ["pyg", "dgl"])
def test_an_exported_folder_of_arrays_is_imported_as_the_same_dataset(
    tiny_dataset: Dataset, weighted: Dataset, tmp_path: Path, format_name: str
) -> None:
    for number, dataset in enumerate((tiny_dataset, weighted)):
        folder = export(dataset, tmp_path / f"out-{number}", format_name)
        assert (
            again(folder, tmp_path / "data" / str(number), "arrays").content
            == dataset.content
        )


@needs_dgl
def test_dgl_builds_the_graph_of_its_format(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    from systems.engine.dgl import import_dgl

    dgl: Any = import_dgl()
    folder = export(tiny_dataset, tmp_path / "out", "dgl")
    tensors = {
        file.stem: torch.from_numpy(np.load(file, mmap_mode="c"))
        for file in folder.glob("*.npy")
    }
    graph = dgl.graph(
        (
            "csc",
            (tensors["indptr"], tensors["indices"], torch.empty(0, dtype=torch.int64)),
        )
    )
    graph.ndata["feat"] = tensors["features"]
    graph.ndata["label"] = tensors["labels"]
    sources, targets = (ends.tolist() for ends in graph.edges())
    assert sorted(zip(sources, targets, strict=True)) == sorted(edges_of(tiny_dataset))
    np.testing.assert_array_equal(graph.ndata["feat"], tiny_dataset.load("features"))
    np.testing.assert_array_equal(tensors["train"], tiny_dataset.load("train"))


def test_ginexs_code_finds_the_arrays_types_and_names_that_it_reads(
    weighted: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ginex, "NODES_A_PASS", 16)  # several passes
    folder = export(weighted, tmp_path / "out", "ginex")
    conf = json.loads((folder / "conf.json").read_text())
    assert (conf["num_nodes"], conf["num_classes"]) == (50, 4)

    def read(name: str, file: str = "") -> Any:
        shape = tuple(conf[f"{name}_shape"])
        dtype = conf[f"{name}_dtype"]
        return np.memmap(
            folder / (file or f"{name}.dat"), mode="r", shape=shape, dtype=dtype
        )

    # The native parts read int64 ids and float32 features and labels, whatever the
    # configuration states.
    assert [
        conf[f"{name}_dtype"] for name in ("indptr", "indices", "features", "labels")
    ] == [*("int64", "int64", "float32", "float32")]
    np.testing.assert_array_equal(read("indptr"), weighted.load("indptr"))
    np.testing.assert_array_equal(read("indices"), weighted.load("indices"))
    np.testing.assert_array_equal(
        read("features"), weighted.load("features").astype(np.float32)
    )
    np.testing.assert_array_equal(read("labels"), weighted.load("labels"))
    np.testing.assert_array_equal(read("ids"), weighted.load("ids"))
    splits = torch.load(folder / "split_idx.pth")
    assert list(splits) == ["train", "valid", "test"]
    assert splits["train"].dtype == torch.int64
    np.testing.assert_array_equal(splits["train"], weighted.load("train"))
    assert len(splits["valid"]) == 0
    into = torch.from_numpy(np.diff(weighted.load("indptr")))
    out = torch.bincount(
        torch.from_numpy(weighted.load("indices").astype(np.int64)), minlength=50
    )
    torch.testing.assert_close(
        torch.load(folder / "nc_score.pth"), (out + 1e-8) / (into + 1e-8)
    )
    # GNNDrive's code has the number of columns in two names.
    np.testing.assert_array_equal(read("features", "features-3.dat"), read("features"))
    assert json.loads((folder / "conf-3.json").read_text()) == conf


def test_an_export_states_what_its_format_cannot_hold(
    weighted: Dataset, tmp_path: Path
) -> None:
    made = export_dataset(weighted, tmp_path / "out", "ginex")
    assert len(made.notes) == 2
    assert "edge weights left out" in made.notes[0]
    assert "float16" in made.notes[1]
    left = int((weighted.load("labels") >= 0).sum()) - len(weighted.load("train"))
    message = (
        f"{left} labels left out: the format has those of nodes in the three sets alone"
    )
    path = (
        f"open it as OnDiskDataset('{tmp_path / 'other'}'); by another path add "
        "force_preprocess=False"
    )
    assert left
    assert export_dataset(weighted, tmp_path / "other", "graphbolt").notes == [
        message,
        path,
    ]


def test_graphbolts_folder_names_dgls_classes_alone_and_is_imported_as_the_same_graph(
    tiny_dataset: Dataset, weighted: Dataset, tmp_path: Path
) -> None:
    for number, dataset in enumerate((tiny_dataset, weighted)):
        folder = export(dataset, tmp_path / f"out-{number}", "graphbolt")
        with zipfile.ZipFile(folder / GRAPH) as archive:
            assert archive.testzip() is None
            names = [
                str(word)
                for code, word, _ in pickletools.genops(
                    archive.read("archive/data.pkl")
                )
                if code.code == "c"
            ]
        graph = "dgl.graphbolt.impl.fused_csc_sampling_graph FusedCSCSamplingGraph"
        allowed = {
            graph,
            "torch ScriptObject",
            "torch._utils _rebuild_tensor_v2",
            "collections OrderedDict",
        }
        assert graph in names
        assert {name for name in names if not name.startswith("torch ")} <= allowed
        assert {name for name in names if name.startswith("torch ")} <= {
            *(
                "torch ScriptObject",
                "torch LongStorage",
                "torch IntStorage",
                "torch FloatStorage",
            )
        }
        known = again(folder, tmp_path / "data" / str(number), "graphbolt")
        for part in dataset.manifest.parts:
            if part != "labels":
                np.testing.assert_array_equal(
                    known.load(part), dataset.load(part), err_msg=part
                )
        used = np.concatenate(
            [dataset.load(part) for part in ("train", "valid", "test")]
        )
        np.testing.assert_array_equal(
            known.load("labels")[used], dataset.load("labels")[used]
        )
        assert known.num_classes == dataset.num_classes


def digests_of(folder: Path) -> dict[str, str]:
    """Return the digests that DGL's `OnDiskDataset(folder)` compares, by its documented
    rule.

    They are the MD5 of every file under the folder, keyed by the path that the caller
    gave and the file's place. A name that is part of the name of the file of digests is
    skipped.
    """
    found = {}
    for place, _, names in os.walk(folder):  # which does not follow links
        for name in names:
            if name not in "dataset_hash_value.txt":
                path = f"{place}/{name}"
                found[path] = hashlib.md5(
                    Path(path).read_bytes(), usedforsecurity=False
                ).hexdigest()
    return found


@pytest.mark.parametrize("form", ["absolute", "relative", "deep", "spaces and ü"])
def test_a_graphbolt_export_holds_the_digests_that_dgl_compares_for_the_path_that_was_given(
    weighted: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "absolute": tmp_path / "out",
        "relative": Path("out"),
        "deep": Path("a/b/out"),
    }.get(form, Path("ö ü/x y"))
    export_dataset(weighted, given, "graphbolt")
    assert (given / "preprocessed").is_dir()
    assert not any(path.is_symlink() for path in given.rglob("*"))
    expected = digests_of(given)
    assert {str(path) for path in given.rglob("*") if path.is_file()} - set(
        expected
    ) == {str(given / "preprocessed/dataset_hash_value.txt")}
    assert (
        json.loads((given / "preprocessed/dataset_hash_value.txt").read_text())
        == expected
    )
    # What DGL removes where the digests differ, a copy of the metadata restores.
    inside = {path.name for path in (given / "preprocessed").iterdir()}
    assert inside == {"metadata.yaml", "dataset_hash_value.txt"}
    assert (given / "preprocessed/metadata.yaml").read_bytes() == (
        given / "metadata.yaml"
    ).read_bytes()


def test_a_graphbolt_export_of_an_older_outcore_is_still_imported(
    weighted: Dataset, tmp_path: Path
) -> None:
    folder = export(weighted, tmp_path / "out", "graphbolt")
    shutil.rmtree(folder / "preprocessed")
    (folder / "preprocessed").symlink_to(".")
    assert (
        again(folder, tmp_path / "data" / "g", "graphbolt").load("ids").tolist()
        == weighted.load("ids").tolist()
    )


PROGRAM = """
import json, sys
import numpy as np, torch
import dgl.graphbolt as gb
dataset = gb.OnDiskDataset(sys.argv[1]).load()
graph, feature, task = dataset.graph, dataset.feature, dataset.tasks[0]
np.savez(sys.argv[2], indptr=graph.csc_indptr, indices=graph.indices, features=feature.read("node", None, "feat"))
ids = feature.read("node", None, "ids").view(-1).tolist() if ("node", None, "ids") in feature._features else []
pipe = gb.ItemSampler(task.train_set, batch_size=50, shuffle=False)
pipe = pipe.sample_neighbor(graph, [4, 4]).fetch_feature(feature, node_feature_keys=["feat"])
seen = []
for batch in pipe:
    sub = batch.sampled_subgraphs[0]
    csc, rows, columns = sub.sampled_csc, sub.original_row_node_ids, sub.original_column_node_ids
    targets = np.repeat(columns.numpy(), np.diff(csc.indptr.numpy()))
    inputs = batch.input_nodes
    seen.append({
        "seeds": batch.seed_nodes.tolist(), "labels": batch.labels.tolist(), "inputs": inputs.tolist(),
        "edges": list(zip(rows[csc.indices].tolist(), targets.tolist())),
        "rows_equal": bool(torch.equal(batch.node_features["feat"], feature.read("node", None, "feat", inputs))),
    })
json.dump({"batches": seen, "ids": ids, "classes": task.metadata["num_classes"]}, sys.stdout)
"""


def times(folder: Path) -> list[tuple[str, int]]:
    """Return every file and folder within, and when it was last written."""
    return sorted(
        (str(path.relative_to(folder)), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    )


def graphbolt_python() -> str:
    """Return the interpreter of DGL 2.1.0's environment; empty where there is none."""
    folder = folder_of("env:graphbolt")
    assert folder is not None
    return "" if folder.missing else f"{folder.environment}/bin/python"


@pytest.mark.slow("workloads/exporters")
@pytest.mark.skipif(
    not graphbolt_python(), reason="no DGL 2.1.0: `outcore systems setup graphbolt`"
)
def test_dgl_210_reads_the_export_as_it_is_whole_and_sampled(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    """By its defaults, and elsewhere by `force_preprocess=False`; the newest DGL
    compares the same digests."""
    folder = export(tiny_dataset, tmp_path / "out", "graphbolt")
    before = times(folder)
    command = [
        graphbolt_python(),
        "-c",
        PROGRAM,
        str(folder),
        str(tmp_path / "read.npz"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "already preprocessed" in done.stdout
    with np.load(tmp_path / "read.npz") as read:
        for part in ("indptr", "indices", "features"):
            np.testing.assert_array_equal(read[part], tiny_dataset.load(part))  # type: ignore[arg-type]
    message = json.loads(done.stdout[done.stdout.index("{") :])
    assert message["classes"] == tiny_dataset.num_classes
    seeds = [node for batch in message["batches"] for node in batch["seeds"]]
    assert seeds == tiny_dataset.load("train").tolist()
    there = set(edges_of(tiny_dataset))
    labels = tiny_dataset.load("labels")
    for batch in message["batches"]:
        assert batch["labels"] == labels[batch["seeds"]].tolist()
        assert batch["rows_equal"]
        assert batch["edges"]
        assert {tuple(edge) for edge in batch["edges"]} <= there
    assert times(folder) == before
    moved = folder.rename(tmp_path / "moved")
    code = (
        "import sys, dgl.graphbolt as gb; gb.OnDiskDataset(sys.argv[1], "
        "force_preprocess=False).load()"
    )
    subprocess.run(
        [graphbolt_python(), "-c", code, str(moved)], timeout=300, check=True
    )
    assert times(moved) == before


@pytest.mark.slow("workloads/exporters")
@pytest.mark.skipif(
    not graphbolt_python(), reason="no DGL 2.1.0: `outcore systems setup graphbolt`"
)
def test_what_dgl_removes_of_an_export_at_another_path_is_restored_as_the_docs_show(
    weighted: Dataset, tmp_path: Path
) -> None:
    folder = export(weighted, tmp_path / "out", "graphbolt").rename(tmp_path / "moved")
    command = [
        graphbolt_python(),
        "-c",
        PROGRAM,
        str(folder),
        str(tmp_path / "read.npz"),
    ]
    failed = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert failed.returncode != 0
    assert not (folder / "preprocessed/metadata.yaml").exists()
    restore = "mkdir -p moved/preprocessed && cp moved/metadata.yaml moved/preprocessed"
    assert (
        restore.replace("moved", "mine-graphbolt")
        in (ROOT / "docs/exchange.md").read_text()
    )
    subprocess.run(restore, shell=True, cwd=tmp_path, check=True)
    program = PROGRAM.replace("(sys.argv[1])", "(sys.argv[1], force_preprocess=False)")
    command[2] = program
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (
        json.loads(done.stdout[done.stdout.index("{") :])["ids"]
        == weighted.load("ids").tolist()
    )


# --- faults
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_dataset_with_a_changed_byte_in_any_part_is_not_exported_and_nothing_is_left(
    weighted: Dataset, tmp_path: Path, format_name: str
) -> None:
    copy = Path(shutil.copytree(weighted.path, tmp_path / "data"))
    parts = [
        part
        for part in weighted.manifest.parts
        if weighted.manifest.files[part].shape[0]
    ]
    for part in parts:
        if (part, format_name) == ("edge_weight", "ginex"):  # which has none
            continue
        content = bytearray((copy / f"{part}.npy").read_bytes())
        last = len(content) - 1
        # Bits that keep a value small, make it huge and make it negative.
        for place, bit in (
            (PAGE, 1),
            (PAGE + 6, 1),
            (last, 0x80),
            (PAGE + (last - PAGE) // 16 * 8, 2),
        ):
            content[place] ^= bit
            (copy / f"{part}.npy").write_bytes(content)
            with pytest.raises(DatasetError, match=rf"{part}\.npy is corrupted: XXH3"):
                export_dataset(Dataset.open(copy), tmp_path / "out" / "g", format_name)
            content[place] ^= bit
        (copy / f"{part}.npy").write_bytes(content)
    assert list((tmp_path / "out").iterdir()) == []
    export(Dataset.open(copy), tmp_path / "whole", format_name)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("part", ["indices", "labels", "train", "indptr"])
def test_a_part_that_is_removed_meanwhile_is_named_and_nothing_is_left(
    weighted: Dataset, tmp_path: Path, part: str, format_name: str
) -> None:
    copy = Path(shutil.copytree(weighted.path, tmp_path / "data"))
    dataset = Dataset.open(copy)
    (copy / f"{part}.npy").unlink()
    with pytest.raises(
        DataIOError,
        match=rf"{part}\.npy cannot be read: No such file or directory; check that",
    ):
        export_dataset(dataset, tmp_path / "out" / "g", format_name)
    assert list((tmp_path / "out").glob("*")) == []


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_dataset_that_is_replaced_meanwhile_is_not_called_corrupted(
    tiny_dataset: Dataset, weighted: Dataset, tmp_path: Path, format_name: str
) -> None:
    copy = Path(shutil.copytree(weighted.path, tmp_path / "data"))
    dataset = Dataset.open(copy)
    shutil.copytree(tiny_dataset.path, copy, dirs_exist_ok=True)
    with pytest.raises(
        DatasetError, match="data was replaced meanwhile; export it again"
    ):
        export_dataset(dataset, tmp_path / "out" / "g", format_name)
    assert list((tmp_path / "out").glob("*")) == []


def test_a_part_that_may_not_be_read_is_a_fault_of_permissions(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    denied = PermissionError(13, "Permission denied", "features.npy")
    with (
        patch.object(Path, "open", side_effect=denied),
        pytest.raises(DataIOError, match="check the permissions"),
    ):
        list(exporter_files.readable(exporter_files.pieces(tiny_dataset, "features")))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small files have many pieces, as large ones have."""
    monkeypatch.setattr(direct_stream, "BUFFER_BYTES", 4 * PAGE)
    monkeypatch.setattr(exporter_files, "PIECE_BYTES", 3 * PAGE)


@pytest.fixture
def buffered_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Mount a file system that refuses direct I/O."""
    with mounted(tmp_path / "memory", "ramfs") as root:
        # it reports none
        monkeypatch.setattr(exporter_files, "free_bytes", lambda folder: 1 << 30)
        with pytest.raises(OSError, match="Invalid argument"):
            os.open(root / "probe", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        (root / "probe").unlink()
        yield root


def content(folder: Path) -> dict[str, bytes | Path]:
    """Return every file but the one of digests, which are keyed by the folder's
    path."""
    files = [
        file
        for file in folder.rglob("*")
        if not file.is_dir() and file.name != "dataset_hash_value.txt"
    ]
    return {
        str(file.relative_to(folder)): file.readlink()
        if file.is_symlink()
        else file.read_bytes()
        for file in files
    }


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_file_system_without_direct_io_gets_the_same_export(
    tiny_dataset: Dataset, tmp_path: Path, buffered_disk: Path, format_name: str
) -> None:
    there = export(tiny_dataset, buffered_disk / "out", format_name)
    with patch("time.time", return_value=time.time() + 3600):
        here = export(tiny_dataset, tmp_path / "out", format_name)
    assert content(there) == content(here), "an hour later, too"


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("disk", ["tmp_path", "buffered_disk"])
def test_a_piece_that_reads_back_other_than_it_was_written_fails_the_export(
    tiny_dataset: Dataset,
    disk: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaging(handle: int, data: Any, offset: int, path: Path) -> None:
        write_at(handle, data, offset, path)
        if path.name == "x.npy" and offset == 4 * PAGE:
            with path.open("r+b") as file:
                file.seek(offset + PAGE + 8)
                file.write(b"\x07")

    root = request.getfixturevalue(disk)
    monkeypatch.setattr(direct_stream, "write_at", damaging)
    with pytest.raises(
        DataIOError,
        match=r"x\.npy reads back other than it was written, .* 8192 bytes from 16384",
    ):
        export_dataset(tiny_dataset, root / "out", "pyg")
    assert list(root.iterdir()) == []


def test_a_disk_filled_by_others_meanwhile_ends_the_export_in_one_sentence(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    with mounted(tmp_path / "disk", "tmpfs", "-o", "size=8m") as disk:

        def fill(stage: str, fraction: float) -> None:
            if not (disk / "other").exists():
                with (
                    (disk / "other").open("wb", buffering=0) as other,
                    pytest.raises(OSError, match="No space left"),
                ):
                    while True:
                        other.write(b"\0" * PAGE)

        for format_name in FORMATS:
            with pytest.raises(
                DatasetError,
                match=r"no space for the export 'out': it needs .* are free",
            ) as caught:
                export_dataset(tiny_dataset, disk / "out", format_name, progress=fill)
            assert caught.value.exit_code == 2
            assert [path.name for path in disk.iterdir()] == ["other"]
            (disk / "other").unlink()
        export(tiny_dataset, disk / "out", "dgl")


SLOW_EXPORT = """
import sys, time
from pathlib import Path
from workloads.dataset import Dataset
from workloads.exporters import export_dataset

def stop(stage, fraction):
    if fraction > 0.5:
        print("writing", flush=True)
        time.sleep(60)

export_dataset(Dataset.open(sys.argv[1]), Path(sys.argv[2]), "graphbolt", progress=stop)
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]
)
def test_an_export_ended_by_a_signal_leaves_nothing(
    tiny_dataset: Dataset, tmp_path: Path, number: signal.Signals
) -> None:
    """What a killed process leaves is removed by the next export to the same place."""
    command = [
        sys.executable,
        "-c",
        SLOW_EXPORT,
        str(tiny_dataset.path),
        str(tmp_path / "out"),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=default_signals, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(number)
    assert process.wait(10) != 0
    left = [path.name for path in tmp_path.iterdir()]
    assert [name.startswith(".out.outcore-tmp-") for name in left] == [True] * (
        number == signal.SIGKILL
    )
    export(tiny_dataset, tmp_path / "out", "graphbolt")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_interrupted_export_leaves_nothing(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    def stop(stage: str, fraction: float) -> None:
        if fraction > 0.5:
            raise KeyboardInterrupt

    for format_name in FORMATS:
        with pytest.raises(KeyboardInterrupt):
            export_dataset(tiny_dataset, tmp_path / "out", format_name, progress=stop)
        assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_and_an_unknown_format_are_refused(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(DatasetError, match=r"out exists already; remove it"):
        export_dataset(tiny_dataset, tmp_path / "out", "pyg")
    with pytest.raises(InputError, match="--format is 'npz'"):
        export_dataset(tiny_dataset, tmp_path / "new", "npz")


def test_a_folder_that_cannot_be_made_or_lies_in_a_dataset_is_refused(
    tiny_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        DatasetError,
        match="cannot be written: File name too long; choose another --out",
    ):
        export_dataset(tiny_dataset, tmp_path / ("a" * 300), "pyg")
    (tmp_path / "link").symlink_to(tiny_dataset.path)
    for inside in (tiny_dataset.path / "new", tmp_path / "link" / "deep" / "new"):
        with pytest.raises(
            InputError,
            match=f"new would lie in the dataset {tiny_dataset.name!r}; choose another",
        ):
            export_dataset(tiny_dataset, inside, "pyg")
    assert not (tiny_dataset.path / "deep").exists()

    def forbidden(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", forbidden)
    with pytest.raises(
        DatasetError, match="cannot be written: Permission denied; choose another --out"
    ):
        export_dataset(tiny_dataset, tmp_path / "closed" / "new", "pyg")


OLD_NUMPY = next(
    (Path.home() / ".cache/outcore/environments").glob(
        "*/lib/python*/site-packages/numpy-1.*"
    ),
    None,
)


def test_every_file_of_a_graph_without_edges_is_mapped_and_imported_again(
    tmp_path: Path,
) -> None:
    """By the newest NumPy and, where an environment of a foreign system has it, by
    NumPy 1."""
    with DatasetWriter(tmp_path / "data" / "none") as writer:
        writer.write("indptr", np.zeros(4, dtype=np.int64))
        writer.write("indices", np.zeros(0, dtype=np.int32))
        writer.write("features", np.ones((3, 2), dtype=np.float32))
        writer.write("labels", np.zeros(3, dtype=np.int64))
        for number, part in enumerate(("train", "valid", "test")):
            writer.write(part, np.arange(number == 0, dtype=np.int64))  # type: ignore[arg-type]
    dataset = Dataset.open(tmp_path / "data" / "none")
    code = (
        "import sys, numpy; print([list(numpy.load(file, mmap_mode='c').shape) for "
        "file in sys.argv[1:]])"
    )
    for format_name in ("pyg", "dgl"):
        folder = export(dataset, tmp_path / format_name, format_name)
        assert (
            again(folder, tmp_path / "data" / format_name, "arrays").content
            == dataset.content
        )
        files = sorted(map(str, folder.glob("*.npy")))
        shapes = str([list(np.load(file, mmap_mode="c").shape) for file in files])
        # NumPy 1 maps the header's page and the data behind it, and a map has to have a
        # byte.
        assert all(
            Path(file).stat().st_size % PAGE
            for file in files
            if 0 in np.load(file).shape
        )
        if OLD_NUMPY is not None:
            python = OLD_NUMPY.parents[3] / "bin" / "python"
            done = subprocess.run(
                [python, "-c", code, *files],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            assert done.stdout.strip() == shapes


def test_a_disk_too_small_is_refused_with_the_bytes_needed_before_anything_is_written(
    tmp_path: Path,
) -> None:
    dataset = make_tiny(tmp_path / "data" / "g", nodes=300, edges=900)
    # A table of a tebibyte that takes no blocks.
    entry = dataset.manifest.files["features"]
    shape = (300, 2**40 // 1200)
    size = PAGE + shape[0] * shape[1] * 4
    with (dataset.path / "features.npy").open("wb") as file:
        file.write(padded_header(np.dtype(np.float32), shape))
        file.truncate(size)
    files = {
        **dataset.manifest.files,
        "features": entry.model_copy(update={"shape": shape, "bytes": size}),
    }
    dataset.manifest.model_copy(update={"files": files, "dim": shape[1]}).write(
        dataset.path
    )
    with pytest.raises(
        DatasetError,
        match=r"no space for the export 'out': it needs 1\.0 TiB \(\d+ bytes\) in .* "
        r"are free",
    ):
        export_dataset(Dataset.open(dataset.path), tmp_path / "out", "dgl")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


# --- memory
# --------------------------------------------------------------------------------------

NODES = 120_000
DIM = 512
DEGREE = 16


@pytest.fixture(scope="module")
def wide() -> Iterator[Dataset]:
    """Make 120,000 rows of 512 float32, a table of 234 MiB."""
    for folder in on_disk():
        rng = np.random.default_rng(1)
        with DatasetWriter(folder / "wide") as writer:
            writer.write(
                "indptr", np.arange(0, NODES * DEGREE + 1, DEGREE, dtype=np.int64)
            )
            writer.write(
                "indices", rng.integers(0, NODES, NODES * DEGREE).astype(np.int32)
            )
            block = rng.standard_normal((4000, DIM)).astype(np.float32)
            with writer.stream("features", np.float32, (NODES, DIM)) as stream:
                for _ in range(NODES // len(block)):
                    stream.write(block)
            writer.write("labels", np.zeros(NODES, dtype=np.int64))
            for start, part in enumerate(("train", "valid", "test")):
                writer.write(part, np.arange(start, NODES, 50, dtype=np.int64))  # type: ignore[arg-type]
        yield Dataset.open(folder / "wide")


@pytest.mark.slow("workloads/exporters", "workloads/making/writer.py")
@needs_cap
@pytest.mark.timeout(400)
@pytest.mark.parametrize("format_name", FORMATS)
def test_an_export_runs_under_a_cap_below_its_tables_bytes(
    wide: Dataset, format_name: str
) -> None:
    """The interpreter is under the cap of 192 MiB too."""
    code = "import sys; from harness.cli import main; main(sys.argv[1:])"
    target = wide.path.parent / f"wide-{format_name}"
    arguments = [
        "data",
        "export",
        str(wide.path),
        "--format",
        format_name,
        "--out",
        str(target),
        "-q",
    ]
    with CAPPING[0]().create(
        f"export-{format_name}", Limits(memory_bytes=192 * MIB)
    ) as cap:
        command = cap.command([sys.executable, "-c", code, *arguments])
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
        )
        memory = cap.memory()
    assert done.returncode == 0, done.stderr[-2000:]
    assert memory.oom_kills == 0
    assert memory.peak <= 192 * MIB < wide.feature_bytes
    shutil.rmtree(target)
    assert {path.name for path in wide.path.iterdir()} == {
        "dataset.json",
        *(f"{part}.npy" for part in PARTS),
    }

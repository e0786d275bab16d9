"""Making datasets: every kind, the requested sizes, the same bytes each time, and real
graphs as bases."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DatasetError, InputError
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.make import MakeSpec, make_dataset
from workloads.making.node_data import NodeDataSpec

SHARED = Path(__file__).parents[3] / "shared" / "data"


def real(name: str) -> Path:
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"the real graph {name} is not beside this checkout ({SHARED})")
    return path


SMALL: dict[str, dict[str, Any]] = {
    "rmat": {"nodes": 5000, "edges": 50_000},
    "kronecker": {"nodes": 6000, "edges": 60_000},
    "fractal": {"nodes": 6000, "edges": 60_000},
}


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_every_kind_is_sound_and_has_the_size_asked(tmp_path: Path, kind: str) -> None:
    spec = MakeSpec(kind, **SMALL[kind], dim=10, classes=4, fractions=(0.1, 0.05, 0.02))
    dataset = make_dataset(tmp_path / "t", spec)
    assert dataset.verify() == []
    # The fractal's number of edges follows from the singular values of a drawn base, so
    # it is only near the request.
    near = {"rmat": 0, "kronecker": 0.01, "fractal": 0.15}[kind]
    assert dataset.num_nodes == spec.nodes
    assert dataset.num_edges == pytest.approx(spec.edges, rel=near, abs=0)
    assert (dataset.dim, dataset.num_classes, dataset.feature_dtype) == (
        10,
        4,
        np.float32,
    )
    shares = [
        dataset.manifest.files[part].shape[0] / spec.nodes
        for part in ("train", "valid", "test")
    ]
    assert shares == pytest.approx([0.1, 0.05, 0.02], abs=0.001)
    stats = dataset.manifest.stats
    assert stats["result"]["num_edges"] == dataset.num_edges
    assert ("base" in stats) == (kind != "rmat")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".secret", "t"]


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_equal_specifications_give_equal_bytes_whatever_the_memory(
    tmp_path: Path, kind: str
) -> None:
    spec = MakeSpec(kind, **SMALL[kind], dim=3)
    one = make_dataset(tmp_path / "one", spec)
    again = make_dataset(tmp_path / "again", spec, max_memory=96 << 20)
    other = make_dataset(tmp_path / "other", replace(spec, seed=1))
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert one.manifest.recipe == again.manifest.recipe != other.manifest.recipe
    assert one.origin == f"generated ({one.manifest.recipe['kind']})"


@pytest.mark.parametrize(
    ("dtype", "index_dtype"), [("float16", "int64"), ("float32", "int32")]
)
def test_dtypes_are_those_asked(tmp_path: Path, dtype: str, index_dtype: str) -> None:
    spec = MakeSpec(
        "kronecker", **SMALL["kronecker"], dim=5, dtype=dtype, index_dtype=index_dtype
    )
    dataset = make_dataset(tmp_path / "t", spec)
    assert dataset.feature_dtype == dtype
    assert dataset.index_dtype == index_dtype
    assert dataset.verify() == []


def class_separation(dataset: Dataset) -> float:
    """Return the share of nodes whose features are nearest to the mean of their own
    class."""
    features = dataset.load("features").astype(np.float64)
    labels = dataset.load("labels")
    means = np.stack(
        [features[labels == k].mean(axis=0) for k in range(dataset.num_classes)]
    )
    distances = ((features[:, None, :] - means[None]) ** 2).sum(axis=2)
    return float((distances.argmin(axis=1) == labels).mean())


def homophily(dataset: Dataset) -> float:
    labels = dataset.load("labels")
    indptr = dataset.load("indptr")
    target = np.repeat(np.arange(dataset.num_nodes), np.diff(indptr))
    return float((labels[dataset.load("indices")] == labels[target]).mean())


def test_learnable_features_report_the_class_and_random_ones_do_not(
    tmp_path: Path,
) -> None:
    spec = MakeSpec("kronecker", **SMALL["kronecker"], dim=16, classes=4)
    learnable = make_dataset(tmp_path / "learnable", spec)
    random = make_dataset(tmp_path / "random", replace(spec, features="random"))
    assert class_separation(learnable) > 0.8
    assert class_separation(random) < 0.4


def test_homophilous_labels_agree_along_edges_and_random_ones_do_not(
    tmp_path: Path,
) -> None:
    base = make_tiny(tmp_path / "base", nodes=1000, edges=10_000, classes=4)
    spec = MakeSpec("kronecker", base="base", expand=3, dim=4)
    kept = make_dataset(tmp_path / "kept", spec, data_root=tmp_path)
    random = make_dataset(
        tmp_path / "random",
        replace(spec, labels="random", classes=4),
        data_root=tmp_path,
    )
    assert homophily(kept) == pytest.approx(homophily(base), abs=0.02)
    assert homophily(base) > 0.7
    assert homophily(random) < 0.35
    assert kept.manifest.stats["base"]["homophily"] == pytest.approx(
        homophily(base), abs=0.02
    )


def test_an_expansion_takes_labels_and_features_from_its_base(tmp_path: Path) -> None:
    base = make_tiny(tmp_path / "base", nodes=500, edges=4000, dim=16)
    dataset = make_dataset(
        tmp_path / "t",
        MakeSpec("kronecker", base=str(base.path), expand=4, dim=16),
        data_root=tmp_path,
    )
    assert dataset.num_nodes == 2000
    assert dataset.num_classes == base.num_classes
    np.testing.assert_array_equal(
        dataset.load("labels"), np.tile(base.load("labels"), 4)
    )
    assert (
        np.corrcoef(
            dataset.load("features").ravel(),
            np.tile(base.load("features"), (4, 1)).ravel(),
        )[0, 1]
        > 0.95
    )
    assert dataset.manifest.recipe["base_digest"] == base.fingerprint


def test_labels_of_the_base_cannot_be_recounted(tmp_path: Path) -> None:
    make_tiny(tmp_path / "base", nodes=500, edges=4000)
    with pytest.raises(
        InputError,
        match="--classes 7 does not go with a base that has labels of 5 classes",
    ):
        make_dataset(
            tmp_path / "t",
            MakeSpec("kronecker", base="base", expand=2, classes=7),
            data_root=tmp_path,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "kroneker"}, "--kind is 'kroneker'.*did you mean kronecker"),
        ({"kind": "star"}, "choose rmat, kronecker, fractal"),
        ({"dtype": "float64"}, "--dtype is 'float64'.*float32 or float16"),
        ({"labels": "good"}, "--labels is 'good'"),
        ({"features": "good"}, "--features is 'good'"),
        ({"dim": 0}, "--dim is 0"),
        ({"classes": -1}, "--classes is -1"),
        ({"nodes": -5}, "--nodes is -5"),
        ({"index_dtype": "int8"}, "--index-dtype is 'int8'"),
        ({"fractions": (0.0, 0.1, 0.1)}, "--train-fraction is 0"),
        ({"seed": -1}, "--seed is -1"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    spec = MakeSpec(**({"kind": "kronecker", "nodes": 1000, "edges": 5000} | changed))
    with pytest.raises(InputError, match=message):
        make_dataset(tmp_path / "t", spec)
    assert list(tmp_path.iterdir()) == []


def test_a_bound_too_small_and_a_missing_base_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match=r"--max-memory is 1.0 MiB"):
        make_dataset(
            tmp_path / "t",
            MakeSpec("rmat", nodes=10**6, edges=10**7),
            max_memory=1 << 20,
        )
    with pytest.raises(DatasetError, match="there is no dataset 'nobody'"):
        make_dataset(
            tmp_path / "t",
            MakeSpec("kronecker", base="nobody", expand=2),
            data_root=tmp_path,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_disk_too_small_is_refused_before_the_work(tmp_path: Path) -> None:
    spec = MakeSpec(
        "kronecker", nodes=4 * 10**9, edges=4 * 10**9, dim=4096, index_dtype="int64"
    )
    with pytest.raises(
        DatasetError, match=r"no space for dataset 't': it needs .* TiB .* are free"
    ):
        make_dataset(tmp_path / "t", spec)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a real ext4 file system of 64 MiB."""
    image = tmp_path / "image"
    mount = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    mount.mkdir()
    for command in (
        ["mkfs.ext4", "-q", "-F", image],
        ["mount", "-o", "loop", image, mount],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip(f"needs {command[0]}")
        if done.returncode != 0:
            pytest.skip(f"needs root to mount a small disk ({done.stderr.strip()})")
    try:
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_disk_that_fills_up_while_generating_leaves_nothing(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of free space is disabled, as if another process filled the disk after
    it."""
    monkeypatch.setattr(
        "workloads.making.writer.DatasetWriter.require_space",
        lambda self, data_bytes: None,
    )
    before = sorted([".secret", *(path.name for path in small_disk.iterdir())])
    with pytest.raises(
        DatasetError, match=r"no space for dataset 't': it needs .* are free"
    ):
        make_dataset(
            small_disk / "t",
            MakeSpec("kronecker", nodes=300_000, edges=3_000_000, dim=64),
        )
    assert sorted(path.name for path in small_disk.iterdir()) == before
    assert (
        make_dataset(
            small_disk / "t", MakeSpec("rmat", nodes=1000, edges=9000, dim=4)
        ).verify()
        == []
    )


MAKE_SLOWLY = """
import sys, time
from pathlib import Path
from workloads.making.make import MakeSpec, make_dataset

def slow(stage, fraction):
    if stage == "writing features":
        print("half", flush=True)
        time.sleep(60)

make_dataset(Path(sys.argv[1]), MakeSpec("kronecker", nodes=20_000, edges=200_000), progress=slow)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_while_generating_then_the_same_command_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(MAKE_SLOWLY), str(tmp_path / "t")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(number)
    assert process.wait(20) != 0
    left = [path.name for path in tmp_path.iterdir() if path.name != ".secret"]
    assert len(left) == (1 if number == signal.SIGKILL else 0)
    assert "t" not in left
    dataset = make_dataset(
        tmp_path / "t", MakeSpec("kronecker", nodes=20_000, edges=200_000)
    )
    assert dataset.verify() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [".secret", "t"]


# --- real graphs
# --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("real")
    import_dataset(
        real("labelled/amazon-computers.npz"),
        root / "amazon",
        ImportSpec("npz", fractions=(0.5, 0.2, 0.3)),
    )
    spec = ImportSpec("snap", node_data=NodeDataSpec(dim=8))
    import_dataset(real("topology/web-NotreDame.txt.gz"), root / "web", spec)
    return root


@pytest.mark.slow("workloads/making", "workloads/importers", seconds=8)
def test_amazon_computers_is_imported_as_published(real_root: Path) -> None:
    dataset = Dataset.open(real_root / "amazon")
    assert dataset.verify() == []
    assert (dataset.num_nodes, dataset.num_edges, dataset.dim, dataset.num_classes) == (
        13_752,
        287_209,
        767,
        10,
    )
    with np.load(real("labelled/amazon-computers.npz"), allow_pickle=False) as file:
        wanted = set(
            zip(
                np.repeat(np.arange(13_752), np.diff(file["adj_indptr"])).tolist(),
                file["adj_indices"].tolist(),
                strict=True,
            )
        )
        np.testing.assert_array_equal(dataset.load("labels"), file["labels"])
        assert dataset.load("features").sum(dtype=np.float64) == pytest.approx(
            file["attr_data"].sum(dtype=np.float64)
        )
    target = np.repeat(np.arange(13_752), np.diff(dataset.load("indptr")))
    assert (
        set(zip(dataset.load("indices").tolist(), target.tolist(), strict=True))
        == wanted
    )


def test_web_notredame_is_imported_as_published(real_root: Path) -> None:
    dataset = Dataset.open(real_root / "web")
    assert dataset.verify() == []
    assert (dataset.num_nodes, dataset.num_edges) == (325_729, 1_497_134)
    assert "27455 self-loops" in dataset.manifest.notes
    assert homophily(dataset) > 0.5  # communities were found


@pytest.mark.parametrize("kind", ["kronecker", "fractal"])
@pytest.mark.parametrize("name", ["amazon", "web"])
def test_real_graphs_expand(
    real_root: Path, tmp_path: Path, name: str, kind: str
) -> None:
    base = Dataset.open(real_root / name)
    spec = MakeSpec(kind, base=name, expand=3, dim=16)
    dataset = make_dataset(tmp_path / "t", spec, data_root=real_root)
    assert dataset.verify() == []
    assert dataset.num_nodes == 3 * base.num_nodes
    before = dataset.manifest.stats["base"]
    after = dataset.manifest.stats["result"]
    skew = after["top1_degree_share"] / before["top1_degree_share"]  # type: ignore[operator]
    likeness = homophily(dataset)
    if kind == "kronecker":  # keeps skew and homophily
        assert skew == pytest.approx(1, abs=0.02)
        assert likeness == pytest.approx(homophily(base), abs=0.02)
    else:  # is known to flatten skew and to lose communities
        assert skew < 0.99
        assert likeness < homophily(base) - 0.2


def test_files_serve_as_bases_without_an_import(
    real_root: Path, tmp_path: Path
) -> None:
    source = real("labelled/amazon-computers.npz")
    by_file = make_dataset(
        tmp_path / "file", MakeSpec("kronecker", base=str(source), expand=2, dim=16)
    )
    by_name = make_dataset(
        tmp_path / "name",
        MakeSpec("kronecker", base="amazon", expand=2, dim=16),
        data_root=real_root,
    )
    assert by_file.manifest.files["indices"] == by_name.manifest.files["indices"]
    assert by_file.manifest.files["labels"] == by_name.manifest.files["labels"]
    np.testing.assert_allclose(
        by_file.load("features"), by_name.load("features"), atol=1e-4
    )

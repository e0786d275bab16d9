"""Partitions and edge buckets on disk: the same files for any memory, and no
half-written file after a kill."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems import _native
from systems.interface import Progress, silent
from systems.mariusgnn.options import HELD_BYTES
from systems.mariusgnn.partition_writer import LEAST_BYTES, Moved, write_partitions
from systems.mariusgnn.partitioned import (
    FEATURES,
    TOPOLOGY,
    Layout,
    Partitions,
    count_buckets,
)
from systems.mariusgnn.sizes import max_edges
from tests.support import make_tiny
from tests.systems.support_systems import reference, run, running, workload_of
from workloads.dataset import Dataset
from workloads.errors import DataIOError, DatasetError
from workloads.making.writer import DatasetWriter

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny(
        tmp_path_factory.mktemp("parts") / "graph",
        nodes=3000,
        edges=30000,
        dim=32,
        index_dtype="int64",
    )


def written(
    dataset: Dataset,
    folder: Path,
    memory_bytes: int,
    partitions: int = 9,
    moved: list[Moved] | None = None,
    progress: Progress = silent,
) -> tuple[Layout, np.ndarray]:
    workload = workload_of(dataset)
    parts = Partitions.of(workload, partitions)
    partition_of = parts.assign(dataset.load("train"), 0)
    layout = Layout(
        parts, count_buckets(workload, parts, partition_of, memory_bytes=memory_bytes)
    )
    asked = write_partitions(
        workload,
        layout,
        partition_of,
        folder,
        memory_bytes=memory_bytes,
        progress=progress,
    )
    if moved is not None:
        moved.append(asked)
    return layout, partition_of


def assert_as_by_hand(
    dataset: Dataset, layout: Layout, partition_of: np.ndarray, folder: Path
) -> None:
    """Check both files against simple code, list by list and bucket by bucket."""
    parts = layout.parts
    topology = (folder / TOPOLOGY).read_bytes()
    rows = (folder / FEATURES).read_bytes()
    assert (len(topology), len(rows)) == (
        layout.topology_file_bytes,
        layout.feature_file_bytes,
    )
    assert {path.name for path in folder.iterdir()} >= {TOPOLOGY, FEATURES}
    assert not list(folder.glob("scratch*"))
    indptr, indices, features = (
        dataset.load(part) for part in ("indptr", "indices", "features")
    )
    for i in range(parts.count):
        nodes = np.flatnonzero(partition_of == i)
        assert len(nodes) == parts.nodes_of(i)
        at = int(layout.feature_at[i])
        assert rows[at : at + len(nodes) * parts.row_bytes] == features[nodes].tobytes()
        at = int(layout.list_at[i])
        assert topology[at : at + 8 * len(nodes)] == nodes.astype(np.int64).tobytes()
        at += int(layout.ids_bytes[i])
        degrees = np.diff(indptr)[nodes]
        assert topology[at : at + 4 * len(nodes)] == degrees.astype(np.uint32).tobytes()
        at += int(layout.degree_bytes[i])
        sources = np.concatenate([indices[indptr[v] : indptr[v + 1]] for v in nodes])
        members = partition_of[sources]
        assert topology[at : at + len(sources)] == members.tobytes()
        by_bucket = np.split(
            sources[np.argsort(members, kind="stable")],
            np.cumsum(layout.counts[i])[:-1],
        )
        for j, bucket in enumerate(by_bucket):
            assert len(bucket) == layout.counts[i, j]
            assert (partition_of[bucket] == j).all()
            at = int(layout.bucket_at[i, j])
            assert topology[at : at + bucket.nbytes] == bucket.tobytes()


@pytest.mark.parametrize("memory_bytes", [1, 1 << 24])
def test_every_row_and_every_edge_is_written_once_in_its_place(
    graph: Dataset, tmp_path: Path, memory_bytes: int
) -> None:
    layout, partition_of = written(graph, tmp_path, memory_bytes)
    assert_as_by_hand(graph, layout, partition_of, tmp_path)


def test_each_pass_reports_its_share_up_to_its_end(
    graph: Dataset, tmp_path: Path
) -> None:
    reported: dict[str, list[float]] = {}
    written(
        graph,
        tmp_path,
        1,
        progress=lambda text, share: reported.setdefault(text, []).append(share),
    )
    assert list(reported) == [
        "spreading lists by partition",
        "writing edge buckets",
        "spreading feature rows by partition",
    ]
    for shares in reported.values():
        assert len(shares) > 3
        assert shares == sorted(shares)
        assert 0 <= shares[0] < 0.5
    lists, buckets, rows = reported.values()
    assert lists[-1] == rows[-1] == 1.0
    assert buckets == [k / 9 for k in range(9)]


def shaped(path: Path, shape: str, nodes: int, dim: int, index_dtype: str) -> Dataset:
    """Make a graph of the given shape, with rows that tell its nodes apart."""
    rng = np.random.default_rng(nodes)
    nothing = np.empty(0, dtype=np.int64)
    if shape == "star":  # one node has all others as in-neighbours
        lists = {0: np.arange(1, nodes)}
    elif (
        shape == "hub"
    ):  # one node has a tenth of all nodes as in-neighbours, a few others have short lists
        lists = {v: rng.integers(0, nodes, 3) for v in range(0, nodes, 7)}
        lists[nodes // 2] = rng.permutation(nodes)[: nodes // 10]
    elif shape == "loops":  # every node its own in-neighbour, twice
        lists = {v: np.array([v, v]) for v in range(nodes)}
    elif shape == "chain":
        lists = {v: np.array([v - 1]) for v in range(1, nodes)}
    else:
        assert shape == "isolated"
        lists = {nodes - 1: np.array([0])}
    found = [lists.get(v, nothing) for v in range(nodes)]
    rows = np.arange(nodes * dim, dtype=np.float32).reshape(nodes, dim)
    with DatasetWriter(path, recipe={"source": "test", "seed": 0}) as writer:
        writer.write(
            "indptr",
            np.concatenate([[0], np.cumsum([len(one) for one in found])]).astype(
                np.int64
            ),
        )
        writer.write("indices", np.concatenate(found).astype(index_dtype))
        writer.write("features", rows)
        writer.write("labels", np.zeros(nodes, dtype=np.int64))
        for part, chosen in (
            ("train", np.arange(0, nodes, 3)),
            ("valid", nothing),
            ("test", nothing),
        ):
            writer.write(part, chosen.astype(np.int64))  # type: ignore[arg-type]
        writer.num_classes = 1
    return Dataset.open(path)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.sampled_from(["star", "hub", "loops", "chain", "isolated"]),
    nodes=st.integers(1, 700),
    dim=st.sampled_from([1, 3, 127, 128, 1024]),
    partitions=st.sampled_from([1, 2, 9, 256]),
    index_dtype=st.sampled_from(["int32", "int64"]),
)
def test_odd_graphs_are_cut_as_by_hand(
    shape: str, nodes: int, dim: int, partitions: int, index_dtype: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        dataset = shaped(Path(name) / "d", shape, nodes, dim, index_dtype)
        folder = Path(name) / "cut"
        folder.mkdir()
        layout, partition_of = written(dataset, folder, 1, partitions)
        assert_as_by_hand(dataset, layout, partition_of, folder)


@pytest.mark.parametrize("partitions", [2, 60, 256])
def test_a_partition_larger_than_the_memory_is_split_once_more(
    tmp_path: Path, partitions: int
) -> None:
    """All edges go to one node: with 2 partitions even each of its buckets is larger
    than the memory."""
    dataset = shaped(tmp_path / "d", "star", 400_000, 1, "int64")
    layout, partition_of = written(dataset, tmp_path, 1, partitions)
    assert layout.bucket_bytes[0].sum() > LEAST_BYTES
    assert (layout.bucket_bytes[0].max() > LEAST_BYTES // 2) == (partitions == 2)
    assert_as_by_hand(dataset, layout, partition_of, tmp_path)


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Make a graph with about twenty edges per bucket at 256 partitions."""
    return make_tiny(
        tmp_path_factory.mktemp("hubs") / "graph", nodes=60_000, edges=1_200_000, dim=16
    )


def test_the_disk_is_asked_for_long_reads_and_writes_alone(
    hubs: Dataset, tmp_path: Path
) -> None:
    """None of 65,536 buckets is written alone, and no byte is moved more often than the
    number of passes."""
    memory = 8 << 20
    found = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        calls = _calls()
        moved: list[Moved] = []
        layout, partition_of = written(hubs, folder, memory, 256, moved)
        assert (
            _calls() - calls < 1000
        )  # the kernel's own count; it omits writes by io_uring
        found.append(moved[0])
    assert_as_by_hand(hubs, layout, partition_of, folder)
    assert found[0] == found[1]
    scratch = hubs.topology_bytes + 256 * 4096
    assert (
        moved[0].bytes_written
        <= scratch + layout.topology_file_bytes + layout.feature_file_bytes
    )
    assert moved[0].reads.bytes_read <= 1.01 * (2 * scratch + hubs.feature_bytes)
    # Three passes with a buffer for each of 256 partitions (two each for the file that
    # is written in order).
    buffer = 3 * memory // 4 // (256 + 16) // 4096 * 4096
    assert moved[0].writes <= moved[0].bytes_written / buffer + 3 * 2 * 256
    assert moved[0].reads.requests <= moved[0].reads.bytes_read / (64 << 10) + 256


def test_writing_keeps_to_its_memory(hubs: Dataset, tmp_path: Path) -> None:
    parts = Partitions.of(workload_of(hubs), 256)
    partition_of = parts.assign(hubs.load("train"), 0)
    layout = Layout(parts, count_buckets(workload_of(hubs), parts, partition_of))
    for memory in (LEAST_BYTES, 16 << 20):
        write_partitions(
            workload_of(hubs), layout, partition_of, tmp_path, memory_bytes=memory
        )  # code and pools
        before = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        write_partitions(
            workload_of(hubs), layout, partition_of, tmp_path, memory_bytes=memory
        )
        assert _resident("VmHWM") - before <= memory + HELD_BYTES * hubs.num_nodes + (
            1 << 20
        )


def _resident(field: str) -> int:
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(field)
    )
    return int(line.split()[1]) << 10


def _calls() -> int:
    """Return the number of write calls of this process so far."""
    return int(Path("/proc/self/io").read_text().split("syscw: ")[1].split()[0])


@settings(max_examples=100, deadline=None)
@given(
    nodes=st.integers(1, 300),
    size=st.integers(1, 400),
    seed=st.integers(0, 2**64 - 1),
    share=st.floats(0, 1),
)
def test_nodes_are_dealt_out_whole(
    nodes: int, size: int, seed: int, share: float
) -> None:
    size = max(size, -(-nodes // 256))
    first = np.sort(
        np.random.default_rng(seed % 1000).permutation(nodes)[: int(share * nodes)]
    ).astype(np.int64)
    partition_of = np.full(nodes, 255, dtype=np.uint8)
    _native.assign_partitions(first, size, seed, partition_of)
    assert partition_of[first].tolist() == [i // size for i in range(len(first))]
    sizes = np.bincount(partition_of)
    assert (sizes[:-1] == size).all()
    assert sizes.sum() == nodes
    assert sizes[-1] <= size


def test_the_other_nodes_are_dealt_out_evenly_at_random() -> None:
    """Over 4,000 seeds each of 8 nodes is in each of 4 partitions equally often."""
    seen = np.zeros((8, 4))
    for seed in range(4000):
        partition_of = np.empty(8, dtype=np.uint8)
        _native.assign_partitions(np.empty(0, dtype=np.int64), 2, seed, partition_of)
        seen[np.arange(8), partition_of] += 1
    # Chi-square with 21 degrees of freedom (row and column sums are fixed), below its
    # 99.9 % point.
    assert ((seen - 1000) ** 2 / 1000).sum() < 46.8


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_no_choice_of_partitions_has_more_edges_than_foreseen(
    count: int, pinned: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 50, (count, count)) * (rng.random((count, count)) < 0.6)
    pinned = min(pinned, count)
    for free in range(count - pinned + 1):
        bound = max_edges(counts.astype(np.int64), pinned, free)
        for others in itertools.combinations(range(pinned, count), free):
            chosen = [*range(pinned), *others]
            assert counts[np.ix_(chosen, chosen)].sum() <= bound
    assert bound == counts.sum()


def test_an_edge_from_no_node_is_reported(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "g", nodes=300, edges=2000, dim=32)
    with dataset.file("indices").open("r+b") as file:
        file.seek(dataset.data_offset("indices") + 400)
        file.write(np.int32(300).tobytes())
    with pytest.raises(
        DatasetError, match="edge 100 comes from node 300, which is not one of 300"
    ):
        written(dataset, tmp_path, 1 << 20)


def test_a_full_disk_is_reported_and_leaves_nothing(graph: Dataset) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with running(
        "mariusgnn", workload_of(graph), prepare=False, partitions=9
    ) as system:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
            with pytest.raises(
                DataIOError,
                match=r"preparing mariusgnn failed: the file is larger than",
            ):
                system.prepare()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert list(system.runtime.artefacts.iterdir()) == []
        system.prepare()
        assert run(system)[:2] == reference(workload_of(graph))


_CHILD = """
import sys
from pathlib import Path
from tests.systems.support_systems import running, workload_of
from workloads.dataset import Dataset
import systems.mariusgnn.partition_writer as partition_writer
append = partition_writer._append
def slowly(*arguments):
    print("wrote", flush=True)
    sys.stdin.readline()
    return append(*arguments)
partition_writer._append = slowly
with running("mariusgnn", workload_of(Dataset.open(sys.argv[1])), root=Path(sys.argv[2]), partitions=9):
    pass
"""


@pytest.mark.slow(
    "systems/mariusgnn", "systems/engine/store", "systems/native", seconds=6
)
def test_a_preparation_that_is_killed_half_way_starts_anew(
    graph: Dataset, tmp_path: Path
) -> None:
    artefacts = tmp_path / "artefacts"
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(graph.path), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    for _ in range(5):
        assert child.stdout.readline() == b"wrote\n"
        child.stdin.write(b"\n")
        child.stdin.flush()
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    left = [path.name for path in artefacts.iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".mariusgnn")
    with running(
        "mariusgnn", workload_of(graph), root=tmp_path, partitions=9
    ) as system:
        assert system.notes()["prepared"] == "made"
        assert run(system)[:2] == reference(workload_of(graph))
        assert [path.name for path in artefacts.iterdir()] == [
            system.files()[0].parent.name
        ]
    with running(
        "mariusgnn", workload_of(graph), root=tmp_path, partitions=9
    ) as system:
        assert system.notes()["prepared"] == "reused"


def test_partitions_are_reused_where_all_that_they_depend_on_is_equal(
    graph: Dataset, tmp_path: Path
) -> None:
    def prepared(**options: object) -> str:
        with running(
            "mariusgnn", workload_of(graph), root=tmp_path, **options
        ) as system:  # type: ignore[arg-type]
            return str(system.notes()["prepared"])

    assert prepared(partitions=9) == "made"
    assert prepared(partitions=9, buffer=4, ordering="rotation") == "reused"
    assert prepared(partitions=5) == "made"
    assert prepared(partitions=9) == "reused"


@pytest.mark.parametrize("what", ["order", "cut", "cut under the reader"])
def test_a_damaged_partition_file_is_reported_or_made_anew(
    graph: Dataset, tmp_path: Path, what: str
) -> None:
    with running(
        "mariusgnn", workload_of(graph), root=tmp_path, partitions=9, buffer=5
    ) as system:
        layout: Layout = system._layout
        path = next(file for file in system.files() if file.name == TOPOLOGY)
        place = int(layout.list_at[0] + layout.ids_bytes[0] + layout.degree_bytes[0])
        if what == "cut under the reader":
            os.truncate(path, place)
            with pytest.raises(DataIOError, match=str(path)) as caught:
                run(system)
            assert caught.value.offset == place
    if what == "order":
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([8]) * 64)
    else:
        os.truncate(path, place)
    with running(
        "mariusgnn", workload_of(graph), root=tmp_path, partitions=9, buffer=5
    ) as system:
        if what != "order":
            assert system.notes()["prepared"] == "made"
            run(system)
            return
        with pytest.raises(
            DataIOError, match=r"is not what was prepared.*remove its folder"
        ):
            run(system)

"""`outcore.loader`: a user's loop gets the workload's mini-batches from any system, and
nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from systems.loading import Loader, MiniBatch
from systems.registry import load, names
from tests.support import make_tiny, needs_dgl
from tests.systems.loading_tools import assert_equal, leaves_nothing, make, online
from workloads.dataset import Dataset
from workloads.errors import InputError

FAITHFUL = [name for name in names() if load(name).info.faithful]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
BY_DEVICE = [
    (name, device)
    for name in FAITHFUL
    for device in DEVICES
    if device in load(name).info.devices
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    # Not shared with other modules: bounds of a workload's largest mini-batch are kept
    # for the process.
    return make_tiny(tmp_path_factory.mktemp("loader") / "graph", seed=7)


@pytest.fixture(autouse=True, scope="module")
def nothing_left(graph: Dataset) -> Iterator[None]:
    """Check after each test that no thread, open file or file is left."""
    with leaves_nothing(graph):
        yield


@pytest.mark.parametrize(("name", "device"), BY_DEVICE)
def test_every_faithful_system_gives_the_workloads_mini_batches_epoch_by_epoch(
    graph: Dataset, name: str, device: str
) -> None:
    features = graph.load("features")
    with make(graph, system=name, device=device, edges="layers") as loader:
        for epoch in range(3):
            count = 0
            for batch, wanted in zip(loader, online(loader, epoch), strict=True):
                assert batch.x.device.type == device
                assert_equal(batch, wanted, features)
                count += 1
            assert count == len(loader)
            assert loader.counters()["rows"] == sum(
                wanted.num_nodes for wanted in online(loader, epoch)
            )
        assert loader.faithful


@pytest.mark.parametrize("name", FAITHFUL)
def test_every_faithful_system_loads_other_seed_nodes_than_the_training_ones(
    graph: Dataset, name: str
) -> None:
    features = graph.load("features")
    test = graph.load("test")
    with make(graph, system=name, split="test", edges="layers") as loader:
        found = []
        for batch, wanted in zip(loader, online(loader, 0), strict=True):
            assert_equal(batch, wanted, features)
            found += batch.n_id[: batch.batch_size].tolist()
        assert found == test.tolist()  # not shuffled


def test_any_nodes_can_be_asked_for(graph: Dataset) -> None:
    chosen = [1999, 3, 500]
    with make(graph, nodes=chosen, batch_size=2) as loader:
        found = [batch.n_id[: batch.batch_size].tolist() for batch in loader]
    assert found == [[1999, 3], [500]]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("form", ["plain", "pyg"])
def test_hops_are_ordered_as_trim_to_layer_needs(
    tmp_path: Path, dtype: str, form: str
) -> None:
    from torch_geometric.nn import SAGEConv
    from torch_geometric.utils import trim_to_layer

    torch.manual_seed(0)
    layers = [SAGEConv(16, 16), SAGEConv(16, 16), SAGEConv(16, 16)]
    graph = make_tiny(tmp_path / "graph", dtype=dtype, seed=8)
    indptr = graph.load("indptr")
    indices = graph.load("indices")
    with make(graph, fanout=[5, 4, 3], form=form, max_batches=4) as loader:
        for batch in loader:
            assert batch.x.dtype == getattr(torch, dtype)
            assert len(batch.n_id) == sum(batch.num_sampled_nodes) == len(batch.x)
            assert batch.edge_index.shape == (2, sum(batch.num_sampled_edges))
            source, target = batch.n_id[batch.edge_index].tolist()
            assert all(
                s in indices[indptr[t] : indptr[t + 1]]
                for s, t in zip(source, target, strict=True)
            )
            x = trimmed = batch.x.float()
            edges = batch.edge_index
            for number, layer in enumerate(layers):
                x = layer(x, batch.edge_index).relu()
                trimmed, edges, _ = trim_to_layer(
                    number,
                    batch.num_sampled_nodes,
                    batch.num_sampled_edges,
                    trimmed,
                    edges,
                )
                trimmed = layer(trimmed, edges).relu()
            torch.testing.assert_close(
                trimmed[: batch.batch_size], x[: batch.batch_size]
            )


def test_no_node_has_more_neighbours_than_its_hops_fan_out(graph: Dataset) -> None:
    with make(graph, fanout=[6, 2]) as loader:
        for batch in loader:
            degrees = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)
            assert degrees[: batch.batch_size].max() <= 6
            assert degrees[batch.batch_size :].max() <= 2


def test_pyg_data_moves_with_its_layers(graph: Dataset) -> None:
    with make(graph, form="pyg", edges="layers", max_batches=1) as loader:
        (batch,) = (batch.clone().to("cpu") for batch in loader)
    assert type(batch).__name__ == "Data"
    assert batch.num_nodes == len(batch.x) == batch.layers[0].size[0]
    assert batch.layers[-1].size[1] == batch.batch_size == len(batch.y)


@needs_dgl
def test_dgl_blocks_are_the_layers(graph: Dataset) -> None:
    features = graph.load("features")
    with make(graph, form="dgl", system="diskgnn", epochs=1) as loader:
        for (inputs, outputs, blocks), wanted in zip(
            loader, online(loader, 0), strict=True
        ):
            np.testing.assert_array_equal(inputs, wanted.nodes)
            np.testing.assert_array_equal(outputs, wanted.nodes[: wanted.num_seeds])
            np.testing.assert_array_equal(
                blocks[0].srcdata["feat"], features[wanted.nodes]
            )
            np.testing.assert_array_equal(blocks[-1].dstdata["label"], wanted.labels)
            for block, ours in zip(blocks, wanted.blocks, strict=True):
                assert block.idtype == torch.int64
                source, target = block.edges()
                np.testing.assert_array_equal(source, ours.indices)
                np.testing.assert_array_equal(
                    target, np.repeat(np.arange(ours.num_dst), np.diff(ours.indptr))
                )


@pytest.mark.parametrize("name", ["pyg+", "gnndrive", "diskgnn"])
def test_rows_stay_until_the_next_mini_batch_and_later_access_raises(
    graph: Dataset, name: str
) -> None:
    with make(graph, system=name) as loader:
        batches = iter(loader)
        first = next(batches)
        assert first.x.shape == (first.num_nodes, 16)
        next(batches)
        with pytest.raises(InputError, match="copy=True"):
            print(first.x)
        assert first.n_id.shape == (first.num_nodes,)


@pytest.mark.parametrize("name", ["pyg+", "gnndrive", "diskgnn", "uva"])
def test_copied_mini_batches_can_all_be_kept(graph: Dataset, name: str) -> None:
    features = graph.load("features")
    with make(graph, system=name, copy=True, form="pyg") as loader:
        kept = list(loader)
        assert len(kept) == len(loader)
        for batch in kept:
            np.testing.assert_array_equal(batch.x, features[batch.n_id.numpy()])


@pytest.mark.parametrize("name", FAITHFUL)
def test_after_an_abandoned_epoch_any_other_is_complete(
    graph: Dataset, name: str
) -> None:
    features = graph.load("features")
    with make(graph, system=name, edges="layers") as loader:
        for number, _ in enumerate(loader):
            if number == 1:
                break
        for epoch in (1, 7, 3):
            loader.set_epoch(epoch)
            for batch, wanted in zip(loader, online(loader, epoch), strict=True):
                assert_equal(batch, wanted, features)


@pytest.mark.parametrize("name", ["pyg+", "ginex", "gnndrive", "diskgnn"])
def test_leaving_an_epoch_ends_its_threads(graph: Dataset, name: str) -> None:
    with make(graph, system=name) as loader:
        loader.prepare()
        before = {thread.ident for thread in threading.enumerate()}
        for _ in loader:
            assert {thread.ident for thread in threading.enumerate()} > before
            break
        assert {thread.ident for thread in threading.enumerate()} <= before


@pytest.mark.parametrize("name", ["pyg+", "gnndrive", "diskgnn"])
def test_an_exception_in_the_loop_comes_through_and_ends_everything(
    graph: Dataset, name: str
) -> None:
    with (
        leaves_nothing(graph),
        pytest.raises(ZeroDivisionError),
        make(graph, system=name) as loader,
    ):
        for _ in loader:
            raise ZeroDivisionError
    with pytest.raises(InputError, match="closed"):
        iter(loader)


def test_a_loader_without_references_is_closed(graph: Dataset) -> None:
    with leaves_nothing(graph):
        for _ in make(graph, system="gnndrive"):
            break


def test_closing_within_the_loop_is_an_error_not_the_end(graph: Dataset) -> None:
    loader = make(graph)
    with pytest.raises(InputError, match="the loader was closed"):
        for _ in loader:
            loader.close()


def test_a_loop_may_stop_after_len_steps(graph: Dataset) -> None:
    with make(graph, system="diskgnn", epochs=2) as loader:
        for _ in range(2):
            batches = iter(loader)
            for _ in range(len(loader)):
                last = next(batches)
            rows = loader.counters()["rows"]
        iter(loader)
        assert rows == sum(wanted.num_nodes for wanted in online(loader, 1))
        assert last.step == len(loader) - 1
        assert next(batches, None) is None


def test_a_new_iteration_ends_the_one_before(graph: Dataset) -> None:
    with make(graph, system="gnndrive") as loader:
        old = iter(loader)
        next(old)
        assert [batch.step for batch in loader] == list(range(len(loader)))
        with pytest.raises(InputError, match="another iteration"):
            next(old)
        assert loader.epoch == 2


def test_two_loaders_at_once_do_not_disturb_each_other(graph: Dataset) -> None:
    features = graph.load("features")
    with (
        make(graph, system="diskgnn", edges="layers") as one,
        make(graph, system="gnndrive", edges="layers", seed=1) as two,
    ):
        pairs = zip(one, online(one, 0), two, online(two, 0), strict=True)
        for ours, wanted, theirs, other in pairs:
            assert_equal(ours, wanted, features)
            assert_equal(theirs, other, features)


def test_training_goes_on_at_a_later_epoch(graph: Dataset) -> None:
    with make(graph) as loader:
        loader.set_epoch(5)
        assert {batch.epoch for batch in loader} == {5}
        assert {batch.epoch for batch in loader} == {6}
        with pytest.raises(InputError, match="0 or more"):
            loader.set_epoch(-1)


def test_ranks_share_each_steps_seed_nodes(graph: Dataset) -> None:
    seen: list[int] = []
    for rank in range(2):
        with make(graph, rank=rank, world=2, batch_size=25) as loader:
            assert len(loader) == 8
            seen += [
                node
                for batch in loader
                for node in batch.n_id[: batch.batch_size].tolist()
            ]
    assert sorted(seen) == sorted(graph.load("train").tolist())


@needs_dgl
@pytest.mark.parametrize("sampler", ["layerwise", "shadow"])
def test_other_samplers_than_neighbour_sampling(graph: Dataset, sampler: str) -> None:
    features = graph.load("features")
    settings: dict[str, Any] = {
        "sampler": sampler,
        "fanout": [20, 20],
        "layers": 2,
        "max_batches": 3,
    }
    with make(graph, **settings, edges="layers") as loader:
        for batch, wanted in zip(loader, online(loader, 0), strict=True):
            assert_equal(batch, wanted, features)
    with make(graph, **settings, edges="layers", form="dgl") as loader:
        for (_, outputs, blocks), wanted in zip(loader, online(loader, 0), strict=True):
            assert [block.num_edges() for block in blocks] == [
                block.num_edges for block in wanted.blocks
            ]
            np.testing.assert_array_equal(
                blocks[-1].dstdata["label"][: len(outputs)], wanted.labels
            )


def test_kept_artefacts_are_reused(graph: Dataset, tmp_path: Path) -> None:
    settings = {"system": "diskgnn", "epochs": 2, "artefacts": tmp_path / "kept"}
    for prepared in ("made", "reused"):
        with make(graph, **settings) as loader:
            assert sum(1 for _ in range(2) for _ in loader) == 2 * len(loader)
            assert loader.notes()["prepared"] == prepared


def test_finished_epochs_leave_nothing_on_disk(graph: Dataset) -> None:
    """DiskGNN packs each epoch separately if the number of epochs is unknown."""
    with make(graph, system="diskgnn", max_batches=2) as loader:
        taken = []
        for _ in range(4):
            for _ in loader:
                pass
            (folder,) = graph.path.parent.glob(".loader.outcore-tmp-*/artefacts")
            taken.append(len(list(folder.glob("diskgnn-*"))))
    assert taken == [1, 1, 1, 1]


class Lightning:
    """Lightning's use of a loader: a sanity check on validation data, then epochs of
    `len(loader)` steps."""

    def __init__(self, model: torch.nn.Module, epochs: int) -> None:
        self.model = model
        self.epochs = epochs
        self.losses: list[float] = []

    def fit(self, training: Loader, validation: Loader) -> None:
        torch.manual_seed(0)
        optimiser = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for number, batch in enumerate(validation):
            self.loss(batch.to(torch.device("cpu")))
            if number == 1:
                break
        for _ in range(self.epochs):
            for _, batch in zip(range(len(training)), training, strict=False):
                loss = self.loss(batch.to(torch.device("cpu")))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                self.losses.append(loss.item())
            with torch.no_grad():
                assert sum(1 for batch in validation if self.loss(batch) >= 0) == len(
                    validation
                )

    def loss(self, batch: MiniBatch) -> torch.Tensor:
        assert batch.edge_index is not None
        mean = torch.zeros(batch.num_nodes, 16).index_add_(
            0, batch.edge_index[1], batch.x[batch.edge_index[0]]
        )
        scores = self.model(torch.cat([batch.x, mean], 1)[: batch.batch_size])
        return torch.nn.functional.cross_entropy(scores, batch.y)


def test_a_lightning_loop_has_the_same_loss_curve_from_disk_as_from_memory(
    graph: Dataset,
) -> None:
    curves = []
    for name in ("in-memory", "gnndrive", "diskgnn"):
        torch.manual_seed(3)
        loop = Lightning(torch.nn.Linear(32, 5), epochs=2)
        with (
            make(graph, system=name) as training,
            make(graph, system=name, split="valid") as validation,
        ):
            loop.fit(training, validation)
        curves.append(loop.losses)
    assert len(curves[0]) == 16
    assert curves[0] == curves[1] == curves[2]


RUNNING = """
import sys, outcore
loader = outcore.loader(sys.argv[1], system=sys.argv[2], memory="64MiB", fanout=[5, 4], batch_size=50, form="plain")
batches = iter(loader)
next(batches)
print("running", flush=True)
if sys.argv[3] == "wait":
    sys.stdin.read()
if sys.argv[3] == "raise":
    raise KeyError("from the loop")
"""


def program(graph: Dataset, system: str, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUNNING, str(graph.path), system, how],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow("outcore", "systems/loading", "systems/engine")
def test_a_program_that_ends_amid_an_epoch_ends_at_once_and_leaves_nothing(
    graph: Dataset,
) -> None:
    for system, how, code, message in (
        ("gnndrive", "end", 0, ""),
        ("diskgnn", "raise", 1, "KeyError: 'from the loop'"),
    ):
        with program(graph, system, how) as process:
            _, errors = process.communicate(timeout=30)
            assert process.returncode == code
            assert errors.strip().splitlines()[-1:] == ([message] if message else [])


def test_files_of_a_killed_program_are_removed_by_the_next_loader(
    graph: Dataset,
) -> None:
    with program(graph, "diskgnn", "wait") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=10)
    assert list(graph.path.parent.glob(".loader.*"))
    with make(graph) as loader:
        assert len(list(graph.path.parent.glob(".loader.*"))) == 1
        assert len(loader) == 8

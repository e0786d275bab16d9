"""Mini-batches of a loader that are kept: `x` is the node's rows, or an error that says
what to do; never missing."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch

from tests.support import HAS_DGL, make_tiny
from tests.systems.loading_tools import leaves_nothing, make
from workloads.dataset import Dataset
from workloads.errors import InputError

FORMS = ["plain", "pyg", *(["dgl"] if HAS_DGL else [])]
# The first gathers rows into the loader's buffer, the other lends the system's memory.
SYSTEMS = ["gnndrive", "diskgnn"]
EVERY = [(form, system) for form in FORMS for system in SYSTEMS]
LATE = "after the next mini-batch was requested.*copy=True"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny(tmp_path_factory.mktemp("kept") / "graph", seed=7)


@pytest.fixture(autouse=True, scope="module")
def nothing_left(graph: Dataset) -> Iterator[None]:
    with leaves_nothing(graph):
        yield
        gc.collect()


def rows_of(batch: Any) -> torch.Tensor:
    """Return the rows of a mini-batch of any form."""
    rows: torch.Tensor = (
        batch[2][0].srcdata["feat"] if isinstance(batch, tuple) else batch.x
    )
    return rows


def assert_usable(batch: Any, graph: Dataset) -> None:
    nodes = batch[0] if isinstance(batch, tuple) else batch.n_id
    np.testing.assert_array_equal(rows_of(batch), graph.load("features")[nodes.numpy()])


def assert_late(batch: Any) -> None:
    with pytest.raises(InputError, match=LATE):
        rows_of(batch)


@pytest.mark.parametrize(("form", "system"), EVERY)
def test_the_first_of_an_iterator_that_is_dropped_is_usable(
    graph: Dataset, form: str, system: str
) -> None:
    with make(graph, form=form, system=system) as loader:
        one = next(iter(loader))
        assert_usable(one, graph)
        other = next(iter(loader))
        assert_usable(other, graph)
        assert_late(one)
    assert_usable(other, graph)


@pytest.mark.parametrize(("form", "system"), EVERY)
def test_of_a_list_of_all_the_last_is_usable_and_others_raise(
    graph: Dataset, form: str, system: str
) -> None:
    with make(graph, form=form, system=system) as loader:
        *before, last = list(loader)
        for batch in before:
            assert_late(batch)
        assert_usable(last, graph)
        first_of_next = next(iter(loader))
        assert_late(last)
        assert_usable(first_of_next, graph)


@pytest.mark.parametrize(("form", "system"), EVERY)
def test_a_mini_batch_outlives_break_and_close(
    graph: Dataset, form: str, system: str
) -> None:
    loader = make(graph, form=form, system=system)
    for number, batch in enumerate(loader):  # noqa: B007 - used after the loop
        if number == 2:
            break
    assert_usable(batch, graph)
    again = next(iter(loader))
    assert_late(batch)
    loader.close()
    assert_usable(again, graph)
    loader.close()
    assert_usable(again, graph)


@pytest.mark.parametrize("form", FORMS)
def test_a_mini_batch_outlives_a_loader_without_references(
    graph: Dataset, form: str
) -> None:
    batch = next(iter(make(graph, form=form)))
    gc.collect()
    assert_usable(batch, graph)


@pytest.mark.parametrize("form", FORMS)
def test_zipped_loaders_of_one_loader_raise_and_of_two_are_usable(
    graph: Dataset, form: str
) -> None:
    with make(graph, form=form) as one, make(graph, form=form, seed=1) as two:
        for ours, theirs in zip(one, two, strict=True):
            assert_usable(ours, graph)
            assert_usable(theirs, graph)
        with pytest.raises(InputError, match="another iteration of this loader began"):
            list(zip(one, one, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_the_other_of_two_iterators_leaves_the_mini_batch_until_it_asks(
    graph: Dataset, form: str
) -> None:
    with make(graph, form=form) as loader:
        first = iter(loader)
        batch = next(first)
        second = iter(loader)
        assert_usable(batch, graph)
        later = next(second)
        assert_late(batch)
        assert_usable(later, graph)
        with pytest.raises(InputError, match="another iteration"):
            next(first)


USES: list[Callable[[Any], Any]] = [
    lambda batch: batch.x,
    lambda batch: batch["x"],
    lambda batch: batch.to("cpu"),
    lambda batch: batch.clone(),
    lambda batch: batch.to_dict(),
    pickle.dumps,
    lambda batch: copy.copy(batch).x,
]


@pytest.mark.parametrize("use", USES)
def test_no_use_of_a_late_data_leaves_x_out_in_silence(
    graph: Dataset, use: Callable[[Any], Any]
) -> None:
    with make(graph, form="pyg") as loader:
        first, *_ = list(loader)
        with pytest.raises(InputError, match=LATE):
            use(first)
        assert len(first.n_id) == first.num_nodes
        assert "edge_index" in repr(first)


def test_a_mini_batch_that_is_moved_to_its_own_device_is_not_another(
    graph: Dataset,
) -> None:
    with make(graph) as loader:
        kept = [batch.to("cpu") for batch in loader]
        with pytest.raises(InputError, match=LATE):
            kept[0].to("cpu")
        for batch in kept[:-1]:
            assert_late(batch)


def in_a_fork(work: Callable[[], Any]) -> str:
    """Return the error of `work` in a fork of this process; empty without one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that hangs
        message = ""
        try:
            work()
        except InputError as error:
            message = str(error)
        os.write(writer, message.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        found = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return found


def test_a_fork_of_a_process_with_a_loader_is_refused_and_disturbs_nothing(
    graph: Dataset,
) -> None:
    with make(graph) as loader:
        batches: Iterator[Any] | None = iter(loader)
        assert batches is not None
        next(batches)
        assert "is a fork of it; make a loader in every process" in in_a_fork(
            lambda: iter(loader)
        )
        assert "make a loader in every process" in in_a_fork(lambda: next(batches))
        assert in_a_fork(loader.close) == ""

        def drop() -> None:
            nonlocal batches
            batches = None
            gc.collect()

        assert in_a_fork(drop) == ""
        assert sum(1 for _ in batches) == len(loader) - 1


@pytest.mark.parametrize(
    "use",
    [
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        ForkingPickler.dumps,
        lambda loader: (
            torch.utils.data.DataLoader(loader, batch_size=None).__iter__().__next__()
        ),
        lambda loader: loader[0],
    ],
)
def test_a_loader_is_not_copied_sent_or_indexed(
    graph: Dataset, use: Callable[[Any], Any]
) -> None:
    with (
        make(graph) as loader,
        pytest.raises(InputError, match="no DataLoader around it"),
    ):
        use(loader)

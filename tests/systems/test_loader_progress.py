"""A loader reports its preparation: to a function of the user's, or as one line on a
terminal."""

from __future__ import annotations

import io
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import outcore
from systems.interface import silent
from systems.loading.progress import TerminalLine, progress_of
from tests.support import make_tiny
from tests.systems.loading_tools import SETTINGS, make
from workloads.dataset import Dataset
from workloads.errors import InputError


class Terminal(io.StringIO):
    """Text stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny(tmp_path_factory.mktemp("progress") / "graph", seed=9)


def test_preparation_is_reported_task_by_task_with_rising_shares(
    graph: Dataset,
) -> None:
    reported: list[tuple[str, float]] = []
    with make(
        graph,
        system="diskgnn",
        epochs=1,
        progress=lambda what, share: reported.append((what, share)),
    ) as loader:
        assert {what for what, _ in reported} == {
            "sampling mini-batches for their sizes"
        }
        assert reported[-1][1] == 1.0
        for _ in loader:
            pass
    groups = [
        (what, [share for _, share in part])
        for what, part in itertools.groupby(reported, lambda entry: entry[0])
    ]
    assert [what for what, _ in groups][-3:] == [
        "searching a layout",
        "laying out chunks",
        "packing",
    ]
    for _, shares in groups:
        known = [share for share in shares if not math.isnan(share)]
        assert all(0 <= share <= 1 for share in known)
        assert known == sorted(known)


def test_writing_a_graph_of_ones_own_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTCORE_DATA", str(tmp_path))
    edges = torch.stack([torch.arange(60), (torch.arange(60) + 1) % 60])
    data = Data(
        edge_index=edges,
        x=torch.ones(60, 4),
        y=torch.zeros(60).long(),
        train_mask=torch.arange(60) < 30,
    )
    reported: list[str] = []
    outcore.loader(
        data, **SETTINGS, progress=lambda what, share: reported.append(what)
    ).close()
    tasks = list(dict.fromkeys(reported))
    assert tasks[0] == "reading the source"
    assert "writing features" in tasks
    assert tasks[-1] == "sampling mini-batches for their sizes"


def test_a_terminal_gets_one_line_that_is_removed(
    graph: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with make(graph, system="diskgnn", epochs=1, seed=5) as loader:
        next(iter(loader))
        written = terminal.getvalue()
    assert "loader: sampling mini-batches for their sizes: " in written
    assert "loader: packing" in written
    assert "\n" not in written
    assert written.endswith("\r\x1b[K")


@pytest.mark.parametrize(("stream", "asked"), [(io.StringIO, None), (Terminal, False)])
def test_nothing_is_written_where_there_is_no_terminal_or_it_is_switched_off(
    graph: Dataset, monkeypatch: pytest.MonkeyPatch, stream: Any, asked: Any
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", found := stream())
    with make(graph, seed=6, progress=asked) as loader:
        next(iter(loader))
    assert found.getvalue() == ""


def test_true_writes_the_line_anywhere_and_a_dumb_terminal_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stderr", Terminal())
    assert progress_of(None)[0] is silent
    assert isinstance(progress_of(True)[0], TerminalLine)
    monkeypatch.setattr("sys.stderr", None)
    assert progress_of(None)[0] is silent


def test_a_share_that_is_not_known_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    line = TerminalLine()
    line("reading", math.nan)
    line("packing", 0.5)
    line.clear()
    line.clear()
    assert (
        terminal.getvalue()
        == "\r\x1b[Kloader: reading\r\x1b[Kloader: packing: 50 %\r\x1b[K"
    )


def test_an_error_of_the_users_function_comes_through_and_leaves_nothing(
    graph: Dataset,
) -> None:
    folder = set(graph.path.parent.iterdir())

    def fail(what: str, share: float) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make(graph, seed=8, progress=fail)
    assert set(graph.path.parent.iterdir()) == folder
    with pytest.raises(
        InputError, match="progress is 'yes'; give True, False, or a function"
    ):
        make(graph, progress="yes")

"""Long work shows itself: on a terminal in one live line with share, rate and time
left, elsewhere in a line at most every ten seconds; at no cost to a run's clock."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import math
import multiprocessing
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.progress import Meter, Progress, Reading, TimeLeft, during, stages, tracked
from harness.results import store as results
from harness.wire.board import Board
from tests.harness.report_tools import filled_root
from tests.harness.run_tools import (
    MISBEHAVING,
    REPOSITORY,
    command,
    environment,
    share_cache,
)
from tests.support import make_tiny

PROMISED_S = 5.0
PLAIN_S = 10.0
# `[  12.3 s] ` before each line, and how rich renews one.
CLOCK = r"\[ *([0-9.]+) s\] "
RENEWED = r"\r(?:\x1b\[1A)?\x1b\[2K"


def message(meter: Meter, reading: Reading, now: float) -> str:
    """Both parts of a reading, as a line joins them."""
    return ", ".join(filter(None, meter.parts(reading, now)))


def test_a_reading_states_share_rate_and_time_left() -> None:
    meter = Meter()
    assert (
        message(meter, Reading("epoch 1", 0, 400, "mini-batches"), 10.0)
        == "epoch 1: 0 of 400 mini-batches, 0 %"
    )
    reported = message(meter, Reading("epoch 1", 100, 400, "mini-batches"), 15.0)
    assert reported == "epoch 1: 100 of 400 mini-batches, 25 %, 20/s, 15 s left"
    # Other work begins anew, whatever came before.
    assert (
        message(meter, Reading("preparing: packing", 0.5, 1.0), 20.0)
        == "preparing: packing, 50 %"
    )
    assert (
        message(meter, Reading("preparing: packing", 0.75, 1.0), 80.0)
        == "preparing: packing, 75 %, 60 s left"
    )
    assert message(meter, Reading("preparing: packing", 0.76, 1.0), 2680.0).endswith(
        "76 %, 41 min left"
    )
    assert message(meter, Reading("evicting"), 90.0) == "evicting"
    assert message(meter, Reading("evicting"), 97.0) == "evicting, 7 s"
    assert message(meter, Reading("searching", math.nan, 1.0), 98.0) == "searching"
    # The unit at hand has a name and changes no rate.
    assert (
        message(meter, Reading("drawing", 1, 3, "figures", "fig9"), 99.0)
        == "drawing fig9: 1 of 3 figures, 33 %"
    )
    reported = message(meter, Reading("drawing", 2, 3, "figures", "fig11"), 103.0)
    assert reported == "drawing fig11: 2 of 3 figures, 67 %, 0.25/s, 4 s left"


def test_the_time_left_of_a_sweep_follows_the_pace_of_its_runs() -> None:
    now = [100.0]
    left = TimeLeft([10.0, 20.0, 30.0], lambda: now[0])
    left.begin(0, "run 1/3")
    assert left() == "run 1/3, about 60 s left"
    now[0] += 20.0  # twice as long as expected, so the others will be, too
    left.begin(1, "run 2/3")
    assert left() == "run 2/3, about 100 s left"
    now[0] += 30.0
    assert left() == "run 2/3, about 70 s left"
    now[0] += 300.0
    assert left() == "run 2/3, about 60 s left", (
        "a run that takes longer leaves those after it"
    )


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 100)), min_size=1, max_size=20))
def test_any_reading_can_be_reported(steps: list[tuple[float, float]]) -> None:
    """Shares above one, standing still and going back are a worker's mistakes, and no
    reason to fail."""
    meter = Meter()
    now = 0.0
    for done, seconds in steps:
        now += seconds
        share = re.search(r"(\d+) %", message(meter, Reading("part", done, 1.0), now))
        assert share is not None
        assert 0 <= int(share[1]) <= 100


def written(name: str, turn: Connection[None, None]) -> None:
    """Write a board's stage, and at the next turn its mini-batches, as a worker
    does."""
    board = Board.attach(name)
    board.stage("packing rows" + 40 * " and rows", 0.5)
    board.stage("packing rows", 0.25)
    turn.send(None)
    turn.recv()
    board.begin(8)
    board.count(6)


def test_a_board_is_seen_by_another_process_and_a_missing_one_reads_as_empty() -> None:
    forking = multiprocessing.get_context("fork")
    turn, theirs = forking.Pipe()
    with Board.create(f"board-{os.getpid()}") as board:
        assert board.read("starting") == Reading("starting")
        child = forking.Process(target=written, args=(board.name, theirs))
        child.start()
        turn.recv()
        assert board.read("preparing") == Reading("preparing: packing rows", 0.25, 1.0)
        turn.send(None)
        child.join()
        found = board.read("epoch 2")
        assert child.exitcode == 0
        assert found == Reading("epoch 2", 6, 8, "mini-batches")
        assert found.share == 0.75
    missing = Board.attach("there is none")
    missing.begin(3)
    missing.count(1)
    assert missing.read("").share == pytest.approx(1 / 3)


def counted(board: Board, *, more: bool) -> int:
    """Return the exit code of a copy of this process that counts mini-batches under a
    seccomp filter, by which every system call but exit_group ends it."""
    exit_group = {"x86_64": 231, "aarch64": 94}[os.uname().machine]
    code = [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, exit_group),
        (0x06, 0, 0, 0x7FFF0000),
        (0x06, 0, 0, 0x80000000),
    ]
    lines = b"".join(struct.pack("HBBI", *line) for line in code)
    held = ctypes.create_string_buffer(lines, len(lines))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(code), ctypes.addressof(held))
    )
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    leave = os._exit
    call = os.getppid
    count = board.count
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    gc.disable()
    if prctl(38, 1, 0, 0, 0) or prctl(
        22, 2, program, 0, 0
    ):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP by a filter
        leave(77)
    for number in range(100_001):
        count(number)
    if more:
        call()
    leave(0)


def test_counting_a_mini_batch_is_no_system_call() -> None:
    """A seccomp filter ends a process that makes any system call; the same program with
    one call is ended."""
    with Board.create(f"count-{os.getpid()}") as board:
        board.begin(100_000)
        plain = counted(board, more=False)
        number = board.read("").done
        more = counted(board, more=True)
    if plain == 77:
        pytest.skip("this kernel takes no seccomp filter")
    assert (plain, number) == (0, 100_000)
    assert more == -signal.SIGSYS


SILENT = r"""
import re, sys, time
from harness.progress import Progress, Reading, during

class Kept:
    text = ""
    def write(self, text):
        Kept.text += text
        return out.write(text)
    def __getattr__(self, name):
        return getattr(out, name)

out, sys.stderr = sys.stderr, Kept()

def wait_for(pattern):
    end = time.monotonic() + 60
    while not re.search(pattern, Kept.text, re.DOTALL) and time.monotonic() < end:
        time.sleep(0.05)

with Progress(every_s=0.6) as progress:
    progress.title("run 1/2")
    progress("profiling")
    wait_for(r"profiling[^\n]*?[0-9] s[^\]]")
    began = time.monotonic()
    with during(progress, lambda: Reading("epoch 0", 10 * (time.monotonic() - began), 40, "mini-batches")):
        wait_for("(mini-batches.*){3}")
"""


def test_a_step_that_takes_long_is_reported_again_and_how_far_it_is() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SILENT],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    lines = [re.sub(CLOCK, "", line) for line in done.stderr.splitlines()]
    assert lines[0] == "run 1/2"
    assert done.stdout == ""
    assert any(re.fullmatch(r"run 1/2: profiling, \d s", line) for line in lines), lines
    how_far = (
        r"run 1/2: epoch 0: \d+ of 40 mini-batches, \d+ %, 1?\d(\.\d+)?/s, \d s left"
    )
    assert any(re.fullmatch(how_far, line) for line in lines), lines


def on_a_terminal(
    arguments: list[str], columns: int = 80, **options: Any
) -> tuple[int, list[str], float]:
    """Run a command whose stderr is a terminal. Return its exit code, what each renewal
    of a line shows, without escape sequences, and the longest silence in seconds."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    options["env"] = {
        name: text
        for name, text in options.get("env", os.environ).items()
        if name != "COLUMNS"
    }
    child = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stderr=theirs, cwd=REPOSITORY, **options
    )
    os.close(theirs)
    shown = b""
    heard = []
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
        heard.append(time.monotonic())
    os.close(ours)
    lines = [
        re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line)
        for line in re.split(RENEWED, shown.decode())
    ]
    return child.wait(), lines, max(np.diff(heard), default=0.0)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_has_one_line_that_is_renewed(columns: int) -> None:
    code, lines, _ = on_a_terminal([sys.executable, "-c", SILENT], columns)
    assert code == 0
    kept = [line for line in lines if re.fullmatch(f"{CLOCK}run 1/2\r?\n", line)]
    assert len(kept) == 1, "the title stays, all else is renewed"
    renewed = [line for line in lines if "of 40" in line]
    assert len(renewed) >= 3
    assert all("\n" not in line and len(line) < columns for line in renewed[:-1])
    assert re.search(r"\d+ %, 1?\d(\.\d+)?/s, \d s left$", renewed[-2].rstrip()), (
        renewed
    )
    assert ("━" in renewed[-2]) == (columns >= 100)
    assert lines[-1] == "", "nothing is left of it"


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines() -> None:
    code, lines, _ = on_a_terminal(
        [sys.executable, "-c", SILENT], env={**os.environ, "TERM": "dumb"}
    )
    assert code == 0 and len(lines) == 1, "no line was renewed"
    assert "run 1/2: epoch 0: " in lines[0]


def plain(lines: list[str]) -> list[float]:
    """The times of lines in a pipe, which hold no control characters."""
    assert all(line.isprintable() for line in lines), lines
    return [float(found[1]) for line in lines if (found := re.match(CLOCK, line))]


def slow_command(what: str, root: Path, factory: pytest.TempPathFactory) -> list[str]:
    """A command that takes some seconds: it makes a dataset, or draws figures from
    records."""
    if what == "figures":
        return command(
            "figures",
            "all",
            "--again",
            "--results-root",
            str(filled_root(factory)),
            "--out",
            str(root),
        )
    size = ("--nodes", "400k", "--edges", "6M", "--dim", "128")
    return command(
        "data", "make", "new", "--kind", "kronecker", *size, "--data-root", str(root)
    )


SLOW = pytest.mark.slow(
    "harness/progress.py",
    "harness/figures/render.py",
    "harness/cli",
    "workloads/making",
    seconds=25,
)


@SLOW
@pytest.mark.parametrize(
    ("what", "line"),
    [("dataset", r"writing features +\d+ %"), ("figures", r"drawing \S+: \d+ of")],
)
def test_making_a_dataset_and_drawing_figures_show_a_live_line(
    what: str, line: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    code, lines, silence = on_a_terminal(
        slow_command(what, tmp_path, tmp_path_factory), stdout=subprocess.DEVNULL
    )
    assert code == 0, lines
    assert silence <= PROMISED_S, lines
    assert any(re.match(CLOCK + line, shown) for shown in lines), lines


@SLOW
@pytest.mark.parametrize("what", ["dataset", "figures"])
def test_making_a_dataset_and_drawing_figures_print_plain_lines_into_a_pipe(
    what: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    arguments = slow_command(what, tmp_path, tmp_path_factory)
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    lines = [
        line
        for line in done.stderr.splitlines()
        if not re.match("outcore: |.*: not drawn: ", line)
    ]
    times = plain(lines)
    assert times and min(np.diff(times), default=PLAIN_S) >= PLAIN_S - 0.1, lines


def test_quiet_and_other_callables_are_reported_nothing_more(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Progress(quiet=True, every_s=0.1) as progress:
        progress("a step")
        progress.stage("writing", 0.5)
        with during(progress, "evicting"):
            time.sleep(0.7)
    assert capfd.readouterr() == ("", "")
    reported: list[str] = []
    with during(reported.append, "evicting"):
        report = stages(reported.append)
        report("edges", 0.0)
        report("edges", 0.5)
    assert list(tracked(reported.append, [1, 2], "counting", "numbers")) == [1, 2]
    assert reported == ["edges"]


@pytest.mark.slow(
    "harness/progress.py",
    "harness/wire/board.py",
    "harness/worker/main.py",
    "harness/run/orchestrator.py",
    seconds=45,
)
def test_a_slow_run_is_never_silent_for_five_seconds(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Six seconds of preparation and four of an epoch are covered by lines of stderr
    and by telemetry."""
    share_cache(tmp_path / "results", tmp_path_factory)
    make_tiny(tmp_path / "data" / "tiny", nodes=2000, edges=20_000, dim=16)
    arguments = (
        "run",
        MISBEHAVING,
        "--dataset",
        "tiny",
        "--fanout",
        "3,3",
        "--batch-size",
        "1",
        "--max-batches",
        "6",
        "--epochs",
        "1",
        "--warmup",
        "0",
        "--device",
        "emulated:null",
        "--device-memory",
        "1MiB",
        "--hidden",
        "16",
        "--isolation",
        "none",
        "-o",
        "prepare_seconds=6",
        "-o",
        "extract_seconds=0.7",
    )
    roots = environment(tmp_path / "data", tmp_path / "results")
    code, lines, silence = on_a_terminal(
        command(*arguments), env=roots, stdout=subprocess.DEVNULL
    )
    assert code == 0, lines
    assert silence <= PROMISED_S, lines
    assert any(
        re.search(r"preparing: sleeping +\d+ %, \d s left", line) for line in lines
    ), lines
    assert any(
        re.search(r"epoch 0: \d of 6 mini-batches +\d+ %, [0-9.]+/s, \d s left", line)
        for line in lines
    ), lines
    (folder,) = results.runs_folder(tmp_path / "results").iterdir()
    table = results.table(folder, "telemetry")
    preparing, epoch = (
        table.loc[part, "progress"].dropna()
        for part in (table["t"] < 0, table["epoch"] == 0)
    )
    for share in (preparing, epoch):
        rising = share.loc[
            : share.idxmax()
        ]  # nothing of an epoch is done before its first gate opens
        assert share.between(0, 1).all()
        assert share.max() > 0.7
        assert rising.is_monotonic_increasing

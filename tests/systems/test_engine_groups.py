"""Staged reads: every row once, through a bounded staging buffer, with later reads in
flight during copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import ReadStats
from tests.systems.engine_tables import (
    open_reader,
    random_table,
    same_bytes,
    write_table,
)
from workloads.errors import InputError

ROWS = 600
ROW = 100


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    table = random_table(ROWS, ROW, "uint8")
    return write_table(tmp_path_factory.mktemp("groups") / "t", table), table


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    ids=st.lists(st.integers(0, ROWS - 1), max_size=400),
    group_rows=st.integers(1, 70),
    slices=st.integers(1, 5),
    held=st.integers(0, 4),
    mode=st.sampled_from(["auto", "pread"]),
)
def test_every_row_comes_once_whatever_the_staging(
    file: tuple[Path, np.ndarray],
    ids: list[int],
    group_rows: int,
    slices: int,
    held: int,
    mode: str,
) -> None:
    path, table = file
    reader = open_reader(path, table, depth=8, mode=mode)
    staging = aligned_empty(slices * group_rows * ROW)
    wanted = np.array(ids, dtype=np.int64)
    out = np.zeros((len(ids), ROW), np.uint8)
    seen: list[int] = []
    stats = ReadStats()
    kept = []
    for group in reader.read_groups(wanted, staging, group_rows, stats):
        assert len(group.positions) <= group_rows
        assert len(group.rows) == len(group.positions)
        assert group.start % group_rows == 0
        kept.append(group)
        while len(kept) > min(
            held, slices - 1
        ):  # released late, as by an asynchronous copy
            done = kept.pop(0)
            out[done.positions] = done.rows
            seen += done.positions.tolist()
            done.release()
    for done in kept:
        out[done.positions] = done.rows
        seen += done.positions.tolist()
    assert sorted(seen) == list(range(len(ids)))
    assert same_bytes(out, table[wanted])
    assert stats.rows == len(ids)
    assert stats.bytes_read >= len(set(ids)) * ROW


def test_holding_every_slice_raises_instead_of_hanging(
    file: tuple[Path, np.ndarray],
) -> None:
    path, table = file
    reader = open_reader(path, table)
    groups = reader.read_groups(np.arange(100), aligned_empty(2 * 10 * ROW), 10)
    held = [next(groups), next(groups)]
    with pytest.raises(RuntimeError, match="release"):
        next(groups)
    assert len(held) == 2


def test_a_group_larger_than_the_queue_needs_no_second_slice(
    file: tuple[Path, np.ndarray],
) -> None:
    path, table = file
    for rows in range(
        1, 40
    ):  # in whatever order reads complete, the last requests start with the queue empty
        reader = open_reader(path, table, depth=4, merge=False)
        ids = np.arange(0, 10 * rows, 10)
        out = np.zeros((rows, ROW), np.uint8)
        for group in reader.read_groups(ids, aligned_empty(rows * ROW), rows):
            out[group.positions] = group.rows
            group.release()
        assert same_bytes(out, table[ids])


def test_a_loop_left_early_frees_the_reader(file: tuple[Path, np.ndarray]) -> None:
    path, table = file
    reader = open_reader(path, table, depth=64)
    for _ in range(20):
        groups = reader.read_groups(np.arange(0, ROWS, 2), aligned_empty(50 * ROW), 10)
        next(groups)
        groups.close()  # type: ignore[attr-defined]
    out = np.zeros((ROWS, ROW), np.uint8)
    reader.read(np.arange(ROWS), out)
    assert same_bytes(out, table)


def test_a_reader_serves_one_read_at_a_time(file: tuple[Path, np.ndarray]) -> None:
    path, table = file
    reader = open_reader(path, table)
    groups = reader.read_groups(np.arange(100), aligned_empty(50 * ROW), 10)
    next(groups)
    with pytest.raises(RuntimeError, match="in use"):
        reader.read(np.array([1]), np.zeros((1, ROW), np.uint8))
    groups.close()  # type: ignore[attr-defined]
    reader.read(np.array([1]), np.zeros((1, ROW), np.uint8))


def test_staging_smaller_than_a_group_is_refused(file: tuple[Path, np.ndarray]) -> None:
    path, table = file
    with pytest.raises(InputError, match="less than one group"):
        next(
            open_reader(path, table).read_groups(
                np.arange(9), aligned_empty(5 * ROW), 6
            )
        )

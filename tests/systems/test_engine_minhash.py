"""MinHash order: a permutation as defined, fewer pages read than by id, and exact
forecasts of reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.diskgnn.layout import minhash_order
from systems.diskgnn.search import simulate_reads
from systems.engine.io.reader import RowReader
from tests.systems.engine_tables import random_table, write_table

PAGE = 4096
LISTS = st.lists(st.lists(st.integers(0, 60), unique=True, max_size=40), max_size=8)


def pages(rows: np.ndarray, row_bytes: int) -> int:
    """Count the distinct pages that rows touch, from their simulated reads."""
    found = simulate_reads(
        rows,
        row_bytes=row_bytes,
        num_rows=1 << 20,
        file_bytes=2**62,
        logical_bytes=PAGE,
        max_request_bytes=1 << 30,
    )
    return found.bytes_read // PAGE


@settings(max_examples=100, deadline=None)
@given(lists=LISTS, hashes=st.integers(0, 3), seed=st.integers(0, 2**64 - 1))
def test_rows_of_the_same_mini_batches_lie_together(
    lists: list[list[int]], hashes: int, seed: int
) -> None:
    arrays = [np.array(ids, np.int64) for ids in lists]
    order = minhash_order(arrays, hashes=hashes, seed=seed)
    sets = {
        node: frozenset(j for j, ids in enumerate(lists) if node in ids)
        for ids in lists
        for node in ids
    }
    assert sorted(order.tolist()) == sorted(sets)
    assert order.tolist() == minhash_order(arrays, hashes=hashes, seed=seed).tolist()
    if hashes == 0:
        assert order.tolist() == sorted(sets)
        return
    # For any hash permutations, rows of the same mini-batches are adjacent, ordered by
    # id.
    runs: dict[frozenset[int], list[int]] = {}
    for position, node in enumerate(order.tolist()):
        runs.setdefault(sets[node], []).append(position)
    for members, positions in runs.items():
        nodes = order[positions].tolist()
        assert nodes == sorted(nodes)
        between = [
            sets[node] for node in order[positions[0] : positions[-1] + 1].tolist()
        ]
        assert all(other & members for other in between), (
            "a row between them shares no mini-batch with them"
        )


def test_reordering_lowers_the_pages_read_and_few_mini_batches_gain_most() -> None:
    rng = np.random.default_rng(0)
    row_bytes = 512
    ratio = {}
    for length in (4, 64):
        lists = [np.flatnonzero(rng.random(20_000) < 0.05) for _ in range(length)]
        touched = {}
        for hashes in (0, 2):
            order = minhash_order(lists, hashes=hashes, seed=7)
            slot = np.full(20_000, -1)
            slot[order] = np.arange(len(order))
            touched[hashes] = sum(pages(slot[ids], row_bytes) for ids in lists)
        ratio[length] = touched[2] / touched[0]
    assert ratio[4] < 0.6
    assert ratio[4] < ratio[64] < 1.0, (
        "a longer segment gains less (the paper's Figure 5)"
    )


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    row_bytes=st.integers(1, 768).map(lambda k: 4 * k),
    seed=st.integers(0, 2**32),
    granularity=st.sampled_from(["logical", "4096"]),
    merge=st.booleans(),
    longest=st.sampled_from([4096, 131072]),
)
def test_simulated_reads_are_those_that_are_made(
    tmp_path: Path,
    row_bytes: int,
    seed: int,
    granularity: str,
    merge: bool,
    longest: int,
) -> None:
    rng = np.random.default_rng(seed)
    table = random_table(200, row_bytes, "uint8")
    path = write_table(tmp_path / "t", np.resize(table, (200, row_bytes)), header=0)
    with path.open("ab") as file:
        file.truncate(-(-200 * row_bytes // 4096) * 4096)
    rows = rng.integers(0, 200, rng.integers(0, 300))
    options: dict[str, Any] = {
        "granularity": granularity,
        "merge": merge,
        "max_request_bytes": longest,
    }
    with RowReader(
        path, data_offset=0, num_rows=200, row_bytes=row_bytes, depth=8, **options
    ) as reader:
        made = reader.read(rows, np.empty((300, row_bytes), np.uint8))
        foretold = simulate_reads(
            rows,
            row_bytes=row_bytes,
            num_rows=200,
            logical_bytes=reader.block_bytes,
            **options,
        )
    made.seconds = 0.0
    assert made == foretold


@given(rows=st.lists(st.integers(0, 500), max_size=60), row_bytes=st.integers(1, 3072))
def test_pages_are_counted_once(rows: list[int], row_bytes: int) -> None:
    expected = {
        page
        for row in rows
        for page in range(
            row * row_bytes // 4096, ((row + 1) * row_bytes - 1) // 4096 + 1
        )
    }
    assert pages(np.array(rows, np.int64), row_bytes) == len(expected)

"""DiskGNN's layout and search: rows counted as they are stored, the limit kept, brute
force never worse."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.check.case import Case
from harness.check.stage import make_dataset
from systems.diskgnn.fit import fit
from systems.diskgnn.layout import ColdSamples, Shape, segments
from systems.diskgnn.ranking import AccessCounts, MissCurve, miss_curve, slots_of
from systems.diskgnn.search import (
    Search,
    Space,
    rows_by_segment,
    rows_of,
    simulate_reads,
)
from systems.diskgnn.sizes import DiskGnnSizes
from systems.engine.io.reader import ReadStats
from systems.engine.store.batch_store import BatchReader, BatchWriter
from tests.systems.support_systems import workload_of
from tests.systems.test_diskgnn import prepared
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch

NODES = 60
ROW = 508
Lists = list[list[int]]
LISTS = st.lists(
    st.sets(st.integers(0, NODES - 1), max_size=25).map(sorted), min_size=1, max_size=9
)


@contextmanager
def cold_samples(
    lists: Lists, in_memory: tuple[int, ...] = ()
) -> Iterator[ColdSamples]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples"
        writer = BatchWriter(path)
        for index, nodes in enumerate(lists):
            ids = np.array(nodes[::-1], dtype=np.int64)
            writer.append(
                SampledBatch(0, index, ids, 0, (), np.empty(0, dtype=np.int64))
            )
        reader = BatchReader(path, writer.close())
        try:
            yield ColdSamples(
                reader, slots_of(np.array(in_memory, dtype=np.int64), NODES)
            )
        finally:
            reader.close()


def where() -> np.ndarray:
    return np.zeros(NODES, dtype=np.int32)


def simulate(rows: np.ndarray) -> ReadStats:
    return simulate_reads(rows, row_bytes=ROW, num_rows=1 << 40, granularity="4096")


@settings(max_examples=25, deadline=None)
@given(
    LISTS,
    st.integers(1, 9),
    st.integers(2, 4),
    st.sets(st.integers(0, NODES - 1), max_size=10),
)
def test_every_cold_row_has_one_place_and_the_counts_are_those_stored(
    lists: Lists, length: int, threshold: int, hot: set[int]
) -> None:
    with cold_samples(lists, tuple(sorted(hot))) as samples:
        shape = Shape(length, threshold)
        work = where()
        stored = 0
        shared = []
        for order, placements in segments(samples, shape, work, hashes=2, seed=1):
            first = len(shared)
            shared.extend(order.tolist())
            for placement in placements:
                wanted = sorted(set(lists[placement.batch]) - hot)
                assert (
                    sorted([*placement.packed.tolist(), *placement.single.tolist()])
                    == wanted
                )
                assert placement.packed.tolist() == sorted(placement.packed.tolist())
                assert [
                    shared[row] for row in placement.rows.tolist()
                ] == placement.single.tolist()
                assert all(row >= first for row in placement.rows.tolist())
                stored += len(placement.packed)
        assert not work.any()
        assert rows_of(samples, shape, work) == stored + len(shared)
        assert not work.any()
        if threshold == 2:
            assert rows_by_segment(samples, work)[
                min(length, len(lists))
            ] == stored + len(shared)


def skewed(batches: int = 24, size: int = 18) -> Lists:
    """Draw mini-batches of which neighbours share rows, as in a community."""
    rng = np.random.default_rng(3)
    return [
        sorted(set(((rng.normal(batch * 2, 6, size)).astype(int) % NODES).tolist()))
        for batch in range(batches)
    ]


@pytest.mark.parametrize("share", [1.05, 1.3, 1.8, 10])
def test_brute_force_is_never_worse_and_both_keep_the_limit(share: float) -> None:
    with cold_samples(skewed()) as samples:
        least = int(rows_by_segment(samples, where())[1:].min())
        space = Space(ROW, 1000, 1000 + int(share * least) * ROW)
        search = Search(
            samples, space, where(), simulate=simulate, hashes=2, seed=0, max_segment=24
        )
        heuristic = search.measure(search.heuristic())
        brute = search.brute_force(24)
        assert space.limit is not None
        assert heuristic.disk_bytes <= space.limit
        assert brute.disk_bytes <= space.limit
        assert brute.read_bytes <= heuristic.read_bytes
        assert brute.useful_bytes == heuristic.useful_bytes
        assert brute.read_amplification >= 1
        if share == 10:  # everything fits, so everything is packed
            assert heuristic.shape == Shape(1, 2)


def test_the_heuristic_takes_the_least_length_that_fits() -> None:
    with cold_samples(skewed()) as samples:
        rows = rows_by_segment(samples, where())
        for limit_rows in (
            int(rows[1]),
            int(rows[1]) - 1,
            int(rows[4]),
            int(rows[1:].min()),
        ):
            search = Search(
                samples,
                Space(ROW, 0, limit_rows * ROW),
                where(),
                simulate=simulate,
                hashes=2,
                seed=0,
                max_segment=24,
            )
            found = search.heuristic()
            expected = next(
                length for length in range(1, 25) if rows[length] <= limit_rows
            )
            assert found.shape.segment == expected


def test_a_limit_that_is_too_small_names_the_least_that_works() -> None:
    with cold_samples(skewed()) as samples:
        least = int(rows_by_segment(samples, where())[1:].min()) * ROW
        arguments = {"simulate": simulate, "hashes": 2, "seed": 0, "max_segment": 24}
        with pytest.raises(BudgetError, match=str(least)):
            Search(samples, Space(ROW, 0, least - 1), where(), **arguments).heuristic()
        Search(samples, Space(ROW, 0, least), where(), **arguments).heuristic()


def test_a_limit_that_is_too_small_is_refused_with_one_that_works(
    tmp_path: Path,
) -> None:
    workload = workload_of(
        make_dataset(
            tmp_path, Case("limit", nodes=3000, edges=30000, train=300, dim=127)
        )
    )
    with (
        pytest.raises(BudgetError, match="packed chunks and disk caches") as error,
        prepared(workload, tmp_path, disk_limit="300KiB", host_cache="64KiB"),
    ):
        pass
    least = error.value.fix.split("raise disk_limit to ")[1].split(",")[0]
    with prepared(workload, tmp_path, disk_limit=least, host_cache="64KiB") as system:
        total = sum(path.stat().st_size for path in system.files())
        notes = system.notes()
        predicted = int(notes["disk_bytes"])
        assert total <= int(least)
        assert predicted <= total < predicted + 32768  # beside the rows: index and seal
        assert int(notes["segment"]) > 1


def test_hottest_rows_come_first_and_equal_ones_by_id() -> None:
    counts = AccessCounts(6)
    for nodes in ([0, 3, 5], [3, 5], [3], [1]):
        counts.add(np.array(nodes))
    assert counts.hottest(10).tolist() == [3, 5, 0, 1]
    assert counts.hottest(2).tolist() == [3, 5]


@settings(max_examples=25, deadline=None)
@given(
    LISTS,
    st.integers(0, NODES),
    st.integers(1, 3),
    st.integers(0, 90),
    st.sampled_from([1, 8]),
)
def test_the_cache_leaves_room_for_the_buffers(
    lists: Lists, ranked: int, buffers: int, rows: int, align: int
) -> None:
    order = np.random.default_rng(0).permutation(NODES)[:ranked].astype(np.int64)
    curve: MissCurve = miss_curve(
        [np.array(nodes, dtype=np.int64) for nodes in lists],
        slots_of(order, NODES),
        ranked,
    )
    cached = curve.largest_cache(rows, buffers, 2, align)
    hot = set(order[: max(0, cached)].tolist())
    most = max(len(set(nodes) - hot) for nodes in lists)
    up = lambda value: -(-value // align) * align  # noqa: E731
    if cached >= 0:
        assert cached <= ranked
        assert up(cached) + buffers * up(most + 2) <= rows


@settings(max_examples=50, deadline=None)
@example([[]], 33, 40, 60, 3, 5, None, None)
@example([[]], 40, 40, 60, 3, 5, None, None)
@given(
    LISTS,
    st.integers(0, NODES),
    st.integers(40, 300),
    st.integers(60, 300),
    st.integers(1, 3),
    st.integers(1, 5),
    st.none() | st.integers(0, 20),
    st.none() | st.integers(0, 20),
)
def test_rows_on_the_device_and_beside_it_fit_both_memories(
    lists: Lists,
    ranked: int,
    table: int,
    host: int,
    buffers: int,
    staging: int,
    direct: int | None,
    cache: int | None,
) -> None:
    order = np.random.default_rng(0).permutation(NODES)[:ranked].astype(np.int64)
    curve = miss_curve(
        [np.array(nodes, dtype=np.int64) for nodes in lists],
        slots_of(order, NODES),
        ranked,
    )
    most = int(curve.misses[0])
    # The planner's bounds: the largest mini-batch has room beside the rows that the
    # user wants cached.
    table = max(table, most + (direct or 0))
    host = max(host, most + 2 + (cache or 0))
    sizes = SimpleNamespace(
        on_device=True,
        table_rows=table,
        direct_rows=direct,
        host_rows=host,
        host_cache_rows=cache,
        buffers=buffers,
        staging=staging,
        ahead_rows=0,
        graphs=buffers + staging,
        padding=2,
        align=1,
    )
    found = fit(cast(DiskGnnSizes, sizes), curve)
    assert found.levels.direct + found.buffers * found.buffer_rows <= table
    assert found.levels.host + found.staging * found.staging_rows <= host
    assert found.levels.cached <= ranked
    hot = set(order[: found.levels.cached].tolist())
    left = max(len(set(nodes) - hot) for nodes in lists)
    assert found.buffer_rows >= left
    assert found.staging_rows >= left + 2
    assert direct is None or found.levels.direct <= direct
    assert cache is None or found.levels.host <= cache

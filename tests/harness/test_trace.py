"""Belady at batch granularity against a slow reference, and against policies it must not lose to."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.trace import belady_misses, trace_workload
from tests.support import make_tiny
from workloads.sampling.make import make_seed_plan
from workloads.workload import ModelSpec, SamplerSpec, Workload

BATCHES = st.lists(st.sets(st.integers(0, 30), min_size=1, max_size=8), min_size=1, max_size=14)


def as_arrays(batches: list[set[int]]) -> list[npt.NDArray[np.int64]]:
    return [np.array(sorted(batch), dtype=np.int64) for batch in batches]


def belady_reference(batches: list[set[int]], capacity: int) -> list[int]:
    cache: set[int] = set()
    misses = []
    for index, batch in enumerate(batches):
        misses.append(len(batch - cache))
        uses = {
            row: next((k for k in range(index + 1, len(batches)) if row in batches[k]), None) for row in cache | batch
        }
        again = sorted((use, row) for row, use in uses.items() if use is not None)
        cache = {row for _, row in again[:capacity]}
    return misses


def lru_misses(batches: list[set[int]], capacity: int) -> int:
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for batch in batches:
        misses += len(batch - set(cache))
        for row in sorted(batch):
            cache.pop(row, None)
            cache[row] = None
        while len(cache) > capacity:
            cache.popitem(last=False)
    return misses


@given(BATCHES, st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_belady_equals_the_slow_reference_in_total(batches: list[set[int]], capacity: int) -> None:
    assert sum(belady_misses(as_arrays(batches), capacity)) == sum(belady_reference(batches, capacity))


@given(BATCHES, st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_belady_never_misses_more_than_lru(batches: list[set[int]], capacity: int) -> None:
    assert sum(belady_misses(as_arrays(batches), capacity)) <= lru_misses(batches, capacity)


def test_a_cache_that_holds_everything_misses_each_row_once() -> None:
    batches = as_arrays([{1, 2}, {2, 3}, {1, 3, 4}])
    assert belady_misses(batches, 100) == [2, 1, 1]


def test_no_cache_misses_every_access() -> None:
    assert belady_misses(as_arrays([{1, 2}, {1, 2}]), 0) == [2, 2]


def test_the_trace_holds_every_batch_of_every_epoch(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "tiny")
    workload = Workload(dataset, SamplerSpec(fanout=(3, 3), batch_size=64), ModelSpec(layers=2))
    trace = trace_workload(workload, 2)
    assert trace is not None
    count = make_seed_plan(workload).num_batches
    assert [(epoch, end - begin) for epoch, begin, end in trace.epochs] == [(0, count), (1, count)]
    first = np.unique(np.concatenate(trace.batches[:count]))
    assert trace.unique_rows[0] == len(first)
    pages = dataset.num_edges * dataset.index_dtype.itemsize // 4096 + 1
    assert 0 < trace.topology_pages[0] <= pages
    assert trace.digests[0] != trace.digests[1]

"""The parts of a system's data path: named in order, with buffers and counts of the
epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.check.case import Case
from harness.check.data_paths import parts_of
from harness.check.stage import Stage
from systems.engine.dgl import require_dgl
from systems.interface import MemoryBudget, PartUse
from systems.registry import load, names
from workloads.errors import HostError

CASE = Case("data path", nodes=400, edges=4000, train=80, dim=8)
#: Of passes over the graph before preparation, which chooses among several ways.
CHOSEN_LATER = {"outcore"}


def used(
    folder: Path, name: str, device: str = "cpu"
) -> tuple[list[PartUse], dict[str, int], dict[str, Any]]:
    """Run one epoch in a budget of 40 MiB; return the parts, the plan's bytes by
    buffer, and the counters."""
    stage = Stage(folder, replace(CASE, device=device), load(name))
    with stage.make(MemoryBudget(40 << 20, stage.device_bytes)) as system:
        system.load_libraries()
        plan = system.plan()
        system.prepare()
        system.prepare_epochs(0)
        for batch in system.epoch(0):
            batch.release()
        counters = system.counters().as_dict()
        parts = list(system.data_path())
    planned = {item.name: item.bytes for item in plan.items}
    return parts, planned, counters


@pytest.fixture(params=names())
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if "dgl" in found:
        try:
            require_dgl(found)
        except HostError as error:
            pytest.skip(str(error))
    return found


def test_every_buffer_of_the_plan_is_a_part_s_and_no_row_is_lost(
    tmp_path: Path, name: str
) -> None:
    parts, planned, counters = used(tmp_path, name)
    assert len(parts) >= 3
    listed = [buffer for part in parts for buffer in part.buffers]
    assert set(planned) <= set(listed)
    assert len(listed) == len(set(listed))
    hits = sum(part.counts.get("hits", 0) for part in parts)
    reads = [part.counts for part in parts if "requests" in part.counts]
    if reads:
        assert sum(each["requests"] for each in reads) == counters["io_requests"]
        assert sum(each["bytes"] for each in reads) == counters["bytes_read"]
    if counters["misses"]:
        assert hits + counters["misses"] == counters["rows"]


def test_names_are_the_same_before_and_after_a_run(tmp_path: Path, name: str) -> None:
    if name in CHOSEN_LATER:
        pytest.skip(f"preparation chooses the parts of {name}")
    parts, _, _ = used(tmp_path, name)
    assert parts_of(load(name)) == [part.name for part in parts]


def test_tiers_count_the_rows_that_reach_them(tmp_path: Path) -> None:
    parts, _, counters = used(tmp_path, "graphbolt")
    by_name = {part.name: part for part in parts}
    cache = by_name["sieve cache in host memory"].counts
    reads = by_name["direct reads"].counts
    assert cache["rows"] == counters["rows"]
    assert 0 < cache["hits"] < cache["rows"]
    assert reads["rows"] == cache["rows"] - cache["hits"] == counters["misses"]

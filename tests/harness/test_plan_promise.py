"""A plan is a promise: with the least budget that it accepts, no run is ended by the
kernel's cap.

A few runs on the shapes that broke most plans; `benchmarks/plan_promise.py` searches
all systems and shapes.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.plan_promise import SHAPES, Shape, config_of, judged, least_budget, make
from harness.run.orchestrator import execute
from harness.run.series import Series
from systems.interface import reserve_bytes
from tests.harness.cap_tools import MIB, needs_cap, on_disk
from tests.harness.run_tools import share_cache

SHORT = (("max_batches", 12),)
HUBS = replace(SHAPES["hubs"], nodes=60_000, settings=SHORT)
TRAINED = replace(
    SHAPES["all nodes trained"], nodes=400_000, settings=(("batch_size", 4000), *SHORT)
)
STAR = replace(SHAPES["star"], nodes=60_000, settings=SHORT)

SLOW = pytest.mark.slow(
    "systems", "workloads/sampling", "harness/run/calibrate.py", seconds=20
)


@pytest.fixture(scope="module")
def series(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Series]:
    results = tmp_path_factory.mktemp("promise") / "results"
    # DGL's libraries take seconds to hold, so only those of the systems that run here
    # are.
    tests = [
        getattr(item, "callspec", None)
        for item in request.session.items
        if item.path == request.path
    ]
    names = {
        "in-memory",
        *(test.params["name"] for test in tests if test and "name" in test.params),
    }
    share_cache(results, tmp_path_factory)
    for folder in on_disk():
        with Series(results, folder) as opened:
            configs = [
                config_of(opened, name, make(folder, HUBS), HUBS, "+64MiB")
                for name in sorted(names)
            ]
            opened.prepare(configs, make(folder, HUBS))
            yield opened


@needs_cap
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param("dgl-ondisk", HUBS, marks=SLOW, id="dgl-ondisk-hubs"),
        pytest.param("gnndrive", HUBS, id="gnndrive-hubs"),
        pytest.param("graphbolt", HUBS, marks=SLOW, id="graphbolt-hubs"),
        pytest.param("pyg+", TRAINED, marks=SLOW, id="pyg+-trained"),
        pytest.param("pagraph+pp", STAR, marks=SLOW, id="pagraph+pp-star"),
    ],
)
def test_what_fits_in_the_plan_never_dies(
    series: Series, name: str, shape: Shape
) -> None:
    if name.startswith("dgl"):
        pytest.importorskip("dgl", reason="DGL is not installed")
    dataset = make(series.data_root, shape)
    least = least_budget(
        series, config_of(series, name, dataset, shape, "+64MiB"), dataset
    )
    assert least is not None
    record = execute(
        series, config_of(series, name, dataset, shape, f"+{least}"), dataset
    )
    assert judged(record) == "kept", record.reason
    assert record.memory.oom_kills == 0
    planned = {
        item.name: item.bytes for item in record.memory.plan if item.tier == "host"
    }
    assert planned["reserve"] == reserve_bytes(least)
    assert sum(planned.values()) <= least
    if name == "gnndrive":
        assert "extractors 1 instead of 4" in record.notes["lowered_to_fit"]


@pytest.mark.slow("systems")
@needs_cap
def test_less_than_the_plan_accepts_is_refused_by_the_plan(series: Series) -> None:
    dataset = make(series.data_root, HUBS)
    record = execute(
        series, config_of(series, "in-memory", dataset, HUBS, f"+{4 * MIB}"), dataset
    )
    assert judged(record) == "refused"
    assert record.memory.oom_kills == 0
    assert "plan_was_kept" not in {rule.name for rule in record.verdict_rules}


THREADS = """
import sys, threading
if sys.argv[1] == "one":
    from systems.engine.io.memory import share_one_heap
    share_one_heap()
start = threading.Barrier(6)
def work():
    start.wait()
    held = [bytearray(100_000) for _ in range(20)]
    start.wait()
threads = [threading.Thread(target=work) for _ in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
import ctypes
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="needs glibc")
@pytest.mark.parametrize("heaps", ["one", "many"])
def test_threads_of_a_worker_share_one_heap(tmp_path: Path, heaps: str) -> None:
    subprocess.run(
        [sys.executable, "-c", THREADS, heaps, str(tmp_path / "info")],
        check=True,
        timeout=60,
    )
    count = (tmp_path / "info").read_text().count("<heap nr=")
    assert (count == 1) == (heaps == "one")

"""`ginex` and `ginex-pg`: each mechanism of the paper works, plans are kept, and faults
are reported."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from systems.ginex.buffers import runtime_batch_bytes
from systems.ginex.loop import FeatureCache
from systems.ginex.options import GinexOptions
from systems.ginex.sizes import size_buffers
from systems.interface import Counters, MemoryBudget, System
from tests.support import make_tiny
from tests.systems.policy_models import belady_misses
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError
from workloads.sampling.bounds import batch_bounds
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

pytestmark = pytest.mark.timeout(60)

DEVICES = ["cpu", "emulated:instant"]
ROW = 16 * 4
CACHE = str(200 * ROW)  # a tenth of the graph


def threads_left() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("ginex", "changeset"))
    ]


def counters_of(workload: Workload, name: str = "ginex", **options: object) -> Counters:
    with running(name, workload, **options) as system:  # type: ignore[arg-type]
        assert run(system)[:2] == reference(workload)
        counters = system.counters()
    assert counters.hits["host"] + counters.misses == counters.rows
    return counters


def batches_of(workload: Workload, epoch: int = 0) -> list[np.ndarray]:
    sampler = make_sampler(workload)
    return [
        sampler.sample(epoch, i, seeds).nodes
        for i, seeds in enumerate(make_seed_plan(workload).batches(epoch))
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["ginex", "ginex-pg"])
@pytest.mark.parametrize(
    "options",
    [
        {"superbatch": 3, "readers": 1, "batch_inputs": 1},
        {"superbatch": 1},
        {"superbatch": 7, "pipelined": False, "neighbour_cache": "off"},
        {"superbatch": 8, "io_granularity": "4096", "merge": False, "io_depth": 2},
        {"superbatch": 6, "samplers": 1, "gather_threads": 3},
    ],
)
def test_mini_batches_are_the_oracles_in_order(
    tiny_dataset: Dataset, device: str, name: str, options: dict[str, object]
) -> None:
    workload = workload_of(tiny_dataset)
    with running(
        name, workload, device=device, feature_cache=CACHE, **options
    ) as system:
        for epoch in range(2):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(20))
            # The number of epochs is unknown, so superbatches end with each epoch.
            counters = system.counters()
            assert counters.observed["superbatches"] == -(
                -20 // int(options["superbatch"])
            )  # type: ignore[call-overload]
            assert counters.observed["sampled_batches"] == 20


@pytest.mark.parametrize("superbatch", [1, 6, 20])
def test_reads_are_belady_s_fewest_and_as_planned(
    tiny_dataset: Dataset, superbatch: int
) -> None:
    """Fills plus misses of each superbatch equal the misses of the harness's own Belady
    from an empty cache."""
    workload = workload_of(tiny_dataset)
    batches = batches_of(workload)
    expected = sum(
        sum(belady_misses(batches[i : i + superbatch], 200))
        for i in range(0, len(batches), superbatch)
    )
    counters = counters_of(workload, superbatch=superbatch, feature_cache=CACHE)
    assert (
        counters.misses
        + counters.observed["initial_rows"]
        + counters.observed["kept_rows"]
        == expected
    )
    assert (counters.observed["kept_rows"] > 0) == (superbatch < 20)


def test_larger_superbatches_read_fewer_rows(tiny_dataset: Dataset) -> None:
    """Figure 16: the cache is filled less often, and the look-ahead is longer."""
    workload = workload_of(tiny_dataset)
    read = []
    for size in (2, 5, 20):
        counters = counters_of(workload, superbatch=size, feature_cache=CACHE)
        read.append(counters.misses + counters.observed["initial_rows"])
    assert read[0] > read[1] > read[2]


def test_the_optimal_cache_misses_less_than_the_static_one(
    tiny_dataset: Dataset,
) -> None:
    """Figure 15; `ginex-pg` is `ginex` with the static policy and no other change."""
    workload = workload_of(tiny_dataset)
    optimal = counters_of(workload, superbatch=10, feature_cache=CACHE)
    static = counters_of(workload, superbatch=10, feature_cache=CACHE, policy="static")
    assert optimal.misses < static.misses
    assert optimal.observed["cache_updates"] > 0
    assert static.observed["cache_updates"] == 0
    assert (
        counters_of(workload, "ginex-pg", superbatch=10, feature_cache=CACHE).as_dict()
        == static.as_dict()
    )


def test_the_static_cache_holds_the_highest_out_degrees(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    degrees = np.bincount(tiny_dataset.load("indices"), minlength=2000)
    cached = np.argsort(-degrees, kind="stable")[:200]
    misses = sum(int((~np.isin(nodes, cached)).sum()) for nodes in batches_of(workload))
    assert counters_of(workload, "ginex-pg", feature_cache=CACHE).misses == misses


def test_rows_of_the_static_fill_that_no_mini_batch_uses_are_not_useful(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset, max_batches=1)
    counters = counters_of(workload, "ginex-pg", feature_cache=str(2000 * ROW))
    assert counters.bytes_read > counters.rows * ROW >= counters.bytes_useful


def observed(system: System, epoch: int) -> dict[str, float]:
    assert run(system, epoch)[:2] == reference(system.workload, epoch)
    counters = system.counters()
    assert counters.hits["host"] + counters.misses == counters.rows
    return {**counters.observed, "misses": float(counters.misses)}


@pytest.mark.parametrize("superbatch", [7, 13, 20])
@pytest.mark.parametrize("pipelined", [True, False])
def test_superbatches_end_with_their_epoch_so_that_epochs_do_equal_work(
    tiny_dataset: Dataset, superbatch: int, pipelined: bool
) -> None:
    """In a run of three epochs of 20 mini-batches each epoch samples, plans and trains
    its own."""
    workload = workload_of(tiny_dataset)
    options = {"superbatch": superbatch, "pipelined": pipelined, "feature_cache": CACHE}
    with running("ginex", workload, epochs=3, **options) as system:  # type: ignore[arg-type]
        for epoch in range(3):
            found = observed(system, epoch)
            nodes = batches_of(workload, epoch)
            expected = sum(
                sum(belady_misses(nodes[i : i + superbatch], 200))
                for i in range(0, 20, superbatch)
            )
            assert (
                found["misses"] + found["initial_rows"] + found["kept_rows"] == expected
            )
            assert (found["sampled_batches"], found["superbatches"]) == (
                20,
                -(-20 // superbatch),
            )
            assert threads_left() == []
            assert list(system.runtime.scratch.iterdir()) == []


@pytest.mark.parametrize("superbatch", [33, 80])
@pytest.mark.parametrize("pipelined", [True, False])
def test_superbatches_longer_than_an_epoch_continue_across_epochs(
    tiny_dataset: Dataset, superbatch: int, pipelined: bool
) -> None:
    """In a run of four epochs of 20 mini-batches each stage counts in the epoch in
    which it happens; the sums agree."""
    workload = workload_of(tiny_dataset)
    options = {"superbatch": superbatch, "pipelined": pipelined, "feature_cache": CACHE}
    with running("ginex", workload, epochs=4, **options) as system:  # type: ignore[arg-type]
        found = []
        for epoch in range(4):
            found.append(observed(system, epoch))
            assert threads_left() == []  # no thread runs between two epochs
        assert list(system.runtime.scratch.iterdir()) == []
    nodes = [batch for epoch in range(4) for batch in batches_of(workload, epoch)]
    expected = sum(
        sum(belady_misses(nodes[i : i + superbatch], 200))
        for i in range(0, 80, superbatch)
    )
    assert (
        sum(one["misses"] + one["initial_rows"] + one["kept_rows"] for one in found)
        == expected
    )
    assert sum(one["superbatches"] for one in found) == -(-80 // superbatch)
    sampled = [int(one["sampled_batches"]) for one in found]
    assert sum(sampled) == 80  # each once, and none beyond the last epoch
    # An epoch starts every superbatch that begins in it; where stages overlap it also
    # samples the next superbatch.
    ahead = superbatch if pipelined else 0
    reached = [
        min(80, -(-(20 * (epoch + 1)) // superbatch) * superbatch + ahead)
        for epoch in range(4)
    ]
    assert np.cumsum(sampled).tolist() == reached


def test_a_superbatch_is_an_epoch_unless_a_longer_one_is_asked_for(
    tiny_dataset: Dataset,
) -> None:
    """By default every epoch samples as many mini-batches as it trains; a longer
    superbatch ends with the run."""
    workload = workload_of(tiny_dataset, max_batches=4)
    for asked, epochs, superbatch in (
        (0, 9, 4),
        (9, 0, 4),
        (9, 1, 4),
        (9, 2, 8),
        (9, 5, 9),
    ):
        with running(
            "ginex", workload, epochs=epochs, superbatch=asked, feature_cache=CACHE
        ) as system:
            assert system.notes()["superbatch"] == f"{superbatch} mini-batches"


def test_rows_that_sampling_leaves_room_for_are_not_read_again(
    tiny_dataset: Dataset,
) -> None:
    """Of 200 cached rows, all stay where memory has room beside sampling; with 130 rows
    less memory, 70 stay."""
    workload = workload_of(tiny_dataset)
    read = {}
    # With every other size fixed, a smaller budget takes memory from the cached rows
    # alone.
    sizes = {
        "samplers": 4,
        "list_threads": 8,
        "readers": 1,
        "batch_inputs": 1,
        "neighbour_cache": "off",
    }
    options = {"superbatch": 20, "feature_cache": CACHE, **sizes}
    with running("ginex", workload, epochs=3, **options) as system:  # type: ignore[arg-type]
        whole = [observed(system, epoch) for epoch in range(3)]
        room = system.plan().total("host") - 130 * (ROW + 8)
        assert system.notes()["kept_rows"].startswith("200 ")
    assert whole[0]["kept_rows"] == 0
    assert whole[0]["initial_rows"] == 200
    for one in whole[1:]:
        assert one["kept_rows"] > 0
        assert one["kept_rows"] + one["initial_rows"] == 200
    read["whole"] = sum(one["initial_rows"] for one in whole)
    with running(
        "ginex", workload, epochs=3, budget=MemoryBudget(room), **options
    ) as system:  # type: ignore[arg-type]
        assert system.notes()["kept_rows"].startswith("70 ")
        read["part"] = sum(
            observed(system, epoch)["initial_rows"] for epoch in range(3)
        )
    assert 200 < read["whole"] < read["part"] < 600


def test_shrinking_the_cache_frees_all_but_the_kept_rows(tiny_dataset: Dataset) -> None:
    cache = FeatureCache(workload_of(tiny_dataset), 1000, 100)
    cache.rows.fill_(1)
    cache.shrink()
    page = 4096 // ROW
    whole = -(-100 // page) * page
    assert bool((cache.rows[:whole] == 1).all())
    assert bool((cache.rows[whole:] == 0).all())


def test_the_plan_counts_rows_that_stay_beside_sampling(tmp_path: Path) -> None:
    dataset = make_tiny(
        tmp_path / "d", nodes=20_000, edges=100_000, dim=256, train_fraction=0.02
    )
    kept = []
    for budget in range(12 << 20, 40 << 20, 4 << 20):
        with running(
            "ginex", workload_of(dataset), prepare=False, budget=MemoryBudget(budget)
        ) as system:
            assert system.plan().total("host") <= budget
            assert isinstance(system.options, GinexOptions)
            sizes = size_buffers(system, system.options)
            kept.append(sizes.kept)
            assert sizes.kept <= sizes.capacity
    assert kept == sorted(kept)
    assert 0 < kept[0] < kept[-1]


@pytest.mark.parametrize("name", ["ginex", "ginex-pg"])
def test_epochs_out_of_turn_and_abandoned_ones_begin_anew(
    tiny_dataset: Dataset, name: str
) -> None:
    workload = workload_of(tiny_dataset)
    with running(
        name, workload, epochs=4, superbatch=13, feature_cache=CACHE
    ) as system:
        for epoch in (0, 2, 2, 1, 3, 5):
            assert run(system, epoch)[:2] == reference(workload, epoch)
        left = system.epoch(1)
        next(left).release()
        # The abandoned epoch is neither closed nor exhausted when the next begins; it
        # ends when it is collected.
        batches = system.epoch(2)
        next(batches).release()
        del left
        for batch in batches:
            batch.release()
        assert run(system, 3)[:2] == reference(workload, 3)


def test_an_empty_start_misses_the_rows_of_the_fill(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    filled = counters_of(workload, superbatch=10, feature_cache=CACHE)
    empty = counters_of(workload, superbatch=10, feature_cache=CACHE, prefill=False)
    assert empty.observed["initial_rows"] == 0
    begun = filled.observed["initial_rows"] + filled.observed["kept_rows"]
    assert begun == 2 * 200
    assert empty.misses == filled.misses + begun


def test_the_neighbour_cache_serves_lists_and_can_be_off(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    off = counters_of(workload, neighbour_cache="off").observed
    some = counters_of(workload, neighbour_cache=str(8 * 2000 + 8000)).observed
    whole = counters_of(workload).observed
    assert off["neighbour_cache_hits"] == 0
    assert 0 < some["neighbour_cache_hits"] < some["neighbour_lists"]
    assert (
        whole["neighbour_cache_hits"]
        == whole["neighbour_lists"]
        == off["neighbour_lists"]
    )


def test_changesets_are_planned_beside_the_next_superbatch_s_sampling(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    beside = counters_of(workload, superbatch=5, feature_cache=CACHE)
    after = counters_of(workload, superbatch=5, feature_cache=CACHE, pipelined=False)
    assert beside.observed["overlapped_superbatches"] == 3  # all but the last
    assert after.observed["overlapped_superbatches"] == 0
    assert beside.misses == after.misses


def test_misses_of_later_mini_batches_are_read_while_one_is_trained(
    tiny_dataset: Dataset,
) -> None:
    """While the first mini-batch is held, later ones are read as far as the batch
    inputs have room."""
    workload = workload_of(tiny_dataset)
    ahead = {}
    for inputs in (1, 5):
        with running(
            "ginex", workload, feature_cache=CACHE, readers=2, batch_inputs=inputs
        ) as system:
            batches = system.epoch(0)
            first = next(batches)
            time.sleep(0.3)
            ahead[inputs] = system.counters().misses
            first.release()
            batches.close()  # type: ignore[attr-defined]
    largest = batch_bounds(workload).max_nodes
    assert ahead[1] <= largest
    assert ahead[5] > 2 * largest - 200


def test_superbatches_follow_the_runtime_files_budget(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    one = runtime_batch_bytes(workload, batch_bounds(workload))
    for allowed, size in ((2 * one, 1), (11 * one, 5), (20 * one, 20)):
        with running(
            "ginex", workload, runtime_files=str(allowed), feature_cache=CACHE
        ) as system:
            assert system.notes()["superbatch"] == f"{size} mini-batches"
            most = 0
            for batch in system.epoch(0):
                batch.release()
                files = list(system.runtime.scratch.iterdir())
                most = max(most, sum(path.stat().st_size for path in files))
            assert 0 < most <= allowed
            assert list(system.runtime.scratch.iterdir()) == []
    with running(
        "ginex", workload, runtime_files=str(11 * one), pipelined=False
    ) as system:
        assert system.notes()["superbatch"] == "11 mini-batches"
    assert_refused(
        "ginex: runtime files need .* for one mini-batch",
        "ginex",
        workload,
        runtime_files=str(one - 1),
    )
    assert_refused(
        "runtime files need .* for superbatches of 9",
        "ginex",
        workload,
        runtime_files=str(10 * one),
        superbatch=9,
    )
    assert_refused(
        "runtime files need", "ginex", workload, budget=MemoryBudget(None, None, one)
    )


def test_every_part_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """Budgets grow from zero until one is enough: each refusal names its part, and the
    first accepted plan runs."""
    workload = workload_of(
        make_tiny(tmp_path / "d", nodes=20_000, edges=100_000, train_fraction=0.02)
    )
    named = set()
    for budget in range(0, 12 << 20, 32 << 10):
        try:
            with running("ginex", workload, budget=MemoryBudget(budget)) as system:
                assert system.plan().total("host") <= budget
                assert run(system)[:2] == reference(workload)
            break
        except BudgetError as error:
            named.add(str(error).removeprefix("ginex: ").split(" needs")[0])
    else:
        raise AssertionError("nothing fits")
    assert {
        "indptr",
        "batch inputs",
        "mini-batches read back",
        "threads of the main loop",
    } <= named
    for option in ("feature_cache", "neighbour_cache"):
        assert_refused(
            f"ginex: {option.replace('_', ' ')}",
            "ginex",
            workload,
            budget=MemoryBudget(budget),
            **{option: "1GiB"},
        )
    assert_refused(
        "device feature table",
        "ginex",
        workload,
        device="emulated:instant",
        device_bytes=4096,
        feature_cache=CACHE,
    )


def test_a_wrong_size_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match=r"neighbour_cache is 'half'.*; or write auto or off"
    ):
        GinexOptions(neighbour_cache="half")
    with pytest.raises(ValueError, match="static"):
        GinexOptions(policy="static", prefill=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("cannot mount a small tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=False)


def test_a_full_disk_ends_the_epoch_with_its_name(
    tiny_dataset: Dataset, small_disk: Path
) -> None:
    with running(
        "ginex", workload_of(tiny_dataset), root=small_disk, neighbour_cache="off"
    ) as system:
        with pytest.raises(
            DataIOError,
            match=r"writing .*batches-0 failed at offset \d+: No space "
            r"left.*runtime_files",
        ):
            run(system)
        assert threads_left() == []
        assert list(system.runtime.scratch.iterdir()) == []


@pytest.mark.parametrize("part", ["batches", "changes"])
def test_a_damaged_runtime_file_is_detected_and_named(
    tiny_dataset: Dataset, part: str
) -> None:
    with running(
        "ginex",
        workload_of(tiny_dataset),
        superbatch=10,
        feature_cache=CACHE,
        batch_inputs=1,
    ) as system:
        batches = system.epoch(0)
        next(batches).release()
        # The second superbatch is sampled by now; changesets of the first are read
        # mini-batch by mini-batch.
        target = system.runtime.scratch / (
            "batches-10" if part == "batches" else "changes-0"
        )
        size = target.stat().st_size
        with target.open("r+b") as file:
            for page in range(size // 8192, size // 4096):
                file.seek(4096 * page)
                file.write(os.urandom(64))
        with pytest.raises(
            DataIOError,
            match=rf"reading (batch|changeset) \d+ of .*{part}-\d+ failed at "
            r"offset \d+",
        ):
            for batch in batches:
                batch.release()
        assert threads_left() == []


def test_an_error_of_a_sampling_thread_surfaces_and_ends_all_threads(
    tmp_path: Path,
) -> None:
    dataset = make_tiny(tmp_path / "d")
    options = {"superbatch": 5, "feature_cache": CACHE, "neighbour_cache": "off"}
    with running("ginex", workload_of(dataset), **options) as system:  # type: ignore[arg-type]
        batches = system.epoch(0)
        next(batches).release()
        with dataset.file("indices").open("r+b") as file:
            file.truncate(5000)
        with pytest.raises(DataIOError, match=r"indices\.npy ends at offset"):
            for batch in batches:
                batch.release()
        assert threads_left() == []
        assert list(system.runtime.scratch.iterdir()) == []


@pytest.mark.parametrize("device", DEVICES)
def test_an_abandoned_epoch_leaves_nothing_and_the_next_is_whole(
    tiny_dataset: Dataset, device: str
) -> None:
    workload = workload_of(tiny_dataset)
    with running(
        "ginex", workload, device=device, superbatch=4, feature_cache=CACHE
    ) as system:
        for taken in (1, 6):
            batches = system.epoch(0)
            held = None
            for _ in range(taken):
                if held is not None:
                    held.release()
                held = next(batches)
            batches.close()  # type: ignore[attr-defined]
            assert threads_left() == []
            assert list(system.runtime.scratch.iterdir()) == []
            assert held is not None
            held.release()
        assert run(system, 1)[:2] == reference(workload, 1)


def test_the_neighbour_cache_is_prepared_once(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    workload = workload_of(tiny_dataset)
    for expected in ("made", "reused"):
        with running("ginex", workload, root=tmp_path) as system:
            assert system.notes()["prepared"] == expected
            assert all(path.is_file() for path in system.files())
            assert system.files()

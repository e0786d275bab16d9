"""Division of a budget among needs, and systems made of parts from `import outcore`
alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import outcore
from systems.interface import DiskProfile, MemoryBudget, Runtime, StageClock
from systems.parts.sizes import Follower, Need, Sizes, divide
from tests.systems.support_systems import reference, run, workload_of
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import BudgetError, InputError

PAGE = 4096


def sizes_of(
    needs: Sequence[Need | Follower], host: int | None, device: int | None = None
) -> dict[str, int]:
    plan = divide("mine", needs, MemoryBudget(host, device), "raise memory").plan
    return {item.name: item.bytes for item in plan.items}


def test_needs_grow_in_their_order_once_each_has_its_least() -> None:
    needs = [
        Need("first", 10, best=50, step=20),
        Need("fixed", 30),
        Need("second", 5, best=1000),
    ]
    assert sizes_of(needs, 100) == {"fixed": 30, "first": 50, "second": 20}
    assert sizes_of(needs, 60) == {"fixed": 30, "first": 10, "second": 20}
    assert sizes_of(needs, None) == {"fixed": 30, "first": 50, "second": 1000}


def test_a_reserve_stays_free() -> None:
    needs: list[Need | Follower] = [
        Need("cache", 0, "device", best=1 << 20, reserve=PAGE, align=PAGE)
    ]
    assert sizes_of(needs, None, 4 * PAGE) == {"cache": 3 * PAGE}
    with pytest.raises(
        BudgetError,
        match=r"cache needs 16\.0 KiB, 12\.0 KiB is left .* after reserve \(4\.0 KiB\)",
    ):
        sizes_of([Need("cache", 4 * PAGE, "device", reserve=PAGE)], None, 4 * PAGE)


def test_device_tables_take_whole_pages() -> None:
    tables: list[Need | Follower] = [Need("tables", 100, "device", best=400, step=100)]
    assert sizes_of(tables, None, 3 * PAGE) == {"tables": 300}
    assert sizes_of(tables, None, 3 * PAGE - 1) == {"tables": 200}


def test_a_follower_sees_the_sizes_before_it_and_may_cut_a_need() -> None:
    needs: list[Need | Follower] = [
        Need("cache", 0, best=1000),
        Follower("map", lambda sizes: 4 if sizes.granted["cache"] else 0),
        Follower(
            "preparation",
            lambda sizes: max(0, 150 - sizes.granted["cache"]),
            cuts="cache",
        ),
    ]
    assert sizes_of(needs, None) == {"cache": 1000, "map": 4}
    assert sizes_of(needs[:1] + needs[2:], 100) == {"cache": 50, "preparation": 50}
    with pytest.raises(BudgetError, match="map needs"):
        sizes_of(needs[:2], 100)


def test_a_later_need_leaves_room_for_the_followers_of_an_earlier_one() -> None:
    def map_bytes(sizes: Sizes) -> int:
        return 8 if sizes.granted["device cache"] else 0

    needs: list[Need | Follower] = [
        Need("device cache", 0, best=50),
        Need("host cache", 10, best=1000),
        Follower("map", map_bytes),
    ]
    assert sizes_of(needs, 100) == {"device cache": 50, "host cache": 42, "map": 8}


def test_phases_share_their_memory_and_the_larger_one_is_the_plan() -> None:
    needs: list[Need | Follower] = [
        Need("graph", 10),
        Need("samplers", 45, phase="sample"),
        Need("kept", 0, best=100, step=10, phase="sample"),
        Need("cache", 5, best=100, phase="load"),
    ]
    assert sizes_of(needs, 100) == {"graph": 10, "cache": 90}
    assert sizes_of(needs, 250) == {"graph": 10, "samplers": 45, "kept": 100}
    # A buffer of both phases grows as far as the larger one allows.
    both: list[Need | Follower] = [
        *needs[:2],
        Need("loop", 5, phase="load"),
        Need("table", 0, best=100),
    ]
    assert sizes_of(both, 100) == {"graph": 10, "samplers": 45, "table": 45}
    with pytest.raises(
        BudgetError, match=r"samplers needs 45 B, 30 B is left .* after graph \(10 B\)"
    ):
        sizes_of(needs, 40)


def test_a_follower_is_counted_in_its_phase() -> None:
    needs: list[Need | Follower] = [
        Need("samplers", 80, phase="sample"),
        Need("cache", 0, best=70, phase="load"),
        Follower(
            "map", lambda sizes: sizes.granted["cache"] // 2, cuts="cache", phase="load"
        ),
    ]
    assert sizes_of(needs, 100) == {"cache": 65, "map": 35}
    assert sizes_of(needs, None) == {"cache": 70, "map": 35}


def test_the_first_buffer_that_does_not_fit_is_named_with_its_own_fix() -> None:
    needs: list[Need | Follower] = [Need("a", 60), Need("b", 60, fix="lower b")]
    with pytest.raises(
        BudgetError,
        match=r"mine: b needs 60 B, 40 B is left of the 100 B host budget.*lower b",
    ):
        sizes_of(needs, 100)


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 200), st.integers(1, 30)),
        max_size=6,
    ),
    st.integers(0, 400),
)
def test_a_plan_fits_and_nothing_that_may_grow_leaves_its_next_step(
    given_needs: list[tuple[int, int, int]], host: int
) -> None:
    needs: list[Need | Follower] = [
        Need(str(number), least, best=most, step=step)
        for number, (least, most, step) in enumerate(given_needs)
    ]
    leasts = sum(least for least, _, _ in given_needs)
    if leasts > host:
        with pytest.raises(BudgetError):
            sizes_of(needs, host)
        return
    sizes = sizes_of(needs, host)
    left = host - sum(sizes.values())
    assert left >= 0
    for number, (least, most, step) in enumerate(given_needs):
        size = sizes.get(str(number), 0)
        assert least <= size <= max(least, most)
        assert size + step > most or step > left


class Direct(outcore.PathSystem):
    """Rows read from disk, without a cache."""

    class Options(outcore.SamplingOptions, outcore.RowReadOptions):
        """Options of the test's system."""

    info = outcore.SystemInfo(
        name="direct", summary="rows read from disk", options=Options
    )
    options: Options

    def path(self) -> outcore.Path:
        graph = outcore.Mapped()
        return outcore.Path(
            sample=outcore.Neighbours(graph, self.workers, self.options.prefetch),
            rows=outcore.DirectRows(options=self.options),
            copy=outcore.Tables(),
        )


class TwoCaches(Direct):
    """Two caches one behind the other, which the base does not serve."""

    def path(self) -> outcore.Path:
        path = super().path()
        caches = [outcore.StaticDevice(), outcore.StaticDevice()]
        return outcore.Path(
            sample=path.sample, rows=path.rows, copy=path.copy, tiers=caches
        )


def made(kind: type[outcore.System], graph: Dataset, folder: Path) -> outcore.System:
    runtime = Runtime(
        make_accelerator("cpu"),
        DiskProfile(),
        folder / "artefacts",
        folder / "scratch",
        2,
    )
    return kind(
        workload_of(graph),
        runtime,
        MemoryBudget(None),
        kind.info.options(),
        StageClock(),
    )


def test_a_system_of_parts_is_a_path_alone(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    system = made(Direct, tiny_dataset, tmp_path)
    with pytest.raises(RuntimeError, match="prepare"):
        system.epoch(0)
    system.prepare()
    *digests, _ = run(system, 1)
    assert tuple(digests) == reference(system.workload, 1)
    counters = system.counters()
    assert counters.misses == counters.rows > 0
    assert counters.bytes_useful <= counters.bytes_read
    system.close()
    system.close()
    assert system.counters() == outcore.Counters()


def test_more_than_one_cache_is_refused(tiny_dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 caches"):
        made(TwoCaches, tiny_dataset, tmp_path).plan()

"""`outcore`: the workload's mini-batches with any part switched off, and each part
changes its own counter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from systems import _native
from systems.interface import Counters, DiskPoint, DiskProfile, MemoryBudget
from systems.outcore.cost import (
    REGION_BYTES,
    expected_passes,
    gap_bytes,
    passes_of,
    predict,
)
from systems.outcore.planner import OutcoreOptions
from systems.outcore.system import Outcore
from tests.support import make_tiny
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError
from workloads.feature_table import batch_feature_digest
from workloads.sampling.digest import EpochDigest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

pytestmark = pytest.mark.timeout(180)

DEVICES = ["cpu", "emulated:instant"]
ROW = 16 * 4
SLOTS = str(1200 * ROW)


def counters_of(workload: Workload, epochs: int = 2, **options: object) -> Counters:
    """Run epochs, each checked against the reference; return the counters of the
    last."""
    with running("outcore", workload, **options) as system:  # type: ignore[arg-type]
        for epoch in range(epochs):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(len(order)))
        counters = system.counters()
    assert sum(counters.hits.values()) + counters.misses == counters.rows
    assert sum(counters.requests_by_size.values()) == counters.io_requests
    return counters


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"packing": "off"},
        {"packing": "on", "group": 3},
        {"external_sampling": "off", "group": 7},
        {"look_ahead": False, "window": 1},
        {"belady": False, "slots": SLOTS},
        {
            "group": 1,
            "window": 4,
            "queue": 1,
            "request_bytes": 4096,
            "read_ahead_bytes": 1 << 16,
        },
    ],
)
def test_mini_batches_are_the_oracles_in_order(
    tiny_dataset: Dataset, device: str, options: dict[str, object]
) -> None:
    counters_of(workload_of(tiny_dataset), 3, device=device, **options)


@pytest.mark.parametrize(
    ("dim", "dtype"),
    [(1, "float16"), (3, "float32"), (100, "float16"), (1025, "float32")],
)
def test_rows_of_any_size_are_distributed(tmp_path: Path, dim: int, dtype: str) -> None:
    counters_of(
        workload_of(make_tiny(tmp_path / "d", dim=dim, dtype=dtype)),
        packing="on",
        group=6,
    )


def test_packing_reads_the_table_once_and_single_reads_do_not(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    packed = counters_of(workload, packing="on")
    single = counters_of(workload, packing="off")
    assert 0 < packed.observed["table_bytes_read"] <= tiny_dataset.feature_bytes + 4096
    assert packed.observed["packed_bytes_written"] >= packed.misses * ROW
    # Beside the rows it reads the samples, and an address list of four bytes a use and
    # more for each miss.
    lists = 4 * packed.rows
    assert (
        packed.bytes_written
        >= packed.observed["packed_bytes_written"]
        + packed.observed["graph_bytes_written"]
        + lists
    )
    assert 0 < single.bytes_written < packed.bytes_written
    assert (
        single.observed["table_bytes_read"]
        == single.observed["packed_bytes_written"]
        == 0
    )
    assert (
        packed.misses == single.misses
    )  # the kept rows do not depend on how the others are read


def test_belady_keeps_rows_that_the_window_alone_does_not(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    kept, dropped = (
        counters_of(workload, belady=belady, slots=SLOTS) for belady in (True, False)
    )
    assert kept.misses < dropped.misses
    assert kept.observed["carried_rows"] > 0
    assert dropped.observed["carried_rows"] == 0


def test_a_device_of_its_own_holds_rows_too(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    budget = MemoryBudget(16 << 20, 256 * ROW)
    with_it, without = (
        counters_of(
            workload,
            device="emulated:instant",
            budget=budget,
            device_slots=slots,
            slots=SLOTS,
        )
        for slots in ("auto", "off")
    )
    assert with_it.hits["device"] > 0 == without.hits["device"]
    assert with_it.misses == without.misses  # both have the same number of slots in all
    more, fewer = (
        counters_of(
            workload,
            device="emulated:instant",
            budget=budget,
            device_slots=slots,
            packing=packing,
        )
        for slots, packing in (("auto", "off"), ("off", "on"))
    )
    assert more.misses <= fewer.misses


def test_device_slots_that_the_device_cannot_hold_are_refused(
    tiny_dataset: Dataset,
) -> None:
    assert_refused(
        "device_slots of 1MiB",
        "outcore",
        workload_of(tiny_dataset),
        device="emulated:instant",
        budget=MemoryBudget(16 << 20, 256 * ROW),
        device_slots="1MiB",
    )


@pytest.fixture(scope="module", params=[(400_000, 2), (40_000, 128)])
def larger_dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Dataset:
    """Make a graph with narrow rows (a slot's bookkeeping is larger than the row) or
    with wide ones."""
    nodes, dim = request.param
    return make_tiny(
        tmp_path_factory.mktemp("larger") / "graph", nodes=nodes, edges=400_000, dim=dim
    )


@pytest.mark.slow("systems/outcore", "systems/engine/passes", seconds=60)
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("device", ["cpu", "emulated:instant"])
def test_a_plan_that_fits_some_memory_fits_more_memory(
    larger_dataset: Dataset, device: str, replay: bool
) -> None:
    workload = workload_of(larger_dataset, batch_size=40, fanout=(8, 8))
    fitted = 0
    cores = 64
    for host in [
        *range(10 << 20, 28 << 20, 500_000),
        *range(45 << 20, 60 << 20, 1_000_000),
    ]:
        budget = MemoryBudget(host, None if device == "cpu" else 12 << 20)
        try:
            with running(
                "outcore",
                workload,
                device=device,
                budget=budget,
                prepare=False,
                replay=replay,
                cores=cores,
            ) as system:
                assert system.plan().total("host") <= host
        except BudgetError as error:
            assert not fitted, (
                f"{host} bytes are too few where {fitted} are not: {error}"
            )
        else:
            fitted = fitted or host
    assert fitted > 10 << 20


def test_sampling_out_of_core_reads_the_graph_by_itself(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    external = counters_of(workload)
    online = counters_of(workload, external_sampling="off")
    assert (
        external.observed["graph_bytes_read"] > 0 == online.observed["graph_bytes_read"]
    )


def test_smaller_groups_read_the_graph_and_the_table_more_often(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    whole = counters_of(workload, packing="on")
    parts = counters_of(workload, packing="on", group=5)
    assert (whole.observed["groups"], parts.observed["groups"]) == (1, 4)
    for name in ("graph_bytes_read", "table_bytes_read"):
        assert parts.observed[name] > whole.observed[name]


@pytest.mark.parametrize("group", [0, 7])
def test_shared_passes_read_the_graph_once_a_group(
    tiny_dataset: Dataset, group: int
) -> None:
    workload = workload_of(tiny_dataset, fanout=(3, 3, 3))
    options = {"group": group} if group else {}
    shared, apart = (
        counters_of(workload, 4, shared_passes=wanted, **options)
        for wanted in (True, False)
    )
    assert shared.observed["groups"] == apart.observed["groups"]
    assert shared.rows == apart.rows
    assert (
        shared.observed["graph_bytes_read"] < 0.6 * apart.observed["graph_bytes_read"]
    )


def test_look_ahead_prepares_the_next_epoch_within_this_one(
    tiny_dataset: Dataset,
) -> None:
    for look_ahead, groups in ((True, 2), (False, 1)):
        with running(
            "outcore", workload_of(tiny_dataset), look_ahead=look_ahead
        ) as system:
            run(system, 0)
            assert system.counters().observed["groups"] == groups


def test_rows_survive_an_epoch_s_end_with_look_ahead_and_without(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    ahead, after = (
        counters_of(workload, 3, look_ahead=ahead) for ahead in (True, False)
    )
    assert ahead.misses == after.misses < counters_of(workload, 1).misses
    assert after.observed["carried_rows"] > 0


def test_counters_are_the_same_every_time(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    assert counters_of(workload, 3, group=6) == counters_of(workload, 3, group=6)


def test_replay_trains_the_first_epoch_again_and_prepares_nothing(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    with running("outcore", workload, replay=True, group=8, packing="on") as system:
        assert not system.is_faithful(system.options)
        first = run(system, 0)
        prepared = system.counters()
        sampler = make_sampler(workload)
        table = tiny_dataset.load("features")
        for batch, seeds in zip(
            system.epoch(1), make_seed_plan(workload).batches(0), strict=True
        ):
            wanted = sampler.sample(0, batch.sampled.index, seeds)
            assert batch.sampled.epoch == 1
            assert np.array_equal(batch.sampled.nodes, wanted.nodes)
            assert isinstance(batch.table, torch.Tensor)
            assert batch.rows is not None
            assert np.array_equal(
                batch.table.numpy()[batch.rows.numpy()], table[wanted.nodes]
            )
            batch.release()
        replayed = system.counters()
    assert first[:2] == reference(workload, 0)
    assert prepared.observed["groups"] == 3
    assert replayed.observed["groups"] == 0
    assert replayed.bytes_read < prepared.bytes_read
    assert replayed.misses == prepared.misses


@pytest.mark.parametrize("device", ["cpu", "emulated:instant"])
@pytest.mark.parametrize("packing", ["on", "off"])
def test_replay_reads_rows_that_stay_once(
    tiny_dataset: Dataset, device: str, packing: str
) -> None:
    workload = workload_of(tiny_dataset)
    more = (
        {"device": device, "budget": MemoryBudget(16 << 20, 256 * ROW)}
        if device != "cpu"
        else {}
    )
    options = {"replay": True, "group": 8, "packing": packing, "slots": SLOTS}
    features = reference(workload, 0)[1]
    with running("outcore", workload, **more, **options) as system:
        read = []
        for epoch in range(3):
            found = EpochDigest()
            for batch in system.epoch(epoch):
                assert batch.table is not None
                found.add(
                    batch_feature_digest(
                        replace(batch.sampled, epoch=0), batch.table, batch.rows
                    )
                )
                batch.release()
            assert found.hexdigest() == features
            read.append(system.counters())
        pinned = system._groups._kept[0].pinned
    assert pinned > 0
    assert read[0].misses == read[1].misses == read[2].misses
    assert read[0].bytes_read > read[1].bytes_read == read[2].bytes_read
    with running("outcore", workload, **more, **{**options, "belady": False}) as system:
        run(system, 0)
        run(system, 1)
        assert system.counters().misses > read[1].misses


def test_a_replay_that_was_left_prepares_anew_in_the_memory_of_its_slots(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    with running("outcore", workload, replay=True, group=8, slots=SLOTS) as system:
        left = system.epoch(0)
        next(left).release()
        left.close()
        assert (
            system._groups.loader is None
        )  # its slots are freed before the next preparation
        assert run(system, 0)[:2] == reference(workload, 0)


def test_an_epoch_that_was_left_or_asked_for_again_is_whole(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    with running("outcore", workload, group=4) as system:
        left = system.epoch(0)
        next(left).release()
        del left
        for epoch in (1, 1, 0, 2):
            assert run(system, epoch)[:2] == reference(workload, epoch)
        scratch = list(system.runtime.scratch.iterdir())
        assert (
            len(scratch) <= 2
        )  # the group prepared ahead, and one whose files will be overwritten
    assert (
        not list(system.runtime.scratch.glob("*"))
        if system.runtime.scratch.exists()
        else True
    )


def test_a_corrupted_chunk_is_reported(tiny_dataset: Dataset) -> None:
    with running("outcore", workload_of(tiny_dataset), packing="on") as system:
        run(system, 0)
        chunks = system._groups._next.result().chunks  # type: ignore[attr-defined]
        with chunks.path.open("r+b") as file:
            file.seek(int(chunks.rows[0, 0]))
            file.write(b"\xff" * 64)
        with pytest.raises(DataIOError, match="corrupted"):
            run(system, 1)


def test_a_budget_too_small_is_refused_naming_the_part(tiny_dataset: Dataset) -> None:
    assert_refused(
        "rows of the largest mini-batch",
        "outcore",
        workload_of(tiny_dataset),
        budget=MemoryBudget(8 << 20),
    )


def test_less_memory_means_smaller_groups_not_more_memory(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    for budget in (16 << 20, 20 << 20, 64 << 20):
        with running("outcore", workload, budget=MemoryBudget(budget)) as system:
            assert system.plan().total("host") <= budget
            assert run(system, 0)[:2] == reference(workload, 0)


PROFILE = DiskProfile(
    (
        DiskPoint(512, 128, 100_000, 51.2e6),
        DiskPoint(4096, 128, 90_000, 368e6),
        DiskPoint(1 << 20, 16, 2000, 2e9, "sequential"),
    )
)


def test_the_cheaper_strategy_is_predicted_and_chosen() -> None:
    many = predict(
        PROFILE, uses=10**6, misses=3 * 10**5, row_bytes=512, table_bytes=10**9
    )
    some = predict(PROFILE, uses=10**6, misses=10**5, row_bytes=512, table_bytes=10**9)
    few = predict(PROFILE, uses=10**6, misses=10**3, row_bytes=512, table_bytes=10**9)
    assert many is not None
    assert some is not None
    assert few is not None
    assert many.distribute < many.single < many.online
    assert many.replay < many.distribute
    assert few.single < few.distribute
    assert some.distribute < 0.97 * (0.5 + 2 * 1e5 * 512 / 2e9), (
        "ranges without wanted rows are skipped"
    )
    dense = predict(PROFILE, uses=10**7, misses=10**7, row_bytes=512, table_bytes=10**9)
    assert dense is not None
    assert dense.distribute == pytest.approx(0.5 + 2 * 1e7 * 512 / 2e9, rel=0.01)
    assert (
        predict(DiskProfile(), uses=1, misses=1, row_bytes=512, table_bytes=1) is None
    )
    assert gap_bytes(PROFILE) == pytest.approx(2e9 / 90_000, rel=0.01)


def test_predicted_reads_of_a_pass_are_right_for_any_placement_of_rows() -> None:
    """Predictions by sampled regions agree with a count over all rows within a few per
    cent."""
    row = 512
    rows = 400_000
    rng = np.random.default_rng(0)
    crowded = np.concatenate(
        [rng.integers(0, rows // 10, 15_000), rng.integers(0, rows, 15_000)]
    )
    chunks = [np.unique(part) for part in np.array_split(crowded, 7)]
    wanted = np.unique(crowded)
    planner = _native.SlotPlanner(max(map(len, chunks)), 1, False)
    offsets = np.cumsum([0, *map(len, chunks)])
    nodes = np.concatenate(chunks).astype(np.uint32)
    planner.plan(nodes, offsets, np.zeros(len(chunks), dtype=np.int64))
    missed = np.concatenate([planner.misses(i)[0] for i in range(len(chunks))])
    assert np.array_equal(planner.sampled_misses(1, 1), missed)
    assert 0.1 < len(planner.sampled_misses(2048, 5)) / len(missed) < 0.3
    for made in passes_of(planner.sampled_misses, len(missed), row):
        apart = (np.diff(wanted) - 1) * row
        new = (apart > made.gap_bytes) | (np.diff(wanted // 2048) > 0)
        assert made.requests == pytest.approx(1 + new.sum(), rel=0.08)
        assert made.nbytes == pytest.approx(
            len(wanted) * row + apart[~new].sum(), rel=0.08
        )
    for made in expected_passes(len(crowded), rows, row):
        wanted = np.unique(rng.integers(0, rows, len(crowded)))
        apart = (np.diff(wanted) - 1) * row
        new = (apart > made.gap_bytes) | (np.diff(wanted // 2048) > 0)
        assert made.requests == pytest.approx(
            1 + new.sum(), rel=0.05, abs=rows * row / REGION_BYTES
        )
        assert made.nbytes == pytest.approx(
            len(wanted) * row + apart[~new].sum(), rel=0.05
        )
    assert (
        list(expected_passes(0, rows, row))
        == []
        == list(passes_of(lambda *_: np.empty(0, dtype=np.int64), 0, row))
    )


def test_under_a_class_the_gap_uses_up_requests_and_bytes_together() -> None:
    points = tuple(
        DiskPoint(size, 256, min(40e3, 2e8 / size), 0.0) for size in (512, 4096, 65536)
    )
    disk = DiskProfile(
        (*points, DiskPoint(1 << 20, 8, 190.0, 2e8, "sequential")),
        limited=(40e3, 2e8),
        write_cost=0.0,
    )
    wanted = {
        "uses": 10**6,
        "misses": 170_000,
        "row_bytes": 512,
        "table_bytes": 2 * 10**6 * 512,
    }
    found = predict(disk, **wanted)
    with_graph = predict(disk, **wanted, beside={1 << 20: 300.0})
    assert found is not None
    assert with_graph is not None
    assert (
        found.distribute
        < 0.6 * found.single
        == pytest.approx(0.6 * 170_000 / 40e3, rel=0.01)
    )
    # Chunks of the previous group are read during the pass.
    requests = found.table_pass.requests / 40e3
    nbytes = (found.table_pass.nbytes + 170_000 * 512) / 2e8
    assert requests == pytest.approx(nbytes, rel=0.15)
    assert found.distribute == pytest.approx(max(requests, nbytes), rel=0.02)
    # Where reads and writes share one budget, chunks are also written during the pass.
    shared = predict(replace(disk, write_cost=1.0), **wanted)
    assert shared is not None
    assert shared.single == found.single
    requests = shared.table_pass.requests / 40e3
    nbytes = (shared.table_pass.nbytes + 2 * 170_000 * 512) / 2e8
    assert shared.distribute == pytest.approx(max(requests, nbytes), rel=0.02)
    assert shared.distribute > found.distribute
    # Nothing is read beside the graph in the pass; single rows of a group are read
    # during the next group's pass, whose reads leave requests unused.
    assert with_graph.table_pass == found.table_pass
    assert with_graph.distribute == pytest.approx(
        found.distribute + 300 * (1 << 20) / 2e8, rel=0.01
    )
    assert with_graph.single == pytest.approx(found.single, rel=0.01)


# fio on a virtual disk: microseconds per random read at full depth; the sequential
# point is 1 MiB. A profile has the sizes up to 64 KiB and the sequential one, and must
# predict the others.
FIO_US = {512: 12.4, 4096: 12.8, 65536: 30.8}
FIO_BETWEEN_US = {128 << 10: 51.5, 256 << 10: 91.6, 512 << 10: 165.6}
FIO_STREAM_US = 331.0


def _fio_profile(limited: tuple[float, float] | None = None) -> DiskProfile:
    points = [
        DiskPoint(size, 256, 1e6 / us, 1e6 * size / us) for size, us in FIO_US.items()
    ]
    stream = DiskPoint(
        1 << 20, 32, 1e6 / FIO_STREAM_US, 1e6 * (1 << 20) / FIO_STREAM_US, "sequential"
    )
    return DiskProfile((*points, stream), limited=limited)


@pytest.mark.parametrize("external", ["on", "off"])
def test_threads_follow_the_cores_as_far_as_memory_allows(
    tiny_dataset: Dataset, external: str
) -> None:
    """A host of many cores needs no more memory than one of few cores."""
    workload = workload_of(tiny_dataset, batch_size=200, fanout=(10, 10, 10))
    budget = MemoryBudget(64 << 20)
    threads = []
    totals = []
    for cores in (1, 4, 256):
        with running(
            "outcore", workload, cores=cores, budget=budget, external_sampling=external
        ) as system:
            assert isinstance(system, Outcore)
            totals.append(system.plan().total("host"))
            threads.append(system._sizes.threads)
    assert threads[0] == 1
    assert threads[1] == 4 < threads[2] < 256
    assert max(totals) <= 64 << 20


def test_requests_between_a_profiles_sizes_take_as_long_as_fio_measures() -> None:
    profile = _fio_profile()
    for size, us in FIO_BETWEEN_US.items():
        assert profile.request_seconds(size) == pytest.approx(1e-6 * us, rel=0.04)
    for size, us in {
        **FIO_US,
        1 << 20: FIO_STREAM_US,
        4 << 20: 4 * FIO_STREAM_US,
    }.items():
        assert profile.request_seconds(size) == pytest.approx(1e-6 * us)
    limited = _fio_profile((1e6 / 30.8, 3.4e9))
    assert limited.request_seconds(80 << 10) == pytest.approx(30.8e-6), (
        "the limiter's bytes are not used up yet"
    )


def test_a_bare_device_gets_long_reads_since_each_request_costs_it_time() -> None:
    wanted = {
        "uses": 10**6,
        "misses": 370_000,
        "row_bytes": 512,
        "table_bytes": 2 * 10**6 * 512,
    }
    found = predict(_fio_profile(), **wanted)
    assert found is not None
    assert found.table_pass.nbytes / found.table_pass.requests > 512 << 10


def test_on_and_off_are_words_even_where_they_are_read_as_flags() -> None:
    chosen = OutcoreOptions.model_validate(
        {"packing": False, "external_sampling": True}
    )
    assert (chosen.packing, chosen.external_sampling) == ("off", "on")

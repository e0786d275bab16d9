"""`gnndrive`: each mechanism of the paper works, and faults lead to errors, never to a
hang or to wrong rows."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from systems.engine.io.reader import RowReader
from systems.gnndrive.extractor import StagedExtractor
from systems.gnndrive.options import GnnDriveOptions
from systems.gnndrive.system import GnnDrive
from systems.interface import MemoryBudget
from tests.support import make_tiny
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.accelerator import CpuAccelerator, Event
from workloads.dataset import Dataset
from workloads.errors import DataIOError
from workloads.sampling.bounds import batch_bounds

pytestmark = pytest.mark.timeout(60)

DEVICES = ["cpu", "emulated:instant"]


def threads_left() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("gnndrive")
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"direct": False},
        {"io_granularity": "4096"},
        {"merge": False},
        {"io_depth": 1},
    ],
)
def test_mini_batches_are_the_oracles(
    tiny_dataset: Dataset, device: str, options: dict[str, object]
) -> None:
    workload = workload_of(tiny_dataset)
    with running("gnndrive", workload, device=device, **options) as system:
        for epoch in range(2):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert sorted(order) == list(range(20))


@pytest.mark.parametrize("device", DEVICES)
def test_the_smallest_feature_buffer_neither_hangs_nor_gives_wrong_rows(
    tiny_dataset: Dataset, device: str
) -> None:
    workload = workload_of(tiny_dataset, batch_size=10)
    least = 4 * batch_bounds(workload).max_nodes * 16 * 4
    for keep_order in (False, True):
        with running(
            "gnndrive",
            workload,
            device=device,
            feature_buffer=str(least),
            keep_order=keep_order,
        ) as system:
            for epoch in range(3):
                structure, features, order = run(system, epoch)
                assert (structure, features) == reference(workload, epoch)
                if keep_order:
                    assert order == sorted(order)
            assert system.counters().observed["evictions"] > 0


def test_rows_are_used_again_by_later_mini_batches(tiny_dataset: Dataset) -> None:
    """A larger feature buffer reads fewer rows (Fig. 12); one that holds the graph
    reads each row once."""
    workload = workload_of(tiny_dataset, batch_size=10)
    bytes_of = batch_bounds(workload).max_nodes * 16 * 4
    misses = []
    for size in (bytes_of, 3 * bytes_of, tiny_dataset.feature_bytes):
        with running(
            "gnndrive", workload, extractors=1, feature_buffer=str(size)
        ) as system:
            run(system)
            counters = system.counters()
            assert counters.hits["host"] + counters.misses == counters.rows
            misses.append(counters.misses)
    assert misses[0] > misses[1] > misses[2]
    seen = np.unique(np.concatenate([batch.nodes for batch in _sampled(workload)]))
    assert misses[2] == len(seen)


def _sampled(workload):  # type: ignore[no-untyped-def]
    with running("in-memory", workload) as system:
        for batch in system.epoch(0):
            yield batch.sampled
            batch.release()


def test_the_buffer_stays_warm_from_epoch_to_epoch(tiny_dataset: Dataset) -> None:
    with running("gnndrive", workload_of(tiny_dataset)) as system:
        run(system, 0)
        run(system, 0)
        assert system.counters().misses == 0


def test_a_row_that_another_extractor_reads_is_waited_for_not_read_twice(
    tiny_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All mini-batches ask for the same rows, the second before the first has read any:
    each row is read once."""
    begin = GnnDrive._load
    load = StagedExtractor.load
    begun = []
    asked_twice = threading.Event()

    def counted(self: GnnDrive, *parts: Any) -> None:
        begun.append(parts)
        if len(begun) == 2:
            asked_twice.set()
        begin(self, *parts)

    def held_up(self: StagedExtractor, *parts: Any) -> Any:
        asked_twice.wait(30)
        return load(self, *parts)

    monkeypatch.setattr(GnnDrive, "_load", counted)
    monkeypatch.setattr(StagedExtractor, "load", held_up)
    workload = workload_of(tiny_dataset, batch_size=50, fanout=(-1, -1))
    with running("gnndrive", workload, extractors=4, device="emulated:a10g") as system:
        structure, features, _ = run(system)
        counters = system.counters()
    assert (structure, features) == reference(workload)
    assert counters.observed["wait_list_batches"] > 0
    assert counters.misses <= tiny_dataset.num_nodes


def test_a_slow_mini_batch_is_overtaken_unless_order_is_kept(
    tiny_dataset: Dataset, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    """Mini-batch reordering (Section 4.3), with the extraction of batch 0 held up."""
    from systems.gnndrive.extractor import HostExtractor

    load = HostExtractor.load

    def slow(self, nodes, slots, batch):  # type: ignore[no-untyped-def]
        if batch == 0:
            time.sleep(0.3)
        return load(self, nodes, slots, batch)

    monkeypatch.setattr(HostExtractor, "load", slow)
    workload = workload_of(tiny_dataset, batch_size=5, fanout=(2,))
    with running("gnndrive", workload, samplers=1) as system:
        structure, _, order = run(system)
        assert structure == reference(workload)[0]
        assert order.index(0) > 0
    with running("gnndrive", workload, keep_order=True) as system:
        assert run(system)[2] == list(range(len(order)))


class LateEvent(Event):
    """Copy that ends after a delay: its bytes move at the very end."""

    def __init__(self, move, delay_s: float) -> None:  # type: ignore[no-untyped-def]
        super().__init__(time.monotonic() + delay_s)
        self._timer = threading.Timer(delay_s, move)
        self._timer.start()

    def wait(self) -> None:
        self._timer.join()

    def done(self) -> bool:
        return not self._timer.is_alive()


class LateAccelerator(CpuAccelerator):
    """Device whose copies end after random delays: a read before the end of a copy gets
    old bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = "emulated"
        self.staged_bytes = 0
        self._delays = np.random.default_rng(0)

    def copy(self, dst, src, dst_rows=None, *, batch=-1):  # type: ignore[no-untyped-def, override]
        parent = super().copy
        return LateEvent(
            lambda: parent(dst, src, dst_rows), float(self._delays.random()) * 0.01
        )


def test_rows_are_published_only_when_their_copies_are_over(
    tiny_dataset: Dataset,
) -> None:
    """The authors' public code marks rows valid before their copy ends, so a waiter may
    read a stale row."""
    workload = workload_of(tiny_dataset, batch_size=10)
    least = 4 * batch_bounds(workload).max_nodes * 16 * 4
    options = {"feature_buffer": str(least), "staging_bytes": 64 * 40}
    with running("gnndrive", workload, device=LateAccelerator(), **options) as system:  # type: ignore[arg-type]
        for epoch in range(2):
            assert run(system, epoch)[:2] == reference(workload, epoch)
        assert system.counters().observed["wait_list_rows"] > 0


def test_the_staging_buffer_is_bounded_and_its_slices_are_reused(
    tiny_dataset: Dataset,
) -> None:
    """All rows of the graph pass through a staging buffer of 40 rows."""
    row = 16 * 4
    reader = RowReader(
        tiny_dataset.file("features"),
        data_offset=tiny_dataset.data_offset("features"),
        num_rows=2000,
        row_bytes=row,
    )
    table = torch.zeros(2000, 16)
    staging = torch.zeros(40 * row, dtype=torch.uint8)
    extractor = StagedExtractor(reader, table, staging, LateAccelerator())
    nodes = np.random.default_rng(1).permutation(2000)
    extractor.load(nodes, np.arange(2000), 0)
    assert np.array_equal(table.numpy(), tiny_dataset.load("features")[nodes])
    extractor.close()


def test_the_plan_holds_the_feature_buffer_to_its_tier(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset, batch_size=5)
    most = batch_bounds(workload).max_nodes
    with running(
        "gnndrive", workload, extractors=1, training_queue=2, prepare=False
    ) as system:
        items = {item.name: item for item in system.plan().items}
    # Section 4.2: room for one largest mini-batch per extractor and per place in the
    # training queue.
    assert items["feature buffer"].bytes == -(-min(3 * most, 2000) * 64 // 4096) * 4096
    with running(
        "gnndrive", workload, extractors=1, feature_buffer="max", prepare=False
    ) as system:
        assert "2000 slots" in system.notes()["feature_buffer"]
    assert_refused(
        r"feature buffer for 1 extractors .* raise device memory",
        "gnndrive",
        workload,
        device="emulated:instant",
        device_bytes=8192,
    )
    assert_refused(
        "gnndrive: reader buffers needs",
        "gnndrive",
        workload,
        budget=MemoryBudget(100_000),
    )
    few = {"samplers": 1, "extracting_queue": 1, "training_queue": 1}
    assert_refused(
        "feature buffer for 4",
        "gnndrive",
        workload,
        budget=MemoryBudget(2_300_000),
        extractors=4,
        **few,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_an_error_in_one_extractor_stops_all_and_is_raised(
    tmp_path: Path, device: str
) -> None:
    dataset = make_tiny(tmp_path / "d", dim=128)
    with running(
        "gnndrive", workload_of(dataset), device=device, feature_buffer="auto"
    ) as system:
        with dataset.file("features").open("r+b") as file:
            file.truncate(100_000)
        with pytest.raises(DataIOError, match=r"features\.npy") as caught:
            run(system)
        assert caught.value.offset >= 0
        assert threads_left() == []


@pytest.mark.parametrize("device", DEVICES)
def test_an_abandoned_epoch_leaves_nothing_and_the_next_is_whole(
    tiny_dataset: Dataset, device: str
) -> None:
    workload = workload_of(tiny_dataset)
    with running("gnndrive", workload, device=device) as system:
        for taken in (1, 3):
            batches = system.epoch(0)
            held = [next(batches) for _ in range(taken)]
            batches.close()  # type: ignore[attr-defined]
            assert threads_left() == []
            for batch in held:
                batch.release()
        assert run(system, 1)[:2] == reference(workload, 1)


def test_close_while_extractors_wait_for_slots_ends_them(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset, batch_size=10)
    least = 4 * batch_bounds(workload).max_nodes * 16 * 4
    with running("gnndrive", workload, feature_buffer=str(least)) as system:
        batches = system.epoch(0)
        held = next(batches)
        time.sleep(0.2)  # extractors have filled the buffer by now
        system.close()
        assert threads_left() == []
        held.release()


def test_a_wrong_buffer_size_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="feature_buffer is '12 parsecs'"):
        GnnDriveOptions(feature_buffer="12 parsecs")

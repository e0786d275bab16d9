"""`emulated:late`: copies arrive when they are waited for, in order; undefined memory
does not look like data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from workloads.accelerators.late import LateAccelerator
from workloads.accelerators.make import make_accelerator
from workloads.feature_table import SplitTable


@pytest.fixture
def device() -> Iterator[LateAccelerator]:
    made = make_accelerator("emulated:late", memory_bytes=1 << 20)
    assert isinstance(made, LateAccelerator)
    yield made
    made.close()


def table_of(device: LateAccelerator, rows: int = 10) -> torch.Tensor:
    table = device.allocate(rows, 4, torch.float32)
    device.copy(table, torch.zeros(rows, 4)).wait()
    return table


def test_a_copy_moves_what_the_source_holds_when_it_is_waited_for(
    device: LateAccelerator,
) -> None:
    table = table_of(device)
    source = torch.ones(3, 4)
    event = device.copy(table, source)
    assert not event.done()
    assert bool(table[:3].isnan().all())
    assert bool((table[3:] == 0).all())
    source.fill_(2)
    event.wait()
    assert event.done()
    assert bool((table[:3] == 2).all())
    assert bool((table[3:] == 0).all())
    table[0] = 5
    event.wait()
    assert float(table[0, 0]) == 5  # it arrived before


def test_rows_are_written_where_the_numbers_stated_at_the_call(
    device: LateAccelerator,
) -> None:
    table = table_of(device)
    rows = torch.tensor([7, 2])
    event = device.copy(table, torch.tensor([[1.0] * 4, [2.0] * 4]), rows)
    assert table[:, 0].isnan().nonzero().flatten().tolist() == [2, 7]
    rows.fill_(0)
    event.wait()
    assert table[:, 0].tolist() == [0, 0, 2, 0, 0, 0, 0, 1, 0, 0]


def test_copies_arrive_in_order_with_the_last_one_waited_for(
    device: LateAccelerator,
) -> None:
    table = table_of(device)
    events = [
        device.copy(table, torch.full((2, 4), float(value))) for value in (1, 2, 3)
    ]
    events[1].wait()
    assert [event.done() for event in events] == [True, True, False]
    assert float(table[0, 0]) == 2
    device.synchronize()
    assert events[2].done()
    assert float(table[1, 3]) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_memory_is_undefined_before_it_is_written_and_once_it_is_freed(
    device: LateAccelerator, dtype: torch.dtype
) -> None:
    assert bool((device.host_buffer(5000) == 0xFF).all())
    table = device.allocate(10, 3, dtype)
    assert bool(table.isnan().all())
    device.copy(table, torch.ones(10, 3, dtype=dtype)).wait()
    late = device.copy(table, torch.ones(10, 3, dtype=dtype))
    device.free(table)
    again = device.allocate(10, 3, dtype)
    late.wait()  # of a table that is gone
    assert again.data_ptr() == table.data_ptr()
    assert bool(again.isnan().all())


def test_an_empty_copy_is_a_copy(device: LateAccelerator) -> None:
    table = table_of(device)
    event = device.copy(table, torch.ones(0, 4), torch.empty(0, dtype=torch.int64))
    assert not event.done()
    event.wait()
    assert event.done()
    assert bool((table == 0).all())


def test_a_gather_ahead_reads_when_it_is_waited_for(device: LateAccelerator) -> None:
    own = table_of(device, 2)
    host = device.host_buffer(3 * 16).view(torch.float32).view(3, 4)
    out = table_of(device)
    rows = torch.tensor([4, 0])
    event = device.gather_ahead(out, SplitTable(own, host), rows)
    rows.fill_(1)
    host.fill_(7)
    assert bool(out[:2].isnan().all())
    assert bool((out[2:] == 0).all())
    event.wait()
    assert out[:3, 0].tolist() == [7, 0, 0]


def test_staging_is_undefined_once_it_is_freed_and_other_memory_stays(
    device: LateAccelerator,
) -> None:
    staging = device.host_buffer(4096)
    other = torch.zeros(64)
    staging.fill_(1)
    device.free_host(other)
    device.free_host(staging[:100])
    assert bool((other == 0).all())
    assert bool((staging[:100] == 0xFF).all())
    staging.fill_(1)
    device.free_host(staging)  # a second time
    assert bool((staging == 1).all())

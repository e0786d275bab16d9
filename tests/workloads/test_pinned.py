"""Pinned host memory is given back once, and a ring reuses bytes only after their
copy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.systems.pinning import StubDriver
from workloads.accelerator import Event, aligned_host_tensor
from workloads.accelerators.pinned import HostRing, PinnedMemory
from workloads.errors import HostError


def test_memory_is_unpinned_once_and_only_when_the_device_is_idle() -> None:
    driver = StubDriver()
    waited = []
    pinned = PinnedMemory(driver, lambda: waited.append(driver.nbytes))
    first, second = (aligned_host_tensor(nbytes) for nbytes in (5000, 4096))
    pinned.add(first)
    pinned.add(second)
    assert (pinned.nbytes, driver.nbytes) == (9096, 12288)
    pinned.remove(first.view(-1)[:10])  # a view that begins where the buffer does
    assert (driver.nbytes, waited) == (4096, [12288])
    pinned.remove(first)
    pinned.remove(torch.empty(0))
    assert driver.nbytes == 4096
    assert len(waited) == 1
    pinned.close()
    assert driver.nbytes == pinned.nbytes == 0


def test_a_registry_that_is_dropped_unpins_its_memory() -> None:
    driver = StubDriver()
    PinnedMemory(driver, lambda: None).add(aligned_host_tensor(4096))
    assert driver.nbytes == 0


def test_a_refusal_to_pin_names_the_fix() -> None:
    driver = StubDriver()
    buffer = aligned_host_tensor(4096)
    first = PinnedMemory(driver, lambda: None)
    first.add(buffer)
    with pytest.raises(HostError, match="CUDA error 712") as caught:
        PinnedMemory(driver, lambda: None).add(buffer)
    assert "memlock" in caught.value.fix


class LateCopy(Event):
    """Copy whose source is read when it is waited for, as late as a device may."""

    def __init__(self, source: Tensor, arrived: list[bytes]) -> None:
        self._source = source
        self._arrived = arrived

    def wait(self) -> None:
        self._arrived.append(bytes(self._source.numpy()))

    def done(self) -> bool:
        return False


@given(sizes=st.lists(st.integers(0, 100), max_size=60))
def test_bytes_in_the_ring_stay_until_their_copy_is_complete(sizes: list[int]) -> None:
    arrived: list[bytes] = []
    memory = torch.zeros(512, dtype=torch.uint8)
    ring = HostRing(memory)
    arrays = [
        np.full(size // 8, number, dtype=np.int64) for number, size in enumerate(sizes)
    ]

    def start(first: int, nbytes: int) -> LateCopy:
        return LateCopy(memory[first : first + nbytes], arrived)

    events = [ring.send(array, start) for array in arrays]
    waited = len(arrived)
    for event in events[waited:]:
        event.wait()
    assert arrived == [array.tobytes() for array in arrays]


def test_an_array_larger_than_the_ring_is_refused() -> None:
    with pytest.raises(ValueError, match="ring of 64"):
        HostRing(torch.zeros(64, dtype=torch.uint8)).send(
            np.zeros(9), lambda *_: LateCopy(torch.empty(0), [])
        )

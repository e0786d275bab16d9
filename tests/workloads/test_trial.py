"""The trial of an accelerator finds each step that does not work, and names it."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from harness.doctor import tried_out
from tests.systems.pinning import PinningDevice
from workloads.accelerator import Event
from workloads.accelerators.trial import main, try_out
from workloads.feature_table import Table


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("dim", [1, 127, 128])
def test_a_sound_device_passes_and_keeps_nothing(dim: int, dtype: torch.dtype) -> None:
    device = PinningDevice(1 << 20)
    assert try_out(device, dim, dtype) == ""
    assert device.used_bytes == device.driver.nbytes == 0


class Misplaces(PinningDevice):
    """Device that copies rows to the wrong places."""

    def copy(
        self,
        dst: Tensor,
        src: Tensor,
        dst_rows: Tensor | None = None,
        *,
        batch: int = -1,
    ) -> Event:
        return super().copy(
            dst, src, None if dst_rows is None else dst_rows.flip(0), batch=batch
        )


class CannotRead(PinningDevice):
    """Device whose kernels cannot be launched."""

    def gather(self, table: Table, rows: Tensor) -> Tensor:
        raise RuntimeError("an illegal memory access was encountered\nmore")


def test_each_fault_is_named_by_its_step() -> None:
    assert (
        try_out(Misplaces(1 << 20), 8, torch.float32)
        == "copying rows: other rows arrive"
    )
    message = (
        "reading host memory from the device: an illegal memory access was encountered"
    )
    assert try_out(CannotRead(1 << 20), 8, torch.float32) == message
    assert try_out(PinningDevice(4096), 8, torch.float32).startswith(
        "allocating device memory: device memory: a table"
    )


@pytest.mark.slow("workloads/accelerators", seconds=8)
def test_the_trial_prints_one_object_and_is_read_from_its_own_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main("cpu", 16, torch.float16)
    assert json.loads(capsys.readouterr().out) == {"failed": "", "notes": {}}
    assert tried_out("emulated:instant") == {"failed": "", "notes": {}}


@pytest.mark.slow("workloads/accelerators", seconds=6)
@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has CUDA")
def test_a_device_that_is_absent_fails_and_is_no_crash() -> None:
    assert "no CUDA device" in tried_out("cuda")["failed"]

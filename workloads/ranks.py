"""Processes of a data-parallel run: their ranks, shared memory, and the mean of their
gradients.

torchrun starts them (`harness/worker/ranks.py`) and torch.distributed joins them: gloo
between processors, nccl between CUDA devices. A run of one process has no group.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workloads.arraytypes import UInt8Array
from workloads.errors import OutcoreError


class PeerLost(OutcoreError):
    """Loss of another process of the run; the cause is in the log of that process or
    its launcher."""

    kind = "peer"
    exit_code = 1


class RankGroup:
    """Ranks of one run, numbered from 0 to `world - 1`. All ranks must make the same
    calls in the same order.

    Gradients on a `cuda` device are averaged by nccl. Every call raises PeerLost where
    another process ended.
    """

    def __init__(
        self, rank: int, world: int, device: torch.device | None = None
    ) -> None:
        import torch.distributed as distributed

        self.rank = rank
        self.world = world
        self._distributed = distributed
        backend = "gloo"
        if device is not None and device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        self._call(distributed.init_process_group, backend, rank=rank, world_size=world)

    @classmethod
    def from_environment(cls, *, cuda: bool = False) -> RankGroup | None:
        """Join the group of this torchrun process, one CUDA device a rank; None in a
        run of one process."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return None
        rank = int(os.environ["RANK"])
        return cls(rank, world, torch.device("cuda", rank) if cuda else None)

    def barrier(self) -> None:
        """Wait until every rank calls it."""
        self.gather(None)

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's `value` (plain data of our own processes), by rank, on
        all ranks."""
        found: list[Any] = [None] * self.world
        self._call(self._distributed.all_gather_object, found, value)
        return found

    def average(self, gradients: Sequence[Tensor], weight: float) -> list[Tensor]:
        """Return the mean of all ranks' gradients by `weight`, the rank's number of
        seed nodes: N ranks then take the same step as one process with all their seed
        nodes in one mini-batch."""
        total = torch.tensor([weight], dtype=torch.float32, device=gradients[0].device)
        flat = torch.cat(
            [*(gradient.reshape(-1) * weight for gradient in gradients), total]
        )
        self._call(self._distributed.all_reduce, flat)
        flat /= flat[-1].clone()
        found = []
        at = 0
        for gradient in gradients:
            found.append(flat[at : at + gradient.numel()].view_as(gradient))
            at += gradient.numel()
        return found

    def shared(self, nbytes: int) -> UInt8Array:
        """Map uint8 [nbytes] of zeros that all ranks share: a memory file of rank 0
        that ends with its processes. Its pages are charged to the cgroup of the run,
        once."""
        handle = -1
        if self.rank == 0:
            handle = os.memfd_create("outcore-ranks", os.MFD_CLOEXEC)
            os.ftruncate(handle, max(1, nbytes))
        pid, number = self.gather((os.getpid(), handle))[0]
        if self.rank:
            handle = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        mapping = mmap.mmap(handle, max(1, nbytes))
        self.barrier()  # rank 0 keeps its handle until every rank has opened it
        os.close(handle)
        return np.frombuffer(mapping, dtype=np.uint8, count=nbytes)

    def close(self) -> None:
        """Leave the group; further calls do nothing."""
        if self._distributed.is_initialized():
            self._distributed.destroy_process_group()

    @staticmethod
    def _call(function: Any, *args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except RuntimeError as error:  # how gloo and nccl report a lost connection
            raise PeerLost(
                "another process of this run ended", "read its error in worker.log"
            ) from error

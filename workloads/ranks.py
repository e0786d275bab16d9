"""The processes of a data-parallel run: who is who, memory that they share, and the mean of their gradients.

Started by torchrun (`harness/ranks.py`), joined by torch.distributed: gloo between processors, nccl between CUDA
devices. A run of one process has no group.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workloads.errors import OutcoreError


class PeerLost(OutcoreError):
    """Another process of the run went away; why, that process or its launcher says."""

    kind = "peer"
    exit_code = 1


class RankGroup:
    """The ranks of one run, numbered from 0. All of them have to make the same calls in the same order.

    Args:
        rank: of this process.
        world: how many there are.
        device: where gradients lie: `cuda` takes nccl for them.

    Raises:
        PeerLost: from any call, when another process ended.
    """

    def __init__(self, rank: int, world: int, device: torch.device | None = None) -> None:
        import torch.distributed as distributed

        self.rank = rank
        self.world = world
        self._distributed = distributed
        self._descriptors: list[int] = []
        backend = "gloo"
        if device is not None and device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        self._call(distributed.init_process_group, backend, rank=rank, world_size=world)

    @classmethod
    def from_environment(cls, *, cuda: bool = False) -> RankGroup | None:
        """The group that torchrun made this process part of, one CUDA device a rank; None in a run of one."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return None
        rank = int(os.environ["RANK"])
        return cls(rank, world, torch.device("cuda", rank) if cuda else None)

    def barrier(self) -> None:
        """Return when every rank is here."""
        self.gather(None)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value` (plain data of our own processes), by rank, for all."""
        found: list[Any] = [None] * self.world
        self._call(self._distributed.all_gather_object, found, value)
        return found

    def average(self, gradients: Sequence[torch.Tensor], weight: float) -> list[torch.Tensor]:
        """The mean of all ranks' gradients, each weighing `weight` (its seed nodes), so that N ranks take the very step
        that one process takes with all their seed nodes in one mini-batch."""
        total = torch.tensor([weight], dtype=torch.float32, device=gradients[0].device)
        flat = torch.cat([*(gradient.reshape(-1) * weight for gradient in gradients), total])
        self._call(self._distributed.all_reduce, flat)
        flat /= flat[-1].clone()
        found, at = [], 0
        for gradient in gradients:
            found.append(flat[at : at + gradient.numel()].view_as(gradient))
            at += gradient.numel()
        return found

    def shared(self, nbytes: int) -> NDArray[np.uint8]:
        """uint8 [nbytes] of zeros that all ranks map: made by rank 0 as a memory file, which ends with its processes.

        Its pages are charged to the cgroup of the run, once.
        """
        place = None
        if self.rank == 0:
            handle = os.memfd_create("outcore-ranks", os.MFD_CLOEXEC)
            os.ftruncate(handle, max(1, nbytes))
            self._descriptors.append(handle)
            place = (os.getpid(), handle)
        pid, number = self.gather(place)[0]
        handle = number if self.rank == 0 else os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        mapping = mmap.mmap(handle, max(1, nbytes))
        if self.rank:
            os.close(handle)
        self.barrier()  # rank 0 keeps its handle until everyone has opened it
        if self.rank == 0:
            os.close(self._descriptors.pop())
        return np.frombuffer(mapping, dtype=np.uint8, count=nbytes)

    def close(self) -> None:
        """Leave the group. May be called more than once."""
        if self._distributed.is_initialized():
            self._distributed.destroy_process_group()

    @staticmethod
    def _call(function: Any, *args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except RuntimeError as error:  # gloo and nccl tell a lost connection so
            raise PeerLost("another process of this run ended", "see what it said in worker.log") from error

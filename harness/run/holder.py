"""Holder of the interpreter's and torch's library pages outside the cap, so that no run is charged for them. It does a
worker's imports and one small training step, for libraries that torch loads late, reads all library pages, prints
`ready` and sleeps until its input closes, as on the orchestrator's death: `python -m harness.run.holder SYSTEM…`."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.isolation.base import Cap

_MADV_POPULATE_READ = 22  # Linux 5.14; an older kernel returns EINVAL, and only touched pages are held
_HELD: dict[str, mmap.mmap] = {}


class Holder:
    """The orchestrator's handle on the holder process of a series. `systems`: names of the systems whose imports are
    held too. `cap`: unlimited cap for the holder if runs see other files than this process; closed with the holder."""

    def __init__(self, systems: Sequence[str], cap: Cap | None = None) -> None:
        self._cap = cap
        argv = [sys.executable, "-m", "harness.run.holder", *sorted(set(systems))]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(
            cap.command(argv) if cap else argv, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True
        )

    def wait_ready(self) -> bool:
        """Wait until the libraries are held; return False if that failed (runs are then charged for their pages)."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip() == b"ready"

    def close(self) -> None:
        """End the holder and close its cap."""
        with self._process:  # closes the pipes, and waits
            assert self._process.stdin is not None
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=2)
            self._process.kill()
        if self._cap is not None:
            self._cap.close()


def _touch() -> None:
    """Take one small training step, so that the code pages of torch's kernels become resident here."""
    import numpy as np
    import torch

    from workloads.accelerators.make import make_accelerator
    from workloads.sampling.batch import Block, SampledBatch
    from workloads.training import Trainer
    from workloads.workload import ModelSpec

    size, seeds = 512, 64
    block = Block(np.arange(0, 8 * seeds + 1, 8), np.arange(8 * seeds, dtype=np.int32) % size, size, seeds)
    batch = SampledBatch(0, 0, np.arange(size), seeds, (block,), np.zeros(seeds, dtype=np.int64))
    trainer = Trainer(ModelSpec(layers=1), 32, 8, make_accelerator("cpu"), 0)
    trainer.step(batch, torch.randn(size, 32), torch.arange(size))


def mapped_libraries(pid: int | str = "self") -> set[str]:
    """Return the paths of the libraries that a process has mapped; empty once it is gone."""
    with contextlib.suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        return {line.split(maxsplit=5)[-1].strip() for line in maps if ".so" in line}
    return set()


def populate_libraries(names: Iterable[str]) -> None:
    """Read every page of libraries and keep them mapped here, since the first reader of a page is charged for it."""
    for name in set(names) - _HELD.keys():
        with contextlib.suppress(OSError, ValueError), open(name, "rb") as file:
            library = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            library.madvise(_MADV_POPULATE_READ)
            _HELD[name] = library


def main(names: Sequence[str]) -> None:
    """Hold the libraries of the systems `names`: print `ready`, then sleep until standard input closes."""
    gc.disable()  # imports make no garbage
    import workloads.sampling.make
    import workloads.training  # noqa: F401  (a worker's imports)
    from harness.wire.pipes import die_with_parent
    from systems.registry import load
    from workloads.errors import HostError

    die_with_parent(os.getppid())
    for name in names:
        with contextlib.suppress(HostError):  # the system's runs report a library that is not installed
            load(name).load_libraries()
    _touch()
    populate_libraries(mapped_libraries())
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])

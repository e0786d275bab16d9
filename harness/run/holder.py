"""Holder of the interpreter's and torch's files outside the cap, so that no run is
charged for their pages. It does a worker's imports and one small training step, for
libraries that torch loads late, reads all library pages, prints the names of these
files and sleeps until its input closes, as on the orchestrator's death: `python -m
harness.run.holder SYSTEM…`. A later holder reads the files that an earlier one named,
which takes a tenth of the time: `python -m harness.run.holder --files FILE…`."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import mmap
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the holder of named files imports nothing
    from harness.cache import Cache
    from harness.isolation.base import Cap

_MADV_POPULATE_READ = (
    22  # Linux 5.14; an older kernel returns EINVAL, and only touched pages are held
)
_HELD: dict[str, mmap.mmap] = {}
_KIND = "files"


class Holder:
    """The orchestrator's handle on the holder process of a series.

    Args:
        systems: names of the systems whose imports are held too.
        cache: cache of the names of the files, by the code, the interpreter and the
            state of its packages.
        cap: unlimited cap for the holder if runs see other files than this process,
            whose names are not kept; closed with the holder.
    """

    def __init__(
        self, systems: Sequence[str], cache: Cache, cap: Cap | None = None
    ) -> None:
        self._cache = cache
        self._cap = cap
        self._keys = [] if cap else [_key(system) for system in sorted({*systems})]
        known = bool(self._keys) and all(cache.get(_KIND, key) for key in self._keys)
        words = (
            ["--files", *(str(cache.path(_KIND, key)) for key in self._keys)]
            if known
            else sorted({*systems})
        )
        argv = [sys.executable, "-m", "harness.run.holder", *words]
        pipe = subprocess.PIPE
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            cap.command(argv) if cap else argv,
            stdin=pipe,
            stdout=pipe,
            stderr=null,
            start_new_session=True,
        )

    def wait_ready(self) -> bool:
        """Wait until the files are held; return False if that failed (runs are then
        charged for their pages)."""
        assert self._process.stdout is not None
        try:
            named = json.loads(self._process.stdout.readline())
        except ValueError:
            return False
        if named:
            for key in self._keys:
                self._cache.put(_KIND, key, named)
        return True

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


def _key(system: str) -> str:
    """Return the key of the files that a worker of `system` loads: code, interpreter,
    and times of its packages."""
    from harness.cache import digest_of
    from harness.records.code import harness_fingerprint, system_fingerprint

    folders = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    times = [
        [folder, Path(folder).stat().st_mtime_ns]
        for folder in folders
        if Path(folder).is_dir()
    ]
    return digest_of(
        [
            system,
            system_fingerprint(system),
            harness_fingerprint(),
            sys.version,
            sys.executable,
            times,
        ]
    )


def _touch() -> None:
    """Take one small training step, so that the code pages of torch's kernels become
    resident here."""
    import numpy as np
    import torch

    from workloads.accelerators.make import make_accelerator
    from workloads.sampling.batch import Block, SampledBatch
    from workloads.training import Trainer
    from workloads.workload import ModelSpec

    size = 512
    seeds = 64
    block = Block(
        np.arange(0, 8 * seeds + 1, 8),
        np.arange(8 * seeds, dtype=np.int32) % size,
        size,
        seeds,
    )
    batch = SampledBatch(
        0, 0, np.arange(size), seeds, (block,), np.zeros(seeds, dtype=np.int64)
    )
    trainer = Trainer(ModelSpec(layers=1), 32, 8, make_accelerator("cpu"), 0)
    trainer.step(batch, torch.randn(size, 32), torch.arange(size))


def mapped_libraries(pid: int | str = "self") -> set[str]:
    """Return the paths of the libraries that a process has mapped; empty once it is
    gone."""
    with contextlib.suppress(OSError):
        maps = (
            Path(f"/proc/{pid}/maps")
            .read_text(encoding="utf-8", errors="replace")
            .splitlines()
        )
        return {line.split(maxsplit=5)[-1].strip() for line in maps if ".so" in line}
    return set()


def populate_libraries(names: Iterable[str]) -> None:
    """Read every page of libraries and keep them mapped here, since the first reader of
    a page is charged for it."""
    for name in set(names) - _HELD.keys():
        with contextlib.suppress(OSError, ValueError), open(name, "rb") as file:
            library = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            library.madvise(_MADV_POPULATE_READ)
            _HELD[name] = library


def module_files() -> list[str]:
    """Return the source files of the modules that this process has imported; extension
    modules are libraries."""
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    return sorted(
        {
            spec.origin
            for spec in specs
            if spec is not None and (spec.origin or "").endswith(".py")
        }
    )


def read_modules(sources: Iterable[str]) -> None:
    """Read what an import of modules reads: folders, entries of sources, and bytecode,
    or sources without any."""
    files = [Path(source) for source in sources]
    for folder in {file.parent for file in files}:
        with contextlib.suppress(OSError):
            list(folder.iterdir())
    for file in files:
        with contextlib.suppress(OSError):  # gone since it was named
            file.stat()
            compiled = Path(importlib.util.cache_from_source(str(file)))
            (compiled if compiled.exists() else file).read_bytes()


def _load(names: Sequence[str]) -> dict[str, list[str]]:
    """Import what a worker of the systems `names` imports; return the names of
    libraries and modules."""
    gc.disable()  # imports make no garbage
    import workloads.sampling.make
    import workloads.training  # noqa: F401  (a worker's imports)
    from harness.wire.pipes import die_with_parent
    from systems.registry import load
    from workloads.errors import HostError

    die_with_parent(os.getppid())
    for name in names:
        with contextlib.suppress(
            HostError
        ):  # the system's runs report a library that is not installed
            load(name).load_libraries()
    _touch()
    return {"libraries": sorted(mapped_libraries()), "modules": module_files()}


def main(words: Sequence[str]) -> None:
    """Hold the files of systems, or those that JSON files name: print new names, and
    sleep until the input closes."""
    if words[:1] == ["--files"]:
        named = [
            json.loads(Path(file).read_text(encoding="utf-8")) for file in words[1:]
        ]
        reported = {}
        read_modules({module for one in named for module in one["modules"]})
    else:
        reported = _load(words)
        named = [reported]
    populate_libraries(library for one in named for library in one["libraries"])
    print(json.dumps(reported), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Cheats that get half of their rows elsewhere and read the other half, which is more
than the least that any system reads: what they hold or open must tell."""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.store import artefacts
from tests.harness.cheats.act import COPY, Act, Ids, cheat

BEFORE = "nothing_was_prepared_before"
MISSING = "No such file or directory"
DENIED = "Operation not permitted"
KEY = {"of": "the cheats"}


class _Half(Act):
    """Base: rows of even nodes come from `self.table`, the others are read."""

    table: npt.NDArray[Any]

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Take one half and read the other."""
        even = nodes % 2 == 0
        out = np.empty((len(nodes), self.system.workload.dataset.dim), dtype=np.float32)
        out[even] = self.take(nodes[even])
        out[~even] = self.system.read(nodes[~even])
        return out

    def take(self, nodes: Ids) -> npt.NDArray[Any]:
        """Return rows of even nodes."""
        return self.table[nodes]

    def view(self, memory: Any, offset: int = 0) -> npt.NDArray[Any]:
        """Return the table in `memory`, [nodes, dim]."""
        dataset = self.system.workload.dataset
        table = np.frombuffer(
            memory, np.float32, dataset.num_nodes * dataset.dim, offset
        )
        return table.reshape(dataset.num_nodes, dataset.dim)


@cheat("", wall=MISSING)
class HalfInSharedMemory(_Half):
    """Maps a copy of the features in shared memory that another process was charged
    for."""

    def prepare(self) -> None:
        """Map the copy and close it."""
        with Path(self.system.options.place).open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.table = self.view(
            memory, self.system.workload.dataset.data_offset("features")
        )


@cheat("", wall=MISSING)
class HalfInMemoryWithinEpochs(HalfInSharedMemory):
    """Maps the copy while an epoch's clock runs, and at no gate."""

    def prepare(self) -> None:
        """Map nothing yet."""

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Map the copy."""
        super().prepare()
        return super().seeds(epoch)

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read slowly, so that an epoch lasts five seconds, and unmap the copy after
        the last mini-batch."""
        time.sleep(0.16)
        rows = super().rows(epoch, index, nodes)
        if index == self.system.seed_plan.num_batches - 1:
            del self.table
        return rows


class _HalfInPieces(_Half):
    """Base: maps files below 1 MiB with the rows of even nodes."""

    def prepare(self) -> None:
        """Map the pieces."""
        self._pieces: list[npt.NDArray[Any]] = []
        for path in sorted(Path(self.system.options.place).iterdir()):
            with path.open("rb") as file:
                memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            memory.madvise(mmap.MADV_RANDOM)
            self._pieces.append(
                np.frombuffer(memory, np.float32).reshape(
                    -1, self.system.workload.dataset.dim
                )
            )

    def take(self, nodes: Ids) -> npt.NDArray[Any]:
        """Return rows of the pieces."""
        each = len(self._pieces[0])
        return np.stack(
            [self._pieces[row // each][row % each] for row in (nodes // 2).tolist()]
        )


@cheat("", wall=MISSING)
class HalfInPiecesOfMemory(_HalfInPieces):
    """Maps pieces in shared memory that another process was charged for."""


@cheat("", wall=MISSING)
class HalfInPieces(_HalfInPieces):
    """Maps pieces on the disk that were made before the run."""


@cheat("", wall=DENIED)
class HalfInAMemoryFile(_Half):
    """Maps a nameless memory file that another process hands over."""

    def prepare(self) -> None:
        """Ask for the file, map and close it."""
        with socket.socket(socket.AF_UNIX) as owner:
            owner.connect(self.system.options.place)
            _, (descriptor,), _, _ = socket.recv_fds(owner, 1, 1)
        memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        os.close(descriptor)
        self.table = self.view(
            memory, self.system.workload.dataset.data_offset("features")
        )


@cheat("", wall=DENIED)
class HalfInHugePages(_Half):
    """Keeps half of the features in reserved huge pages, which a memory cgroup does not
    charge."""

    def prepare(self) -> None:
        """Copy rows of even nodes there in small pieces."""
        dataset = self.system.workload.dataset
        pages = -(-dataset.feature_bytes // 2 // (2 << 20)) * (2 << 20)
        memory = mmap.mmap(
            -1, pages, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000
        )  # MAP_HUGETLB
        count = -(-dataset.num_nodes // 2)
        self.table = np.frombuffer(memory, np.float32, count * dataset.dim).reshape(
            count, dataset.dim
        )
        for first in range(0, count, 4096):
            last = min(first + 4096, count)
            self.table[first:last] = self.system.read(2 * np.arange(first, last))

    def take(self, nodes: Ids) -> npt.NDArray[Any]:
        """Return rows of the copy."""
        return self.table[nodes // 2]


class _HalfOfAFile(_Half):
    """Base: rows of even nodes are read from a file that is no part of the dataset."""

    def open(self, path: Path) -> None:
        """Open the file."""
        self._other = self.system.open_table(path)

    def take(self, nodes: Ids) -> npt.NDArray[Any]:
        """Read rows from the file."""
        out = np.empty((len(nodes), self.system.workload.dataset.dim), dtype=np.float32)
        self._other.read(nodes, out)
        return out

    def close(self) -> None:
        """Close the file."""
        if hasattr(self, "_other"):
            self._other.close()


@cheat("", wall=MISSING)
class HalfOnAnotherDisk(_HalfOfAFile):
    """Reads a copy on a disk whose reads are not the run's."""

    def prepare(self) -> None:
        """Open the copy."""
        self.open(Path(self.system.options.place))


@cheat(BEFORE)
class HalfBesideTheDataset(_HalfOfAFile):
    """Reads a file that was made in the dataset's folder before the run."""

    def prepare(self) -> None:
        """Open the file."""
        self.open(Path(self.system.options.place))


@cheat("")
class HalfOfTheCalibration(_HalfOfAFile):
    """Reads a file that the run's calibration made, when no clock ran
    (`CopiesInLibraries`)."""

    def prepare(self) -> None:
        """Open the file."""
        self.open(self.system.runtime.artefacts / COPY)


@cheat("", wall=MISSING)
class HalfWithoutAName(_HalfOfAFile):
    """Reads a file of an earlier run whose name it removes, so that no path leads to
    it."""

    def prepare(self) -> None:
        """Open the file by a link of its own and remove that."""
        link = self.system.runtime.scratch / "link"
        link.hardlink_to(self.system.options.place)
        self.open(link)
        link.unlink()


@cheat("", wall=MISSING)
class HalfMovedIn(_HalfOfAFile):
    """Moves a file of an earlier run into the folder of its artefacts."""

    def prepare(self) -> None:
        """Link the file there and open it."""
        link = self.system.runtime.artefacts / "packed"
        link.hardlink_to(self.system.options.place)
        self.open(link)


@cheat(BEFORE)
class HalfOfAnArtefactUntold(_HalfOfAFile):
    """Opens an artefact of an earlier run past the store, so that the seconds of its
    making are not counted."""

    def prepare(self) -> None:
        """Open the artefact's file."""
        (folder,) = self.system.runtime.artefacts.glob("half-*")
        self.open(folder / "half.npy")


@cheat("")
class HalfOfAnArtefactTold(_HalfOfAFile):
    """Takes an artefact of an earlier run from the store, which counts the seconds of
    its making: no cheat."""

    def prepare(self) -> None:
        """Open the artefact's file."""
        found = artefacts.prepare(
            self.system.runtime.artefacts, "half", KEY, lambda folder: {}
        )
        self.open(found.path / "half.npy")


@cheat("")
class HalfOfAnArtefactOfAnotherSetting(_HalfOfAFile):
    """Takes an artefact that an earlier run made without a cap from the store, which
    lets it make its own: no cheat."""

    def prepare(self) -> None:
        """Open the artefact's file."""
        found = artefacts.prepare(
            self.system.runtime.artefacts, "half", KEY, self._make
        )
        self.open(found.path / "half.npy")

    def _make(self, folder: Path) -> None:
        """Copy the features; others' processors could do so faster."""
        time.sleep(1.5)
        shutil.copy(self.system.workload.dataset.file("features"), folder / "half.npy")


@cheat("")
class LoadsByName(Act):
    """Loads code from a folder by names that no import statement has, so that it may be
    other code tomorrow."""

    def prepare(self) -> None:
        """Load a module and a library."""
        super().prepare()
        sys.path.append(self.system.options.place)
        importlib.import_module("_".join(("rows", "of", "today")))
        ctypes.CDLL(f"{self.system.options.place}/rows.so")


@cheat("", wall=MISSING)
class HalfOpenedInEpochs(_HalfOfAFile):
    """Has a file of an earlier run open while an epoch's clock runs, and never at a
    gate."""

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Open the file."""
        self.open(Path(self.system.options.place))
        return super().seeds(epoch)

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read slowly, so that an epoch lasts two seconds, and close the file after the
        last mini-batch."""
        time.sleep(0.06)
        rows = super().rows(epoch, index, nodes)
        if index == self.system.seed_plan.num_batches - 1:
            self._other.close()
        return rows

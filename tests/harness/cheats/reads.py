"""Cheats that get rows elsewhere: page cache or memory of other processes, uncharged
memory, reads between epochs."""

from __future__ import annotations

import mmap
import socket
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.harness.cheats.act import Act, Ids, cheat


class _Mapped(Act):
    """Base of cheats that read rows through a memory map of a table."""

    def _map(self, path: Path, offset: int) -> None:
        dataset = self.system.workload.dataset
        self._table = np.memmap(
            path,
            dtype=dataset.feature_dtype,
            mode="r",
            offset=offset,
            shape=(dataset.num_nodes, dataset.dim),
        )
        self._table._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read rows through the page cache."""
        return np.asarray(self._table[nodes])


@cheat("files_stayed_cold")
class WarmCache(_Mapped):
    """Uses the page cache that another process fills with the features, at no cost to
    the run."""

    def prepare(self) -> None:
        """Map the features."""
        dataset = self.system.workload.dataset
        self._map(dataset.file("features"), dataset.data_offset("features"))


@cheat("", wall="No such file or directory")
class WarmArtefact(_Mapped):
    """Reads an unreported copy of the features that another process keeps in the page
    cache."""

    def prepare(self) -> None:
        """Map the copy without reporting it."""
        self._map(
            Path(self.system.options.place),
            self.system.workload.dataset.data_offset("features"),
        )


@cheat("", wall="No such file or directory")
class MemoryOfAnEarlierRun(_Mapped):
    """Reads a copy of the features in shared memory that is charged to a process that
    has ended."""

    def prepare(self) -> None:
        """Map the copy."""
        self._map(
            Path(self.system.options.place),
            self.system.workload.dataset.data_offset("features"),
        )


@cheat("", wall="Operation not permitted")
class AnotherProcessesMemory(Act):
    """Gets rows from a server that has held the features since before the run."""

    def prepare(self) -> None:
        """Connect to the server."""
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(self.system.options.place)

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Request the rows from the server."""
        self._server.sendall(
            len(nodes).to_bytes(8, "little") + nodes.astype("<i8").tobytes()
        )
        out = np.empty((len(nodes), self.system.workload.dataset.dim), dtype=np.float32)
        view = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        while view:
            view = view[self._server.recv_into(view) :]
        return out


class _ReadsTheCopy(Act):
    """Base of cheats that read a copy of the features at `place`, as they would the
    dataset's file."""

    def prepare(self) -> None:
        """Open the copy instead of the dataset's file."""
        self.system.reader.close()
        self.system.reader = self.system.open_table(Path(self.system.options.place))


@cheat("", wall="No such file or directory")
class DiskInMemory(_ReadsTheCopy):
    """Reads a copy of the features on a RAM disk without a limit."""


@cheat("", wall="No such file or directory")
class PreparedBefore(_ReadsTheCopy):
    """Reads a copy of the features that was made before the run and is reported by no
    run."""


@cheat("", wall="Operation not permitted")
class HugePages(Act):
    """Keeps the features in reserved huge pages, which a memory cgroup does not
    charge."""

    def prepare(self) -> None:
        """Copy the features there in small pieces."""
        dataset = self.system.workload.dataset
        pages = -(-dataset.feature_bytes // (2 << 20)) * (2 << 20)
        self._memory = mmap.mmap(
            -1, pages, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000
        )  # MAP_HUGETLB
        table = np.frombuffer(
            self._memory, dtype=np.float32, count=dataset.num_nodes * dataset.dim
        )
        self._table = table.reshape(dataset.num_nodes, dataset.dim)
        for first in range(0, dataset.num_nodes, 4096):
            nodes = np.arange(first, min(first + 4096, dataset.num_nodes))
            self._table[first : first + 4096] = self.system.read(nodes)

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Return rows of the copy."""
        return self._table[nodes]


@cheat("nothing_was_read_between_epochs")
class PrefetchBetweenGates(Act):
    """Reads the next epoch's first rows while the harness asks for counters."""

    def between(self) -> None:
        """Read too little for a clock to notice."""
        self.system.read(
            np.arange(0, self.system.workload.dataset.num_nodes, 16)[:6000]
        )
        self._kept = True

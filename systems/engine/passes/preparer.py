"""Sampling of successive groups of mini-batches: drawn together, written to a file,
their uses of rows kept."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import ReadStats
from systems.engine.io.tally import Tally
from systems.engine.io.topology import mapped_sampler
from systems.engine.passes.group import NO_USES, G, Group, Uses
from systems.engine.passes.loader import GroupLoader
from systems.engine.passes.sampling import ExternalSampler, Ids, Job, Nodes
from systems.engine.passes.sizes import PassSizes
from systems.engine.pipeline import Channel, Pipeline
from systems.engine.store.batch_store import BatchWriter
from systems.interface import StageClock
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_seed_plan
from workloads.sampling.neighbor import NeighborSampler


@dataclass(eq=False)
class Preparer(ABC, Generic[G]):
    """Preparer of successive groups; the class of each system places their rows.

    Args:
        make: class of its groups.
        gap_bytes: longest run of unwanted bytes of the graph that is read to save a
            request.

    Raises:
        DataIOError: a file of the dataset cannot be opened.
    """

    sizes: PassSizes
    clock: StageClock
    make: type[G]
    gap_bytes: int

    def __post_init__(self) -> None:
        sizes = self.sizes
        workload = self.sizes.workload
        self._seeds = make_seed_plan(workload)
        self._sampler: ExternalSampler | None = None
        if sizes.external:
            self._sampler = ExternalSampler(
                workload,
                gap_bytes=self.gap_bytes,
                piece_bytes=sizes.graph_piece_bytes,
                pieces=sizes.graph_pieces,
                group_nodes=sizes.graph_nodes,
                threads=sizes.threads,
                whole=sizes.graph_whole,
            )
        else:
            self._online = self._make_online()
        self._fix = (
            "make room on the disk of the results folder, or lower "
            f"{sizes.group_option}"
        )
        self._pipe: Pipeline | None = None
        self._folder: Path | None = None
        self._made = Counter[str]()
        self._free: dict[str, list[Path]] = {"samples": [], "rows": []}
        self._stop = _native.StopFlag()
        self._stopped = False

    @abstractmethod
    def prepare(self, jobs: Sequence[Job], ahead: bool) -> G:
        """Prepare the first of these groups.

        Args:
            jobs: the group and the groups after it, as many as there are hops.
            ahead: whether the next group is prepared after it.

        Raises:
            DataIOError: a disk is full or fails; `close` removes what was written.
            InterruptedError: `stop` was called.
        """

    def load(self, group: G, loader: GroupLoader, tally: Tally) -> None:
        """Load a prepared group's rows into the loader's slots before it trains; the
        default leaves all rows to the loader."""

    def rest(self) -> None:
        """Free memory and close files after the last group, but keep the prepared
        groups."""

    def _make_online(self) -> NeighborSampler:
        """Return the sampler of mini-batches one by one: `indptr` in memory, the rest
        mapped."""
        return mapped_sampler(self.sizes.workload)

    def _path(self, kind: str) -> Path:
        """Return a file that no group needs any more, or a new one."""
        if self._folder is None:
            self._folder = (
                self.sizes.runtime.scratch
                / f"{self.sizes.name}-{self.sizes.runtime.rank}"
            )
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
        if self._free[kind]:
            return self._free[kind].pop()
        self._made[kind] += 1
        return self._folder / f"{kind}-{self._made[kind]}"

    def release(self, group: Group) -> None:
        """Free a group's files, so that a later group overwrites them."""
        self._free["samples"].append(group.samples)
        if group.rows is not None:
            self._free["rows"].append(group.rows)

    def _reads(self) -> ReadStats:
        return self._sampler.reads() if self._sampler is not None else ReadStats()

    def sample(self, jobs: Sequence[Job]) -> G:
        """Sample and write the first of these groups; later ones share its passes over
        the graph.

        Raises:
            DataIOError: a disk is full or fails; `close` removes what was written.
            InterruptedError: `stop` was called.
        """
        job = jobs[0]
        before = self._reads()
        path = self._path("samples")
        seeds = self._seeds_of(job)
        nodes = (
            None
            if self.sizes.sampling_only
            else np.empty(self.sizes.group_uses, dtype=np.uint32)
        )
        graphs = BatchWriter(path, fix=self._fix, reuse=True)
        try:
            if self._sampler is None:
                offsets, nodes = self._write_online(job, seeds, graphs, nodes)
            else:
                with self.clock.stage("sample", job.first):
                    self._sampler.sample(
                        jobs, lambda one: seeds if one is job else self._seeds_of(one)
                    )
                    offsets, nodes = self._sampler.write(
                        graphs, self.sizes.room_bytes, nodes
                    )
            index = graphs.close(sync=False)
        except BaseException:
            graphs.abandon()
            raise
        del graphs
        give_back_free_memory()
        count = int(offsets[-1])
        counts = np.array([len(part) for part in seeds], dtype=np.int64)
        used = NO_USES if nodes is None else Uses(nodes[:count], offsets, counts)
        return self.make(
            job, path, index, used, count, _difference(self._reads(), before)
        )

    def _write_online(
        self, job: Job, seeds: list[Ids], graphs: BatchWriter, nodes: Nodes | None
    ) -> tuple[Ids, Nodes | None]:
        """Write mini-batches that are sampled one by one; returns as
        `ExternalSampler.write`."""
        offsets = np.zeros(job.count + 1, dtype=np.int64)
        threads = self.sizes.threads

        def sample(number: int, part: Ids) -> SampledBatch:
            with self.clock.stage("sample", job.first + number):
                return self._online.sample(job.epoch, job.first + number, part)

        with Pipeline(f"{self.sizes.name}-sampling") as pipe:
            self._pipe = pipe
            done: Channel[SampledBatch] = pipe.channel(threads, ordered=True)
            pipe.stage("sample", threads, sample, seeds, done)
            for i, batch in enumerate(pipe.results(done)):
                offsets[i + 1] = offsets[i] + batch.num_nodes
                if nodes is not None:
                    if offsets[i + 1] > len(
                        nodes
                    ):  # an epoch larger than all that the bounds come from
                        nodes = np.concatenate(
                            [nodes, np.empty(batch.num_nodes, dtype=np.uint32)]
                        )
                    nodes[offsets[i] : offsets[i + 1]] = batch.nodes
                graphs.append(batch)
        return offsets, nodes

    def _seeds_of(self, job: Job) -> list[npt.NDArray[np.int64]]:
        return self._seeds.batches(job.epoch)[job.first : job.first + job.count]

    def stop(self) -> None:
        """End the preparation of another thread with InterruptedError."""
        self._stopped = True
        self._stop.set()
        if self._sampler is not None:
            self._sampler.stop()
        if self._pipe is not None:
            self._pipe.stop()

    def close(self) -> None:
        """Close the files and remove the prepared groups."""
        if self._sampler is not None:
            self._sampler.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _difference(after: ReadStats, before: ReadStats) -> ReadStats:
    names = ("requests", "bytes_read", "bytes_useful", "rows", "unique_rows", "seconds")
    sizes = Counter(after.requests_by_size) - Counter(before.requests_by_size)
    return ReadStats(
        requests_by_size=dict(sizes),
        **{name: getattr(after, name) - getattr(before, name) for name in names},
    )

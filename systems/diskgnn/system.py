"""DiskGNN: offline sampling, rows ranked by accesses, four levels of storage, a
pipeline of four workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from systems import _native
from systems.diskgnn.buffers import DeviceMemory, HostMemory
from systems.diskgnn.episode import DEVICE, DISK, HOST, Episodes, Ready
from systems.diskgnn.pipeline import EpisodeLoader
from systems.diskgnn.planner import DiskGnnOptions, DiskGnnSizes, fit
from systems.diskgnn.ranking import AccessCounts, miss_curve, slots_of
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import ReadStats, RowReader
from systems.engine.io.row_reads import ReaderPool, RowTable
from systems.engine.io.tally import Tally
from systems.engine.io.topology import DatasetFiles
from systems.engine.loading.sized import SizedSystem
from systems.engine.store.packed_store import PackedReader, row_pieces
from systems.forecast import PAGE, sequential
from systems.interface import (
    Batch,
    Counters,
    Facts,
    Forecast,
    Options,
    SystemInfo,
    Trace,
)


class DiskGnnFacts(Facts):
    """Facts of a run of `diskgnn`.

    Attributes:
        segment: mini-batches of a segment, which share a disk cache.
        threshold: mini-batches of a segment from which on a row is stored once.
        disk_bytes: bytes of the packed files.
        read_amplification: predicted bytes read for one byte used.
        search_s, pack_s: seconds of the search for the segment and of packing, in this
            run or an earlier one.
        pack_read_bytes: bytes read by packing.
    """

    segment: int | None = None
    threshold: int | None = None
    disk_bytes: int | None = None
    read_amplification: float | None = None
    search_s: float | None = None
    pack_s: float | None = None
    pack_read_bytes: int | None = None


class DiskGnn(SizedSystem):
    """DiskGNN on the processor, where device cache and host cache are one, and on
    devices with their own memory."""

    info = SystemInfo(
        name="diskgnn",
        paper="diskgnn",
        summary="offline sampling; hot rows cached, the others packed by "
        "mini-batch and "
        "read in order",
        options=DiskGnnOptions,
        artefact_share=0.6,
    )
    options: DiskGnnOptions

    _ready: Ready | None = None
    _reader: PackedReader | None = None
    _memory: HostMemory | None = None
    _trainer: EpisodeLoader | None = None
    _tally: Tally | None = None
    _singles: ReaderPool[RowReader] | None = None
    _episodes: Episodes | None = None
    _reused = False
    _load_s = 0.0

    @classmethod
    def is_faithful(cls, options: Options) -> bool:
        """Return False where epochs replay another epoch's samples instead of the
        workload's mini-batches."""
        assert isinstance(options, DiskGnnOptions)
        return options.resample_every == 1

    @cached_property
    def _sizes(self) -> DiskGnnSizes:
        drawn = len(self._episode_of(0))
        return self.fit(lambda: DiskGnnSizes(self, drawn))

    def prepare(self) -> None:
        """Open the dataset; where all epochs replay one epoch's samples, sample and
        pack these."""
        DatasetFiles(self.workload, ["indices", "labels", "features"]).check()
        # Of the dataset's device: the results folder may lie on another one.
        block_bytes = _native.block_bytes(str(self.workload.dataset.file("features")))
        self._episodes = Episodes(self._sizes, self.clock, block_bytes)
        if self.options.resample_every == 0:
            self._open(self._episode_of(0))

    def prepare_epochs(self, first: int) -> int:
        """Sample and pack the episode of epoch `first` (all epochs if their number is
        known), and load its caches."""
        every = self.options.resample_every
        known = self.runtime.epochs
        if every == 0:
            return 0
        episode = self._episode_of(first)
        self._open(episode)
        end = episode[-1] + every
        return (min(end, known) if known else end) - first

    def shared_s(self) -> float:
        """Return the seconds of reading the graph for the first epoch, of one pass over
        the features and of loading the caches; none where the number of epochs of an
        episode is an option."""
        if self._ready is None or self.options.episode:
            return 0.0
        return float(self._ready.facts["shared_s"]) + self._load_s

    def _drawn(self, epoch: int) -> int:
        """Return the epoch whose samples epoch `epoch` trains on."""
        every = self.options.resample_every
        return epoch // every * every if every else 0

    def _episode_of(self, epoch: int) -> tuple[int, ...]:
        """Return the sampled epochs that are prepared together with that of `epoch`."""
        every = self.options.resample_every
        known = self.runtime.epochs
        if every == 0:
            return (0,)
        length = self.options.episode or max(1, -(-known // every))
        first = epoch // every // length * length
        last = (
            max(first + 1, min(first + length, -(-known // every)))
            if known
            else first + length
        )
        return tuple(draw * every for draw in range(first, last))

    def _open(self, epochs: tuple[int, ...]) -> Ready:
        """Prepare or find an episode and load its caches."""
        assert self._episodes is not None
        self._close("_trainer", "_singles", "_memory")
        is_first = self._ready is None
        ready = self._ready = self._episodes.get(epochs)
        if is_first:
            self._reused = ready.reused
        # Preparation's freed arrays stay on the heap, and training needs their memory.
        give_back_free_memory()
        options = self.options
        sizes = self._sizes
        began = time.monotonic()
        with self.clock.stage("switch"):
            self._reader = PackedReader(
                ready.path,
                request_bytes=options.request_bytes,
                depth=options.request_depth,
            )
            if self.runtime.stages != "sample":
                readers = (
                    options.readers
                    if options.packing == "off" or ready.facts["shared_rows"]
                    else 0
                )
                kind = DeviceMemory if sizes.on_device else HostMemory
                self._memory = kind(sizes, ready.fit, singles=readers > 0)
                levels = ready.fit.levels
                for name, count in ((DEVICE, levels.direct), (HOST, levels.host)):
                    if count:
                        self._memory.load(name, row_pieces(ready.path, name))
                self._singles = ReaderPool(lambda: self._single_reader(ready), readers)
            self._trainer = EpisodeLoader(
                sizes, ready, self._reader, self._memory, self._singles, self.clock
            )
        self._load_s = time.monotonic() - began
        return ready

    def _single_reader(self, ready: Ready) -> RowReader:
        options = self.options
        table = RowTable.of(self.workload.dataset)
        if options.packing != "off":
            table = RowTable(
                ready.path / f"{DISK}.rows",
                0,
                ready.facts["shared_rows"],
                self._sizes.row,
            )
        return RowReader(
            table.path,
            **table.place,
            depth=options.io_depth,
            granularity=options.io_granularity,
        )

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k` in the seed plan's order; its episode is
        prepared first if need be."""
        if self._episodes is None:
            raise RuntimeError("prepare() comes before epoch()")
        return self._run(k)

    def _run(self, k: int) -> Iterator[Batch]:
        if self._ready is None or self._drawn(k) not in self._ready.epochs:
            self.prepare_epochs(k)
        trainer = self._trainer
        reader = self._reader
        assert trainer is not None
        assert reader is not None
        self._tally = Tally()
        reader.reset_counters()
        yield from trainer.epoch(k, self._drawn(k), self._tally)

    def counters(self) -> Counters:
        """Return the last epoch's hits on each level, misses and reads.

        Rows of a disk cache are hits of that tier although they are read from disk:
        they count as useful bytes like the rows of packed chunks, and so do the graphs,
        which are read with them.
        """
        tally = self._tally
        reader = self._reader
        options = self.options
        if tally is None or reader is None:
            return Counters()
        packed = tally["packed"]
        single = tally["single"]
        from_table = options.packing == "off"
        on_device = self._sizes.on_device
        hits = (
            {"device": tally["direct"], "host": tally["host"]}
            if on_device
            else {"host": tally["direct"]}
        )
        return tally.counters(
            options.request_depth + len(self._singles or ()) * options.io_depth,
            reader.counters(),
            rows=tally["rows"],
            hits=hits if from_table else {**hits, "disk_cache": single},
            misses=packed + single if from_table else packed,
            bytes_useful=(packed + single) * self._sizes.row + tally["graph_bytes"],
        )

    def simulated(self, epoch: int) -> ReadStats:
        """Return the predicted reads of `epoch`, from its plan alone; for epochs of the
        current episode."""
        assert self._ready is not None
        assert self._reader is not None
        drawn = self._drawn(epoch)
        graphs = self.runtime.stages == "sample"
        parts: tuple[Literal["features", "structure"], ...] = (
            ("structure",) if graphs else ("features", "structure")
        )
        total = self._ready.single_reads(drawn)
        chunks = [
            self._ready.chunk(drawn, batch) for batch in range(self._ready.num_batches)
        ]
        total.add(self._reader.simulate(chunks, parts=parts))
        return total

    def files(self) -> list[Path]:
        """Return the files of the current episode."""
        return [] if self._ready is None else self._ready.files

    def facts(self) -> DiskGnnFacts:
        """Return the read mode, the search's prediction, and the seconds of packing."""
        if self._ready is None:
            return DiskGnnFacts()
        made = self._ready.facts
        predicted = self._ready.facts["predicted"]
        return DiskGnnFacts(
            io=self._reader.mode if self._reader is not None else "closed",
            reads_in=("load_graph", "extract"),
            prepared_reused=self._reused,
            samples_reused=self.options.resample_every != 1,
            **predicted["shape"],
            disk_bytes=predicted["disk_bytes"],
            read_amplification=predicted["read_amplification"],
            search_s=made["search_s"],
            pack_s=made["pack"]["seconds"],
            pack_read_bytes=made["pack"]["bytes_read"],
        )

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast the rows packed by mini-batch, those outside the caches, and the
        preparation of each epoch."""
        sizes = self._sizes
        nodes = trace.workload.dataset.num_nodes
        runtime = self.runtime
        counts = AccessCounts(nodes)
        every = [part.astype(np.int64) for part in trace.nodes]
        for part in every:
            counts.add(part)
        wanted = sizes.table_rows + sizes.host_rows
        ranked = counts.hottest(wanted) if trace.hot is None else trace.hot(wanted)
        levels = fit(
            sizes, miss_curve(every, slots_of(ranked, nodes), len(ranked))
        ).levels
        held, on_device = np.zeros((2, nodes), dtype=bool)
        held[ranked[: levels.cached]] = True
        on_device[ranked[: levels.direct]] = True
        missed = trace.missed(held)
        packed = (
            missed * trace.row_bytes
            + trace.sampled * trace.graph_bytes
            + 12 * trace.accesses
        )
        # Every epoch is sampled anew through the page cache; one pass over the features
        # packs all of an episode.
        page_cache_bytes = host_bytes - self.plan().bytes_of("indptr")
        share_of_pass = trace.workload.dataset.feature_bytes / max(1, runtime.epochs)
        moved = sequential(share_of_pass + trace.scale * packed)
        sampled_s = trace.num_batches * trace.sample_s / max(1, runtime.cores)
        return Forecast(
            sequential(packed),
            f"caches {trace.hit_rate(missed)} of the accesses, the rest lies "
            "packed by mini-batch",
            rows_copied=trace.missed(on_device),
            each_reads={PAGE: trace.scale * trace.graph_pages(page_cache_bytes)}
            | moved,
            each_s=sampled_s,
        )

    def notes(self) -> dict[str, str]:
        """Return the read mode, the rows on each level, and the search's prediction."""
        if self._ready is None:
            return {}
        fit = self._ready.fit
        return {
            **super().notes(),
            "epochs_prepared": ", ".join(map(str, self._ready.epochs)),
            "samples": "each epoch its own"
            if self.options.resample_every == 1
            else "replayed: not faithful",
            "rows_in_memory": f"{fit.levels.direct} in the table, {fit.levels.host} "
            "beside it",
            "buffers": f"{fit.buffers} of {fit.buffer_rows} rows, {fit.staging} to "
            "stage",
        }

    def close(self) -> None:
        """End the threads, close the files and free the table."""
        if self._episodes is not None:
            self._episodes.stop()
        self._close("_trainer", "_singles", "_memory", "_reader")

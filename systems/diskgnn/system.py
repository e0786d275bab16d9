"""DiskGNN: offline sampling, rows ranked by accesses, four levels of storage, a
pipeline of four workers.

The data path of an episode, the epochs that are prepared together:

1. sample all of its mini-batches to a file, and count the uses of each row
   (`episode.py`);
2. divide memory between the hottest rows and the buffers of mini-batches (`fit.py`):
   the device's table, then the host cache;
3. search for the segments whose disk caches keep the packed files within their limit
   (`search.py`), and pack the other rows by mini-batch (`layout.py`);
4. for each mini-batch of an epoch, read its graph and its packed rows ahead, read
   shared rows one by one, and copy all beside the cached rows (`pipeline.py`,
   `buffers.py`).

It is no `PathSystem`: where a row lies is decided for all mini-batches beforehand, so
nothing is sampled or looked up in an epoch, and memory is divided anew for each
episode. Buffers are sized by `systems/parts/sizes.py` as others are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from systems import _native
from systems.diskgnn.episode import Episodes, Ready
from systems.diskgnn.fit import fit
from systems.diskgnn.layout import Levels
from systems.diskgnn.options import NAME, DiskGnnOptions
from systems.diskgnn.pipeline import EpisodeLoader
from systems.diskgnn.ranking import AccessCounts, miss_curve, slots_of
from systems.diskgnn.sizes import DEVICE_TABLE, HOST_TABLE, STAGED_TABLE, DiskGnnSizes
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.row_reads import RowTable
from systems.engine.io.topology import DatasetFiles
from systems.forecast import PAGE, sequential
from systems.interface import (
    Batch,
    Counters,
    Facts,
    Forecast,
    Options,
    PartUse,
    Plan,
    System,
    SystemInfo,
    Trace,
)
from systems.parts.part import Site
from systems.parts.uses import cache_use, reads_use
from workloads.sampling.bounds import batch_bounds

_SAMPLES = (
    "sampled mini-batches",
    "preparation beyond that",
    "packed features, caches and samples",
)
_TABLES = (DEVICE_TABLE, HOST_TABLE, STAGED_TABLE, "gathered rows")
_CHUNKS = ("index of chunks", "threads and address lists", "single-row readers")


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


class DiskGnn(System):
    """DiskGNN on the processor, where device cache and host cache are one, and on
    devices with their own memory."""

    info = SystemInfo(
        name=NAME,
        paper="diskgnn",
        summary="offline sampling; hot rows cached, the others packed by "
        "mini-batch and "
        "read in order",
        options=DiskGnnOptions,
        artefact_share=0.6,
    )
    options: DiskGnnOptions

    _episodes: Episodes | None = None
    _ready: Ready | None = None
    _loader: EpisodeLoader | None = None
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
        site = Site.of(self)
        site.bounds = batch_bounds(self.workload)
        site.table = RowTable.of(self.workload.dataset)
        drawn = len(self._episode_of(0))
        return self.fit(lambda: DiskGnnSizes(site, self.options, drawn))

    def plan(self) -> Plan:
        """Plan caches and mini-batches under way, and what preparation takes beyond
        them."""
        return self._sizes.plan

    def chosen(self) -> dict[str, int | str]:
        """Return the threads, and the bytes of the tables and of packing."""
        return {**super().chosen(), **self._sizes.chosen()}

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
        if every == 0:
            return (0,)
        draws = -(-self.runtime.epochs // every)  # of the run; 0: unknown
        length = self.options.episode or max(1, draws)
        first = epoch // every // length * length
        last = first + length
        if draws:
            last = max(first + 1, min(last, draws))
        return tuple(draw * every for draw in range(first, last))

    def _open(self, epochs: tuple[int, ...]) -> None:
        """Prepare or find an episode and load its caches."""
        assert self._episodes is not None
        self._close_loader()
        is_first = self._ready is None
        ready = self._ready = self._episodes.get(epochs)
        if is_first:
            self._reused = ready.reused
        # Preparation's freed arrays stay on the heap, and training needs their memory.
        give_back_free_memory()
        began = time.monotonic()
        with self.clock.stage("switch"):
            self._loader = EpisodeLoader.open(self._sizes, ready, self.clock)
        self._load_s = time.monotonic() - began

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k` in the seed plan's order; its episode is
        prepared first if need be."""
        if self._episodes is None:
            raise RuntimeError("prepare() comes before epoch()")
        return self._run(k)

    def _run(self, k: int) -> Iterator[Batch]:
        drawn = self._drawn(k)
        if self._ready is None or drawn not in self._ready.epochs:
            self.prepare_epochs(k)
        assert self._loader is not None
        yield from self._loader.epoch(k, drawn)

    def counters(self) -> Counters:
        """Return the last epoch's hits on each level, misses and reads."""
        return Counters() if self._loader is None else self._loader.counters()

    def files(self) -> list[Path]:
        """Return the files of the current episode."""
        return [] if self._ready is None else self._ready.files

    def data_path(self) -> list[PartUse]:
        """List packed samples, the rows in memory, and the reads of the others."""
        counters = self.counters()
        return [
            PartUse(name="sampled beforehand, in files", buffers=_SAMPLES),
            cache_use("hottest rows in memory, disk caches", _TABLES, counters),
            reads_use("a packed chunk for each mini-batch", _CHUNKS, counters),
        ]

    def facts(self) -> DiskGnnFacts:
        """Return the read mode, the search's prediction, and the seconds of packing."""
        if self._ready is None:
            return DiskGnnFacts()
        made = self._ready.facts
        predicted = made["predicted"]
        return DiskGnnFacts(
            io=self._loader.mode if self._loader is not None else "closed",
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
        runtime = self.runtime
        dataset = trace.workload.dataset
        ranked, levels = self._forecast_levels(trace)
        held, on_device = np.zeros((2, dataset.num_nodes), dtype=bool)
        held[ranked[: levels.cached]] = True
        on_device[ranked[: levels.direct]] = True
        missed = trace.missed(held)
        graphs = trace.sampled * trace.graph_bytes + 12 * trace.accesses
        packed = missed * trace.row_bytes + graphs
        # Every epoch is sampled anew through the page cache; one pass over the features
        # packs all of an episode.
        page_cache_bytes = host_bytes - self.plan().bytes_of("indptr")
        pages = {PAGE: trace.scale * trace.graph_pages(page_cache_bytes)}
        share_of_pass = dataset.feature_bytes / max(1, runtime.epochs)
        moved = sequential(share_of_pass + trace.scale * packed)
        sampled_s = trace.num_batches * trace.sample_s / max(1, runtime.cores)
        return Forecast(
            sequential(packed),
            f"caches {trace.hit_rate(missed)} of the accesses, the rest lies packed by "
            "mini-batch",
            rows_copied=trace.missed(on_device),
            each_reads=pages | moved,
            each_s=sampled_s,
        )

    def _forecast_levels(self, trace: Trace) -> tuple[np.ndarray, Levels]:
        """Return the rows of a trace, int64, hottest first, and how many of them each
        level holds."""
        sizes = self._sizes
        num_nodes = trace.workload.dataset.num_nodes
        batches = [part.astype(np.int64) for part in trace.nodes]
        counts = AccessCounts(num_nodes)
        for nodes in batches:
            counts.add(nodes)
        wanted = sizes.table_rows + sizes.host_rows
        ranked = counts.hottest(wanted) if trace.hot is None else trace.hot(wanted)
        curve = miss_curve(batches, slots_of(ranked, num_nodes), len(ranked))
        return ranked, fit(sizes, curve).levels

    def notes(self) -> dict[str, str]:
        """Return the read mode, the rows on each level, and the search's prediction."""
        if self._ready is None:
            return {}
        found = self._ready.fit
        levels = found.levels
        faithful = self.options.resample_every == 1
        return {
            **super().notes(),
            "epochs_prepared": ", ".join(map(str, self._ready.epochs)),
            "samples": "each epoch its own" if faithful else "replayed: not faithful",
            "rows_in_memory": f"{levels.direct} in the table, {levels.host} beside it",
            "buffers": f"{found.buffers} of {found.buffer_rows} rows, {found.staging} "
            "to stage",
        }

    def _close_loader(self) -> None:
        loader = self._loader
        self._loader = None
        if loader is not None:
            loader.close()

    def close(self) -> None:
        """End the threads, close the files and free the table."""
        if self._episodes is not None:
            self._episodes.stop()
        self._close_loader()

"""`pyg+`: PyG's pipeline over memory maps, at its strongest: no read-ahead, parallel sampling and page faults.

As in the Ginex and GNNDrive papers: `indptr` in memory, `indices` and `features` memory-mapped, read-ahead off, and
many more gathering threads than cores, so that their page faults keep the disk busy.
"""

from __future__ import annotations

import resource
import threading
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from systems.engine.io.arrays import gather, order_bytes
from systems.engine.io.memory import madvise
from systems.engine.io.topology import DatasetFiles, indptr_item, map_item, mapped_sampler, sampling_items
from systems.engine.loading.gather_loader import BETWEEN, GatherSystem, Tables, plan_tables
from systems.engine.loading.sized import SamplingOptions
from systems.forecast import PAGE
from systems.interface import Counters, Facts, Forecast, Plan, PlanItem, SystemInfo, Trace, auto
from workloads.errors import BudgetError
from workloads.sampling.bounds import batch_bounds

_THREADS = 128
# Eight samplers are as fast as the 32 processes of the authors' code, and hold a quarter of the memory.
_SAMPLERS = 8
# A thread that sleeps in a page fault: 16 KiB of kernel stack, two pages of its own, its page tables.
_THREAD_BYTES = 32 << 10
_WINDOW = 30  # mini-batches over which the miss ratio is smoothed
R = TypeVar("R")


class FaultMeter:
    """Major faults of the process, split into those of sampling and of extraction.

    Each sampling thread is measured by itself (RUSAGE_THREAD); the process's other faults are extraction's, whose
    native threads come and go. A mini-batch's miss ratio is its extraction faults over its rows, smoothed over the last
    30 mini-batches as Ginex's and GNNDrive's authors do.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sampling = 0
        self._started = process_faults()
        self._recent: deque[tuple[int, int]] = deque(maxlen=_WINDOW)
        self._extracting = 0
        self._rows = 0
        self.peak_ratio = 0.0

    def sample(self, work: Callable[[], R]) -> R:
        """Run `work` and count its faults as sampling's."""
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        try:
            return work()
        finally:
            faults = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt - before
            with self._lock:
                self._sampling += faults

    def extracted(self, rows: int) -> None:
        """Count a gathered mini-batch of `rows` rows: all new faults that are not sampling's are extraction's."""
        with self._lock:
            total = max(0, process_faults() - self._started - self._sampling)
            faults, self._extracting = max(0, total - self._extracting), max(total, self._extracting)
            self._rows += rows
            self._recent.append((faults, rows))
            self.peak_ratio = max(self.peak_ratio, self._moving())

    def _moving(self) -> float:
        rows = sum(rows for _, rows in self._recent)
        return sum(faults for faults, _ in self._recent) / rows if rows else 0.0

    def observed(self) -> dict[str, float]:
        """Return the faults and ratios since this meter was made."""
        with self._lock:
            return {
                "major_faults": float(process_faults() - self._started),
                "major_faults_sample": float(self._sampling),
                "major_faults_extract": float(self._extracting),
                "page_cache_miss_ratio": self._extracting / self._rows if self._rows else 0.0,
                "page_cache_miss_ratio_last30": self._moving(),
                "page_cache_miss_ratio_peak30": self.peak_ratio,
            }


def process_faults() -> int:
    """Return the major faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


class PygPlusOptions(SamplingOptions):
    """Options of `pyg+`."""

    prefetch: int = auto(2, most=64, description="sampled mini-batches that may wait for each sampler (PyG's 2)")
    sampling_workers: int = auto(
        most=256,
        description="threads that sample, each with one page fault under way: up to eight where they take no more than "
        "an eighth of the budget",
    )
    extract_threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="threads that gather one mini-batch, each with one page fault under way; 0: 128, as the Ginex "
        "authors' code has on their machine, or as many as a sixteenth of the budget holds, at least twice the cores",
    )
    host_buffers: int = Field(
        0, ge=0, le=64, description="gathered mini-batches on the host; 0: two on cpu, one to copy from elsewhere"
    )
    device_buffers: int = Field(2, ge=1, le=64, description="mini-batches on the device, fewer where they do not fit")
    read_ahead: bool = Field(False, description="leave the kernel's read-ahead on (only to show that it hurts)")


class PygPlus(GatherSystem):
    """PyG+ of the Ginex and GNNDrive papers."""

    info = SystemInfo(
        name="pyg+",
        paper="ginex",
        summary="PyG over memory-mapped indices and features; the page cache decides",
        options=PygPlusOptions,
        deterministic_counters=False,
    )
    options: PygPlusOptions

    _meter: FaultMeter

    @property
    def _threads(self) -> int:
        if self.options.extract_threads:
            return self.options.extract_threads
        fitting = _THREADS if self.budget.host is None else self.budget.host // 16 // _THREAD_BYTES
        return min(_THREADS, max(2 * self.runtime.cores, fitting))

    @cached_property
    def _tables(self) -> Tables:
        return plan_tables(
            self.info.name,
            self.workload,
            self.runtime,
            self.budget,
            rows=batch_bounds(self.workload).max_nodes,
            host=self.options.host_buffers,
            device=self.options.device_buffers,
        )

    def plan(self) -> Plan:
        """Plan `indptr`, mini-batches under way and their tables; the rest of the budget is page cache."""
        automatic = not self.options.sampling_workers
        plan = self.fit(self._plan)
        more = self._more_samplers() if automatic else 0
        if more <= self._workers:
            return plan
        fitted, self.options = self.options, self.options.model_copy(update={"sampling_workers": more})
        try:
            return self._plan()
        except BudgetError:
            self.options = fitted
            return plan

    def _more_samplers(self) -> int:
        """Return the samplers, up to eight, that an eighth of the memory holds; each waits for one page at a time."""
        if self.budget.host is None:
            return _SAMPLERS
        bounds = batch_bounds(self.workload)
        each = bounds.scratch_bytes + (1 + self.options.prefetch) * bounds.sampled_bytes
        return min(_SAMPLERS, self.budget.host // 8 // each)

    def _plan(self) -> Plan:
        bounds = batch_bounds(self.workload)
        items = (
            indptr_item(self.workload),
            *sampling_items(bounds, workers=self._workers, waiting=self._waiting + BETWEEN),
            map_item(self.workload, features=self.runtime.stages != "sample"),
        )
        if self.runtime.stages != "sample":
            gathering = self._threads * _THREAD_BYTES + order_bytes(bounds.max_nodes)
            items += (*self._tables.items(), PlanItem("threads that gather", gathering))
        return Plan(items).require(self.info.name, self.budget, "raise memory or lower the batch size")

    def prepare(self) -> None:
        """Load `indptr` and map the other files."""
        sampling = self.runtime.stages == "sample"
        files = DatasetFiles(self.workload, ["indices", "labels"] if sampling else ["indices", "labels", "features"])
        files.check()
        self._files = files
        sampler = mapped_sampler(self.workload, read_ahead=self.options.read_ahead)
        if not sampling:
            self._features = self.workload.dataset.memmap("features")
            if not self.options.read_ahead:
                madvise(self._features, "random")
        self._meter = FaultMeter()
        self._allocate()
        self._draw = sampler.sample

    def _sample(self, work: Any) -> Any:
        self._files.check()
        return self._meter.sample(work)

    def _gather(self, nodes: npt.NDArray[np.int64], out: npt.NDArray[np.generic]) -> None:
        assert self._features is not None
        self._files.check()
        gather(self._features, nodes, out, self._threads)
        self._rows += len(nodes)
        self._meter.extracted(len(nodes))

    def _begin(self) -> None:
        super()._begin()
        self._meter = FaultMeter()

    def counters(self) -> Counters:
        """Return the counters: all rows are page cache hits, and `observed` has the kernel's major faults."""
        return Counters(
            rows=self._rows,
            hits={"page_cache": self._rows},
            queue_depth=self._threads,
            observed=self._meter.observed() if self._draw is not None else {},
        )

    def facts(self) -> Facts:
        """Return the read mode."""
        read_ahead = "on" if self.options.read_ahead else "off"
        return Facts(io=f"memory map, {self._threads} threads, read-ahead {read_ahead}")

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast the pages of graph and features that the page cache misses."""
        pages, rows = trace.mapped_pages(self.unplanned_bytes()), trace.accesses
        return Forecast({PAGE: pages}, f"{pages / max(1, rows):.2f} page reads for each row", rows)

    def notes(self) -> dict[str, str]:
        """Return the read mode and the number of tables."""
        return {**super().notes(), "tables": f"{self._tables.host} on the host, {self._tables.device} on the device"}


SYSTEM = PygPlus

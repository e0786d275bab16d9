"""`data-tiering`: rows of high expected access in device memory, the others read by zero-copy (Min et al., KDD 2022).

Graph and rows are reordered by score, so that an id below a bound is a hot row's and no map is needed (Section 3.2).
Mini-batches equal the workload's: the sampler keeps the original ids and draws by them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from systems.data_tiering.reorder import ReorderFacts, reorder
from systems.engine.io.row_reads import RowTable
from systems.engine.loading.cached_system import CacheFacts, CacheOptions, RankingName, highest
from systems.engine.loading.sized import Sample
from systems.engine.loading.zero_copy import ZeroCopySystem
from systems.engine.store.artefacts import Prepared, identity, prepare
from systems.interface import Batch, PlanItem, SystemInfo
from workloads.dataset import Dataset
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_sampler, make_seed_plan

Ids = npt.NDArray[np.int64]
# Two deep: a dataset's writer locks the folder above it, and an artefact's own folder is locked while it is made.
_FOLDER = Path("reordered") / "dataset"


class DataTieringOptions(CacheOptions):
    """Options of `data-tiering`."""

    ranking: RankingName = Field(
        "weighted-reverse-pagerank", description="which rows are hot: those of highest score (Section 3.1)"
    )
    reorder: bool = Field(
        True, description="reorder graph and rows by score (Section 3.2); False keeps them and maps hot nodes to rows"
    )


class DataTieringFacts(CacheFacts):
    """Facts of a run of `data-tiering`: with the seconds of reordering, in this run or an earlier one (Section 3.2)."""

    reorder_s: float | None = None


class DataTiering(ZeroCopySystem):
    """Hot rows in device memory, cold rows in host memory, one table to the model (Section 4)."""

    info = SystemInfo(
        name="data-tiering",
        paper="data-tiering",
        summary="hot rows by weighted reverse PageRank in device memory, cold ones read by zero-copy",
        options=DataTieringOptions,
        artefact_share=1.0,
    )
    options: DataTieringOptions

    _reordered: Dataset | None = None
    _order: Ids | None = None
    _reorder_s: float | None = None

    @property
    def _keeps_map(self) -> bool:
        return not self.options.reorder

    @property
    def _reorders(self) -> bool:
        return self.options.reorder and self.runtime.stages != "sample" and self._sizes.most_rows > 0

    @property
    def _dataset(self) -> Dataset:
        return self._reordered or self.workload.dataset

    @property
    def _rows(self) -> RowTable:
        return RowTable.of(self._dataset)

    def _prepared_items(self) -> tuple[PlanItem, ...]:
        if not self._reorders:
            return ()
        dataset, order = self.workload.dataset, 8 * self.workload.dataset.num_nodes
        return (
            PlanItem("original ids", order),
            PlanItem("seed nodes of the reordered graph", self._bounds.seed_bytes),
            PlanItem("reordered dataset", dataset.total_bytes + order, "disk"),
        )

    def _prepare_rows(self) -> None:
        """Reorder graph and rows, out of core within the host budget, unless an earlier run did."""
        self._reordered = self._order = None
        if not self._reorders:
            return
        workload = self.workload
        order = self._order = highest(self._prepared[-1], workload.dataset.num_nodes)

        def make(folder: Path) -> dict[str, Any]:
            facts, began = ReorderFacts(), time.monotonic()
            path, threads, host = folder / _FOLDER, self.runtime.cores, self.budget.host
            path.parent.mkdir()
            reorder(workload.dataset, order, path, threads=threads, facts=facts, budget_bytes=host)
            return {**asdict(facts), "seconds": time.monotonic() - began}

        key = identity(workload, ranking=self.options.ranking)
        made = prepare(self.runtime.artefacts, "reordered", key, make, disk_budget=self.budget.disk)
        self._prepared += (made,)
        self._reorder_s = made.facts.get("seconds")
        self._reordered = Dataset.open(made.path / _FOLDER)

    def _cached_rows(self, order: Prepared | None, k: int) -> Ids:
        return np.arange(k, dtype=np.int64) if self._order is not None else super()._cached_rows(order, k)

    def _sample_of(self, indptr: Ids, indices: npt.NDArray[Any], labels: Ids) -> Sample:
        """Return a sampler of the reordered graph, with original ids for the draws and local ids for the rows."""
        if self._order is None or self._reordered is None:
            return super()._sample_of(indptr, indices, labels)
        sampler = make_sampler(self.workload, indptr=indptr, indices=indices, labels=labels, names=self._order)
        self._plan_of_reordered = make_seed_plan(replace(self.workload, dataset=self._reordered))

        def sample(epoch: int, index: int, nodes: Ids) -> SampledBatch:
            return sampler.sample(epoch, index, nodes, local_seeds=self._local_seeds[index])

        return sample

    def _epoch(self, k: int, seeds: Sequence[Ids]) -> Iterator[Batch]:
        if self._reordered is not None:
            self._local_seeds = self._plan_of_reordered.batches(k)
        yield from super()._epoch(k, seeds)

    def facts(self) -> DataTieringFacts:
        """Return the base's facts and the seconds of reordering."""
        return DataTieringFacts(**dict(super().facts()), reorder_s=self._reorder_s)

    def close(self) -> None:
        """Close the base system and free the order."""
        super().close()
        self._order = None


SYSTEM = DataTiering

"""A dataset renumbered by the value of its rows as the source of a path, prepared once
as an artefact."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import Any

from systems.data_tiering.reorder import ReorderFacts, reorder
from systems.engine.store.artefacts import identity, prepare
from systems.parts.kinds.ranked import CACHE, Ranked
from systems.parts.part import Part
from systems.parts.sizes import Follower, Need, Sizes
from systems.parts.source import Ids, Source
from workloads.dataset import Dataset

# Two deep: a dataset's writer locks the folder above it, and an artefact's own folder
# is locked while it is made.
_FOLDER = FilePath("reordered") / "dataset"


@dataclass(eq=False)
class Reordered(Source):
    """Graph and rows by descending value; the dataset itself where the cache gets no
    memory.

    Attributes:
        order: rows by their value.
    """

    title = "rows reordered by score"
    order: Ranked
    _dataset: Dataset | None = field(init=False, repr=False, default=None)
    _names: Ids | None = field(init=False, repr=False, default=None)
    _seconds: float | None = field(init=False, repr=False, default=None)

    def inner(self) -> Sequence[Part]:
        """List the order."""
        return (self.order,)

    @property
    def dataset(self) -> Dataset:
        """The reordered dataset, once prepared."""
        return self._dataset or self.site.workload.dataset

    @property
    def names(self) -> Ids | None:
        """Original ids of the reordered nodes, int64 [N]."""
        return self._names

    def needs(self) -> Sequence[Need | Follower]:
        """List original ids, seed nodes and, on disk, the dataset."""
        original = self.site.workload.dataset
        ids = 8 * original.num_nodes
        return [
            self._follower("original ids", ids),
            self._follower(
                "seed nodes of the reordered graph", self.site.bounds.seed_bytes
            ),
            Follower(
                "reordered dataset",
                lambda sizes: _if_cached(sizes, original.total_bytes + ids),
                "disk",
            ),
        ]

    def _follower(self, name: str, nbytes: int) -> Follower:
        return Follower(name, lambda sizes: _if_cached(sizes, nbytes))

    def prepare(self) -> None:
        """Reorder graph and rows, out of core within the host budget, unless an earlier
        run did."""
        self._dataset = self._names = None
        site = self.site
        original = self.site.workload.dataset
        if not site.granted(CACHE):
            return
        order = self.order.first(original.num_nodes)

        def make(folder: FilePath) -> dict[str, Any]:
            facts = ReorderFacts()
            began = time.monotonic()
            path = folder / _FOLDER
            path.parent.mkdir()
            reorder(
                original,
                order,
                path,
                threads=site.runtime.cores,
                facts=facts,
                budget_bytes=site.budget.host,
            )
            return {**asdict(facts), "seconds": time.monotonic() - began}

        key = identity(site.workload, ranking=self.order.method)
        made = prepare(
            site.runtime.artefacts, "reordered", key, make, disk_budget=site.budget.disk
        )
        self.prepared.append(made)
        self._seconds = made.facts.get("seconds")
        self._dataset = Dataset.open(made.path / _FOLDER)
        self._names = order

    def facts(self) -> dict[str, Any]:
        """Return the seconds of reordering, in this run or an earlier one (Section
        3.2)."""
        return {"reorder_s": self._seconds}

    def notes(self) -> dict[str, str]:
        """Return the seconds of reordering."""
        return {} if self._seconds is None else {"reorder_s": f"{self._seconds:.3f}"}

    def close(self) -> None:
        """Drop the original ids."""
        self._names = None


def _if_cached(sizes: Sizes, nbytes: int) -> int:
    return nbytes if sizes.granted.get(CACHE, 0) else 0

"""`data-tiering`: rows of high expected access in device memory, the others read by
zero-copy (Min et al., KDD 2022).

Graph and rows are reordered by score, so that an id below a bound is a hot row's and no
map is needed (Section 3.2). Mini-batches equal the workload's: the sampler keeps the
original ids and draws by them.
"""

from __future__ import annotations

from pydantic import Field

from systems.data_tiering.reordered import Reordered
from systems.interface import SystemInfo
from systems.parts import (
    HostRows,
    Neighbours,
    Path,
    PathSystem,
    Ranked,
    Source,
    StaticDevice,
    ZeroCopy,
    host_graph,
)
from systems.parts.options import CacheOptions, RankingName


class DataTieringOptions(CacheOptions):
    """Options of `data-tiering`."""

    ranking: RankingName = Field(
        "weighted-reverse-pagerank",
        description="which rows are hot: those of highest score (Section 3.1)",
    )
    reorder: bool = Field(
        True,
        description="reorder graph and rows by score (Section 3.2); False keeps "
        "them and "
        "maps hot nodes to rows",
    )


class DataTiering(PathSystem):
    """Hot rows in device memory, cold rows in host memory, one table to the model
    (Section 4)."""

    info = SystemInfo(
        name="data-tiering",
        paper="data-tiering",
        summary="hot rows by weighted reverse PageRank in device memory, cold ones "
        "read "
        "by zero-copy",
        options=DataTieringOptions,
        artefact_share=1.0,
    )
    options: DataTieringOptions

    def path(self) -> Path:
        """Graph and rows in the order of their value, the first rows on the device, the
        others read by the device."""
        options = self.options
        order = Ranked(options.ranking)
        source = Reordered(order) if options.reorder else Source()
        graph = host_graph(options.host_store, source)
        rows = HostRows(
            source,
            store=options.host_store,
            threads=options.gather_threads,
            by_device=True,
        )
        hot_rows = StaticDevice(
            order=order,
            size=options.cache,
            reserve=options.reserve,
            in_order=options.reorder,
            note="hot_rows",
        )
        return Path(
            sample=Neighbours(graph, self.workers, options.prefetch),
            tiers=[hot_rows],
            rows=rows,
            copy=ZeroCopy(rows=rows),
            fix=options.host_fix,
        )


SYSTEM = DataTiering

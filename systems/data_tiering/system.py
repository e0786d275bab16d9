"""Data tiering: rows are ranked by how often sampling is expected to ask for them; hot ones live on the device."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from systems.engine.cached_system import CacheOptions, RankingName
from systems.engine.zero_copy import ZeroCopySystem
from systems.interface import SystemInfo


class DataTieringOptions(CacheOptions):
    """Options of `data-tiering`."""

    ranking: RankingName = Field(
        "weighted-reverse-pagerank", description="which rows are hot: those of highest score (Section 3.1)"
    )


class DataTiering(ZeroCopySystem):
    """Hot rows in device memory, cold rows in host memory, one table to the model (Section 4)."""

    info: ClassVar[SystemInfo] = SystemInfo(
        name="data-tiering",
        paper="data-tiering",
        summary="hot rows by weighted reverse PageRank in device memory, cold ones read by zero-copy",
        devices=("cpu", "cuda", "emulated"),
        faithful=True,
        options=DataTieringOptions,
    )
    options: DataTieringOptions

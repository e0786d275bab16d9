"""Options that several systems of parts share, by kind of part."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from systems.engine.loading.sized import SamplingOptions
from systems.engine.rank import ranking
from systems.interface import size
from workloads.errors import InputError
from workloads.units import parse_bytes

HostStore = Literal["memory", "mapped"]
RankingName = ranking.Method


def check_share(value: str) -> str:
    """Validate an option that sizes a cache: `auto`, `0.25x` of the rows, or a size such as 32MiB.

    Raises:
        ValueError: the value has none of these forms.
    """
    if value != "auto":
        try:
            wanted_rows(value, 1, 1)
        except (InputError, ValueError) as error:
            raise ValueError(f"{error}; or write auto, or a share of all rows such as 0.25x") from None
    return value


def wanted_rows(value: str, num_rows: int, row_bytes: int) -> int:
    """Return the rows of a cache of this size, as in `check_share`."""
    if value.lower().endswith("x"):
        share = float(value[:-1])
        if not 0 <= share <= 1:
            raise ValueError(f"a share of the rows is from 0x to 1x, not {value}")
        return int(share * num_rows)
    return parse_bytes(value, "cache") // max(1, row_bytes)


class HostOptions(SamplingOptions):
    """Options of rows in host memory."""

    gather_threads: int = Field(
        0, ge=0, le=1024, description="threads that gather one mini-batch; 0: the cores, or twice as many where mapped"
    )
    host_store: HostStore = Field(
        "memory",
        description="`memory`: graph and features are loaded, as the papers have it; `mapped`: both come through the "
        "page cache, for graphs larger than memory",
    )


class CacheOptions(HostOptions):
    """Options of the static cache in device memory (PaGraph, Sections 3.1 and 4)."""

    cache: Annotated[str, AfterValidator(check_share)] = Field(
        "auto",
        description="`auto`: device memory free after the first mini-batch, minus the reserve; a share of the rows, as "
        "0.25x; or a size such as 32MiB; 0x: none",
    )
    reserve: str = size(
        "auto", description="device memory left free; `auto`: an eleventh, 1 GiB at most (the paper's 1 GB of 11 GB)"
    )
    ranking: RankingName = Field("out-degree", description="which rows are cached: those of highest score")

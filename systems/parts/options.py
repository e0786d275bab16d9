"""Options that several systems of parts share, by kind of part."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from systems.engine.rank import ranking
from systems.interface import Options, auto, size
from workloads.errors import InputError
from workloads.units import parse_bytes

HostStore = Literal["memory", "mapped"]
RankingName = ranking.Method


def check_share(value: str) -> str:
    """Validate an option that sizes a cache: `auto`, `0.25x` of the rows, or a size
    such as 32MiB.

    Raises:
        ValueError: the value has none of these forms.
    """
    if value != "auto":
        try:
            wanted_rows(value, 1, 1)
        except (InputError, ValueError) as error:
            raise ValueError(
                f"{error}; or write auto, or a share of all rows such as 0.25x"
            ) from None
    return value


def wanted_rows(value: str, num_rows: int, row_bytes: int) -> int:
    """Return the rows of a cache of this size, as in `check_share`."""
    if value.lower().endswith("x"):
        share = float(value[:-1])
        if not 0 <= share <= 1:
            raise ValueError(f"a share of the rows is from 0x to 1x, not {value}")
        return int(share * num_rows)
    return parse_bytes(value, "cache") // max(1, row_bytes)


class SamplingOptions(Options):
    """Options of sampling ahead of training."""

    prefetch: int = auto(
        2, most=64, description="sampled mini-batches that may wait for each sampler"
    )
    sampling_workers: int = auto(most=256, description="threads that sample")


class HostOptions(SamplingOptions):
    """Options of rows in host memory."""

    gather_threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="threads that gather one mini-batch; 0: the cores, or twice as "
        "many "
        "where mapped",
    )
    host_store: HostStore = Field(
        "memory",
        description="`memory`: graph and features are loaded, as the papers have it; "
        "`mapped`: both come through the "
        "page cache, for graphs larger than memory",
    )

    @property
    def host_fix(self) -> str:
        """Remedy for a plan that does not fit."""
        if self.host_store == "memory":
            return (
                "raise memory, or set host_store=mapped, which leaves graph and "
                "features to the page cache"
            )
        return "raise memory, or lower cache, batch size or fan-out"


class CacheOptions(HostOptions):
    """Options of the static cache in device memory (PaGraph, Sections 3.1 and 4)."""

    cache: Annotated[str, AfterValidator(check_share)] = Field(
        "auto",
        description="`auto`: device memory free after the first mini-batch, minus the "
        "reserve; a share of the rows, as "
        "0.25x; or a size such as 32MiB; 0x: none",
    )
    reserve: str = size(
        "auto",
        description="device memory left free; `auto`: an eleventh, 1 GiB at most (the "
        "paper's 1 GB of 11 GB)",
    )
    ranking: RankingName = Field(
        "out-degree", description="which rows are cached: those of highest score"
    )


class PipelineOptions(CacheOptions):
    """Options of PaGraph's pipeline."""

    pipeline: bool = Field(
        True, description="load a mini-batch while others are trained (Section 3.3)"
    )
    device_buffers: float = Field(
        0,
        ge=0,
        le=64,
        description="largest mini-batches that the device holds beside the cache, "
        "at least "
        "one; 0: two, or one where "
        "two take more than a quarter of the device",
    )

    @property
    def ahead(self) -> int:
        """Mini-batches between the start of loading and the end of training."""
        # One trained, one ready, one copied and two gathered; the ring of rows and the
        # staging buffers limit them.
        return 5 if self.pipeline else 1

    @property
    def buffers(self) -> float:
        """Largest mini-batches that the device holds beside the cache; 0: as many as
        useful."""
        return self.device_buffers if self.pipeline else 1


class SamplerOption(Options):
    """Option that selects the sampler of DGL's DataLoader."""

    sampler: Literal["outcore", "dgl"] = Field(
        "outcore",
        description="`outcore`: the workload's mini-batches, drawn by our sampler; "
        "`dgl`: "
        "DGL's own neighbour sampler, "
        "whose draws are others: the run is then not faithful",
    )


def dgl_samples(options: Options) -> bool:
    """Return whether these options choose DGL's own sampler."""
    return isinstance(options, SamplerOption) and options.sampler == "dgl"

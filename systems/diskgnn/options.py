"""Options of `diskgnn`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from systems.interface import Options, auto, size
from workloads.errors import InputError
from workloads.units import parse_bytes

NAME = "diskgnn"


class DiskGnnOptions(Options):
    """Options of `diskgnn`.

    The ablation of the paper's Fig. 18 from the bottom: `device_cache=off
    host_cache=off packing=off disk_cache=off` is the naive system that reads each row
    by itself; then one after the other is left at its default.
    """

    device_cache: str = size(
        "auto",
        "off",
        description="hottest rows on the device: `auto` (what is left of it), "
        "`off`, size",
    )
    host_cache: str = size(
        "auto",
        "off",
        description="next rows in host memory: `auto` (what is left of the budget, "
        "a tenth "
        "of the table "
        "without one), `off`, or a size",
    )
    packing: Literal["batched", "individual", "off"] = Field(
        "batched",
        description="how the other rows are packed by mini-batch (Section 5.2); "
        "off: read "
        "from the table",
    )
    disk_cache: Literal["auto", "off"] = Field(
        "auto",
        description="rows shared by the mini-batches of a segment once packing alone "
        "exceeds disk_limit",
    )
    disk_limit: str = Field(
        "none",
        description="bytes of all that is packed: `none`, `3x` the feature table, "
        "or a size",
    )
    search: Literal["heuristic", "brute-force"] = Field(
        "heuristic",
        description="segment length and threshold: threshold 2 and the least feasible "
        "length, or try all",
    )
    search_points: int = Field(
        16, ge=1, le=1024, description="segment lengths that brute-force tries"
    )
    segment: int = Field(
        0, ge=0, description="mini-batches that share a disk cache; 0: searched"
    )
    threshold: int = Field(
        2,
        ge=2,
        description="times a segment asks for a row until its disk cache holds it",
    )
    hashes: int = Field(
        2,
        ge=0,
        le=16,
        description="MinHash functions that order a disk cache; 0: by node id",
    )
    resample_every: int = Field(
        1,
        ge=0,
        description="epochs that replay one epoch's samples: 1 draws each epoch "
        "its own, as "
        "the workload has "
        "it; 0 draws once for the whole run, as the paper's code does; but for 1 "
        "the run is not faithful",
    )
    episode: int = Field(
        0,
        ge=0,
        description="sampled epochs prepared together (Section 5.2); 0: all of the "
        "run, or "
        "one where it is "
        "not known how many come",
    )
    pipeline: bool = Field(
        True,
        description="stages of successive mini-batches at the same time (Section 5.3)",
    )
    queue: int = Field(
        2,
        ge=1,
        le=64,
        description="mini-batches that wait between two workers, fewer in little "
        "memory",
    )
    readers: int = auto(
        2, most=64, description="threads that read single rows, a mini-batch each"
    )
    samplers: int = auto(most=256, description="threads that sample beforehand")
    io_depth: int = Field(
        128, ge=1, le=4096, description="single-row reads in flight for each reader"
    )
    io_granularity: Literal["logical", "4096"] = Field(
        "logical",
        description="smallest read: the device's logical block, or 4096 as in the "
        "paper",
    )
    request_bytes: int = Field(
        1 << 20, ge=4096, le=1 << 24, description="a read of a packed chunk"
    )
    request_depth: int = Field(
        16, ge=1, le=256, description="reads of packed chunks in flight"
    )
    read_ahead_bytes: int = Field(
        8 << 20,
        ge=0,
        description="rows of small mini-batches asked for beyond the queues, to "
        "keep the "
        "disk busy",
    )
    packing_memory: str = size(
        "auto",
        description="memory for packing: `auto` (the budget, 256MiB without), or "
        "a size",
    )

    @field_validator("disk_limit")
    @classmethod
    def _limit(cls, value: str) -> str:
        try:
            if value != "none" and not value.endswith("x"):
                parse_bytes(value)
            elif value != "none" and not float(value[:-1]) > 0:
                raise ValueError(f"no share of the feature table is {value}")
        except (InputError, ValueError) as error:
            raise ValueError(
                f"{error}; or write none, or a share of the feature table like 3x"
            ) from None
        return value

    def limit_bytes(self, feature_bytes: int, budget: int | None) -> int | None:
        """Return the bytes that an episode may take on disk, the lower of option and
        disk budget; None: no limit."""
        own: int | None = None
        if self.disk_limit.endswith("x"):
            own = int(float(self.disk_limit[:-1]) * feature_bytes)
        elif self.disk_limit != "none":
            own = parse_bytes(self.disk_limit, "disk_limit")
        limits = [limit for limit in (own, budget) if limit is not None]
        return min(limits, default=None)

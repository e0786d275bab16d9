"""Options of `ginex` and `ginex-pg`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from systems.engine.io.row_reads import RowReadOptions
from systems.interface import size

Policy = Literal["belady", "static"]


class GinexOptions(RowReadOptions):
    """Options of `ginex`."""

    superbatch: int = Field(
        0,
        ge=0,
        description="mini-batches of a superbatch, which crosses the ends of "
        "epochs if it "
        "is longer than one; 0: as "
        "many as the runtime files' budget and memory allow, at most those of an "
        "epoch, so that each epoch inspects as "
        "much as it trains",
    )
    runtime_files: str = size(
        "100GB", description="disk for the runtime files (Section 3.5)"
    )
    neighbour_cache: str = size(
        "auto",
        "off",
        description="`auto`: all that superbatch sampling leaves; `off`; or a size "
        "such as "
        "32MiB; what "
        "it leaves keeps rows cached from superbatch to superbatch",
    )
    feature_cache: str = size(
        "auto",
        description="`auto`: all that the main loop leaves; or a size such as 32MiB",
    )
    policy: Policy = Field(
        "belady",
        description="what the feature cache holds: `belady` follows changesets, "
        "`static` "
        "the out-degrees",
    )
    prefill: bool = Field(
        True,
        description="fill the feature cache before the main loop; False: begin empty",
    )
    pipelined: bool = Field(
        True,
        description="plan a superbatch's changesets while the next one is sampled "
        "(Section 3.1)",
    )
    samplers: int = Field(
        0,
        ge=0,
        le=256,
        description="threads that sample, a mini-batch each; 0: twice the cores, "
        "fewer in "
        "little memory",
    )
    list_threads: int = Field(
        0,
        ge=0,
        le=256,
        description="threads that share each of them and wait for pages of "
        "uncached lists; "
        "0: eight, fewer where they "
        "would take an eighth of the memory, or the plan would not fit",
    )
    readers: int = Field(
        3,
        ge=1,
        le=64,
        description="mini-batches whose misses are read beside each other",
    )
    batch_inputs: int = Field(
        0,
        ge=0,
        le=64,
        description="mini-batches of mean size whose rows fit in host memory "
        "beside the "
        "cache; 0: "
        "readers + 2, fewer where memory is scarce",
    )
    device_buffers: int = Field(
        2,
        ge=1,
        le=64,
        description="mini-batches on the device, fewer where they do not fit",
    )
    gather_threads: int = Field(
        0,
        ge=0,
        le=256,
        description="threads that copy cached rows; 0: one for each core",
    )

    @model_validator(mode="after")
    def _static_is_filled(self) -> GinexOptions:
        if self.policy == "static" and not self.prefill:
            raise ValueError("policy static has nothing but its fill: leave prefill on")
        return self

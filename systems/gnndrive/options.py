"""Options of `gnndrive` (Section 5, Platform and Baselines)."""

from __future__ import annotations

from pydantic import Field

from systems.engine.io.row_reads import RowReadOptions
from systems.interface import auto, size


class GnnDriveOptions(RowReadOptions):
    """Options of `gnndrive`."""

    extracting_queue: int = auto(
        6, most=1024, description="sampled mini-batches that wait for an extractor"
    )
    training_queue: int = auto(
        4, most=1024, description="extracted mini-batches that wait for training"
    )
    samplers: int = auto(
        4, most=256, description="threads that sample, a mini-batch each"
    )
    io_depth: int = Field(
        128,
        ge=1,
        le=4096,
        description="reads in flight for each extractor; more only makes sampling wait "
        "behind them",
    )
    extractors: int = auto(
        4, most=256, description="threads that extract, a mini-batch each"
    )
    list_threads: int = Field(
        1,
        ge=1,
        le=256,
        description="threads that share each of them and wait for pages of "
        "neighbour lists",
    )
    keep_order: bool = Field(
        False,
        description="train in the seed plan's order instead of as extraction finishes",
    )
    feature_buffer: str = size(
        "auto",
        "max",
        description="`auto`: rows of as many largest mini-batches as extractors and "
        "training queue hold (Section 4.2), "
        "fewer where its tier is smaller; `max`: all that is left of its tier; or "
        "a size such as 32MiB",
    )
    feature_buffer_scale: float = Field(
        1.0, gt=0, le=64, description="times the `auto` size (Fig. 12: 1 to 8)"
    )
    direct: bool = Field(
        True, description="direct I/O; False reads through the page cache (Section 4.4)"
    )
    merge: bool = Field(
        True,
        description="read neighbouring rows together (joint extraction, Section 4.4)",
    )
    merge_gap_bytes: int = Field(
        0,
        ge=0,
        le=1 << 20,
        description="bytes between two rows that may be read needlessly",
    )
    staging_bytes: int = Field(
        0,
        ge=0,
        description="staging buffer of each extractor on a device with its own "
        "memory; 0: 2 "
        "MiB or one batch",
    )
    borrow_staging: bool = Field(
        True,
        description="several processes share a staging buffer: take idle parts of "
        "others' "
        "portions (Section 4.4)",
    )
    share_staged_rows: bool = Field(
        True,
        description="and take rows that any of them has there already instead of "
        "reading "
        "them again (Section 4.4)",
    )

"""Options of `outcore`; each mechanism can be switched off, so that `outcore-ablation` measures its benefit."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from systems.interface import Options, size


class OutcoreOptions(Options):
    """Options of `outcore`: how groups of mini-batches are prepared, and with how much memory."""

    external_sampling: Literal["auto", "on", "off"] = Field(
        "auto",
        description="sample by passes over the graph's files (auto: where the sampler is neighbour sampling); "
        "off: with indptr in memory and indices memory-mapped",
    )
    shared_passes: bool = Field(
        True,
        description="sample later groups of mini-batches in the passes over the graph that one makes, one hop "
        "less each, so that a group costs one pass; off: one for each of its hops",
    )
    belady: bool = Field(True, description="keep rows from one use to the next by Belady's rule; off: for the window")
    packing: Literal["auto", "on", "off"] = Field(
        "auto",
        description="distribute rows into a chunk for each mini-batch by one pass over the feature table; off: "
        "read them one by one; auto: what the device profile predicts to take less time",
    )
    look_ahead: bool = Field(
        True,
        description="prepare the next group of mini-batches while this one trains, that of the next epoch too "
        "(after the last epoch as well, so that every epoch counts one preparation)",
    )
    replay: bool = Field(
        False, description="train all epochs on the first one's samples, prepared once; the run is then not faithful"
    )
    group: int = Field(0, ge=0, description="mini-batches prepared together; 0: as many of an epoch as memory allows")
    window: int = Field(2, ge=1, le=64, description="mini-batches whose rows are in memory at a time, at least")
    slots: str = size("auto", description="memory for rows: `auto` (what the budget leaves), or a size")
    queue: int = Field(2, ge=1, le=64, description="graphs of mini-batches that are read ahead")
    device_slots: str = size(
        "auto",
        "off",
        description="of the memory for rows, on a device of its own: `auto` (what it has), `off`, or a size; "
        "the device reads the others itself",
    )
    samplers: int = Field(0, ge=0, le=256, description="threads that sample; 0: one for each core if memory allows")
    io_depth: int = Field(128, ge=1, le=4096, description="single-row reads in flight")
    io_granularity: Literal["logical", "4096"] = Field(
        "logical", description="smallest read of single rows: the device's logical block, or 4096"
    )
    request_bytes: int = Field(512 << 10, ge=4096, le=1 << 24, description="a read of a packed chunk, about")
    read_ahead_bytes: int = Field(8 << 20, ge=1 << 16, description="of packed chunks in flight, at most")
    gap_bytes: int = Field(
        0,
        ge=0,
        description="unwanted bytes of the graph that are read rather than begin another request; 0: those "
        "that the device streams in the time of one random read",
    )
    copy_threads: int = Field(1, ge=1, le=64, description="threads that copy rows to their slots")

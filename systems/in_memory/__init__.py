"""`in-memory`: graph, features and labels loaded into memory once; the oracle and the
upper bound of speed."""

from __future__ import annotations

from pydantic import Field

from systems.interface import Options, SystemInfo
from systems.parts import HostRows, Loaded, Neighbours, Path, PathSystem, Tables
from systems.parts.options import SamplingOptions


class InMemoryOptions(SamplingOptions):
    """Options of `in-memory`."""

    gather_threads: int = Field(
        0,
        ge=0,
        le=256,
        description="threads that gather one mini-batch; 0: one for each core",
    )


class InMemory(PathSystem):
    """Training with all data in RAM.

    Under a cap that is too small the plan does not fit, and the run ends as `oom`, as
    in the papers' tables.
    """

    info = SystemInfo(
        name="in-memory",
        summary="topology and features in RAM; the oracle and the upper bound",
        options=InMemoryOptions,
    )
    options: InMemoryOptions

    @classmethod
    def loads_everything(cls, options: Options) -> bool:
        """Return True: the whole feature table is in host memory."""
        return True

    def path(self) -> Path:
        """Graph in memory, rows gathered by all cores into one of two tables."""
        options = self.options
        return Path(
            sample=Neighbours(Loaded(), self.workers, options.prefetch),
            rows=HostRows(threads=options.gather_threads),
            copy=Tables(host=2),
            fix="raise memory, or use a system that reads from disk",
        )


SYSTEM = InMemory

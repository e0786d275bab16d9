"""Types of the generators: specification, base graph and plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from workloads.arraytypes import Array, DType, Int64Array, JsonDict
from workloads.errors import BudgetError, check_choice, require
from workloads.making.progress import Progress
from workloads.making.writer import TopologySink
from workloads.units import format_bytes

Kind = Literal["rmat", "kronecker", "fractal"]

DEFAULT_MEAN_DEGREE = 20


@dataclass(frozen=True)
class BaseGraph:
    """A graph to expand, in CSC by destination."""

    indptr: Int64Array  # [N + 1]
    indices: Array  # int32 or int64 [E], in-neighbours
    labels: Int64Array | None = None  # [N], negative for an unlabelled node
    features: Any = None  # [N, D0], a dense array or a scipy sparse matrix, or None
    num_classes: int = 0  # 0 without labels
    name: str = "base"  # for messages and the manifest

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return int(self.indptr.shape[0]) - 1

    @property
    def num_edges(self) -> int:
        """Number of directed edges, E."""
        return int(self.indices.shape[0])


def choose_index_dtype(wanted: str, num_nodes: int) -> DType:
    """Choose the element type of `indices`: int32 where node ids fit, unless `int64` is
    wanted; raises InputError where `wanted` is unknown or too narrow."""
    check_choice("--index-dtype", wanted, ("auto", "int32", "int64"))
    fits = num_nodes <= 1 << 31
    fault = f"--index-dtype int32 cannot number {num_nodes} nodes"
    require(wanted != "int32" or fits, fault, "choose int64")
    return np.dtype("int32" if fits and wanted != "int64" else "int64")


@dataclass(frozen=True)
class GenerateSpec:
    """A topology to generate; equal specifications give equal bytes on every machine
    and number of threads (`fractal`: on every machine whose SVD agrees to six
    digits)."""

    kind: Kind
    # N (0: as base and `expand` give); `fractal` takes the next multiple of the base's
    nodes: int = 0
    # E (0: the default), exact for `rmat`; about for `kronecker`, and for `fractal`
    # without a base
    edges: int = 0
    # number of copies of the base graph (`kronecker`, `fractal`; 0: as `nodes` gives)
    expand: int = 0
    seed: int = 0  # of every draw, 0 to 2^64 - 1
    # most bytes of the generation, base graph included, interpreter not
    max_memory: int = 1 << 30
    # `int32`, `int64`, or `auto` for the smallest that holds N
    index_dtype: str = "auto"
    # graph to expand; None: an R-MAT graph without duplicates is drawn
    base: BaseGraph | None = None
    # Number of classes to plant into R-MAT graphs (`rmat`, and the base that
    # `kronecker` draws): six edges in ten then stay within a class, so that labels
    # agree along edges. 0: plain Graph500.
    communities: int = 0
    threads: int = 0  # 0: one a processor

    def __post_init__(self) -> None:
        for name in ("nodes", "edges", "expand"):
            fault = f"--{name} is {getattr(self, name)}"
            require(getattr(self, name) >= 0, fault, "give at least 1")
        fault = f"communities is {self.communities}"
        require(0 <= self.communities < 1 << 20, fault, "give 0 to 1048575")
        fault = f"--seed is {self.seed}"
        require(0 <= self.seed < 1 << 64, fault, "give a number from 0 to 2^64 - 1")
        choose_index_dtype(self.index_dtype, 1)

    @property
    def num_threads(self) -> int:
        """Number of threads to use."""
        return self.threads or len(os.sched_getaffinity(0))

    def dtype_for(self, num_nodes: int) -> DType:
        """Choose the element type of `indices`, as `choose_index_dtype`."""
        return choose_index_dtype(self.index_dtype, num_nodes)

    def copies_of(self, base: BaseGraph) -> int:
        """Return the number of copies of a given base graph; raises InputError where
        neither `expand` nor `nodes` is given."""
        valid = self.expand or self.nodes
        require(valid, "an expansion needs a size", "give --expand K or --nodes N")
        return self.expand or -(-self.nodes // base.num_nodes)

    def drawn_size(self) -> tuple[int, int]:
        """Return nodes and edges of an expansion of a base drawn for it; raises
        InputError where `nodes` is not given."""
        valid = self.nodes
        require(
            valid,
            "an expansion without --base needs --nodes",
            "give for example --nodes 2M --edges 40M",
        )
        return self.nodes, self.edges or DEFAULT_MEAN_DEGREE * self.nodes

    def require(self, what: str, needed: int) -> None:
        """Check that the `needed` bytes for `what` fit `max_memory`; raises BudgetError
        with the bytes needed and allowed."""
        if needed > self.max_memory:
            fault = (
                f"{self.kind} generation needs {format_bytes(needed)} for {what}, "
                f"--max-memory is {format_bytes(self.max_memory)}"
            )
            fix = (
                f"raise --max-memory to {format_bytes(needed * 1.01)} or make the "
                "graph smaller"
            )
            raise BudgetError(fault, fix)


@dataclass(frozen=True)
class TopologyPlan:
    """Exact N and E of a topology before its first write, and the function that writes
    it."""

    num_nodes: int
    num_edges: int
    index_dtype: DType  # of `indices`
    base: BaseGraph | None  # given or drawn, None for `rmat`
    # writes both parts
    write: Callable[[TopologySink, Progress], None] = field(repr=False)
    # numbers that describe the recipe, for the manifest
    details: JsonDict = field(default_factory=dict)
    # Draws labels by counter, `labels(first, count)`, for `rmat` with communities; else
    # None.
    labels: Callable[[int, int], Int64Array] | None = field(default=None, repr=False)

    @property
    def data_bytes(self) -> int:
        """Bytes of `indptr` and `indices`."""
        return 8 * (self.num_nodes + 1) + self.num_edges * self.index_dtype.itemsize

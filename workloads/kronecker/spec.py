"""Types of the generators: specification, base graph, plan and sink."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from workloads.errors import BudgetError, check_choice, require
from workloads.units import format_bytes

Kind = Literal["rmat", "kronecker", "fractal"]
Progress = Callable[[str, float], None]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

DEFAULT_MEAN_DEGREE = 20


class TopologySink(Protocol):
    """Destination of `indptr` and `indices`, such as a `workloads.making.writer.DatasetWriter`."""

    def begin(self, part: Any, dtype: npt.DTypeLike, count: int) -> tuple[Path, int]:
        """Make a file with its header and its blocks reserved; return it and the data's offset, a multiple of 4096."""

    def finish(self, part: Any, xxh3: str | None = None) -> None:
        """Cut the file to size and flush it to disk; `xxh3` is the digest of header and data."""


@dataclass(frozen=True)
class BaseGraph:
    """A graph to expand, in CSC by destination.

    Attributes:
        indptr, indices: int64 [N + 1]; int32 or int64 [E], in-neighbours.
        labels: int64 [N] or None; negative for an unlabelled node.
        features: [N, D0], a dense array or a scipy sparse matrix, or None.
        num_classes: number of classes; 0 without labels.
        name: name for messages and the manifest.
    """

    indptr: Int64
    indices: npt.NDArray[Any]
    labels: Int64 | None = None
    features: Any = None
    num_classes: int = 0
    name: str = "base"

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return int(self.indptr.shape[0]) - 1

    @property
    def num_edges(self) -> int:
        """Number of directed edges, E."""
        return int(self.indices.shape[0])


@dataclass(frozen=True)
class GenerateSpec:
    """A topology to generate; equal specifications give equal bytes on every machine and number of threads
    (`fractal`: on every machine whose SVD agrees to six digits).

    Attributes:
        kind: `rmat`, `kronecker` or `fractal`.
        nodes: N (0: as base and `expand` give), exact but for `fractal`, which takes the next multiple of the base's.
        edges: E (0: the default), exact for `rmat`; about for `kronecker`, and for `fractal` without a base.
        expand: number of copies of the base graph (`kronecker`, `fractal`; 0: as `nodes` gives).
        seed: seed of every draw, 0 to 2^64 - 1.
        max_memory: most bytes of the generation, base graph included, interpreter not.
        index_dtype: `int32`, `int64`, or `auto` for the smallest that holds N.
        base: the graph to expand; without one, an R-MAT graph without duplicates is drawn.
        communities: number of classes to plant into R-MAT graphs (`rmat`, and the base that `kronecker` draws): six
            edges in ten then stay within a class, so that labels agree along edges. 0: plain Graph500.
        threads: number of threads; 0: one a processor.
    """

    kind: Kind
    nodes: int = 0
    edges: int = 0
    expand: int = 0
    seed: int = 0
    max_memory: int = 1 << 30
    index_dtype: str = "auto"
    base: BaseGraph | None = None
    communities: int = 0
    threads: int = 0

    def __post_init__(self) -> None:
        for name in ("nodes", "edges", "expand"):
            require(getattr(self, name) >= 0, f"--{name} is {getattr(self, name)}", "give at least 1")
        require(0 <= self.communities < 1 << 20, f"communities is {self.communities}", "give 0 to 1048575")
        require(0 <= self.seed < 1 << 64, f"--seed is {self.seed}", "give a number from 0 to 2^64 - 1")
        check_choice("--index-dtype", self.index_dtype, ("auto", "int32", "int64"))

    @property
    def num_threads(self) -> int:
        """Number of threads to use."""
        return self.threads or len(os.sched_getaffinity(0))

    def dtype_for(self, num_nodes: int) -> np.dtype[Any]:
        """Choose the element type of `indices`.

        Raises:
            InputError: int32 was requested and does not hold the ids.
        """
        fits = num_nodes <= 1 << 31
        require(self.index_dtype != "int32" or fits, f"int32 does not hold the ids of {num_nodes} nodes", "use int64")
        return np.dtype("int32" if fits and self.index_dtype != "int64" else "int64")

    def copies_of(self, base: BaseGraph) -> int:
        """Return the number of copies of a given base graph.

        Raises:
            InputError: neither `expand` nor `nodes` is given.
        """
        require(self.expand or self.nodes, "an expansion needs a size", "give --expand K or --nodes N")
        return self.expand or -(-self.nodes // base.num_nodes)

    def drawn_size(self) -> tuple[int, int]:
        """Return nodes and edges of an expansion of a base graph that is drawn for it.

        Raises:
            InputError: `nodes` is not given.
        """
        require(self.nodes, "an expansion without --base needs --nodes", "give for example --nodes 2M --edges 40M")
        return self.nodes, self.edges or DEFAULT_MEAN_DEGREE * self.nodes

    def require(self, what: str, needed: int) -> None:
        """Check that the `needed` bytes for `what` fit `max_memory`.

        Raises:
            BudgetError: they do not; names the part, the bytes needed and the bytes allowed.
        """
        if needed > self.max_memory:
            raise BudgetError(
                f"{self.kind} generation needs {format_bytes(needed)} for {what}, --max-memory is "
                f"{format_bytes(self.max_memory)}",
                f"raise --max-memory to {format_bytes(needed * 1.01)} or make the graph smaller",
            )


@dataclass(frozen=True)
class TopologyPlan:
    """Exact N and E of a topology before its first write, and the function that writes it.

    Attributes:
        index_dtype: element type of `indices`.
        base: base graph in use (given or drawn), None for `rmat`.
        details: numbers that describe the recipe, for the manifest.
        write: writes both parts to a sink.
        labels: draws int64 labels by counter, `labels(first, count)`, for `rmat` with communities; else None.
    """

    num_nodes: int
    num_edges: int
    index_dtype: np.dtype[Any]
    base: BaseGraph | None
    write: Callable[[TopologySink, Progress], None] = field(repr=False)
    details: dict[str, Any] = field(default_factory=dict)
    labels: Callable[[int, int], Int64] | None = field(default=None, repr=False)

    @property
    def data_bytes(self) -> int:
        """Bytes of `indptr` and `indices`."""
        return 8 * (self.num_nodes + 1) + self.num_edges * self.index_dtype.itemsize

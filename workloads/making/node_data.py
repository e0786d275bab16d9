"""Labels, features and splits of a dataset's nodes: written as they are, or generated
and, with the salt, recomputable (communities as labels; as a feature row the centre of
a class, or a base row, plus noise)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads import _native
from workloads.arraytypes import Array, DType, Float32Array, Int64Array, JsonDict
from workloads.direct_files import small_maps
from workloads.errors import InputError, check_choice, require
from workloads.making.progress import Progress
from workloads.making.salt import Salt
from workloads.making.writer import DatasetWriter, PartWriter
from workloads.manifest import MAX_CLASSES

_CHUNK = 1 << 20
_STREAM = 0x73706C6974  # keeps the draws of splits apart from others of the same seed
_SWEEPS = 10
# Length of the class centres in units of the noise: a single row reveals its class most
# of the time, not always.
SIGNAL = 3.0
_BASE_NOISE = 0.1
# beyond any node's id, so that no node shares its draws with a centre
_CENTRE_IDS = 1 << 62
_PROJECTION_IDS = 1 << 61
_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class NodeDataSpec:
    """Settings of features and labels for a graph without its own."""

    dim: int = 128  # number of feature columns, D
    dtype: str = "float32"  # or `float16`
    classes: int = 16
    # communities of the graph, so that labels agree along edges; or `random`
    labels: str = "homophilous"
    # the class's centre plus noise; or `random`, noise alone
    features: str = "learnable"

    def check(self) -> None:
        """Check the settings; raises InputError with the option, its value and its
        valid values."""
        fault = f"--dim is {self.dim}"
        require(self.dim >= 1, fault, "give at least 1")
        fault = f"--classes is {self.classes}"
        fix = f"give 1 to {MAX_CLASSES}"
        require(1 <= self.classes <= MAX_CLASSES, fault, fix)
        check_choice("--dtype", self.dtype, ("float32", "float16"))
        check_choice("--labels", self.labels, ("homophilous", "random"))
        check_choice("--features", self.features, ("learnable", "random"))


def make_labels(
    spec: NodeDataSpec, seed: int, indptr: Int64Array, indices: Array
) -> Int64Array:
    """Make labels, int64 [N] in [0, classes), of the graph with in-neighbours `indices`
    (may be memory-mapped)."""
    if spec.labels == "random":
        return random_labels(indptr.shape[0] - 1, spec.classes, seed)
    return community_labels(indptr, indices, spec.classes, seed)


def generate_features(
    writer: DatasetWriter,
    spec: NodeDataSpec,
    labels: Int64Array,
    num_classes: int,
    seed: int,
    salt: Salt | None,
    progress: Progress,
    base_features: Any = None,
) -> None:
    """Write `features` by counter, some rows at a time, so that memory does not grow
    with the graph.

    Args:
        writer, progress: writer of the dataset, and a function that is called with the
            stage and its done fraction.
        spec, seed: columns, dtype and kind, and seed of the draws.
        salt: salt of the noise; None: the salt of the data root.
        labels, num_classes: int64 [N], may be memory-mapped, and number of classes.
        base_features: features of a base graph, for `FeatureSource.of_base`; None:
            class centres.
    """
    num_nodes = labels.shape[0]
    salt = salt or Salt.of_root(writer.path.parent)
    writer.salt = salt.digest
    threads = len(os.sched_getaffinity(0))
    options: JsonDict = {
        "dtype": spec.dtype,
        "seed": seed,
        "salt": salt,
        "threads": threads,
    }
    if spec.features == "random":
        source = FeatureSource.random(num_nodes, spec.dim, **options)
    elif base_features is not None:
        source = FeatureSource.of_base(base_features, num_nodes, spec.dim, **options)
    else:
        source = FeatureSource.of_classes(labels, num_classes, spec.dim, **options)
    write_features(
        writer, (num_nodes, spec.dim), source.dtype, source.chunks(), progress
    )


def write_features(
    writer: DatasetWriter,
    shape: tuple[int, int],
    dtype: DType,
    chunks: Iterable[Array],
    progress: Progress,
) -> None:
    """Write `features` of shape [N, D] from chunks of their rows in order; raises
    InputError where there are more or fewer rows than nodes."""
    done = 0
    num_nodes = shape[0]
    with PartWriter(writer, "features", dtype, shape) as stream:
        for rows in chunks:
            done += rows.shape[0]
            if done > num_nodes:
                raise InputError(
                    f"there are more feature rows than the {num_nodes} nodes",
                    "give a row for each node",
                )
            stream.write(rows)
            progress("writing features", done / num_nodes)
        fault = f"there are {done} feature rows for {num_nodes} nodes"
        require(done >= num_nodes, fault, "give a row for each node")


def write_ids(writer: DatasetWriter, ids: Iterable[Int64Array], num_nodes: int) -> None:
    """Write `ids`, the nodes' original ids, from chunks of int64 in the order of the
    nodes."""
    with writer.stream("ids", np.int64, num_nodes) as stream:
        for chunk in ids:
            stream.write(chunk)


def check_fractions(train: float, valid: float, test: float) -> None:
    """Check the shares of train, valid and test; raises InputError where one is outside
    [0, 1], train is 0, or they exceed 1 together."""
    for name, value in (("train", train), ("valid", valid), ("test", test)):
        fault = f"--{name}-fraction is {value}, which is not in [0, 1]"
        require(0 <= value <= 1, fault, "give a share like 0.01")
    require(
        train != 0,
        "--train-fraction is 0, so that nothing could be trained",
        "give a share like 0.01",
    )
    total = train + valid + test
    fault = (
        f"--train-fraction, --valid-fraction and --test-fraction are {total:g} together"
    )
    require(total <= 1 + 1e-9, fault, "stay below 1")


def draw_splits(
    labels: Int64Array, fractions: tuple[float, float, float], seed: int
) -> Iterator[tuple[Int64Array, ...]]:
    """Draw ascending ids of train, valid and test for some nodes at a time, with
    `fractions` as shares of the labelled nodes: `labels`, int64 [N] (may be
    memory-mapped), -1 for unlabelled."""
    bounds = np.cumsum(fractions)
    seen = 0
    given = np.zeros(3, dtype=np.int64)
    for start in range(0, labels.shape[0], _CHUNK):
        part = np.asarray(labels[start : start + _CHUNK])
        known = start + np.flatnonzero(part >= 0)
        random = np.random.default_rng([_STREAM, seed, start // _CHUNK])
        order = random.permutation(known)
        seen += known.shape[0]
        # The wanted number grows with the labelled nodes seen, so the shares hold over
        # the whole graph.
        wanted = np.diff(np.rint(bounds * seen).astype(np.int64), prepend=0)
        wanted[0] = max(wanted[0], min(1, seen))
        missing = np.maximum(wanted - given, 0)
        ends = np.minimum(np.cumsum(missing), known.shape[0])
        begins = np.concatenate([[0], ends[:-1]])
        given += ends - begins
        borders = zip(begins, ends, strict=True)
        yield tuple(np.sort(order[begin:end]) for begin, end in borders)


def write_splits(
    writer: DatasetWriter,
    labels: Int64Array,
    fractions: tuple[float, float, float],
    seed: int,
) -> None:
    """Draw the splits by `draw_splits` and write `train`, `valid` and `test`; raises
    InputError where no node has a label."""
    chunks = zip(*draw_splits(labels, fractions, seed), strict=True)
    train, valid, test = (np.concatenate(part).astype(np.int64) for part in chunks)
    if train.shape[0] == 0:
        raise InputError(
            "no node has a label, so there is nothing to train on",
            "use --labels random or homophilous",
        )
    writer.write("train", train)
    writer.write("valid", valid)
    writer.write("test", test)


class FeatureSource:
    """Feature table [num_nodes, dim], float32 or float16, with rows that are pure
    functions of seed, salt and node id.

    Row v is `centres[group(v)] + noise * z(key, v)`, z about normal (mean 0, variance
    1) from Philox draws. The key is made from seed and salt, or is the seed without a
    salt; centres depend on the seed alone.
    """

    def __init__(
        self,
        num_nodes: int,
        centres: Float32Array,
        group: Callable[[Int64Array], Int64Array],
        *,
        dtype: npt.DTypeLike = "float32",
        seed: int = 0,
        salt: Salt | None = None,
        noise: float = 1.0,
        threads: int = 1,
    ) -> None:
        """Make a source from centres, float32 [G, D]; most callers use `of_classes`,
        `of_base` or `random`.

        `group` gives the groups of node ids, int64 [n], each below G; `noise` is the
        factor of the noise, `threads` the number of threads that fill rows. Datasets of
        older Outcores have no `salt`.
        """
        self.num_nodes = num_nodes
        self.dim = int(centres.shape[1])
        self.dtype = np.dtype(dtype)
        fault = f"features cannot be {self.dtype}"
        require(self.dtype in (np.float32, np.float16), fault, "use float32 or float16")
        self._centres = np.ascontiguousarray(centres, dtype=np.float32)
        self._key = seed if salt is None else salt.key(seed)
        self._group = group
        self._noise = noise
        self._threads = max(1, threads)

    @classmethod
    def of_classes(
        cls, labels: Int64Array, num_classes: int, dim: int, **options: Any
    ) -> FeatureSource:
        """Make rows [N, dim] of class centres plus noise; a node without label
        (`labels`, int64 [N], is negative) gets noise alone. `options`: `dtype`, `seed`,
        `salt`, `threads`."""
        centres = class_centres(num_classes, dim, int(options.get("seed", 0)))
        with_none = np.concatenate([centres, np.zeros((1, dim), dtype=np.float32)])

        def group(ids: Int64Array) -> Int64Array:
            found = np.asarray(labels[ids], dtype=np.int64)
            return np.where(found < 0, num_classes, found)

        return cls(labels.shape[0], with_none, group, **options)

    @classmethod
    def of_base(
        cls, base_features: Any, num_nodes: int, dim: int, **options: Any
    ) -> FeatureSource:
        """Make rows [num_nodes, dim] of base rows plus a little noise; node v is a copy
        of base node `v % base nodes`.

        `base_features` is [B, D0], dense or scipy sparse; where D0 differs from `dim`,
        it is projected by a random matrix of signs, then scaled to a standard deviation
        of 1 over all entries. `options`: `dtype`, `seed`, `salt`, `threads`.
        """
        table = projected(base_features, dim, int(options.get("seed", 0)))
        return cls(
            num_nodes,
            table,
            lambda ids: ids % table.shape[0],
            noise=_BASE_NOISE,
            **options,
        )

    @classmethod
    def random(cls, num_nodes: int, dim: int, **options: Any) -> FeatureSource:
        """Make rows of noise alone."""
        return cls(
            num_nodes, np.zeros((1, dim), dtype=np.float32), np.zeros_like, **options
        )

    def rows(self, ids: Int64Array, out: Array | None = None) -> Array:
        """Compute the rows of nodes `ids` (int64 [n], any order) as [n, D], into `out`
        where given."""
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if out is None:
            out = np.empty((ids.shape[0], self.dim), dtype=self.dtype)
        arguments = (
            self._centres,
            self._group(ids),
            ids,
            self._key,
            self._noise,
            self._threads,
        )
        if self.dtype == np.float32:
            _native.feature_rows32(*arguments, out)
        else:
            _native.feature_rows16(*arguments, out.view(np.uint16))
        return out

    def chunks(self, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[Array]:
        """Yield all rows in order, in arrays of about `chunk_bytes`; the next chunk
        overwrites the last one."""
        step = max(1, chunk_bytes // (self.dim * self.dtype.itemsize))
        buffer = np.empty((min(step, self.num_nodes), self.dim), dtype=self.dtype)
        for first in range(0, self.num_nodes, step):
            ids = np.arange(first, min(self.num_nodes, first + step), dtype=np.int64)
            yield self.rows(ids, buffer[: ids.shape[0]])


def community_labels(
    indptr: Int64Array, indices: Array, num_classes: int, seed: int
) -> Int64Array:
    """Label nodes by communities of about equal size, int64 [N], so that labels agree
    along edges.

    Nodes are streamed in random order (by `seed`), each placed with most of its
    in-neighbours, weighted by the community's free capacity, in ten passes over the
    edges (linear deterministic greedy, restreamed). Takes 12 N bytes; `indptr` and
    `indices`, the in-neighbours, may be memory-mapped.
    """
    out = np.empty(indptr.shape[0] - 1, dtype=np.int64)
    with small_maps(indptr, indices):
        _native.communities(indptr, indices, num_classes, _SWEEPS, seed, out)
    return out


def random_labels(
    num_nodes: int, num_classes: int, seed: int, first: int = 0
) -> Int64Array:
    """Draw uniform labels of nodes [first, first + num_nodes), int64; any range can be
    drawn alone."""
    out = np.empty(num_nodes, dtype=np.int64)
    _native.random_labels(first, num_classes, seed, out)
    return out


def class_centres(num_classes: int, dim: int, seed: int) -> Float32Array:
    """Draw the class centres by counter, float32 [num_classes, dim], of length about
    `SIGNAL` for any `dim`."""
    ids = _CENTRE_IDS + np.arange(num_classes, dtype=np.int64)
    return FeatureSource.random(0, dim, seed=seed).rows(ids) * np.float32(
        SIGNAL / np.sqrt(dim)
    )


def projected(features: Any, dim: int, seed: int) -> Float32Array:
    """Project [B, D0] dense or sparse features to float32 [B, dim] of standard
    deviation 1."""
    if features.shape[1] == dim:
        dense = features.toarray() if hasattr(features, "toarray") else features
        table = np.asarray(dense, dtype=np.float32)
    else:
        ids = _PROJECTION_IDS + np.arange(features.shape[1], dtype=np.int64)
        draws = FeatureSource.random(0, dim, seed=seed).rows(ids)
        signs = np.where(draws < 0, np.float32(-1), np.float32(1))
        table = np.asarray(features @ signs, dtype=np.float32)
    deviation = float(table.std())
    if deviation > 0:
        table = table / np.float32(deviation)
    return np.ascontiguousarray(table)

"""Labels, features and splits of a dataset's nodes: generated, or written as they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.errors import InputError, check_choice, require
from workloads.kronecker import Progress
from workloads.kronecker.features import FeatureSource, community_labels, random_labels
from workloads.making.writer import DatasetWriter

_CHUNK = 1 << 20
_STREAM = 0x73706C6974  # keeps the draws of splits apart from others of the same seed

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NodeDataSpec:
    """Settings of features and labels for a graph without its own.

    Attributes:
        dim: number of feature columns, D.
        dtype: `float32` or `float16`.
        classes: number of classes.
        labels: `homophilous` (communities of the graph, so labels agree along edges) or `random`.
        features: `learnable` (the class's centre plus noise) or `random` (noise alone).
    """

    dim: int = 128
    dtype: str = "float32"
    classes: int = 16
    labels: str = "homophilous"
    features: str = "learnable"

    def check(self) -> None:
        """Check the settings.

        Raises:
            InputError: a setting is invalid; names the option, its value and its valid values.
        """
        require(self.dim >= 1, f"--dim is {self.dim}", "give at least 1")
        require(1 <= self.classes <= 1 << 20, f"--classes is {self.classes}", "give 1 to 1048576")
        check_choice("--dtype", self.dtype, ("float32", "float16"))
        check_choice("--labels", self.labels, ("homophilous", "random"))
        check_choice("--features", self.features, ("learnable", "random"))


def make_labels(spec: NodeDataSpec, seed: int, indptr: IntArray, indices: npt.NDArray[Any]) -> IntArray:
    """Make labels, int64 [N] in [0, classes), of the graph with in-neighbours `indices` (may be memory-mapped)."""
    if spec.labels == "random":
        return random_labels(indptr.shape[0] - 1, spec.classes, seed)
    return community_labels(indptr, indices, spec.classes, seed)


def write_generated_features(
    writer: DatasetWriter,
    spec: NodeDataSpec,
    labels: IntArray,
    num_classes: int,
    seed: int,
    progress: Progress,
    base_features: Any = None,
) -> None:
    """Write `features` by counter, some rows at a time, so that memory does not grow with the graph.

    Args:
        writer, progress: writer of the dataset, and a function that is called with the stage and its done fraction.
        spec: columns, dtype and kind.
        labels, num_classes: int64 [N], may be memory-mapped, and number of classes.
        seed: seed of the draws.
        base_features: features of a base graph, for `FeatureSource.of_base`; None: class centres.
    """
    num_nodes = labels.shape[0]
    options: dict[str, Any] = {"dtype": spec.dtype, "seed": seed, "threads": len(os.sched_getaffinity(0))}
    if spec.features == "random":
        source = FeatureSource.random(num_nodes, spec.dim, **options)
    elif base_features is not None:
        source = FeatureSource.of_base(base_features, num_nodes, spec.dim, **options)
    else:
        source = FeatureSource.of_classes(labels, num_classes, spec.dim, **options)
    write_features(writer, (num_nodes, spec.dim), source.dtype, source.chunks(), progress)


def write_features(
    writer: DatasetWriter,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    chunks: Iterable[npt.NDArray[Any]],
    progress: Progress,
) -> None:
    """Write `features` of shape [N, D] from chunks of their rows in order.

    Raises:
        InputError: there are more or fewer rows than nodes.
    """
    done, num_nodes = 0, shape[0]
    with writer.stream("features", dtype, shape) as stream:
        for rows in chunks:
            done += rows.shape[0]
            if done > num_nodes:
                raise InputError(f"there are more feature rows than the {num_nodes} nodes", "check the source files")
            stream.write(rows)
            progress("writing features", done / num_nodes)
        require(done >= num_nodes, f"there are {done} feature rows for {num_nodes} nodes", "check the source files")


def check_fractions(train: float, valid: float, test: float) -> None:
    """Check the shares of train, valid and test.

    Raises:
        InputError: a share is outside [0, 1], train is 0, or they exceed 1 together.
    """
    for name, value in (("train", train), ("valid", valid), ("test", test)):
        require(0 <= value <= 1, f"--{name}-fraction is {value}, which is not in [0, 1]", "give a share like 0.01")
    require(train != 0, "--train-fraction is 0, so that nothing could be trained", "give a share like 0.01")
    if train + valid + test > 1 + 1e-9:
        raise InputError(
            f"--train-fraction, --valid-fraction and --test-fraction are {train + valid + test:g} together",
            "stay below 1",
        )


def draw_splits(labels: IntArray, fractions: tuple[float, float, float], seed: int) -> Iterator[tuple[IntArray, ...]]:
    """Draw ascending ids of train, valid and test among the labelled nodes, for some nodes at a time.

    `labels` is int64 [N] (may be memory-mapped), -1 for unlabelled; `fractions` are shares of the labelled nodes.
    """
    bounds = np.cumsum(fractions)
    seen = 0
    given = np.zeros(3, dtype=np.int64)
    for start in range(0, labels.shape[0], _CHUNK):
        known = start + np.flatnonzero(np.asarray(labels[start : start + _CHUNK]) >= 0)
        random = np.random.default_rng([_STREAM, seed, start // _CHUNK])
        order = random.permutation(known)
        seen += known.shape[0]
        # The wanted number grows with the labelled nodes seen, so the shares hold over the whole graph.
        wanted = np.diff(np.rint(bounds * seen).astype(np.int64), prepend=0)
        wanted[0] = max(wanted[0], min(1, seen))
        ends = np.minimum(np.cumsum(np.maximum(wanted - given, 0)), known.shape[0])
        begins = np.concatenate([[0], ends[:-1]])
        given += ends - begins
        yield tuple(np.sort(order[begin:end]) for begin, end in zip(begins, ends, strict=True))


def write_splits(writer: DatasetWriter, labels: IntArray, fractions: tuple[float, float, float], seed: int) -> None:
    """Draw the splits by `draw_splits` and write `train`, `valid` and `test`.

    Raises:
        InputError: no node has a label.
    """
    chunks = zip(*draw_splits(labels, fractions, seed), strict=True)
    train, valid, test = (np.concatenate(part).astype(np.int64) for part in chunks)
    if train.shape[0] == 0:
        raise InputError("no node has a label, so there is nothing to train on", "use --labels random or homophilous")
    writer.write("train", train)
    writer.write("valid", valid)
    writer.write("test", test)

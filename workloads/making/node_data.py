"""Generated labels and features of a dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.errors import InputError, check_choice
from workloads.kronecker import Progress
from workloads.kronecker.features import FeatureSource, community_labels, random_labels
from workloads.making.writer import DatasetWriter

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
        if self.dim < 1:
            raise InputError(f"--dim is {self.dim}", "give at least 1")
        if not 1 <= self.classes <= 1 << 20:
            raise InputError(f"--classes is {self.classes}", "give 1 to 1048576")
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
        writer: writer of the dataset.
        spec: columns, dtype and kind.
        labels: int64 [N], may be memory-mapped.
        num_classes: number of classes.
        seed: seed of the draws.
        progress: called with the stage and its done fraction.
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
        if done < num_nodes:
            raise InputError(f"there are {done} feature rows for {num_nodes} nodes", "check the source files")

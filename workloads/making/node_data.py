"""Generated labels and features, and the measures of a graph for its manifest."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from workloads.errors import InputError
from workloads.making.writer import DatasetWriter
from workloads.mapped import small_maps

_CHUNK = 1 << 20
_DTYPES = ("float32", "float16")
_LABELS = ("homophilous", "random")
_FEATURES = ("learnable", "random")

IntArray = npt.NDArray[np.int64]
Progress = Callable[[str, float], None]


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
        for option, value, choices in (
            ("--dtype", self.dtype, _DTYPES),
            ("--labels", self.labels, _LABELS),
            ("--features", self.features, _FEATURES),
        ):
            if value not in choices:
                raise InputError(f"{option} is {value!r}", f"choose {' or '.join(choices)}")


def make_labels(spec: NodeDataSpec, num_nodes: int, seed: int, indptr: IntArray, indices: npt.NDArray[Any]) -> IntArray:
    """Make labels, int64 [N] in [0, classes).

    Args:
        spec: kind of labels and number of classes.
        num_nodes: N.
        seed: seed of the draws.
        indptr: int64 [N + 1], may be memory-mapped.
        indices: [E], may be memory-mapped.
    """
    from workloads.kronecker.labels import community_labels, random_labels

    if spec.labels == "random":
        return random_labels(num_nodes, spec.classes, seed)
    with small_maps(indptr, indices):
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
        base_features: [B, D0] dense or sparse; node v then takes the row of base node v % B, projected to `dim` columns
            where D0 differs, plus a little noise.
    """
    from workloads.kronecker.features import FeatureSource

    num_nodes = labels.shape[0]
    options: dict[str, Any] = {"dtype": spec.dtype, "seed": seed, "threads": len(os.sched_getaffinity(0))}
    if spec.features == "random":
        source = FeatureSource.random(num_nodes, spec.dim, **options)
    elif base_features is not None:
        source = FeatureSource.of_base(base_features, num_nodes, spec.dim, **options)
    else:
        source = FeatureSource.of_classes(labels, num_classes, spec.dim, **options)
    done = 0
    with writer.stream("features", spec.dtype, (num_nodes, spec.dim)) as stream:
        for rows in source.chunks():
            stream.write(rows)
            done += rows.shape[0]
            progress("writing features", done / num_nodes)


def write_expanded_labels(writer: DatasetWriter, base_labels: IntArray, num_nodes: int) -> None:
    """Write `labels` of an expansion: node v has the label of base node v % B."""
    base = np.asarray(base_labels, dtype=np.int64)
    with writer.stream("labels", np.int64, num_nodes) as stream:
        for start in range(0, num_nodes, _CHUNK):
            ids = np.arange(start, min(num_nodes, start + _CHUNK), dtype=np.int64)
            stream.write(base[ids % base.shape[0]])


def measure(indptr: IntArray, indices: npt.NDArray[Any], labels: IntArray | None) -> dict[str, float | int | None]:
    """Measure degree skew, clustering and homophily for the manifest."""
    from workloads.kronecker.stats import graph_stats

    with small_maps(indptr, indices, labels):
        return graph_stats(indptr, indices, labels).as_dict()


def kinds() -> tuple[str, ...]:
    """List the kinds of generated graphs."""
    from workloads.kronecker import Kind

    return get_args(Kind)

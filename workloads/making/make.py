"""Generation of a dataset: topology, labels and features by counter, splits, and
measures of base and result."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import scipy.sparse as sp

from workloads.arraytypes import JsonDict
from workloads.dataset import Dataset, find_dataset
from workloads.errors import BudgetError, InputError
from workloads.importers import ImportOptions, importer
from workloads.kronecker import (
    BaseGraph,
    GenerateSpec,
    Kind,
    TopologyPlan,
    plan_topology,
)
from workloads.kronecker.stats import measure
from workloads.making.csc import collect_csc
from workloads.making.node_data import (
    NodeDataSpec,
    check_fractions,
    generate_features,
    make_labels,
    write_splits,
)
from workloads.making.progress import Progress, no_progress
from workloads.making.salt import Salt
from workloads.making.writer import DatasetWriter
from workloads.manifest import FEATURES_GENERATED
from workloads.npyfile import file_digest
from workloads.units import format_bytes

_DEFAULT_CLASSES = 16
_CHUNK = 1 << 20


@dataclass(frozen=True)
class MakeSpec:
    """Settings of a generated dataset, explained further in `GenerateSpec` and
    `NodeDataSpec`; equal specifications give equal bytes where the salt is equal."""

    kind: str
    nodes: int = 0
    edges: int = 0
    dim: int = 128
    dtype: str = "float32"
    # number of generated classes (0: 16); a base that has labels keeps its own
    classes: int = 0
    # of train, valid and test among the labelled nodes
    fractions: tuple[float, float, float] = (0.01, 0.01, 0.01)
    # name of a dataset, path of one, or an `.npz` or SNAP file; empty: an R-MAT base is
    # drawn
    base: str = ""
    expand: int = 0
    # or `random`; homophilous: the base's own, else communities
    labels: str = "homophilous"
    # or `random`; learnable: the base's rows or the class's centre, plus noise
    features: str = "learnable"
    seed: int = 0
    index_dtype: str = "auto"

    @property
    def node_data(self) -> NodeDataSpec:
        """Settings of features and labels."""
        return NodeDataSpec(
            self.dim,
            self.dtype,
            self.classes or _DEFAULT_CLASSES,
            self.labels,
            self.features,
        )

    def check(self) -> None:
        """Check the settings before anything is read; raises InputError with the option
        and its valid values."""
        kinds = get_args(Kind)
        if self.kind not in kinds:
            near = difflib.get_close_matches(self.kind, kinds, n=1)
            fix = f"did you mean {near[0]}?" if near else f"choose {', '.join(kinds)}"
            fault = f"--kind is {self.kind!r}, which is none of {', '.join(kinds)}"
            raise InputError(fault, fix)
        self.node_data.check()
        check_fractions(*self.fractions)
        self.generate_spec(None, 1 << 30)

    def generate_spec(self, base: BaseGraph | None, max_memory: int) -> GenerateSpec:
        """Return the settings of the topology."""
        shared = {
            name: getattr(self, name)
            for name in ("kind", "nodes", "edges", "expand", "seed", "index_dtype")
        }
        communities = self.node_data.classes if self.labels == "homophilous" else 0
        return GenerateSpec(
            **shared, max_memory=max_memory, base=base, communities=communities
        )

    def recipe(self, data_root: Path) -> JsonDict:
        """Return the manifest's recipe, with the digest of the base; raises
        DatasetError where the base is missing."""
        digest = ""
        if self.base:
            file = Path(self.base)
            if file.is_file():
                digest = file_digest(file)
            else:
                digest = find_dataset(self.base, data_root).fingerprint
        settings = asdict(self) | {
            "fractions": list(self.fractions),
            "base": Path(self.base).name if self.base else "",
        }
        return {"how": "make", **settings, "base_digest": digest}


def make_dataset(
    target: Path,
    spec: MakeSpec,
    *,
    data_root: Path = Path("data"),
    salt: Salt | None = None,
    max_memory: int = 1 << 30,
    replace: bool = False,
    progress: Progress = no_progress,
) -> Dataset:
    """Generate the dataset `target`.

    Args:
        target, replace: as `path` and `replace` of `DatasetWriter`.
        spec: settings of the dataset.
        data_root: folder of the datasets in which `spec.base` is looked up by name.
        salt: salt of the features; None: that of the folder of `target`, drawn at its
            first dataset.
        max_memory: most bytes of the generation, the interpreter not counted.
        progress: called with the stage and its done fraction.

    Raises:
        DatasetError: the target exists, the base is missing, the disk is full.
        InputError: the settings are invalid.
        BudgetError: `max_memory` is too small.
    """
    spec.check()
    with DatasetWriter(
        target, recipe=spec.recipe(data_root), replace=replace
    ) as writer:
        given = None
        if spec.base:
            given = _load_base(spec.base, data_root, writer, max_memory, progress)
        if (
            given is not None
            and given.labels is not None
            and spec.labels == "homophilous"
            and spec.classes
        ):
            fault = (
                f"--classes {spec.classes} does not go with a base that has labels of "
                f"{given.num_classes} classes"
            )
            raise InputError(fault, "leave it out, or use --labels random")
        plan = plan_topology(spec.generate_spec(given, max_memory), progress)
        row = spec.dim * np.dtype(spec.dtype).itemsize
        split_bytes = int(8 * sum(spec.fractions))
        node_bytes = plan.num_nodes * (row + 8 + split_bytes)
        writer.require_space(plan.data_bytes + node_bytes)
        plan.write(writer, progress)
        _write_nodes(writer, spec, plan, salt, progress)
        progress("measuring", 0.0)
        labels = writer.memmap("labels")
        stats = {
            "result": measure(writer.memmap("indptr"), writer.memmap("indices"), labels)
        }
        if plan.base is not None:
            stats["base"] = measure(
                plan.base.indptr, plan.base.indices, _base_labels(spec, plan.base)
            )
        stats["generator"] = {
            key: value
            for key, value in plan.details.items()
            if isinstance(value, (int, float))
        }
        writer.stats = stats
        progress("measuring", 1.0)
    return Dataset.open(target)


def _load_base(
    base: str,
    data_root: Path,
    writer: DatasetWriter,
    max_memory: int,
    progress: Progress,
) -> BaseGraph:
    """Load the base graph into memory, with the labels and features that it has; note
    how a file was read."""
    path = Path(base)
    features = cast(Any, None)
    if path.is_file():
        read = importer("npz" if path.suffix == ".npz" else "snap")
        graph = read(path, ImportOptions(writer.folder, max_memory, progress=progress))
        writer.notes += [f"base: {note}" for note in graph.notes]
        indptr, indices = collect_csc(graph.edges, graph.num_nodes, graph.symmetric)
        if graph.features is not None:
            # Sparse: dense bags of words would exceed the expansion's own buffers.
            chunks = (
                sp.csr_matrix(chunk.astype(np.float32, copy=False))
                for chunk in graph.features.chunks()
            )
            features = sp.csr_matrix(sp.vstack(list(chunks)))
        return BaseGraph(
            indptr, indices, graph.labels, features, graph.num_classes, path.name
        )
    dataset = find_dataset(base, data_root)
    if not any(note.startswith(FEATURES_GENERATED) for note in dataset.manifest.notes):
        if dataset.feature_bytes * 2 > max_memory:
            fault = (
                f"expanding {dataset.name!r} holds its features twice, 2 x "
                f"{format_bytes(dataset.feature_bytes)}, and --max-memory is "
                f"{format_bytes(max_memory)}"
            )
            raise BudgetError(fault, "raise --max-memory")
        features = dataset.load("features").astype(np.float32, copy=False)
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    labels = dataset.load("labels")
    return BaseGraph(
        indptr, indices, labels, features, dataset.num_classes, dataset.name
    )


def _write_nodes(
    writer: DatasetWriter,
    spec: MakeSpec,
    plan: TopologyPlan,
    salt: Salt | None,
    progress: Progress,
) -> None:
    """Write labels, features and splits of a finished topology."""
    node_data = spec.node_data
    base = plan.base
    num_nodes = plan.num_nodes
    num_classes = node_data.classes
    base_features = None
    base_labels = _base_labels(spec, base)
    progress("labels", 0.0)
    if base is not None and base_labels is not None:
        with writer.stream("labels", np.int64, num_nodes) as stream:
            # node v has the label of base node v % B
            for start in range(0, num_nodes, _CHUNK):
                ids = np.arange(start, min(num_nodes, start + _CHUNK), dtype=np.int64)
                stream.write(
                    np.asarray(base_labels, dtype=np.int64)[ids % base.num_nodes]
                )
        if base.labels is not None:
            num_classes = base.num_classes
            base_features = base.features
            writer.notes += ["labels are those of the base's nodes"]
    elif plan.labels is not None:  # communities planted by R-MAT
        writer.write("labels", plan.labels(0, num_nodes))
    else:
        indptr = writer.memmap("indptr")
        indices = writer.memmap("indices")
        writer.write("labels", make_labels(node_data, spec.seed, indptr, indices))
    writer.num_classes = num_classes
    labels = writer.memmap("labels")
    if base_features is not None and spec.features == "learnable":
        width = base_features.shape[1]
        how = "" if width == spec.dim else f", {width} columns projected to {spec.dim}"
        writer.notes += [f"features are those of the base's nodes plus noise{how}"]
    generate_features(
        writer, node_data, labels, num_classes, spec.seed, salt, progress, base_features
    )
    write_splits(writer, labels, spec.fractions, spec.seed)


def _base_labels(spec: MakeSpec, base: BaseGraph | None) -> Any:
    """Return the base labels that the copies keep, or None where the result needs
    labels of its own."""
    if base is None or spec.labels == "random":
        return None
    if base.labels is not None or spec.kind != "kronecker":
        return base.labels
    # Kronecker copies keep their neighbourhood and so their communities; a fractal
    # expansion shuffles every block.
    return make_labels(spec.node_data, spec.seed, base.indptr, base.indices)

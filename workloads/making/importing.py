"""Import of a graph as a dataset: neighbour lists, features, labels, splits,
statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from workloads.arraytypes import Array, Int64Array, JsonDict
from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError, check_choice, require
from workloads.importers import ImportOptions, importer
from workloads.importers.packed import refuse_packed
from workloads.importers.source import (
    FeatureRows,
    GraphSource,
    check_ids,
    stated_classes,
)
from workloads.kronecker.spec import choose_index_dtype
from workloads.kronecker.stats import measure
from workloads.making.csc import CscResult, build_csc
from workloads.making.node_data import (
    NodeDataSpec,
    check_fractions,
    generate_features,
    make_labels,
    write_features,
    write_ids,
    write_splits,
)
from workloads.making.progress import Progress, no_progress
from workloads.making.salt import Salt
from workloads.making.source_digest import source_digest, source_stamp
from workloads.making.writer import DatasetWriter, check_absent
from workloads.manifest import FEATURES_GENERATED
from workloads.sampling.distinct import distinct

#: Version of the reading of sources; a dataset that was imported by another version is
#: not the same, whatever its source.
_READING = 2


@dataclass(frozen=True)
class ImportSpec:
    """Settings of an import; with the source's digest they are the manifest's
    recipe."""

    format: str  # one of `workloads.importers.FORMATS`
    # whether to take every edge in both directions; None: as the format requires
    symmetric: bool | None = None
    # whether to keep repeated edges; else they are merged (`pyg` keeps all)
    keep_duplicates: bool = False
    index_dtype: str = "auto"  # `int32`, `int64`, or `auto` (int32 where ids fit)
    # `float32` or `float16` to convert given features; None: no conversion
    feature_dtype: str | None = None
    # of features and labels, where the graph has none
    node_data: NodeDataSpec = field(default_factory=NodeDataSpec)
    # of train, valid and test, where it has no splits
    fractions: tuple[float, float, float] = (0.01, 0.01, 0.01)
    # number of classes, if there are more than the labels'; for IGB as in
    # `ImportOptions`
    classes: int = 0
    labelled: str = "author"  # as in `ImportOptions`
    # whether to generate labels where the graph has labels, but all of them are unknown
    new_labels: bool = False
    seed: int = 0  # of generated features, labels and splits

    def check(self) -> None:
        """Check the settings before anything is read; raises InputError with the option
        and its valid values."""
        importer(self.format)
        check_choice("--dtype", self.feature_dtype or "float32", ("float32", "float16"))
        check_choice("--labelled", self.labelled, ("author", "loader"))
        fault = (
            f"--labelled {self.labelled} is for IGB, whose loader counts padding; "
            f"--format is {self.format}"
        )
        valid = self.labelled == "author" or self.format == "igb"
        require(valid, fault, "leave it out")
        valid = self.classes >= 0 and self.seed >= 0
        require(valid, "--classes and --seed cannot be negative", "give 0 or more")
        self.node_data.check()
        check_fractions(*self.fractions)
        choose_index_dtype(self.index_dtype, 1)

    def recipe(self, source: Path, progress: Progress = no_progress) -> JsonDict:
        """Return the manifest's recipe; equal recipes and salts give equal bytes. Reads
        the whole source for its digest. Raises DatasetError where the source is missing
        or may not be read."""
        with _readable(source):
            _check_source(source)
            return self.recipe_of(source.name, source_digest(source, progress))

    def recipe_of(self, source: str, digest: str) -> JsonDict:
        """Return the recipe of a source of that name and content."""
        settings = asdict(self) | {"fractions": list(self.fractions)}
        # Datasets imported before these options keep their recipe.
        if self.format != "igb":
            del settings["labelled"]
        if not self.new_labels:
            del settings["new_labels"]
        return {
            "how": "import",
            "reading": _READING,
            "source": source,
            "source_digest": digest,
            **settings,
        }


def import_dataset(
    source: Path,
    target: Path,
    spec: ImportSpec,
    *,
    salt: Salt | None = None,
    max_memory: int = 1 << 30,
    replace: bool = False,
    progress: Progress = no_progress,
) -> Dataset:
    """Import the graph at `source` as the dataset `target`.

    Args:
        source: file or folder of the graph.
        target, replace: as `path` and `replace` of `DatasetWriter`.
        spec: settings of the import.
        salt: salt of generated features; None: that of the folder of `target`, drawn
            when it is needed first.
        max_memory: most bytes for edges in memory; node arrays come on top.
        progress: called with the stage and its done fraction.

    Raises:
        DatasetError: the source is missing, damaged or unreadable, or changes
            meanwhile; the target exists; the disk is full.
        InputError: the source has another layout, or the settings are invalid.
    """
    spec.check()
    opener = partial(importer(spec.format), source)
    options: JsonDict = {
        "salt": salt,
        "max_memory": max_memory,
        "replace": replace,
        "progress": progress,
    }
    with _readable(source):
        _check_source(source)
        if spec.format != "snap":  # which opens some
            refuse_packed(source)
        check_absent(target, replace)  # before a large source is read
        before = source_stamp(source)

        def check_unchanged() -> None:
            now = source_stamp(source)
            # the data root may lie in the source
            same = all(now.get(name) == stamp for name, stamp in before.items())
            fault = f"{source} changed while it was imported"
            require(
                same, fault, "import it again when its files are complete", DatasetError
            )

        recipe = spec.recipe(source, progress)
        return write_graph(
            opener, target, spec, recipe, check_source=check_unchanged, **options
        )


def _check_source(source: Path) -> None:
    """Check that a source is a file or a folder; raises DatasetError."""
    fault = f"there is nothing at {source}"
    require(source.exists(), fault, "check the path", DatasetError)
    known = source.is_file() or source.is_dir()
    fault = f"{source} is no regular file"
    require(known, fault, "give a file or a folder", DatasetError)


@contextmanager
def _readable(source: Path) -> Iterator[None]:
    """Turn errors of reading `source` into DatasetErrors, wherever
    it happens in the block."""
    try:
        yield
    except OSError as error:
        fault = str(error.filename or source)
        raise DatasetError.from_os(error, fault) from None
    except MemoryError:
        fault = f"{source} takes more memory than there is"
        raise DatasetError(fault, "import it on a larger machine") from None


def write_graph(
    opener: Callable[[ImportOptions], GraphSource],
    target: Path,
    spec: ImportSpec,
    recipe: JsonDict,
    *,
    salt: Salt | None = None,
    max_memory: int = 1 << 30,
    replace: bool = False,
    progress: Progress = no_progress,
    check_source: Callable[[], None] = lambda: None,
) -> Dataset:
    """Write the graph that `opener` opens as the dataset `target`; `recipe` goes into
    its manifest, and `check_source` is called before the dataset is complete. The other
    arguments and the errors are those of `import_dataset`."""
    progress("reading the source", math.nan)
    with DatasetWriter(target, recipe=recipe, replace=replace) as writer:
        options = ImportOptions(
            writer.folder,
            max_memory,
            spec.classes,
            spec.labelled,
            progress,
            symmetric=spec.symmetric,
        )
        graph = opener(options)
        if spec.new_labels:
            graph = _without_unknown_labels(graph)
        weighted = graph.edge_weights is not None
        fault = (
            "--keep-duplicates is given, and of repeated edges the weights are summed"
        )
        valid = not (weighted and spec.keep_duplicates)
        require(valid, fault, "leave it out, or leave the weights out")
        keep_duplicates = spec.keep_duplicates or (
            graph.keep_duplicates and not weighted
        )
        index_dtype = choose_index_dtype(spec.index_dtype, graph.num_nodes)
        symmetric = graph.symmetric if spec.symmetric is None else spec.symmetric
        result = build_csc(
            graph.edges,
            graph.num_nodes,
            writer,
            index_dtype=index_dtype,
            max_memory=max_memory,
            symmetric=symmetric,
            keep_duplicates=keep_duplicates,
            weights=graph.edge_weights,
            other_bytes=_node_bytes(graph, spec),
            name=graph.edges_name,
            progress=progress,
        )
        if graph.ids is not None:
            write_ids(writer, graph.ids(), graph.num_nodes)
        writer.notes += [
            *graph.notes,
            *_edge_notes(result, symmetric, keep_duplicates, weighted),
        ]
        indptr = writer.memmap("indptr")
        indices = writer.memmap("indices")
        labels = graph.labels
        num_classes = graph.num_classes
        if labels is None:
            drawn = _labels_to_draw(graph, spec)
            num_classes = drawn.classes
            labels = make_labels(drawn, spec.seed, indptr, indices)
            writer.notes += [
                f"labels generated ({spec.node_data.labels}, {num_classes} classes)"
            ]
        elif spec.classes:
            num_classes = stated_classes(spec.classes, num_classes, "--classes")
        writer.write("labels", labels)
        writer.num_classes = max(1, num_classes)
        if graph.features is None:
            generate_features(
                writer, spec.node_data, labels, num_classes, spec.seed, salt, progress
            )
            writer.notes += [f"{FEATURES_GENERATED} ({spec.node_data.features})"]
        else:
            _write_features(
                writer, graph.features, graph.num_nodes, spec.feature_dtype, progress
            )
        if graph.splits is None:
            write_splits(writer, labels, spec.fractions, spec.seed)
            shares = ", ".join(f"{share:g}" for share in spec.fractions)
            writer.notes += [f"splits drawn at random ({shares} of the labelled nodes)"]
        else:
            _write_given_splits(writer, graph.splits, labels)
        progress("measuring", 0.0)
        writer.stats = {"result": measure(indptr, indices, labels)}
        check_source()
    return Dataset.open(target)


def _labels_to_draw(graph: GraphSource, spec: ImportSpec) -> NodeDataSpec:
    """Return the settings of generated labels, with the number of classes from the
    user, else from the graph."""
    return replace(
        spec.node_data,
        classes=(0 if spec.classes else graph.num_classes) or spec.node_data.classes,
    )


def _without_unknown_labels(graph: GraphSource) -> GraphSource:
    """Return the graph as one without labels where all are unknown, and so without
    splits where they name no node."""
    if graph.labels is None or bool((graph.labels >= 0).any()):
        return graph
    named = graph.splits is not None and any(len(ids) for ids in graph.splits.values())
    return replace(graph, labels=None, splits=graph.splits if named else None)


def _node_bytes(graph: GraphSource, spec: ImportSpec) -> int:
    """Return the bytes of features, labels, splits and original ids."""
    if graph.features is None:
        row = spec.node_data.dim * np.dtype(spec.node_data.dtype).itemsize
    else:
        row = (
            graph.features.dim
            * np.dtype(spec.feature_dtype or graph.features.dtype).itemsize
        )
    ids = 0 if graph.ids is None else 8
    return graph.num_nodes * (row + 16 + ids)


def _edge_notes(
    result: CscResult, symmetric: bool, kept: bool, weighted: bool
) -> list[str]:
    notes = ["every edge taken in both directions"] if symmetric else []
    if kept:
        notes.append("duplicate edges kept")
    elif result.duplicates:
        added = ", their weights added" if weighted else ""
        notes.append(f"{result.duplicates} duplicate edges removed{added}")
    if result.self_loops:
        notes.append(f"{result.self_loops} self-loops")
    if result.infinite:
        notes.append(f"{result.infinite} edge weights are not finite")
    return notes


def _write_features(
    writer: DatasetWriter,
    features: FeatureRows,
    num_nodes: int,
    wanted: str | None,
    progress: Progress,
) -> None:
    """Write the graph's own features, in the wanted element type."""
    if features.num_rows != num_nodes:
        fault = f"there are {features.num_rows} feature rows for {num_nodes} nodes"
        raise InputError(fault, "give a row for each node")
    dtype = np.dtype(wanted or features.dtype)
    infinite = 0

    def converted() -> Iterator[Array]:
        nonlocal infinite
        for chunk in features.chunks():
            # counted: values beyond float16 become infinite
            with np.errstate(over="ignore"):
                rows = chunk.astype(dtype, copy=False)
            infinite += int(rows.size - np.count_nonzero(np.isfinite(rows)))
            yield rows

    write_features(writer, (num_nodes, features.dim), dtype, converted(), progress)
    if infinite:
        writer.notes += [f"{infinite} feature values are not finite"]


def _write_given_splits(
    writer: DatasetWriter, splits: dict[str, Int64Array], labels: Int64Array
) -> None:
    taken = np.zeros(labels.shape[0], dtype=bool)
    for part in ("train", "valid", "test"):
        check_ids(splits[part], labels.shape[0], f"the {part} split")
        ids = distinct(splits[part])
        repeated = len(splits[part]) - len(ids)
        if repeated:
            writer.notes += [f"{repeated} repeated ids of the {part} split left out"]
        twice = ids[taken[ids]]
        fault = (
            f"the {part} split names node {twice.min(initial=labels.shape[0])}, which "
            "another split names too"
        )
        require(not len(twice), fault, "give every node to one split")
        taken[ids] = True
        known = ids[labels[ids] >= 0]
        if known.shape[0] < ids.shape[0]:
            writer.notes += [
                f"{ids.shape[0] - known.shape[0]} {part} nodes without a label left out"
            ]
        writer.write(part, known)
        if part == "train" and not len(known):
            writer.notes += ["no node to train on: the train split is empty"]

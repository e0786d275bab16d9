"""`outcore data`: make, import, export, list, describe, trace, verify and remove
datasets."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.common import OnData, Options, Verbs
from harness.cli.data_trace import trace
from harness.cli.table import print_lines, print_table
from workloads.dataset import PARTS, Dataset, find_dataset, list_datasets
from workloads.errors import DatasetError, InputError
from workloads.making.salt import Salt
from workloads.manifest import MANIFEST_NAME, OPTIONAL, Manifest
from workloads.units import format_bytes, format_count, parse_count, parse_memory_bytes

app = Verbs(
    help="Make, import, export, list, describe, trace, verify and remove datasets.",
    no_args_is_help=True,
)
app.verb(trace)

Name = Annotated[
    str, typer.Argument(help="the dataset's name, or the path of its folder")
]


@dataclass(frozen=True, kw_only=True)
class Drawn(Options):
    """Options of generated data: splits, labels, features."""

    train_fraction: Annotated[
        float, typer.Option(help="share of the labelled nodes to train on")
    ] = 0.01
    valid_fraction: Annotated[
        float, typer.Option(help="share of the labelled nodes to validate on")
    ] = 0.01
    test_fraction: Annotated[
        float, typer.Option(help="share of the labelled nodes to test on")
    ] = 0.01
    labels: Annotated[
        str, typer.Option(help="homophilous (alike along edges, the default) or random")
    ] = ""
    features: Annotated[
        str, typer.Option(help="learnable (class centre plus noise) or random")
    ] = "learnable"
    seed: Annotated[int, typer.Option(help="random seed")] = 0
    max_memory: Annotated[str, typer.Option(help="most memory used, like 1GiB")] = (
        "1GiB"
    )
    index_dtype: Annotated[
        str, typer.Option(help="type of the neighbour lists: auto, int32 or int64")
    ] = "auto"
    salt: Annotated[
        str,
        typer.Option(
            help="salt of generated features: a file or hexadecimal digits (default: "
            "the data root's)"
        ),
    ] = ""
    force: Annotated[
        bool, typer.Option("--force", help="replace a dataset of that name")
    ] = False

    @property
    def given_salt(self) -> Salt | None:
        """The salt that is asked for; None without `--salt`."""
        return Salt.given(self.salt) if self.salt else None

    @property
    def how(self) -> dict[str, Any]:
        """Arguments of the functions that make a dataset, which are no part of its
        recipe."""
        limit = parse_memory_bytes(self.max_memory, "--max-memory")
        return {"max_memory": limit, "replace": self.force, "salt": self.given_salt}


@app.verb
def make(
    name: Annotated[str, typer.Argument(help="name of the new dataset")],
    drawn: Drawn,
    call: OnData,
    kind: Annotated[str, typer.Option(help="kronecker, fractal or rmat")],
    nodes: Annotated[str, typer.Option(help="number of nodes, like 2M or 1e6")] = "",
    edges: Annotated[str, typer.Option(help="number of edges, like 40M")] = "",
    dim: Annotated[int, typer.Option(help="feature columns")] = 128,
    dtype: Annotated[
        str, typer.Option(help="type of the features: float32 or float16")
    ] = "float32",
    classes: Annotated[
        int, typer.Option(help="classes of generated labels (default 16)")
    ] = 0,
    base: Annotated[
        str,
        typer.Option(help="base graph: a dataset, an .npz graph or a SNAP edge list"),
    ] = "",
    expand: Annotated[
        int, typer.Option(help="copies of the base's nodes (kronecker, fractal)")
    ] = 0,
) -> None:
    """Generate a dataset; one made by the same recipe is kept as it is.

    Examples:
        outcore data make mine --kind kronecker --nodes 2M --edges 40M
        outcore data make wide --kind rmat --nodes 1e6 --edges 2e7 --dim 512
    """
    from workloads.making.make import MakeSpec, make_dataset

    target = _target(name, call.data_root)
    spec = MakeSpec(
        kind=kind,
        nodes=parse_count(nodes, "--nodes") if nodes else 0,
        edges=parse_count(edges, "--edges") if edges else 0,
        dim=dim,
        dtype=dtype,
        classes=classes,
        fractions=(drawn.train_fraction, drawn.valid_fraction, drawn.test_fraction),
        base=base,
        expand=expand,
        labels=drawn.labels or "homophilous",
        features=drawn.features,
        seed=drawn.seed,
        index_dtype=drawn.index_dtype,
    )
    spec.check()
    same = _same(target, spec.recipe(call.data_root), drawn.given_salt)
    how = {**drawn.how, "data_root": call.data_root}
    _tell_made(
        same if not drawn.force else None,
        call,
        lambda stage: make_dataset(target, spec, progress=stage, **how),
    )


@app.verb
def import_(
    name: Annotated[str, typer.Argument(help="name of the new dataset")],
    drawn: Drawn,
    call: OnData,
    path: Annotated[Path, typer.Argument(help="the file or folder to import")],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="npz, snap, ogb, igb, pyg (a saved Data, or .npz), graphbolt, "
            "parquet or arrays",
        ),
    ],
    symmetric: Annotated[
        bool | None,
        typer.Option(
            "--symmetric/--directed",
            help="take every edge both ways, or as it is (default: as the format or "
            "header says)",
        ),
    ] = None,
    keep_duplicates: Annotated[bool, typer.Option(help="keep duplicate edges")] = False,
    dim: Annotated[
        int, typer.Option(help="columns of generated features, if the graph has none")
    ] = 128,
    dtype: Annotated[
        str,
        typer.Option(
            help="type of the features: float32 or float16 (default: as they are)"
        ),
    ] = "",
    classes: Annotated[
        int,
        typer.Option(
            help="classes (default: 16 if generated, else those of the labels); for "
            "IGB 19 or 2983"
        ),
    ] = 0,
    labelled: Annotated[
        str,
        typer.Option(
            help="IGB full, 2983 classes: author (153,383,374 papers) or loader "
            "(157,675,969, padded)"
        ),
    ] = "author",
) -> None:
    """Import a graph; generate features, labels and splits that it lacks.

    Examples:
        outcore data import mine edges.txt --format snap --directed
        outcore data import theirs folder-of-npy --format arrays
    """
    from workloads.making.importing import ImportSpec, import_dataset
    from workloads.making.node_data import NodeDataSpec

    target = _target(name, call.data_root)
    spec = ImportSpec(
        format=format_,
        symmetric=symmetric,
        keep_duplicates=keep_duplicates,
        index_dtype=drawn.index_dtype,
        feature_dtype=dtype or None,
        node_data=NodeDataSpec(
            dim,
            dtype or "float32",
            classes or 16,
            drawn.labels or "homophilous",
            drawn.features,
        ),
        fractions=(drawn.train_fraction, drawn.valid_fraction, drawn.test_fraction),
        classes=classes,
        labelled=labelled,
        new_labels=bool(drawn.labels),
        seed=drawn.seed,
    )
    spec.check()
    with call.working("reading the source"):
        there = not drawn.force and target.exists()
        same = _same(target, spec.recipe(path), drawn.given_salt) if there else None
    how = drawn.how
    _tell_made(
        same,
        call,
        lambda stage: import_dataset(path, target, spec, progress=stage, **how),
    )


@app.verb
def export(
    name: Name,
    call: OnData,
    format_: Annotated[
        str, typer.Option("--format", help="graphbolt, ginex, dgl or pyg")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="folder to make (default: NAME-FORMAT under the data root)"),
    ] = None,
) -> None:
    """Write a dataset for another program: streamed in little memory, read back and
    compared, whole or not at all.

    Examples:
        outcore data export mine --format graphbolt
        outcore data export mine --format pyg --out /mnt/nvme/mine-pyg
    """
    from workloads.exporters import export_dataset

    if out is not None and str(out).startswith("-"):
        raise InputError(
            f"--out is {str(out)!r}, which looks like an option",
            "name a folder, by its whole path",
        )
    dataset = find_dataset(name, call.data_root)
    target = out or call.data_root / f"{dataset.name}-{format_}"
    with call.progress() as progress:
        made = export_dataset(dataset, target, format_, progress=progress.stage)
    lines = [
        f"{made.path} ({format_}, {format_bytes(made.nbytes)}, read back)",
        *(f"note: {n}" for n in made.notes),
    ]
    content = {
        "path": str(made.path),
        "format": format_,
        "bytes": made.nbytes,
        "notes": made.notes,
    }
    call.emit({"export": content}, [] if call.quiet else lines)


@app.verb
def list_(call: OnData) -> None:
    """List the datasets under the data root.

    Examples:
        outcore data list
        outcore data list --data-root /mnt/nvme
    """
    datasets = list_datasets(call.data_root)
    how = "outcore data make NAME --kind kronecker --nodes 2M --edges 40M"
    none = [f"no datasets under {call.data_root}; make one: {how}"]
    content = {"datasets": [_dataset_as_dict(dataset) for dataset in datasets]}
    call.emit(content, (lambda: _print_list(datasets)) if datasets else none)


@app.verb
def info(name: Name, call: OnData) -> None:
    """Describe a dataset: counts, bytes, how it was made, and its skew beside that of
    its base graph.

    Examples:
        outcore data info kron-2m
    """
    dataset = find_dataset(name, call.data_root)
    content = {"dataset": _dataset_as_dict(dataset, full=True)}
    call.emit(content, lambda: _print_dataset(dataset, verbose=call.verbose))


@app.verb
def verify(
    call: OnData,
    names: Annotated[
        list[str] | None, typer.Argument(help="datasets (default: all)")
    ] = None,
) -> None:
    """Read every byte and name each truncated, swapped or corrupted file; exit code 1
    if there is one.

    Examples:
        outcore data verify
        outcore data verify kron-2m
    """
    root = call.data_root
    there = (
        file.parent.name
        for file in root.glob(f"[!.]*/{MANIFEST_NAME}")
        if file.is_file()
    )
    results: list[dict[str, Any]] = []
    for name in names or sorted(there):
        try:
            dataset = find_dataset(name, root)
            with call.progress() as progress:
                faults = dataset.verify(
                    lambda part, share, name=dataset.name: progress.stage(
                        f"verifying {name}", share
                    )  # type: ignore[misc]
                )
        except DatasetError as error:
            folder = (
                root / name if (root / name / MANIFEST_NAME).is_file() else Path(name)
            )
            if names is not None and not (folder / MANIFEST_NAME).is_file():
                raise
            faults = []
            with suppress(DatasetError):  # its manifest cannot be read either
                faults = Dataset(folder, Manifest.read(folder)).verify()
            faults = faults or [str(error)]
        results.append({"dataset": name, "ok": not faults, "faults": faults})
    good = all(result["ok"] for result in results)
    lines = []
    for result in results:
        lines += result["faults"]
        if result["ok"] and not call.quiet:
            lines.append(f"{result['dataset']}: every file is as it was written")
    call.emit({"ok": good, "datasets": results}, lines)
    if not good:
        raise typer.Exit(1)


@app.verb
def rm(
    names: Annotated[list[str], typer.Argument(help="datasets to remove")],
    call: OnData,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Remove datasets, whole or broken; a folder that is none, or holds other files
    too, is refused.

    Examples:
        outcore data rm kron-2m --yes
    """
    folders = [_removable(name, call.data_root) for name in names]
    if not yes:
        if call.json or not sys.stdin.isatty():
            raise InputError(
                "there is no terminal on which to confirm the removal", "say --yes"
            )
        if not typer.confirm(f"Remove {', '.join(str(folder) for folder in folders)}?"):
            raise typer.Exit(1)
    for folder in folders:
        # Rename first: an interrupted removal leaves no incomplete dataset, and the
        # next writer removes the rest.
        doomed = folder.with_name(f".{folder.name}.outcore-tmp-removed")
        shutil.rmtree(doomed, ignore_errors=True)
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    gone = [folder.name for folder in folders]
    call.emit({"removed": gone}, [] if call.quiet else [f"removed {', '.join(gone)}"])


def _target(name: str, root: Path) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}", name):
        fix = (
            "use up to 200 letters, digits, '.', '_', '+' and '-'; --data-root gives "
            "the folder"
        )
        raise InputError(f"{name!r} cannot be a dataset's name", fix)
    try:
        (root / name).exists()
    except OSError as error:
        raise DatasetError.from_os(
            error, f"{root} cannot be read", "choose another --data-root"
        ) from None
    return root / name


def _same(target: Path, recipe: dict[str, Any], salt: Salt | None) -> Dataset | None:
    """Return the dataset at `target` if it is complete and was made by this recipe,
    with this salt where one is given, else None (also where an older import did not
    keep the original ids)."""
    with suppress(DatasetError):
        dataset = Dataset.open(target)
        same_recipe = dataset.manifest.settings == json.loads(json.dumps(recipe))
        generated = dataset.manifest.generates_features
        same_salt = (
            salt is None or not generated or salt.digest == dataset.manifest.salt
        )
        if same_recipe and same_salt and not dataset.manifest.lost_ids:
            return dataset
    return None


def _tell_made(
    same: Dataset | None,
    call: OnData,
    make: Callable[[Callable[[str, float], None]], Dataset],
) -> None:
    """Print the dataset of the same recipe, or, without one, the dataset that `make`
    makes."""
    with call.progress() as progress:
        dataset = same or make(progress.stage)

    def shown() -> None:
        if same is not None:
            print(f"{dataset.name} is there already, made by the same recipe")
        if not call.quiet:
            _print_dataset(dataset)

    call.emit(
        {"dataset": _dataset_as_dict(dataset, full=True), "reused": same is not None},
        shown,
    )


def _removable(name: str, root: Path) -> Path:
    """Return a dataset's folder, complete or broken; raise DatasetError if it is none,
    a link, or holds other files."""
    folder = root / name if (root / name).is_dir() else Path(name)
    try:
        content = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        is_dataset = (
            isinstance(content, dict) and content.get("format") == "outcore-dataset"
        )
    except (OSError, ValueError):
        is_dataset = False
    if not is_dataset:
        find_dataset(name, root)  # raises DatasetError with the nearest name
        raise DatasetError(
            f"{folder} is not a dataset", "remove it by hand if it has to go"
        )
    if folder.is_symlink():
        raise DatasetError(
            f"{folder} is a link to another folder", "remove the link by hand"
        )
    known = {MANIFEST_NAME, *(f"{part}.npy" for part in (*PARTS, *OPTIONAL))}
    strange = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if strange:
        raise DatasetError(
            f"{folder} holds other files too ({', '.join(strange[:3])})",
            "move them away first",
        )
    return folder


def _dataset_as_dict(dataset: Dataset, full: bool = False) -> dict[str, Any]:
    """Return a dataset as plain data for `--json`; `full` adds files, recipe, notes and
    statistics."""
    content: dict[str, Any] = {
        "name": dataset.name,
        "path": str(dataset.path),
        **{
            name: getattr(dataset, name)
            for name in ("fingerprint", "num_nodes", "num_edges", "dim")
        },
        "feature_dtype": dataset.feature_dtype.name,
        "index_dtype": dataset.index_dtype.name,
        "num_classes": dataset.num_classes,
        **{
            f"num_{part}": dataset.manifest.files[part].shape[0]
            for part in ("train", "valid", "test")
        },
        **{
            name: getattr(dataset, name)
            for name in ("feature_bytes", "topology_bytes", "total_bytes")
        },
    }
    if full:
        manifest = dataset.manifest.model_dump(mode="json")
        content |= {
            key: manifest[key]
            for key in ("files", "recipe", "notes", "stats", "created")
        }
        content["salt"] = dataset.salt
    return content


def _print_list(datasets: list[Dataset]) -> None:
    """Print a table with one line per dataset."""
    rows = []
    for dataset in datasets:
        made = dataset.manifest.recipe
        by = next(
            (made[key] for key in ("kind", "format", "source") if made.get(key)), ""
        )
        counts = (format_count(dataset.num_nodes), format_count(dataset.num_edges))
        features = f"{dataset.dim} x {dataset.feature_dtype}"
        rows.append(
            (dataset.name, *counts, features, format_bytes(dataset.total_bytes), by)
        )
    print_table(("name", "nodes", "edges", "features", "size", "made by"), rows)


def _print_dataset(dataset: Dataset, verbose: bool = False) -> None:
    """Print counts, bytes, notes, and the statistics of base and result side by
    side."""
    manifest = dataset.manifest
    generator = [
        f"{key.replace('_', ' ')} {_number(one)}"
        for key, one in manifest.stats.get("generator", {}).items()
    ]
    train, valid, test = (
        manifest.files[part].shape[0] for part in ("train", "valid", "test")
    )
    rows = [
        ("path", str(dataset.path)),
        ("fingerprint", dataset.fingerprint),
        ("nodes", f"{dataset.num_nodes:,}"),
        ("edges", f"{dataset.num_edges:,} ({dataset.index_dtype})"),
        (
            "features",
            f"{dataset.dim} x {dataset.feature_dtype}, "
            f"{format_bytes(dataset.feature_bytes)}",
        ),
        ("topology", format_bytes(dataset.topology_bytes)),
        *([("salt", dataset.salt)] if dataset.salt else []),
        ("classes", str(dataset.num_classes)),
        ("train / valid / test", f"{train:,} / {valid:,} / {test:,}"),
        *([("original ids", "ids.npy")] if "ids" in manifest.files else []),
        ("on disk", format_bytes(dataset.total_bytes)),
        *(
            [("generator", ", ".join(generator))]
            if "generator" in manifest.stats
            else []
        ),
        *(("note", note) for note in manifest.notes),
    ]
    if verbose:
        rows += [("recipe", json.dumps(manifest.recipe)), ("created", manifest.created)]
        rows += [(f"{part}.npy", manifest.files[part].xxh3) for part in manifest.parts]
    print_lines(dataset.name, *(f"{name:22}{text}" for name, text in rows))
    names = [name for name in ("base", "result") if name in manifest.stats]
    if names:
        kept = [manifest.stats[name] for name in names]
        stats = [
            (key.replace("_", " "), *(_number(one.get(key)) for one in kept))
            for key in kept[-1]
        ]
        print_table(("", *names), stats)


def _number(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

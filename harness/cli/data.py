"""`outcore data`: make, import, list, describe, trace, verify and remove datasets."""

from __future__ import annotations

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.data_trace import trace
from harness.cli.data_view import dataset_as_dict, print_dataset, print_list
from harness.progress import Progress
from workloads.dataset import PARTS, Dataset, find_dataset, list_datasets
from workloads.errors import DatasetError, InputError
from workloads.manifest import MANIFEST_NAME, Manifest
from workloads.units import parse_bytes, parse_count

app = typer.Typer(help="Make, import, list, describe, trace, verify and remove datasets.", no_args_is_help=True)
app.command()(trace)

Root = Annotated[Path, typer.Option("--data-root", envvar="OUTCORE_DATA", help="folder that holds the datasets")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on stdout")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="no progress")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="say more")]
Name = Annotated[str, typer.Argument(help="the dataset's name, or the path of its folder")]
Force = Annotated[bool, typer.Option("--force", help="replace a dataset of that name")]
Dtype = Annotated[str, typer.Option(help="of the features: float32 or float16")]
Train = Annotated[float, typer.Option(help="share of the labelled nodes to train on")]
Valid = Annotated[float, typer.Option(help="share of the labelled nodes to validate on")]
Test = Annotated[float, typer.Option(help="share of the labelled nodes to test on")]
Labels = Annotated[str, typer.Option(help="homophilous (alike along edges) or random")]
Features = Annotated[str, typer.Option(help="learnable (class centre plus noise) or random")]
Seed = Annotated[int, typer.Option(help="of all that is drawn")]
MaxMemory = Annotated[str, typer.Option(help="bound of the memory used, like 1GiB")]
IndexDtype = Annotated[str, typer.Option(help="of the neighbour lists: auto, int32 or int64")]

DEFAULT_ROOT = Path("data")


@app.command()
def make(
    name: Annotated[str, typer.Argument(help="name of the new dataset")],
    kind: Annotated[str, typer.Option(help="kronecker, fractal or rmat")],
    nodes: Annotated[str, typer.Option(help="number of nodes, like 2M or 1e6")] = "",
    edges: Annotated[str, typer.Option(help="number of edges, like 40M")] = "",
    dim: Annotated[int, typer.Option(help="feature columns")] = 128,
    dtype: Dtype = "float32",
    classes: Annotated[int, typer.Option(help="classes of generated labels (default 16)")] = 0,
    train_fraction: Train = 0.01,
    valid_fraction: Valid = 0.01,
    test_fraction: Test = 0.01,
    base: Annotated[str, typer.Option(help="base graph: a dataset, an .npz graph or a SNAP edge list")] = "",
    expand: Annotated[int, typer.Option(help="how many copies of the base's nodes (kronecker, fractal)")] = 0,
    labels: Labels = "homophilous",
    features: Features = "learnable",
    seed: Seed = 0,
    max_memory: MaxMemory = "1GiB",
    index_dtype: IndexDtype = "auto",
    force: Force = False,
    data_root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Generate a dataset; one made by the same recipe is kept as it is."""
    from workloads.making.make import MakeSpec, make_dataset

    target = _target(name, data_root)
    spec = MakeSpec(
        kind=kind,
        nodes=parse_count(nodes, "--nodes") if nodes else 0,
        edges=parse_count(edges, "--edges") if edges else 0,
        dim=dim,
        dtype=dtype,
        classes=classes,
        fractions=(train_fraction, valid_fraction, test_fraction),
        base=base,
        expand=expand,
        labels=labels,
        features=features,
        seed=seed,
        index_dtype=index_dtype,
    )
    spec.check()
    recipe = spec.recipe(data_root)
    if (same := _same(target, recipe)) and not force:
        _said(same, reused=True, as_json=as_json, quiet=quiet)
        return
    with Progress(quiet=quiet or as_json) as progress:
        dataset = make_dataset(
            target,
            spec,
            data_root=data_root,
            max_memory=parse_bytes(max_memory, "--max-memory"),
            replace=force,
            progress=progress.stage,
        )
    _said(dataset, reused=False, as_json=as_json, quiet=quiet)


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(help="name of the new dataset")],
    path: Annotated[Path, typer.Argument(help="the file or folder to import")],
    format_: Annotated[str, typer.Option("--format", help="npz, snap, ogb or igb")],
    symmetric: Annotated[
        bool | None,
        typer.Option("--symmetric/--directed", help="take every edge both ways (default: as the format says)"),
    ] = None,
    keep_duplicates: Annotated[bool, typer.Option(help="keep edges that are there twice")] = False,
    dim: Annotated[int, typer.Option(help="columns of generated features, where the graph has none")] = 128,
    dtype: Annotated[str, typer.Option(help="of the features: float32 or float16 (default: as they are)")] = "",
    classes: Annotated[int, typer.Option(help="classes of generated labels; for IGB 19 or 2983")] = 0,
    labelled: Annotated[
        str, typer.Option(help="IGB full, 2983 classes: author (153,383,374 papers) or loader (157,675,969, padded)")
    ] = "author",
    train_fraction: Train = 0.01,
    valid_fraction: Valid = 0.01,
    test_fraction: Test = 0.01,
    labels: Labels = "homophilous",
    features: Features = "learnable",
    seed: Seed = 0,
    max_memory: MaxMemory = "1GiB",
    index_dtype: IndexDtype = "auto",
    force: Force = False,
    data_root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Import a graph that others made; features, labels and splits that it lacks are generated."""
    from workloads.making.importing import ImportSpec, import_dataset
    from workloads.making.node_data import NodeDataSpec

    target = _target(name, data_root)
    spec = ImportSpec(
        format=format_,
        symmetric=symmetric,
        keep_duplicates=keep_duplicates,
        index_dtype=index_dtype,
        feature_dtype=dtype or None,
        node_data=NodeDataSpec(
            dim=dim, dtype=dtype or "float32", classes=classes or 16, labels=labels, features=features
        ),
        fractions=(train_fraction, valid_fraction, test_fraction),
        classes=classes,
        labelled=labelled,
        seed=seed,
    )
    spec.check()
    if not path.exists():
        raise DatasetError(f"there is nothing at {path}", "check the path")
    if not force and target.exists() and (same := _same(target, spec.recipe(path))):
        _said(same, reused=True, as_json=as_json, quiet=quiet)
        return
    with Progress(quiet=quiet or as_json) as progress:
        bound = parse_bytes(max_memory, "--max-memory")
        dataset = import_dataset(path, target, spec, max_memory=bound, replace=force, progress=progress.stage)
    _said(dataset, reused=False, as_json=as_json, quiet=quiet)


@app.command("list")
def list_(
    data_root: Root = DEFAULT_ROOT, as_json: Json = False, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """List the datasets under the data root."""
    datasets = list_datasets(data_root)
    if as_json:
        print(json.dumps({"datasets": [dataset_as_dict(dataset) for dataset in datasets]}))
    elif datasets:
        print_list(datasets)
    else:
        print(
            f"no datasets under {data_root}; make one: outcore data make NAME --kind kronecker --nodes 2M --edges 40M"
        )


@app.command()
def info(
    name: Name, data_root: Root = DEFAULT_ROOT, as_json: Json = False, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """Describe a dataset: counts, bytes, how it was made, and its skew beside that of its base graph."""
    dataset = find_dataset(name, data_root)
    if as_json:
        print(json.dumps({"dataset": dataset_as_dict(dataset, full=True)}))
    else:
        print_dataset(dataset, verbose=verbose)


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="datasets (default: all)")] = None,
    data_root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Read every byte and name each truncated, swapped or corrupted file; exit code 1 if there is one."""
    chosen = names or _folders(data_root)
    results: list[dict[str, Any]] = []
    for name in chosen:
        try:
            dataset = find_dataset(name, data_root)
            with Progress(quiet=quiet or as_json) as progress:
                faults = dataset.verify(partial(_verifying, progress, dataset.name))
        except DatasetError as error:
            if names is not None and not _looks_like_dataset(name, data_root):
                raise
            faults = _faults_of_unopenable(name, data_root) or [str(error)]
        results.append({"dataset": name, "ok": not faults, "faults": faults})
    good = all(result["ok"] for result in results)
    if as_json:
        print(json.dumps({"ok": good, "datasets": results}))
    else:
        for result in results:
            for fault in result["faults"]:
                print(fault)
            if result["ok"] and not quiet:
                print(f"{result['dataset']}: every file is as it was written")
    if not good:
        raise typer.Exit(1)


@app.command()
def rm(
    names: Annotated[list[str], typer.Argument(help="datasets to remove")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    data_root: Root = DEFAULT_ROOT,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Remove datasets, whole or broken; a folder that is none, or holds other files too, is refused."""
    folders = [_removable(name, data_root) for name in names]
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise InputError("nobody is there to confirm the removal", "say --yes")
        if not typer.confirm(f"Remove {', '.join(str(folder) for folder in folders)}?"):
            raise typer.Exit(1)
    for folder in folders:
        # Rename first: an interrupted removal leaves no incomplete dataset, and the next writer removes the rest.
        doomed = folder.with_name(f".{folder.name}.outcore-tmp-removed")
        shutil.rmtree(doomed, ignore_errors=True)
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    if as_json:
        print(json.dumps({"removed": [folder.name for folder in folders]}))
    elif not quiet:
        print(f"removed {', '.join(folder.name for folder in folders)}")


def _verifying(progress: Progress, name: str, part: str, fraction: float) -> None:
    progress.stage(f"verifying {name}", fraction)


def _target(name: str, root: Path) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", name):
        raise InputError(
            f"{name!r} cannot be a dataset's name",
            "use letters, digits, '.', '_', '+' and '-'; --data-root gives the folder",
        )
    return root / name


def _same(target: Path, recipe: dict[str, Any]) -> Dataset | None:
    """Return the dataset at `target` if it is complete and was made by this recipe, else None."""
    try:
        dataset = Dataset.open(target)
    except DatasetError:
        return None
    return dataset if dataset.manifest.recipe == json.loads(json.dumps(recipe)) else None


def _said(dataset: Dataset, *, reused: bool, as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json.dumps({"dataset": dataset_as_dict(dataset, full=True), "reused": reused}))
        return
    if reused:
        print(f"{dataset.name} is there already, made by the same recipe")
    if not quiet:
        print_dataset(dataset)


def _folders(root: Path) -> list[str]:
    if not root.is_dir():
        return []
    return sorted(
        path.name for path in root.iterdir() if (path / MANIFEST_NAME).is_file() and not path.name.startswith(".")
    )


def _looks_like_dataset(name: str, root: Path) -> bool:
    return any((folder / MANIFEST_NAME).is_file() for folder in (root / name, Path(name)))


def _faults_of_unopenable(name: str, root: Path) -> list[str]:
    """Return all faults of a dataset that cannot be opened; empty if its manifest cannot be read."""
    folder = root / name if (root / name / MANIFEST_NAME).is_file() else Path(name)
    try:
        return Dataset(folder, Manifest.read(folder)).verify()
    except DatasetError:
        return []


def _removable(name: str, root: Path) -> Path:
    """Return the folder of a dataset, complete or broken.

    Raises:
        DatasetError: there is no dataset, or the folder is a link or holds other files.
    """
    folder = root / name if (root / name).is_dir() else Path(name)
    try:
        content = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        is_dataset = isinstance(content, dict) and content.get("format") == "outcore-dataset"
    except (OSError, ValueError):
        is_dataset = False
    if not is_dataset:
        find_dataset(name, root)  # raises DatasetError with the nearest name
        raise DatasetError(f"{folder} is not a dataset", "remove it by hand if it has to go")
    if folder.is_symlink():
        raise DatasetError(f"{folder} is a link to another folder", "remove the link by hand")
    known = {MANIFEST_NAME, *(f"{part}.npy" for part in PARTS)}
    strange = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if strange:
        raise DatasetError(f"{folder} holds other files too ({', '.join(strange[:3])})", "move them away first")
    return folder

"""Output of `outcore data`: datasets as plain data for `--json`, or as tables."""

from __future__ import annotations

import json
from typing import Any

from harness.cli.common import print_table
from workloads.dataset import PARTS, Dataset
from workloads.units import format_bytes, format_count


def dataset_as_dict(dataset: Dataset, full: bool = False) -> dict[str, Any]:
    """Return a dataset as plain data for `--json`; `full` adds files, recipe, notes and statistics."""
    content: dict[str, Any] = {
        "name": dataset.name,
        "path": str(dataset.path),
        **{name: getattr(dataset, name) for name in ("fingerprint", "num_nodes", "num_edges", "dim")},
        "feature_dtype": dataset.feature_dtype.name,
        "index_dtype": dataset.index_dtype.name,
        "num_classes": dataset.num_classes,
        **{f"num_{part}": dataset.manifest.files[part].shape[0] for part in ("train", "valid", "test")},
        **{name: getattr(dataset, name) for name in ("feature_bytes", "topology_bytes", "total_bytes")},
    }
    if full:
        manifest = dataset.manifest.model_dump(mode="json")
        content |= {key: manifest[key] for key in ("files", "recipe", "notes", "stats", "created")}
    return content


def print_list(datasets: list[Dataset]) -> None:
    """Print a table with one line per dataset."""
    rows = [
        (
            dataset.name,
            format_count(dataset.num_nodes),
            format_count(dataset.num_edges),
            f"{dataset.dim} x {dataset.feature_dtype}",
            format_bytes(dataset.total_bytes),
            next((made[key] for key in ("kind", "format", "source") if made.get(key)), ""),
        )
        for dataset in datasets
        for made in [dataset.manifest.recipe]
    ]
    print_table(("name", "nodes", "edges", "features", "size", "made by"), rows, box=None, pad_edge=False)


def print_dataset(dataset: Dataset, verbose: bool = False) -> None:
    """Print counts, bytes, notes, and the statistics of base and result side by side."""
    manifest = dataset.manifest
    generator = [f"{key.replace('_', ' ')} {_number(one)}" for key, one in manifest.stats.get("generator", {}).items()]
    train, valid, test = (manifest.files[part].shape[0] for part in ("train", "valid", "test"))
    rows = [
        ("path", str(dataset.path)),
        ("fingerprint", dataset.fingerprint),
        ("nodes", f"{dataset.num_nodes:,}"),
        ("edges", f"{dataset.num_edges:,} ({dataset.index_dtype})"),
        ("features", f"{dataset.dim} x {dataset.feature_dtype}, {format_bytes(dataset.feature_bytes)}"),
        ("topology", format_bytes(dataset.topology_bytes)),
        ("classes", str(dataset.num_classes)),
        ("train / valid / test", f"{train:,} / {valid:,} / {test:,}"),
        ("on disk", format_bytes(dataset.total_bytes)),
        *([("generator", ", ".join(generator))] if "generator" in manifest.stats else []),
        *(("note", note) for note in manifest.notes),
    ]
    if verbose:
        rows += [("recipe", json.dumps(manifest.recipe)), ("created", manifest.created)]
        rows += [(f"{part}.npy", manifest.files[part].xxh3) for part in PARTS]
    print_table(("", ""), rows, dataset.name, title_justify="left", box=None, show_header=False, pad_edge=False)
    names = [name for name in ("base", "result") if name in manifest.stats]
    if names:
        kept = [manifest.stats[name] for name in names]
        stats = [(key.replace("_", " "), *(_number(one.get(key)) for one in kept)) for key in kept[-1]]
        print_table(("", *names), stats, box=None, pad_edge=False)


def _number(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

"""Studies of one dataset by its manifest: `dataset-facts` (the papers' tables of
datasets) and `expansion`."""

from __future__ import annotations

from harness.studies.base import DatasetParams, StudyContext, study
from workloads.arraytypes import JsonDict


@study("dataset-facts", "Sizes, split and skew of a dataset", lambda params: 0.1)
def facts(params: DatasetParams, context: StudyContext) -> JsonDict:
    """Read counts, bytes and shares of one dataset; `stats` by its generator or
    importer, where it has them.

    Returns:
        `num_nodes`, `num_edges`, `dim`, `num_classes`, `topology_bytes` (index pointers
        and neighbour lists), `feature_bytes`, `total_bytes`, `mean_degree`,
        `train_share`, `kind` (of its recipe), `origin` (`Dataset.origin`), `stats`.
    """
    dataset = context.dataset(params.dataset)
    files = dataset.manifest.files
    recipe = dataset.manifest.recipe
    own = (
        "num_nodes",
        "num_edges",
        "dim",
        "num_classes",
        "feature_bytes",
        "total_bytes",
    )
    return {
        **{name: getattr(dataset, name) for name in own},
        "topology_bytes": files["indptr"].bytes + files["indices"].bytes,
        "mean_degree": dataset.num_edges / dataset.num_nodes,
        "train_share": files["train"].shape[0] / dataset.num_nodes,
        "kind": str(recipe.get("kind") or recipe.get("source") or "unknown"),
        "origin": dataset.origin,
        "stats": dict(dataset.manifest.stats.get("result", {})),
    }


@study("expansion", "What the generator made of its base graph", lambda params: 1.0)
def expansion(params: DatasetParams, context: StudyContext) -> JsonDict:
    """Read counts, bytes and measures of base and result.

    Returns:
        `kind`, `base_name` (empty: the generator drew the base), `num_nodes`,
        `num_edges`, `dim`, `total_bytes` (all files on disk), `copies` (nodes of the
        result for each of the base's; None without a base), `base` and `result`: degree
        skew, clustering and homophily from the manifest
        (`workloads.kronecker.stats.GraphStats`), empty where the manifest has none.
    """
    dataset = context.dataset(params.dataset)
    manifest = dataset.manifest
    base = dict(manifest.stats.get("base", {}))
    result = dict(manifest.stats.get("result", {}))
    nodes = base.get("num_nodes")
    return {
        **{name: getattr(manifest, name) for name in ("num_nodes", "num_edges", "dim")},
        "kind": str(
            manifest.recipe.get("kind", manifest.recipe.get("how", "imported"))
        ),
        "base_name": str(manifest.recipe.get("base", "")),
        "total_bytes": sum(entry.bytes for entry in manifest.files.values()),
        "copies": manifest.num_nodes / nodes if nodes else None,
        "base": base,
        "result": result,
    }

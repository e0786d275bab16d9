"""Study `dataset-facts`: sizes, split and skew of a dataset by its manifest, for the papers' tables of datasets."""

from __future__ import annotations

from harness.studies.base import DatasetParams, Plain, Study, StudyContext, register_study


def run(params: DatasetParams, context: StudyContext) -> Plain:
    """Read counts, bytes and shares of one dataset; `stats` by its generator or importer, where it has them.

    Returns:
        `num_nodes`, `num_edges`, `dim`, `num_classes`, `topology_bytes` (index pointers and neighbour lists),
        `feature_bytes`, `total_bytes`, `mean_degree`, `train_share`, `kind` (of its recipe), `stats`.
    """
    dataset = context.dataset(params.dataset)
    files = dataset.manifest.files
    recipe = dataset.manifest.recipe
    return {
        "num_nodes": dataset.num_nodes,
        "num_edges": dataset.num_edges,
        "dim": dataset.dim,
        "num_classes": dataset.num_classes,
        "topology_bytes": files["indptr"].bytes + files["indices"].bytes,
        "feature_bytes": dataset.feature_bytes,
        "total_bytes": dataset.total_bytes,
        "mean_degree": dataset.num_edges / dataset.num_nodes,
        "train_share": files["train"].shape[0] / dataset.num_nodes,
        "kind": str(recipe.get("kind") or recipe.get("source") or "unknown"),
        "stats": dict(dataset.manifest.stats.get("result", {})),
    }


register_study(Study("dataset-facts", "Sizes, split and skew of a dataset", 1, DatasetParams, run, lambda params: 0.1))

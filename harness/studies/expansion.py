"""Study `expansion`: the generator's result beside its base graph, by the dataset's manifest and files."""

from __future__ import annotations

from harness.studies.base import DatasetParams, Plain, Study, StudyContext, register_study


def run(params: DatasetParams, context: StudyContext) -> Plain:
    """Read counts, bytes and measures of base and result.

    Returns:
        `kind`, `base_name` (empty: the generator drew the base), `num_nodes`, `num_edges`, `dim`, `total_bytes` (all
        files on disk), `copies` (nodes of the result for each of the base's; None without a base), `base` and `result`:
        degree skew, clustering and homophily from the manifest (`workloads.kronecker.stats.GraphStats`), empty where
        the manifest has none.
    """
    dataset = context.dataset(params.dataset)
    manifest = dataset.manifest
    base, result = dict(manifest.stats.get("base", {})), dict(manifest.stats.get("result", {}))
    nodes = base.get("num_nodes")
    return {
        "kind": str(manifest.recipe.get("kind", manifest.recipe.get("how", "imported"))),
        "base_name": str(manifest.recipe.get("base", "")),
        "num_nodes": manifest.num_nodes,
        "num_edges": manifest.num_edges,
        "dim": manifest.dim,
        "total_bytes": sum(entry.bytes for entry in manifest.files.values()),
        "copies": manifest.num_nodes / nodes if nodes else None,
        "base": base,
        "result": result,
    }


register_study(
    Study("expansion", "What the generator made of its base graph", 1, DatasetParams, run, seconds=lambda params: 1.0)
)

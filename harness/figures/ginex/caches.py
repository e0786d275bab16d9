"""Ginex's Figure 5: miss ratios of feature caches over their size, on the profile's
graph and on expanded ones."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import Drawing, drawn, figure
from harness.figures.draw.captions import dataset_name
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.findings import span, wide
from harness.figures.grids import dataset_of, gallery, scaled, study_of
from harness.records.study import StudyRecord
from harness.studies.accesses import read_ratios
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict

#: The two policies of the paper's figure and their labels.
MAIN = {"belady": "optimal (Belady)", "degree": "PaGraph (static, by out-degree)"}
# Mini-batches of the trace: enough to request rows several times, as in one of the
# paper's superbatches.
BATCHES = 400
MOST_PANELS = 2
# The randomised expansion flattens skew; a graph a tenth as large shows this and is
# made in seconds.
FRACTAL_SHARE = 0.1


def expansions(profile: JsonDict) -> dict[str, JsonDict]:
    """Return recipes of expanded datasets: the profile's own, a fractal one as in the
    paper, and all its others."""
    short = gallery(profile)
    name, recipe = dataset_of(short)
    found = {name: recipe}
    if recipe["kind"] != "fractal" and recipe.get("nodes"):
        found[f"{name}-fractal"] = {**scaled(recipe, FRACTAL_SHARE), "kind": "fractal"}
    for other, own in short["datasets"].items():
        if own.get("kind") in ("kronecker", "fractal"):
            found.setdefault(other, own)
    return found


def traces(profile: JsonDict) -> list[StudyNeed]:
    """Return studies of the mini-batches' trace, on the profile's graph and on one
    expanded as in the paper."""
    short = gallery(profile)
    size = int(short["run"]["batch_size"])
    found = []
    for name, recipe in list(expansions(profile).items())[:MOST_PANELS]:
        # A mini-batch must touch an equal share of a smaller graph.
        share = FRACTAL_SHARE if name.endswith("-fractal") else 1.0
        batch = max(1, round(share * size))
        found.append(
            study_of(
                short,
                "miss-ratios",
                dataset=(name, recipe),
                batch_size=batch,
                max_batches=BATCHES,
            )
        )
    return found


@figure("ginex-fig5", studies=traces)
def fig5(evidence: Evidence) -> Drawing:
    """Draw miss ratios of PaGraph's static cache, the optimal one and other policies;
    one panel per dataset."""
    records = _longest_by_dataset(evidence)
    tables = [_ratios(record) for record in records]
    canvas, panels = many_panels(len(records), sharey=True)
    xlabel = "cache size (% of the feature table, log)"
    for axes, table in zip(panels, tables, strict=True):
        draw_curves(
            table,
            title=table.dataset[0],
            xlabel=xlabel,
            ylabel="miss ratio (%)",
            xlog=True,
            axes=axes,
        )
        axes.set_ylim(0, 103)
        axes.label_outer()
    repeats = [
        f"{_accesses(record) / record.result['unique_rows']:.1f}" for record in records
    ]
    notes = ["miss ratio: rows read from disk, initial ones too, over accesses"]
    notes += [f"a row is requested {' and '.join(repeats)} times on average"]
    notes += [
        f"{dataset_name(other)}: batch {other.params['batch_size']}"
        for other in records[1:]
    ]
    data = pd.concat(tables)
    read = wide(data, "y", ["dataset", "x"], "policy")
    finding = _over_optimal(read)
    return drawn(
        canvas, data, records[0], *notes, order=list(MAIN.values()), finding=finding
    )


def _over_optimal(read: pd.DataFrame) -> str:
    """Return the sentence on rows read over those of the optimal cache: by PaGraph's
    static cache, and by the best of the other policies.

    Args:
        read: miss ratios, a row for each dataset and size and a column for each policy.
    """
    times = span(read.degree / read.belady)
    others = read.drop(columns=list(MAIN))
    best = (
        f", the best of the others {span(others.min(axis=1) / read.belady)} times"
        if len(others.columns)
        else ""
    )
    return (
        f"PaGraph's static cache reads {times} times the rows that the optimal cache "
        f"of equal size reads{best}"
    )


def _longest_by_dataset(evidence: Evidence) -> list[StudyRecord]:
    """Return the study of the longest trace of each dataset, which is the most
    accurate; the longest first."""
    studies = evidence.all_studies(
        "miss-ratios", where=lambda params: set(MAIN) <= set(params["policies"])
    )
    longest = {
        dataset_name(record): record for record in sorted(studies, key=_accesses)
    }
    return sorted(longest.values(), key=_accesses, reverse=True)[:MOST_PANELS]


def _accesses(record: StudyRecord) -> int:
    return int(record.result["accesses"])


def _ratios(record: StudyRecord) -> pd.DataFrame:
    """Return a row for each policy and cache size: `x` and `y`, per cent of the table
    and of the accesses."""
    result = record.result
    policies = pd.DataFrame(result["policies"])
    lines = policies.assign(
        dataset=dataset_name(record), series=policies.policy.replace(MAIN)
    )
    lines["x"] = [result["shares"]] * len(lines)
    lines["y"] = [read_ratios(result, policy) for policy in lines.policy]
    lines["rows"] = [result["sizes"]] * len(lines)
    points = lines.explode(
        ["x", "y", "rows", "misses", "fills"], ignore_index=True
    ).infer_objects()
    percents = points.assign(
        x=100 * points.x, y=100 * points.y, accesses=result["accesses"]
    )
    return percents["dataset series policy x y rows misses fills accesses".split()]

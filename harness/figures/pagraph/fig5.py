"""PaGraph Fig. 5: distribution of reads per row in an epoch, for both samplers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, no_runs, published, register, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.pagraph.grid import layerwise, study
from harness.studies.base import StudyNeed

SAMPLERS = {"neighbor": "neighbour sampling", "layerwise": "layer-wise sampling"}


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the studies of one epoch's accesses, one per sampler."""
    return [study(profile, "access-frequency"), study(profile, "access-frequency", **layerwise())]


def _sampled_by(sampler: str, params: Mapping[str, Any]) -> bool:
    return bool(params["sampler"] == sampler)


def draw(evidence: Evidence) -> Drawing:
    """Draw a CDF of reads per row that is read, one per sampler; raise NotDrawn without a study."""
    rows, notes, first = [], [], None
    for sampler, label in SAMPLERS.items():
        try:
            record = evidence.study("access-frequency", where=partial(_sampled_by, sampler))
        except NotDrawn:
            continue
        found = record.result
        first = first or record
        rows += [
            {"series": label, "x": times, "y": 100.0 * share, "study": record.key} for times, share in found["cdf"]
        ]
        notes.append(
            f"{label}: {found['accesses_over_nodes']:.2f} accesses a node of the graph, "
            f"{100 * found['repeated']:.1f} % of the nodes read more than once, one of them {found['most']} times; "
            f"those have {found['out_degree_repeated'] or 0:.0f} out-edges on average, the others "
            f"{found['out_degree_others'] or 0:.1f}"
        )
    if first is None:
        raise NotDrawn("the study access-frequency was not made yet")
    data = pd.DataFrame(rows)
    canvas, _ = draw_curves(
        data,
        title="How often a row is read in an epoch",
        xlabel="times read (log)",
        ylabel="rows read at most so often (%)",
        xlog=True,
    )
    facts = published("pagraph-fig5")
    said = "; ".join(f"{row['series']} {row['value']:g} {row['unit']}" for row in facts.to_dict("records"))
    text = study_caption(first, "; ".join(notes) + (f"; paper (wiki-talk): {said}" if said else ""))
    add_caption(canvas, text)
    return Drawing(canvas, data, text)


register(Figure("pagraph-fig5", no_runs, draw, studies=studies))

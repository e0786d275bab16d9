"""PaGraph Table 5: one-time cost of partitioning."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import Figure, Plain, Sheet, no_runs, published, register, study_caption
from harness.figures.draw.sheets import Formatter, sheet
from harness.figures.pagraph.grid import small_study
from harness.studies.base import StudyNeed
from workloads.units import format_count


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the study of Fig. 17."""
    return [small_study(profile, "partition-quality")]


def draw(evidence: Evidence) -> Sheet:
    """Return one row per number of partitions, then one per graph of the paper."""
    record = evidence.study("partition-quality")
    data = record.dataset
    rows: list[dict[str, Any]] = []
    for entry in record.result["partitions"]:
        rows.append(
            {
                "dataset": data.name if data else "",
                "training nodes": data.train_nodes if data else None,
                "partitions": entry["count"],
                "seconds": entry["seconds"],
                "training nodes / s": data.train_nodes / entry["seconds"] if data and entry["seconds"] else None,
                "largest over mean": entry["balance"],
                "replication": entry["replication"],
                "source": "measured",
            }
        )
    for row in published("pagraph-tab5").to_dict("records"):
        rows.append({"dataset": row["series"], "seconds": 60.0 * float(row["value"]), "source": "paper"})
    columns: dict[str, Formatter] = {
        "dataset": "",
        "training nodes": format_count,
        "partitions": ".0f",
        "seconds": ".1f",
        "training nodes / s": ",.0f",
        "largest over mean": ".3f",
        "replication": ".2f",
        "source": "",
    }
    text = study_caption(
        record, f"seconds of partitioning on this host, {record.result['hops']} hops; largest over mean: training nodes"
    ).replace("computed from the mini-batches, no timing; ", "")
    return sheet(pd.DataFrame(rows), columns, text)


register(Figure("pagraph-tab5", no_runs, draw, studies=studies))

"""DiskGNN Table 4: IOPS, bandwidth and price of storage, this host's device by fio beside the paper's list."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.points import NotDrawn
from harness.figures.base import Figure, Plain, Sheet, no_runs, published, register, study_caption
from harness.figures.draw.sheets import sheet
from harness.studies.base import StudyNeed

MEASURES = {"random reads 4 KiB": "IOPS (4 KiB)", "bandwidth": "bandwidth (GB/s)", "price": "price ($/GB)"}


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the study of GNNDrive's Appendix B, which reads blocks of 4 KiB, too."""
    return [StudyNeed("fio-grid")]


def _measured(evidence: Evidence) -> tuple[Plain, str]:
    record = evidence.study("fio-grid")
    points = record.result["points"]
    random = [p["iops"] for p in points if p["pattern"] == "random" and p["block_bytes"] == 4096 and p["direct"]]
    moved = [p["bytes_per_s"] for p in points if p["direct"]]
    if not random or not moved:
        raise NotDrawn("the study fio-grid read no blocks of 4 KiB at random")
    device = record.result.get("device") or {}
    name = str(device.get("model") or device.get("name") or "this host's disk").strip()
    row = {
        "storage": name,
        "IOPS (4 KiB)": max(random),
        "bandwidth (GB/s)": max(moved) / 1e9,
        "price ($/GB)": None,
        "source": "fio, this host",
    }
    return row, study_caption(
        record, "most of any queue depth, direct; prices of April 2024, none is known for this host's"
    )


def draw(evidence: Evidence) -> Sheet:
    """Return a row for this host's disk, then one per storage type of the paper."""
    row, text = _measured(evidence)
    rows = [row]
    paper = published("diskgnn-tab4")
    for storage, values in paper.groupby("series", sort=False):
        known = dict(zip(values["x"], values["value"], strict=True))
        rows.append(
            {
                "storage": storage,
                "source": str(values["source"].iloc[0]),
                **{header: known.get(measure) for measure, header in MEASURES.items()},
            }
        )
    columns = {"storage": "", "IOPS (4 KiB)": ",.0f", "bandwidth (GB/s)": ".2f", "price ($/GB)": ".3f", "source": ""}
    return sheet(pd.DataFrame(rows), columns, text)


register(Figure("diskgnn-tab4", no_runs, draw, studies=studies))

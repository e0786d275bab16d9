"""Data Tiering Fig. 11: epoch time of several devices over the share of rows in their pooled memory."""

from __future__ import annotations

from harness.compare.evidence import Evidence
from harness.compare.points import NotDrawn
from harness.figures.base import Figure, Sheet, no_runs, register


def draw(evidence: Evidence) -> Sheet:
    """Refuse to draw: in this figure devices read each other's memory, and one CPU samples for all devices.

    An emulated device is private to its process, so one device per rank would show neither.

    Raises:
        NotDrawn: always.
    """
    raise NotDrawn(
        "its devices read rows from each other's memory over NVLink: that needs several real GPUs. An emulated device "
        "is private to its process, and data-tiering runs on one device"
    )


register(Figure("tiering-fig11", no_runs, draw))

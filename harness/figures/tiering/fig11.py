"""Data Tiering Fig. 11: epoch time of several devices over the share of rows in their pooled memory."""

from __future__ import annotations

from harness.compare.evidence import Evidence
from harness.compare.points import NotDrawn
from harness.figures.base import Figure, Plain, Sheet, register


def needs(profile: Plain) -> list[Plain]:
    """No runs: see `draw`."""
    return []


def draw(evidence: Evidence) -> Sheet:
    """Not from one device, nor from emulated ones, whatever the records hold.

    The figure is about rows that devices read from each other's memory and about one processor that samples for all of
    them. An emulated device is private to its process, so one a rank would show neither.

    Raises:
        NotDrawn: always.
    """
    raise NotDrawn(
        "its devices read rows from each other's memory over NVLink: that needs several real GPUs. An emulated device "
        "is private to its process, and data-tiering runs on one device"
    )


register(
    Figure(
        "tiering-fig11",
        "data-tiering",
        "Several devices over hot share",
        needs,
        draw,
        full="MAG240M on four V100, 0 to 25 % of its rows",
    )
)

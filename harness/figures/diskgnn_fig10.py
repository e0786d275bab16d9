"""DiskGNN Figures 10 and 11: epoch time and disk traffic over memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.figures.bars import draw_bars
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, left_out, register
from harness.figures.diskgnn_grid import (
    MEMORY_SHARES,
    SYSTEMS,
    bar_rows,
    entries,
    is_plain,
    is_share,
    memory_share,
    over_memory,
    percent,
)
from harness.figures.evidence import Evidence
from harness.figures.query import Group, Value, epoch_seconds, group_runs


def needs(profile: Plain) -> Plain:
    """ginex, mariusgnn and diskgnn at each share of memory."""
    return over_memory(profile, "diskgnn-fig10", entries(profile, SYSTEMS))


def _where(config: Mapping[str, Any]) -> bool:
    return is_plain(config) and is_share(config) and config["system"] in SYSTEMS


def _gigabytes(epoch: Mapping[str, Any]) -> float | None:
    moved = epoch.get("device_bytes")
    return None if moved is None else float(moved) / 1e9


def _group(evidence: Evidence, value: Value) -> Group:
    return group_runs(evidence.frame, axis=memory_share, ignore=["memory"], value=value, where=_where)


def _draw(group: Group, title: str, ylabel: str, *, log: bool, extra: str) -> Drawing:
    rows = bar_rows(group)
    shares = sorted({point.x for point in group.points})
    rows = rows.sort_values("group", kind="stable", ignore_index=True)
    canvas, _ = draw_bars(
        rows, title=title, ylabel=ylabel, xlabel="host memory over the features", log=log, tick=percent, numbers=".2g"
    )
    reduced = left_out([percent(share) for share in shares], [percent(share) for share in MEMORY_SHARES], "memory of")
    text = caption(group, None, "; ".join(part for part in (extra, reduced) if part))
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, runs=group.runs())


def draw_fig10(evidence: Evidence) -> Drawing:
    """Bars of epoch time."""
    group = _group(evidence, epoch_seconds)
    return _draw(group, "Epoch time over memory", "epoch time (s)", log=True, extra="")


def draw_fig11(evidence: Evidence) -> Drawing:
    """Bars of what the device delivered in an epoch."""
    group = _group(evidence, _gigabytes)
    return _draw(
        group, "Disk traffic over memory", "read in an epoch (GB)", log=False, extra="topology, rows and partitions"
    )


register(
    Figure(
        "diskgnn-fig10", "diskgnn", "Epoch time over memory", needs, draw_fig10,
        full="10, 30, 50 % of the features, four datasets",
    )
)  # fmt: skip
register(
    Figure(
        "diskgnn-fig11", "diskgnn", "Disk traffic over memory", needs, draw_fig11, claims=("dg-05",),
        full="10, 30, 50 % of the features, Friendster and papers100M",
    )
)  # fmt: skip

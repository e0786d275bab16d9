"""GNNDrive Fig. 14: test accuracy over time, from real training."""

from __future__ import annotations

from typing import Any

from harness.figures import style
from harness.figures.accuracy_curves import accuracy_note, curves_of, draw_accuracy
from harness.figures.accuracy_runs import accuracy_group, accuracy_profile, common_target
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, describe_memory, only_systems, register
from harness.figures.evidence import Evidence
from harness.figures.gnndrive_grid import SYSTEMS
from harness.figures.query import NotDrawn

REFERENCE = "in-memory"


def needs(profile: Plain) -> Plain:
    """The systems under a cap, and the same training with everything in memory."""
    changed = accuracy_profile(profile)
    reference: dict[str, Any] = {"name": REFERENCE, "memory": "none"}
    systems = [reference, *only_systems(profile, SYSTEMS)]
    return {**changed, "name": "gnndrive-fig14", "systems": systems, "grid": {}}


def draw(evidence: Evidence) -> Drawing:
    """Accuracy over epochs and over training time, a line a system."""
    group = accuracy_group(evidence, [REFERENCE, *SYSTEMS])
    order = style.ordered(group.systems())
    points = sorted(group.points, key=lambda point: order.index(point.system))
    done = [point for point in points if point.value is not None]
    if not done:
        raise NotDrawn("no run judged its model on test nodes after every epoch")
    rows = curves_of(done)
    target = common_target([point.record for point in done])
    canvas, _ = draw_accuracy(rows, titles=["Accuracy over epochs", "Accuracy over time"], target=target)
    missing = [f"{name} not run" for name in [REFERENCE, *SYSTEMS] if name not in group.systems()]
    failed = [f"{point.system} {point.status.upper()}" for point in points if point.value is None]
    capped = [point for point in done if point.system != REFERENCE]
    memory = f"memory {describe_memory(capped[0].x)}, {REFERENCE} without a cap" if capped else ""
    extra = "; ".join(part for part in [memory, accuracy_note(done), *failed, *missing] if part)
    text = caption(group, done, extra)
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, [str(point.record["run_id"]) for point in done])


register(
    Figure(
        "gnndrive-fig14", "gnndrive", "Accuracy over time", needs, draw, claims=("gd-24", "gd-25", "gd-26"),
        full="GraphSAGE on papers100M (dimension 128) and MAG240M (768), GPU and CPU variant",
    )
)  # fmt: skip

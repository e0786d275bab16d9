"""GNNDrive Fig. 14: test accuracy over training time."""

from __future__ import annotations

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.compare.points import NotDrawn
from harness.figures.accuracy_runs import accuracy_plan, common_target
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, describe_memory, only_systems, register
from harness.figures.draw import style
from harness.figures.draw.accuracy_curves import accuracy_note, curves_of, draw_accuracy
from harness.figures.gnndrive.grid import SYSTEMS

REFERENCE = "in-memory"


def planned(profile: Plain) -> Plan:
    """Plan the accuracy runs of the capped systems, and the same training with all data in memory."""
    return accuracy_plan(profile, [{"name": REFERENCE, "memory": "none"}, *only_systems(profile, SYSTEMS)])


def draw(evidence: Evidence) -> Drawing:
    """Draw accuracy over epochs and over training time, one line per system; raise NotDrawn without a run."""
    group = evidence.points(planned, least=1)
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
    memory = (
        f"memory {describe_memory(capped[0].record['config']['memory'])}, {REFERENCE} without a cap" if capped else ""
    )
    extra = "; ".join(part for part in [memory, accuracy_note(done), *failed, *missing] if part)
    text = caption(group, done, extra)
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, [str(point.record["run_id"]) for point in done])


register(Figure("gnndrive-fig14", planned, draw))

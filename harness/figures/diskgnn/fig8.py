"""DiskGNN Fig. 8: test accuracy over epochs and over training time."""

from __future__ import annotations

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.compare.points import NotDrawn
from harness.figures.accuracy_runs import accuracy_plan, accuracy_profile, common_target
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, register
from harness.figures.diskgnn.grid import SYSTEMS, entries
from harness.figures.draw import style
from harness.figures.draw.accuracy_curves import accuracy_note, curves_of, draw_accuracy


def planned(profile: Plain) -> Plan:
    """Plan ginex, mariusgnn and diskgnn with test accuracy after every epoch."""
    return accuracy_plan(profile, entries(accuracy_profile(profile), SYSTEMS))


def draw(evidence: Evidence) -> Drawing:
    """Draw accuracy over epochs (left) and training time (right) by system; raise NotDrawn without a run."""
    group = evidence.points(planned, least=1)
    order = style.ordered(group.systems())
    points = sorted(group.points, key=lambda point: order.index(point.system))
    done = [point for point in points if point.value is not None]
    if not done:
        raise NotDrawn("no run judged its model on test nodes after every epoch")
    rows = curves_of(done)
    target = common_target([point.record for point in done])
    canvas, _ = draw_accuracy(rows, titles=["(a) Over epochs", "(b) Over time"], target=target)
    missing = [f"{name} not run" for name in SYSTEMS if name not in group.systems()]
    failed = [f"{point.system} {point.status.upper()}" for point in points if point.value is None]
    memory = f"memory {done[0].record['config']['memory']} over floor and training"
    text = caption(group, done, "; ".join([memory, accuracy_note(done), *failed, *missing]))
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, [str(point.record["run_id"]) for point in done])


register(Figure("diskgnn-fig8", planned, draw))

"""Fingerprints of a commit's code by system: equal code on both sides needs no runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from harness.plan.experiment import PlannedRun
from harness.regress.decision import MetricResult
from harness.regress.measure.build import Built, clean_environment
from harness.regress.samples import cell_label

# Code of the commit itself finds its fingerprints.
_CHILD = """
import json, sys
from harness.records.code import code_of
pairs = json.loads(sys.argv[1])
print(json.dumps([code_of(*pair).model_dump(mode="json") for pair in pairs]))
"""


def codes(built: Built, cells: Sequence[PlannedRun]) -> list[Any]:
    """Return the fingerprints of the code that each cell runs; of the commit alone,
    which equals no other's, where it cannot report them."""
    pairs = [[cell.system, str(cell.settings.sampler)] for cell in cells]
    command = [str(built.python), "-c", _CHILD, json.dumps(pairs)]
    done = subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        cwd=built.tree,
        env=clean_environment(),
    )
    if done.returncode:
        return [built.commit] * len(cells)
    found: list[Any] = json.loads(done.stdout)
    return found


def same_code(cell: PlannedRun) -> MetricResult:
    """Return the metric of a cell whose code is equal on both sides."""
    label = cell_label(cell.system, cell.settings.memory)
    note = "equal on both sides, so it was not run"
    return MetricResult(label, "code", "status", "", None, None, "same", note=note)

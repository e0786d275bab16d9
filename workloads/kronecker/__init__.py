"""Generators of topology (R-MAT, plain Kronecker product, randomised fractal
expansion), features and labels.

`plan_topology` computes exact sizes before any write; the plan writes to a
`DatasetWriter`. All draws are keyed by counter (Philox4x32-10), so results depend
neither on threads nor on the memory bound.
"""

from __future__ import annotations

from workloads.kronecker.fractal import plan_fractal
from workloads.kronecker.kronecker import plan_kronecker
from workloads.kronecker.rmat import plan_rmat
from workloads.kronecker.spec import BaseGraph, GenerateSpec, Kind, TopologyPlan
from workloads.making.progress import Progress, no_progress

__all__ = [
    "BaseGraph",
    "GenerateSpec",
    "Kind",
    "Progress",
    "TopologyPlan",
    "plan_topology",
]


def plan_topology(spec: GenerateSpec, progress: Progress = no_progress) -> TopologyPlan:
    """Plan the graph that `spec` describes: exact N, E and element type, and the
    function that writes it; raises InputError where `spec` contradicts itself or cannot
    be reached, BudgetError where `max_memory` is too small."""
    planners = {"rmat": plan_rmat, "kronecker": plan_kronecker, "fractal": plan_fractal}
    return planners[spec.kind](spec, progress)

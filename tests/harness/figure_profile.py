"""A bench profile that plans the runs that `make_record` makes, stored beside a test's
records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.compare.cells import Cells
from harness.compare.evidence import load_evidence
from harness.compare.plan import Plan, grid, keep
from harness.figures import base
from harness.plan.experiment import parse_experiment

NAME = "kron-d128"


def profile(
    *,
    systems: Sequence[Any] = (),
    run: Mapping[str, Any] = {},
    short: Mapping[str, Any] = {},
    accuracy: Mapping[str, Any] = {},
    **axes: Any,
) -> dict[str, Any]:
    """Return the profile as plain data.

    Args:
        systems: systems of the headline; none: those of the papers.
        run: settings of all runs.
        short: settings of the gallery's runs; `accuracy` those of its accuracy runs.
        axes: values of each axis of the gallery.
    """
    recipe = {
        "kind": "rmat",
        "nodes": "2M",
        "edges": "40M",
        "dim": 128,
        "dtype": "float32",
        "seed": 1,
    }
    shared = {
        "dataset": NAME,
        "memory": "+64MiB",
        "device": "emulated:a10g",
        "device_memory": 32 * 2**20,
        "batch_size": 50,
        "disk_class": "aws-nvme/16",
        "epochs": 3,
        **run,
    }
    experiment = parse_experiment(
        {
            "name": "test",
            "datasets": {NAME: recipe, f"{NAME}-d768": {**recipe, "dim": 768}},
            "run": shared,
            "systems": list(
                systems
                or ["pyg+", "ginex", "gnndrive", "diskgnn", "outcore", "in-memory"]
            ),
            "gallery": {"run": dict(short), "grid": axes, "accuracy": dict(accuracy)},
        }
    )
    return experiment.model_dump()


def keep_profile(root: Path, **changes: Any) -> None:
    """Keep `profile(**changes)` under a results root, as `outcore bench` does."""
    keep(root, parse_experiment(profile(**changes)))


def cells(
    root: Path, over: Mapping[Any, dict[str, Any]], *systems: str, least: int = 2
) -> Cells:
    """Return the cells that a figure of these systems over an axis draws from the
    records under a root."""

    def plan(content: dict[str, Any]) -> Plan:
        return grid(content, systems or ["pyg+", "gnndrive"], over)

    keep_profile(root)
    return load_evidence(root).cells("gnndrive-fig9", plan, least=least)


@contextmanager
def nothing_published(monkeypatch: pytest.MonkeyPatch, empty: Path) -> Iterator[None]:
    """Read published values from an `empty` folder, so that no figure has any."""
    monkeypatch.setattr(base, "PUBLISHED", empty)
    base.published.cache_clear()
    try:
        yield
    finally:
        base.published.cache_clear()

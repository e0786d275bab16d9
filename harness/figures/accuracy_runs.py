"""Runs that really train until accuracy settles: their settings, and accuracy by epoch and by time from their records.

They need labels that can be learnt. The graph is expanded from a real one where `OUTCORE_ACCURACY_GRAPH` or the
profile's `gallery.accuracy.base` names a file (`.npz` of the gnn-benchmark layout, or a dataset); without one it is
generated, with classes that its topology and features tell apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from harness.compare.plan import Plan, grid
from harness.figures.base import Plain, gallery
from harness.settings import Strict, strict

if TYPE_CHECKING:
    import pandas as pd

BASE_VARIABLE = "OUTCORE_ACCURACY_GRAPH"
GENERATED = "accuracy-generated"
# A target below what every run reached, so that none is left out by the noise of its last epochs.
MARGIN = 0.01


class AccuracySettings(Strict):
    """`gallery.accuracy` of a profile.

    The defaults are for `quick`: rows of 2 KiB, so that an epoch of few mini-batches touches more than twice the budget
    and a run is done in half a minute. `train_fraction` makes the epoch; it trains all training nodes.
    """

    base: str = ""
    expand: int = Field(default=16, ge=1)
    nodes: str | int = "220k"
    edges: str | int = "4.4M"
    dim: int = Field(default=512, ge=1)
    train_fraction: float = Field(default=0.0075, gt=0, le=1)
    test_fraction: float = Field(default=0.02, gt=0, le=1)
    test_nodes: int = Field(default=4000, ge=1)
    batch_size: int = Field(default=100, ge=1)
    fanout: list[int] = Field(default_factory=lambda: [10, 5], min_length=1)
    hidden: int = Field(default=64, ge=1)
    epochs: int = Field(default=10, ge=2)
    device: str = "cpu"
    memory: str = "+56MiB"


def accuracy_settings(profile: Plain) -> AccuracySettings:
    """What the profile asks for, the base graph from the environment where one is named there.

    Raises:
        InputError: an unknown key or a value out of range under `gallery.accuracy`.
    """
    content = dict((profile.get("gallery") or {}).get("accuracy") or {})
    content["base"] = os.environ.get(BASE_VARIABLE) or content.get("base", "")
    return strict(AccuracySettings, content, "gallery.accuracy")


def accuracy_profile(profile: Plain, model: str = "sage") -> Plain:
    """The gallery's profile with settings of a run whose test accuracy is found after every epoch.

    Systems, grid and name are the caller's to set; `in-memory` without a cap is the reference.
    """
    own = accuracy_settings(profile)
    changed = gallery(profile)
    name = f"accuracy-{Path(own.base).stem}-x{own.expand}" if own.base else GENERATED
    shared: Plain = {
        "dim": own.dim,
        "train_fraction": own.train_fraction,
        "test_fraction": own.test_fraction,
        "seed": 1,
    }
    if own.base:
        recipe = {"kind": "kronecker", "base": own.base, "expand": own.expand, **shared}
    else:
        recipe = {"kind": "rmat", "nodes": own.nodes, "edges": own.edges, "classes": 10, **shared}
    changed["datasets"] = {name: recipe}
    changed["run"] = {
        **changed["run"],
        "dataset": name,
        "model": model,
        "layers": None,
        "hidden": own.hidden,
        "fanout": list(own.fanout),
        "batch_size": own.batch_size,
        "max_batches": 0,
        "epochs": own.epochs,
        "warmup": 1,
        "device": own.device,
        "device_memory": None,
        "memory": own.memory,
        "test_nodes": own.test_nodes,
    }
    return changed


def accuracy_curve(record: Mapping[str, Any]) -> pd.DataFrame:
    """A run's test accuracy: a row an epoch.

    Returns:
        Columns `epoch` (1 after the first), `seconds` (training time so far, the warm-up epoch's too: it trains as the
        others do), `end_to_end` (preprocessing added) and `accuracy` (share of the test nodes); empty without any.
    """
    import pandas as pd

    spent = record.get("preprocess") or {}
    before = float(spent.get("seconds", 0.0)) + float(spent.get("made_s", 0.0))
    seconds, rows = 0.0, []
    for epoch in record.get("epochs", []):
        seconds += float(epoch["seconds"])
        if epoch.get("test_accuracy") is not None:
            rows.append((epoch["epoch"] + 1, seconds, before + seconds, float(epoch["test_accuracy"])))
    return pd.DataFrame(rows, columns=["epoch", "seconds", "end_to_end", "accuracy"])


def time_to(record: Mapping[str, Any], target: float, *, end_to_end: bool = False) -> float | None:
    """Seconds of training until test accuracy first was `target` (a share); None where it never was.

    Args:
        end_to_end: preprocessing counted too.
    """
    curve = accuracy_curve(record)
    reached = curve[curve["accuracy"] >= target]
    return None if reached.empty else float(reached.iloc[0]["end_to_end" if end_to_end else "seconds"])


def epochs_to(record: Mapping[str, Any], target: float) -> int | None:
    """Epochs until test accuracy first was `target`; None where it never was."""
    curve = accuracy_curve(record)
    reached = curve[curve["accuracy"] >= target]
    return None if reached.empty else int(reached.iloc[0]["epoch"])


def best_accuracy(record: Mapping[str, Any]) -> float | None:
    """The highest test accuracy of any epoch; None for a run without."""
    curve = accuracy_curve(record)
    return None if curve.empty else float(curve["accuracy"].max())


def final_accuracy(record: Mapping[str, Any], epochs: int = 3) -> float | None:
    """Mean test accuracy of the last epochs, steadier than one epoch's; None for a run without."""
    curve = accuracy_curve(record)
    return None if curve.empty else float(curve["accuracy"].tail(epochs).mean())


def common_target(records: Sequence[Mapping[str, Any]]) -> float | None:
    """An accuracy that all of these runs reached, a point below the best of the least of them; None without runs."""
    best = [accuracy for accuracy in map(best_accuracy, records) if accuracy is not None]
    return min(best) - MARGIN if best else None


def accuracy_plan(profile: Plain, entries: Sequence[Any], model: str = "sage", sampler: str = "neighbor") -> Plan:
    """The accuracy runs of some systems; `in-memory` among them runs without a cap, as the reference."""
    changed = accuracy_profile(profile, model)
    changed["run"] = {**changed["run"], "sampler": sampler}
    return grid(changed, entries, {"": {}})


def origin(record: Mapping[str, Any]) -> str:
    """Where the labels come from, for the caption."""
    name = str(record["config"]["dataset"]["name"])
    return "generated graph and labels" if name == GENERATED else "graph, features and labels expanded from a real one"

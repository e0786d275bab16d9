"""The plan of a figure before any measurement: one cell for each bar or point, named by
its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.atomic import whole_file
from harness.results.store import EXPERIMENTS
from workloads.arraytypes import JsonDict
from workloads.errors import OutcoreError

if TYPE_CHECKING:
    from harness.plan.experiment import Experiment, PlannedRun


@dataclass(frozen=True)
class FigureCell:
    """One bar or point of a figure.

    Attributes:
        series: line or colour of the figure: a system, or a variant of one.
        entry: the cell's run, as an entry of an experiment's `systems`.
        panel: panel of the figure; empty where there is only one.
    """

    series: str
    x: Any
    entry: JsonDict
    panel: str = ""


@dataclass(frozen=True)
class Plan:
    """The cells of a figure in drawing order, and the datasets, run settings and rounds
    that their runs share."""

    shared: JsonDict
    cells: tuple[FigureCell, ...]

    def experiment(self, name: str) -> JsonDict:
        """Return an experiment that makes the runs of all cells."""
        entries = {
            json.dumps(cell.entry, sort_keys=True, default=str): cell.entry
            for cell in self.cells
        }
        return {
            **self.shared,
            "name": name,
            "systems": list(entries.values()),
            "grid": {},
        }

    def runs(self) -> Iterator[tuple[FigureCell, PlannedRun]]:
        """Yield each cell with its run, every setting checked. Raises InputError."""
        from harness.plan.experiment import cells, parse_experiment

        content = {**self.shared, "name": "cells", "grid": {}, "gallery": {}}
        planned = cells(
            parse_experiment(
                {**content, "systems": [cell.entry for cell in self.cells]}
            )
        )
        yield from zip(self.cells, planned, strict=True)


def grid(
    shared: JsonDict,
    entries: Iterable[Any],
    over: Mapping[Any, JsonDict],
    *,
    panel: str = "",
) -> Plan:
    """Return a cell for each system at each value of an axis.

    Args:
        shared: profile with the settings that all runs share.
        entries: systems, as in an experiment; `series` names a variant that is not
            drawn under its system's name.
        over: value of the axis -> run settings there, `options` among them; they
            override those of an entry.
        panel: panel of all these cells.
    """
    found = [
        _cell(entry, x, settings, panel)
        for x, settings in over.items()
        for entry in entries
    ]
    return Plan(shared, tuple(found))


def joined(plans: Sequence[Plan]) -> Plan:
    """Join the cells of several plans, with the datasets of all and the run settings of
    the first."""
    datasets: JsonDict = {}
    for plan in reversed(plans):
        datasets |= plan.shared.get("datasets", {})
    shared = {**plans[0].shared, "datasets": datasets}
    return Plan(shared, tuple(cell for plan in plans for cell in plan.cells))


def as_entry(entry: Any) -> JsonDict:
    """Return an entry of `systems` as plain data of its own, a bare name as an entry of
    this name."""
    return {"name": entry} if isinstance(entry, str) else dict(entry)


def _cell(entry: Any, x: Any, settings: JsonDict, panel: str) -> FigureCell:
    own = as_entry(entry)
    series = own.pop("series", own["name"])
    first = first_values(own.pop("grid", {}))
    run = {
        key: value for key, value in {**first, **settings}.items() if key != "options"
    }
    options = {
        **own.get("options", {}),
        **first.get("options", {}),
        **settings.get("options", {}),
    }
    own = {key: value for key, value in own.items() if key not in run}
    return FigureCell(
        series,
        x,
        {**own, "options": options, "run": {**own.get("run", {}), **run}},
        panel,
    )


def first_values(axes: Mapping[str, Sequence[Any]]) -> JsonDict:
    """Return the run settings, `options` included, at the first value of every axis of
    a grid."""
    found: JsonDict = {}
    options: JsonDict = {}
    for axis, values in axes.items():
        name = axis.removeprefix("options.")
        (found if name == axis else options)[name] = values[0]
    return {**found, "options": options} if options else found


def value_at(data: Mapping[str, Any], place: str) -> Any:
    """Return the value of nested plain data at a place like `dataset.dim`; None where a
    part of it is missing."""
    found: Any = data
    for name in place.split("."):
        found = (found or {}).get(name)
    return found


def first_setting(profile: JsonDict) -> JsonDict:
    """Return a profile at the first value of every axis of its grid."""
    first = first_values(profile.get("grid") or {})
    options = {**profile["run"].get("options", {}), **first.get("options", {})}
    return {
        **profile,
        "run": {**profile["run"], **first, "options": options},
        "grid": {},
    }


def base_of_gallery(profile: JsonDict) -> JsonDict:
    """Return the profile that figures beyond the headline start from: `gallery.base`
    overrides the bench's own runs."""
    base = (profile.get("gallery") or {}).get("base") or {}
    if not base:
        return profile
    return {**profile, **base, "run": {**profile["run"], **base.get("run", {})}}


def keep(root: Path, experiment: Experiment, figures: Iterable[str] = ()) -> None:
    """Write an experiment to the results root of its runs, from which figures read the
    planned cells.

    The written experiment requests its own figures, those of the file before, and
    `figures` (ids).
    """
    path = (
        root / EXPERIMENTS / f"{re.sub(r'[^A-Za-z0-9_-]+', '-', experiment.name)}.json"
    )
    before: list[str] = []
    with suppress(OSError, ValueError, LookupError, TypeError):
        before = json.loads(path.read_text(encoding="utf-8"))["figures"]
    requested = list(dict.fromkeys([*experiment.figures, *before, *figures]))
    with whole_file(path, "the experiment") as file:
        file.write_text(
            experiment.model_copy(update={"figures": requested}).model_dump_json(
                indent=1
            )
            + "\n",
            "utf-8",
        )


def kept(root: Path, names: Iterable[str] = ()) -> list[JsonDict]:
    """Return the experiments of a results root, newest first, and the bundled ones of
    `names` without a file there."""
    from harness.plan.experiment import PROFILES, load_experiment

    files = sorted(
        (root / EXPERIMENTS).glob("*.json"),
        key=lambda path: path.stat().st_mtime_ns,
        reverse=True,
    )
    found: dict[str, JsonDict] = {}
    for path in files:
        with suppress(OSError, ValueError, LookupError, TypeError):
            content = json.loads(path.read_text(encoding="utf-8"))
            found[str(content["name"])] = content
    for name in [*names, "quick"]:
        if name not in found and (PROFILES / f"{name}.yaml").is_file():
            with suppress(OutcoreError):
                found[name] = load_experiment(name).model_dump()
    return list(found.values())

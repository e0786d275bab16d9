"""Search for comparable runs: equal in all but the system and the claim's subject."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.claims.measured import NotRun
from harness.compare.alike import setting_key
from harness.compare.evidence import Evidence, Where
from harness.records.study import StudyRecord
from workloads.units import row_bytes

if TYPE_CHECKING:
    import pandas as pd

Plain = dict[str, Any]
Samples = Callable[[Plain], list[float]]


def always(config: Mapping[str, Any]) -> bool:
    """Accept any configuration."""
    return True


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a system, the options that it must have, and a condition on its configuration."""

    system: str
    options: Mapping[str, Any] = field(default_factory=dict)
    where: Where = always
    name: str = ""

    def accepts(self, record: Plain) -> bool:
        """Return whether a run is of this side; options that the side does not name may have any value."""
        if record["system"] != self.system or not self.where(record["config"]):
            return False
        held = record["config"]["options"]
        return all(held.get(key) == value for key, value in self.options.items())


@dataclass(frozen=True)
class Cell:
    """All rounds of one side in one setting."""

    records: list[Plain]

    def samples(self, value: Samples) -> list[float]:
        """Return the value of every measured epoch."""
        return [sample for record in self.records for sample in value(record)]

    @property
    def newest(self) -> Plain:
        """Newest run, which stands for the cell."""
        return max(self.records, key=lambda record: str(record["run_id"]))

    @property
    def runs(self) -> list[str]:
        """Run ids, oldest first."""
        return sorted(str(record["run_id"]) for record in self.records)


@dataclass(frozen=True)
class Setting:
    """The sides of a claim in one setting, in the order of the query."""

    shared: Plain
    cells: list[Cell]


def budget_share(setting: Setting) -> float:
    """Divide the least budget of a setting's runs by the bytes of the features."""
    dataset = setting.shared["dataset"]
    budget = min(cell.newest["memory"]["budget_bytes"] or 0 for cell in setting.cells)
    return float(budget / (dataset["num_nodes"] * row_bytes(dataset["dim"], dataset["dtype"])))


def epoch_s(record: Plain) -> list[float]:
    """Return the seconds of the measured epochs."""
    return [float(epoch["seconds"]) for epoch in record["epochs"] if not epoch["warmup"]]


def stage_s(*names: str) -> Samples:
    """Return a function for the seconds of some stages together in each measured epoch."""

    def value(record: Plain) -> list[float]:
        found = [[epoch["stages_s"].get(name) for name in names] for epoch in record["epochs"] if not epoch["warmup"]]
        return [float(sum(s or 0.0 for s in stages)) for stages in found if any(s is not None for s in stages)]

    return value


def counter(name: str) -> Samples:
    """Return a function for one of the system's counters in each measured epoch."""

    def value(record: Plain) -> list[float]:
        found = [epoch["counters"].get(name) for epoch in record["epochs"] if not epoch["warmup"]]
        return [float(seen) for seen in found if seen is not None]

    return value


def device_bytes(record: Plain) -> list[float]:
    """Return the bytes read from the device under the cap in each measured epoch."""
    found = [epoch["device_bytes"] for epoch in record["epochs"] if not epoch["warmup"]]
    return [float(seen) for seen in found if seen is not None]


class Records:
    """The records of one claim's declared setting, and the studies `needed` by its figure with complete parameters."""

    def __init__(self, evidence: Evidence, needed: Sequence[tuple[str, Plain]] = ()) -> None:
        self.valid: list[Plain] = [] if evidence.frame.empty else list(evidence.frame["record"])
        self._evidence = evidence
        self._needed = needed
        self._drawn: dict[str, pd.DataFrame] = {}

    def studies(self, name: str, where: Callable[[Plain], bool] = lambda params: True) -> list[StudyRecord]:
        """Return the newest record of each study `name` that the claim's figure needs and `where` accepts, in order.

        Raises:
            NotRun: a study has no record, or the figure needs none of this name.
        """
        found = []
        for study, params in self._needed:
            if study != name or not where(params):
                continue
            records = [record for record in self._evidence.studies if record.study == name and record.params == params]
            if not records:
                told = f" of {params['dataset']}" if "dataset" in params else ""
                raise NotRun(f"the study {name}{told} was not made yet")
            found.append(records[-1])
        if not found:
            raise NotRun(f"the study {name} is not made under this profile")
        return found

    def drawn(self, figure: str) -> pd.DataFrame:
        """Return the table of a figure of the catalogue.

        Raises:
            NotDrawn: the records do not hold what the figure needs.
        """
        if figure not in self._drawn:
            import matplotlib as mpl

            mpl.use("Agg")
            import matplotlib.pyplot as plt

            from harness.figures.base import catalogue

            try:
                self._drawn[figure] = catalogue()[figure].draw(self._evidence).data
            finally:
                plt.close("all")
        return self._drawn[figure]

    def settings(self, sides: Sequence[Side], *, free: Sequence[str] = ()) -> list[Setting]:
        """Return every setting in which each side has a measured run, newest first, all on the newest one's host.

        The sides may differ in system, options and the `free` keys of the configuration.

        Raises:
            NotRun: there is no such setting; names the missing side, or how its runs ended.
        """
        groups: dict[str, list[list[Plain]]] = {}
        ended: list[Counter[str]] = [Counter() for _ in sides]
        for record in self.valid:
            for index, side in enumerate(sides):
                if not side.accepts(record):
                    continue
                ended[index][record["status"]] += 1
                if record["status"] != "ok" or not any(not epoch["warmup"] for epoch in record["epochs"]):
                    continue
                groups.setdefault(setting_key(record, free), [[] for _ in sides])[index].append(record)
        found = [
            Setting(json.loads(key), [Cell(records) for records in members])
            for key, members in groups.items()
            if all(members)
        ]
        if not found:
            raise NotRun(_why(sides, ended))
        found.sort(key=lambda setting: max(cell.newest["run_id"] for cell in setting.cells), reverse=True)
        return [setting for setting in found if _place(setting) == _place(found[0])]


def _place(setting: Setting) -> list[Any]:
    return [setting.shared.get(name) for name in ("host", "accelerator")]


def _why(sides: Sequence[Side], ended: Sequence[Counter[str]]) -> str:
    parts = []
    for side, statuses in zip(sides, ended, strict=True):
        name = side.name or side.system
        if not statuses:
            parts.append(f"no run of {name}")
        elif "ok" not in statuses:
            parts.append(f"every run of {name} ended as {', '.join(sorted(statuses))}")
    return " and ".join(parts) if parts else "no two runs that differ in nothing else"


def describe(cell: Cell, value: Samples) -> str:
    """Describe one side in a line: value, stages, bytes and requests of its newest run."""
    record = cell.newest
    samples = cell.samples(value)
    parts = [f"{record['system']}: median {statistics.median(samples):.4g} of {len(samples)} epochs"]
    stages = record["summary"].get("stages_s") or {}
    if stages:
        parts.append("stages " + ", ".join(f"{name} {seconds:.3g} s" for name, seconds in stages.items()))
    measured = [epoch for epoch in record["epochs"] if not epoch["warmup"]]
    if measured and measured[-1]["device_bytes"] is not None:
        last = measured[-1]
        parts.append(f"{last['device_bytes'] / 2**20:.0f} MiB in {last['device_requests']:,} requests from the device")
    return "; ".join(parts)

"""Finding runs that may be held against each other: equal in all but the system and what the claim is about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.claims.measured import Measured, NotRun, Number, ratio
from harness.figures.evidence import Evidence
from harness.figures.query import FREE, MADE_OF
from harness.figures.usual import Usual
from harness.hosts import measured_on

if TYPE_CHECKING:
    import pandas as pd

Plain = dict[str, Any]
Samples = Callable[[Plain], list[float]]
Where = Callable[[Mapping[str, Any]], bool]


def always(config: Mapping[str, Any]) -> bool:
    """Any configuration."""
    return True


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a system, options that it must have, and any other condition on its configuration."""

    system: str
    options: Mapping[str, Any] = field(default_factory=dict)
    where: Where = always
    name: str = ""

    def accepts(self, record: Plain) -> bool:
        """Whether a run is of this side, its unusual options apart."""
        if record["system"] != self.system or not self.where(record["config"]):
            return False
        held = record["config"]["options"]
        return all(held.get(key) == value for key, value in self.options.items())


@dataclass(frozen=True)
class Cell:
    """All rounds of one side in one setting."""

    records: list[Plain]

    def samples(self, value: Samples) -> list[float]:
        """The value of every measured epoch."""
        return [sample for record in self.records for sample in value(record)]

    @property
    def newest(self) -> Plain:
        """The run that stands for the cell."""
        return max(self.records, key=lambda record: str(record["run_id"]))

    @property
    def runs(self) -> list[str]:
        """Ids, oldest first."""
        return sorted(str(record["run_id"]) for record in self.records)


@dataclass(frozen=True)
class Setting:
    """The sides of a claim in one setting, in the order asked for."""

    shared: Plain
    cells: list[Cell]


def budget_share(setting: Setting) -> float:
    """The least budget of a setting's runs over the bytes of the features."""
    dataset = setting.shared["dataset"]
    width = dataset["dim"] * {"float32": 4, "float16": 2}[dataset["dtype"]]
    budget = min(cell.newest["memory"]["budget_bytes"] or 0 for cell in setting.cells)
    return float(budget / (dataset["num_nodes"] * width))


def epoch_s(record: Plain) -> list[float]:
    """Seconds of the measured epochs."""
    return [float(epoch["seconds"]) for epoch in record["epochs"] if not epoch["warmup"]]


def stage_s(*names: str) -> Samples:
    """Seconds of some stages together, for each measured epoch."""

    def value(record: Plain) -> list[float]:
        found = [[epoch["stages_s"].get(name) for name in names] for epoch in record["epochs"] if not epoch["warmup"]]
        return [float(sum(s or 0.0 for s in stages)) for stages in found if any(s is not None for s in stages)]

    return value


def counter(name: str) -> Samples:
    """A counter of the system, for each measured epoch."""

    def value(record: Plain) -> list[float]:
        found = [epoch["counters"].get(name) for epoch in record["epochs"] if not epoch["warmup"]]
        return [float(seen) for seen in found if seen is not None]

    return value


def device_bytes(record: Plain) -> list[float]:
    """Bytes that the cap read from the device, for each measured epoch."""
    found = [epoch["device_bytes"] for epoch in record["epochs"] if not epoch["warmup"]]
    return [float(seen) for seen in found if seen is not None]


class Records:
    """The valid runs of an evidence, to be asked for settings."""

    def __init__(self, evidence: Evidence) -> None:
        every: list[Plain] = [] if evidence.frame.empty else list(evidence.frame["record"])
        self.evidence = evidence
        self.valid = [record for record in every if record["verdict"] != "INVALID"]
        self.invalid = len(every) - len(self.valid)
        self._usual = Usual(self.valid)
        self._drawn: dict[str, pd.DataFrame] = {}
        self.usual: Plain | None = None

    def drawn(self, figure: str) -> pd.DataFrame:
        """What a figure of the catalogue draws, as its table.

        Raises:
            NotDrawn: it cannot be drawn; says why.
        """
        if figure not in self._drawn:
            import matplotlib as mpl

            mpl.use("Agg")
            import matplotlib.pyplot as plt

            from harness.figures.base import catalogue

            try:
                self._drawn[figure] = catalogue()[figure].draw(self.evidence).data
            finally:
                plt.close("all")
        return self._drawn[figure]

    def settings(
        self, sides: Sequence[Side], *, where: Where = always, free: Sequence[str] = (), all_stages: bool = True
    ) -> list[Setting]:
        """Every setting in which each side has a measured run, the best supported one first.

        Args:
            sides: what is compared.
            where: which configurations may enter.
            free: keys of the configuration in which the sides differ beside system and options.
            all_stages: leave out runs of a part of the stages.

        Raises:
            NotRun: there is none; says which side is missing, or how it ended.
        """
        groups: dict[str, list[list[Plain]]] = {}
        ended: list[Counter[str]] = [Counter() for _ in sides]
        for record in self.valid:
            config = record["config"]
            if (all_stages and config["stages"] != "all") or not where(config):
                continue
            for index, side in enumerate(sides):
                if not side.accepts(record):
                    continue
                ended[index][record["status"]] += 1
                if record["status"] != "ok" or not any(not epoch["warmup"] for epoch in record["epochs"]):
                    continue
                groups.setdefault(_key(record, free), [[] for _ in sides])[index].append(record)
        found = []
        for key, members in groups.items():
            if all(members):
                cells = [self._usual_ones(side, records) for side, records in zip(sides, members, strict=True)]
                found.append(Setting(json.loads(key), cells))
        if not found:
            raise NotRun(_why(sides, ended))
        return sorted(found, key=_support, reverse=True)

    def _usual_ones(self, side: Side, records: list[Plain]) -> Cell:
        """Of the runs of one side those with the options nearest to the system's usual ones."""

        def rank(record: Plain) -> tuple[int, str]:
            options = record["config"]["options"]
            return self._usual.strangeness(side.system, options), json.dumps(options, sort_keys=True)

        least = min(rank(record) for record in records)
        return Cell([record for record in records if rank(record) == least])


def _key(record: Plain, free: Sequence[str]) -> str:
    shared = {key: value for key, value in record["config"].items() if key not in FREE and key not in free}
    shared.update({name: value for name, value in measured_on(record).items() if MADE_OF.get(name) not in free})
    return json.dumps(shared, sort_keys=True, default=str)


def _support(setting: Setting) -> tuple[int, str]:
    epochs = min(len(cell.samples(epoch_s)) for cell in setting.cells)
    return epochs, max(cell.newest["run_id"] for cell in setting.cells)


def _why(sides: Sequence[Side], ended: Sequence[Counter[str]]) -> str:
    parts = []
    for side, statuses in zip(sides, ended, strict=True):
        name = side.name or side.system
        if not statuses:
            parts.append(f"no run of {name}")
        elif "ok" not in statuses:
            parts.append(f"every run of {name} ended as {', '.join(sorted(statuses))}")
    return " and ".join(parts) if parts else "no two runs that differ in nothing else"


# What `the paper's setting` becomes here: the value that most capped runs have.
USUAL = ("memory", "dim", "batch_size", "fanout", "disk_class", "device", "sampler", "ranks", "test_nodes")


def usual_config(records: Records) -> Plain:
    """For each key of `USUAL` the value that most capped runs have; empty without runs."""
    if records.usual is None:
        records.usual = _usual_config(records.valid)
    return records.usual


def _usual_config(valid: Sequence[Plain]) -> Plain:
    capped = [record["config"] for record in valid if record["config"]["memory"] != "none"]
    found: Plain = {}
    for key in USUAL if capped else ():
        counts = Counter(json.dumps(_value(config, key)) for config in capped)
        found[key] = json.loads(max(counts.items(), key=lambda entry: (entry[1], entry[0]))[0])
    return found


def _value(config: Plain, key: str) -> Any:
    return config["dataset"]["dim"] if key == "dim" else config[key]


def compare(
    setting: Setting, value: Samples = epoch_s, *, detail: Sequence[str] = (), differs: Sequence[str] = ()
) -> Measured:
    """How many times as fast (as small) the first side is as the second: ratio second / first."""
    first, second = setting.cells
    above, below = second.samples(value), first.samples(value)
    if not above or not below or not any(below):
        raise NotRun("the runs do not hold what is compared")
    lines = [describe(cell, value) for cell in setting.cells]
    return Measured(
        (ratio(above, below),), runs=[*first.runs, *second.runs], setting=setting.shared, detail=[*lines, *detail],
        differs=list(differs),
    )  # fmt: skip


def describe(cell: Cell, value: Samples) -> str:
    """One side in a line: value, stages, bytes and requests of its newest run."""
    import statistics

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


def merge(found: Sequence[Measured], numbers: Sequence[Number], detail: Sequence[str] = ()) -> Measured:
    """Several comparisons as one answer with other numbers: their mean, their extremes."""
    runs = list(dict.fromkeys(run for measured in found for run in measured.runs))
    lines = [line for measured in found for line in measured.detail]
    return Measured(tuple(numbers), runs=runs, setting=found[0].setting, detail=[*lines, *detail])

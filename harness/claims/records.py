"""The records of a claim's declared setting (cells of its figure or of the bench), and the values read off them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from harness.claims.measured import NotRun
from harness.claims.published import DIM, Claim
from harness.compare.comparable import Index, comparable
from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, value_at
from harness.compare.points import Rounds, Samples, of_epochs
from harness.figures.base import catalogue
from harness.records.record import COUNTED
from harness.records.study import StudyRecord
from harness.results.table import measured_epochs
from harness.settings import Strict
from workloads.units import row_bytes

if TYPE_CHECKING:
    import pandas as pd

    from harness.plan.experiment import PlannedRun


def stages_s(*names: str) -> Samples:
    """Return a function for the seconds of some stages together in each measured epoch that has one of them."""

    def value(epoch: Mapping[str, Any]) -> float | None:
        found = [epoch["stages_s"].get(name) for name in names]
        return sum(seconds or 0.0 for seconds in found) if any(s is not None for s in found) else None

    return of_epochs(value)


# Samples by name: seconds of epochs, of epochs without data preparation, of packing (an earlier run's included), and
# bytes read from the device under the cap. `stages` and `counter` take names.
_SAMPLES: dict[str, Samples] = {
    "epoch_s": of_epochs(lambda epoch: epoch["seconds"]),
    "trained_s": of_epochs(lambda epoch: epoch["seconds"] - (epoch["stages_s"].get("data_prep") or 0.0)),
    "pack_s": lambda record: [record["facts"]["pack_s"]] if record["facts"].get("pack_s") is not None else [],
    "device_bytes": of_epochs(lambda epoch: epoch["device_bytes"]),
}


def samples_of(text: str) -> Samples:
    """Return samples by name, as `epoch_s`, `stages extract transfer` or `counter bytes_loaded`. Raises KeyError."""
    name, *arguments = text.split()
    if name == "stages":
        return stages_s(*arguments)
    if name == "counter":
        return of_epochs(lambda epoch: epoch["counters"].get(arguments[0]))
    return _SAMPLES[name]


class QuerySide(Strict):
    """One side of a comparison; options that it does not name may have any value.

    Attributes:
        where: setting of the configuration (`dataset.dim` of the dataset) -> pattern of `fnmatch`, or `not` before one.
        superbatch: times the default superbatch (half an epoch's mini-batches, or 100 GB of runtime files); 0: any.
        name: name in messages, where it is not the system's.
    """

    system: str
    options: Plain = Field(default_factory=dict)
    where: dict[str, str | int] = Field(default_factory=dict)
    superbatch: int = 0
    name: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"system": value} if isinstance(value, str) else value

    @property
    def told(self) -> str:
        """Name for messages."""
        return self.name or self.system

    def accepts(self, record: Plain) -> bool:
        """Return whether a run is of this side."""
        config = record["config"]
        return (
            record["system"] == self.system
            and all(config["options"].get(key) == value for key, value in self.options.items())
            and all(_matches(config, key, str(pattern)) for key, pattern in self.where.items())
            and (not self.superbatch or _has_superbatch(config, self.superbatch))
        )


def _matches(config: Plain, key: str, pattern: str) -> bool:
    return fnmatch(str(value_at(config, key)), pattern.removeprefix("not ")) != pattern.startswith("not ")


def _has_superbatch(config: Plain, factor: int) -> bool:
    size, files = config["options"].get("superbatch"), config["options"].get("runtime_files")
    return bool(2 * size == factor * config["max_batches"]) if size else bool(files == f"{100 * factor}GB")


@dataclass(frozen=True)
class QuerySetting:
    """The sides of a claim in one setting, in the order of the query."""

    shared: Plain
    cells: list[Rounds]

    @property
    def runs(self) -> list[str]:
        """Run ids of all sides."""
        return [run for cell in self.cells for run in cell.runs]

    @property
    def budget_share(self) -> float:
        """Least budget of the runs over the bytes of the features."""
        dataset = self.shared["dataset"]
        budget = min(cell.newest["memory"]["budget_bytes"] or 0 for cell in self.cells)
        return float(budget / (dataset["num_nodes"] * row_bytes(dataset["dim"], dataset["dtype"])))


class Records:
    """The records of one claim's declared setting, and the studies `needed` by its figure with complete parameters."""

    def __init__(self, evidence: Evidence, needed: Sequence[tuple[str, Plain]] = ()) -> None:
        self.valid = evidence.records
        self._evidence = evidence
        self._needed = needed

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

    def table(self, figure: str) -> pd.DataFrame:
        """Return the table of a figure of the catalogue; raise NotDrawn if the records lack what it needs."""
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        try:
            return catalogue()[figure].draw(self._evidence).data
        finally:
            plt.close("all")

    def settings(self, sides: Sequence[QuerySide], *, free: Sequence[str] = ()) -> list[QuerySetting]:
        """Return every setting in which each side has a measured run, newest first, all on the newest one's host.

        The sides may differ in system, options and the `free` keys of the configuration.

        Raises:
            NotRun: there is no such setting; names the missing side, or how its runs ended.
        """
        mine = [[record for record in self.valid if side.accepts(record)] for side in sides]
        done = [{id(r) for r in records if r["status"] == "ok" and measured_epochs(r)} for records in mine]
        found = []
        for shared, members in comparable([r for r in self.valid if any(id(r) in part for part in done)], free):
            cells = [[record for record in members if id(record) in part] for part in done]
            if all(cells):
                found.append(QuerySetting(shared, [Rounds(records) for records in cells]))
        if not found:
            raise NotRun(_why(sides, [Counter(record["status"] for record in records) for records in mine]))
        found.sort(key=lambda setting: max(cell.newest["run_id"] for cell in setting.cells), reverse=True)
        newest = found[0].shared
        return [one for one in found if all(one.shared.get(k) == newest.get(k) for k in ("host", "accelerator"))]


def _why(sides: Sequence[QuerySide], ended: Sequence[Counter[str]]) -> str:
    parts = []
    for side, statuses in zip(sides, ended, strict=True):
        if not statuses:
            parts.append(f"no run of {side.told}")
        elif "ok" not in statuses:
            parts.append(f"every run of {side.told} ended as {', '.join(sorted(statuses))}")
    return " and ".join(parts) if parts else "no two runs that differ in nothing else"


def describe(cell: Rounds, value: Samples) -> str:
    """Describe one side in a line: value, stages, bytes and requests of its newest run."""
    record, samples = cell.newest, cell.samples(value)
    parts = [f"{record['system']}: median {statistics.median(samples):.4g} of {len(samples)} epochs"]
    if stages := record["summary"].get("stages_s"):
        parts.append("stages " + ", ".join(f"{name} {seconds:.3g} s" for name, seconds in stages.items()))
    measured = measured_epochs(record)
    if measured and measured[-1]["device_bytes"] is not None:
        last = measured[-1]
        parts.append(f"{last['device_bytes'] / 2**20:.0f} MiB in {last['device_requests']:,} requests from the device")
    return "; ".join(parts)


class DeclaredRuns:
    """The records of an evidence that belong to the settings declared by claims, under a bench profile (plain data).

    Without a profile it is `quick`, as it was when the runs were made.
    """

    def __init__(self, evidence: Evidence, profile: Plain | None = None) -> None:
        from harness.plan.experiment import load_experiment

        self._evidence = evidence
        kept = next((content for content in evidence.experiments if content["name"] == "quick"), None)
        self._profile = profile or kept or load_experiment("quick").model_dump()
        self.name = str(self._profile["name"])
        self._cells: dict[str, list[PlannedRun]] = {}
        self._records: dict[str, Records] = {}

    def setting(self, claim: Claim) -> str:
        """Describe the declared setting."""
        runs = "the bench" if claim.runs == "bench" else claim.figure
        return f"profile {self.name}, runs of {runs}" + (f", {claim.setting}" if claim.setting else "")

    def how(self, claim: Claim) -> str:
        """Return the command that makes the runs."""
        figures = "" if claim.runs == "bench" else f" FIGURES={claim.figure}"
        return f"`make bench PROFILE={self.name}{figures}`"

    def cells(self, claim: Claim) -> list[PlannedRun]:
        """Return the planned runs of the profile that may answer a claim."""
        from harness.plan.experiment import parse_experiment
        from harness.run.sweep import union

        source = claim.figure if claim.runs == "figure" else "bench"
        if source not in self._cells:
            bench = [parse_experiment({**self._profile, "gallery": {}})] if source == "bench" else None
            self._cells[source] = union(bench or catalogue()[source].experiments(self._profile))
        # Records know the dimension of their dataset; planned runs do not.
        chosen = [(key, value) for key, value in claim.chosen.items() if key != DIM]
        cells = self._cells[source]
        return [cell for cell in cells if all(str(getattr(cell.settings, key)) == value for key, value in chosen)]

    def records(self, claim: Claim) -> Records:
        """Return the valid records of the declared cells, and the records of the studies that the figure needs."""
        key = f"{claim.runs} {claim.figure} {claim.setting}"
        if key not in self._records:
            self._records[key] = self._found(claim)
        return self._records[key]

    def _found(self, claim: Claim) -> Records:
        frame, dim = self._evidence.runs, claim.chosen.get(DIM)
        found = [record for cell in self.cells(claim) for record in self._valid.of(cell)]
        keep = {str(r["run_id"]) for r in found if dim is None or str(r["config"]["dataset"]["dim"]) == dim}
        needed = self._studies(claim)
        studies = [record for record in self._evidence.studies if (record.study, record.params) in needed]
        own = frame if frame.empty else frame[[str(run) in keep for run in frame["run_id"]]]
        return Records(Evidence(own, studies, [self._profile]), needed)

    def uncounted(self, claim: Claim) -> list[str]:
        """Return the verdict of each run of the declared cells that does not count: INVALID or SPOILT."""
        found = {record["run_id"]: record["verdict"] for cell in self.cells(claim) for record in self._invalid.of(cell)}
        return list(found.values())

    @cached_property
    def _invalid(self) -> Index:
        return Index(record for record in self._evidence.records if record["verdict"] not in COUNTED)

    @cached_property
    def _valid(self) -> Index:
        records = self._evidence.records
        return Index(record for record in records if record["verdict"] in COUNTED and record["status"] != "failed")

    def _studies(self, claim: Claim) -> list[tuple[str, Plain]]:
        from harness.studies.base import resolve_study

        needs = catalogue()[claim.figure].studies(self._profile)
        return [(need.study, resolve_study(need)[1].model_dump(mode="json")) for need in needs]

"""The runs and studies of a claim's declared setting: those of its figure or of the
bench, under a profile."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from harness.claims.measured import NotRun
from harness.claims.published import DIM, Claim
from harness.compare.evidence import Evidence
from harness.figures.base import catalogue
from harness.plan.experiment import (
    Experiment,
    PlannedRun,
    load_experiment,
    parse_experiment,
)
from harness.records.study import StudyRecord
from harness.run.sweep import union
from harness.studies.base import resolve_study
from workloads.arraytypes import JsonDict


@dataclass(frozen=True)
class Declared:
    """The records of one claim's declared setting.

    Attributes:
        evidence: runs that count, oldest first, and studies; all by the settings that
            the claim declares.
        needed: studies that the claim's figure needs: their id and complete parameters.
        uncounted: verdict of each run of the setting that does not count.
    """

    evidence: Evidence
    needed: list[tuple[str, JsonDict]]
    uncounted: list[str]

    @property
    def runs(self) -> pd.DataFrame:
        """Table of the runs that count, with `accelerated`: whether the device is not
        the processor.

        Raises:
            NotRun: there is none.
        """
        runs = self.evidence.runs
        if runs.empty:
            raise NotRun(
                "no run of its setting counts"
                if self.uncounted
                else "no run of its setting was made yet"
            )
        known = runs.dropna(axis="columns", how="all")
        return known.assign(accelerated=known["config.device"] != "cpu")

    def studies(self, name: str) -> list[StudyRecord]:
        """Return the newest record of each study of this name that the claim's figure
        needs, in order.

        Raises:
            NotRun: a study has no record, or the figure needs none of this name.
        """
        wanted = [params for study, params in self.needed if study == name]
        if not wanted:
            raise NotRun(f"the study {name} is not made under this profile")
        # The last record of equal parameters is the newest.
        newest = {
            str(record.params): record
            for record in self.evidence.studies
            if record.study == name
        }
        for params in wanted:
            if str(params) not in newest:
                raise NotRun(
                    f"the study {name} of {params.get('dataset', 'the drive')} was not "
                    "made yet"
                )
        return [newest[str(params)] for params in wanted]

    def table(self, figure: str) -> pd.DataFrame:
        """Return the table of a figure of the catalogue; raise NotDrawn if the records
        lack what it needs."""
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        try:
            return catalogue()[figure].draw(self.evidence).data
        finally:
            plt.close("all")


class DeclaredRuns:
    """The records of an evidence that belong to the settings declared by claims, under
    a bench profile (plain data).

    Without a profile it is `quick`, as it was when the runs were made.
    """

    def __init__(self, evidence: Evidence, profile: JsonDict | None = None) -> None:
        kept = [
            content for content in evidence.experiments if content["name"] == "quick"
        ]
        self._evidence = evidence
        self._profile = profile or (
            kept[0] if kept else load_experiment("quick").model_dump()
        )
        self.name = str(self._profile["name"])
        self._cells: dict[str, list[PlannedRun]] = {}

    def setting(self, claim: Claim) -> str:
        """Describe the declared setting."""
        runs = "the bench" if claim.runs == "bench" else claim.figure
        return f"profile {self.name}, runs of {runs}" + (
            f", {claim.setting}" if claim.setting else ""
        )

    def how(self, claim: Claim) -> str:
        """Return the command that makes the runs."""
        figures = "" if claim.runs == "bench" else f" FIGURES={claim.figure}"
        return f"`make bench PROFILE={self.name}{figures}`"

    def cells(self, claim: Claim) -> list[PlannedRun]:
        """Return the planned runs of the profile that may answer a claim."""
        source = "bench" if claim.runs == "bench" else claim.figure
        if source not in self._cells:
            self._cells[source] = union(self._experiments(source))
        chosen = claim.chosen
        # Records know the dimension of their dataset; planned runs do not.
        chosen.pop(DIM, None)
        found = []
        for cell in self._cells[source]:
            own = {key: str(getattr(cell.settings, key)) for key in chosen}
            if own == chosen:
                found.append(cell)
        return found

    def _experiments(self, source: str) -> list[Experiment]:
        if source == "bench":
            return [parse_experiment({**self._profile, "gallery": {}})]
        return catalogue()[source].experiments(self._profile)

    def records(self, claim: Claim) -> Declared:
        """Return the records of the declared cells, and of the studies that the claim's
        figure needs."""
        needed = self._studies(claim)
        studies = [
            record
            for record in self._evidence.studies
            if (record.study, record.params) in needed
        ]
        runs = self._evidence.runs
        if runs.empty:
            return Declared(Evidence(runs, studies, [self._profile]), needed, [])
        keys = [cell.key for cell in self.cells(claim)]
        standing = runs[~runs["replaced"]]
        own = standing[standing["cell"].isin(keys)].sort_values("run_id")
        if dim := claim.chosen.get(DIM):
            own = own[own["config.dataset.dim"] == int(dim)]
        counted = own[own["counts"]]
        ended = counted[counted["status"] != "failed"]
        uncounted = own.loc[~own["counts"], "verdict"]
        return Declared(
            Evidence(ended, studies, [self._profile]), needed, list(uncounted)
        )

    def _studies(self, claim: Claim) -> list[tuple[str, JsonDict]]:
        needs = catalogue()[claim.figure].studies(self._profile)
        return [
            (need.study, resolve_study(need)[1].model_dump(mode="json"))
            for need in needs
        ]

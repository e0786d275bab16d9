"""The setting that a claim declares: cells of its figure or of the bench itself, and their records."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from harness.claims.published import DIM, Claim
from harness.claims.records import Records
from harness.compare.evidence import Evidence
from harness.compare.match import Index
from harness.compare.plan import Plain
from harness.records.record import COUNTED

if TYPE_CHECKING:
    from harness.plan.experiment import PlannedRun

PROFILE = "quick"


def default_profile() -> Plain:
    """Return the default bench profile as plain data."""
    from harness.plan.experiment import load_experiment

    return load_experiment(PROFILE).model_dump()


class DeclaredRuns:
    """The records of an evidence that belong to the settings declared by claims, under a bench profile (plain data)."""

    def __init__(self, evidence: Evidence, profile: Plain) -> None:
        self._evidence = evidence
        self._profile = profile
        self.name = str(profile["name"])
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
        source = claim.figure if claim.runs == "figure" else "bench"
        if source not in self._cells:
            self._cells[source] = self._planned(source)
        # Records know the dimension of their dataset; planned runs do not.
        chosen = {key: value for key, value in claim.chosen.items() if key != DIM}
        return [
            cell
            for cell in self._cells[source]
            if all(str(getattr(cell.settings, key)) == value for key, value in chosen.items())
        ]

    def _planned(self, source: str) -> list[PlannedRun]:
        from harness.figures.base import catalogue
        from harness.plan.experiment import parse_experiment
        from harness.run.sweep import union

        if source == "bench":
            return union([parse_experiment({**self._profile, "gallery": {}})])
        return union(catalogue()[source].experiments(self._profile))

    def records(self, claim: Claim) -> Records:
        """Return the valid records of the declared cells, and the records of the studies that the figure needs."""
        key = f"{claim.runs} {claim.figure} {claim.setting}"
        if key not in self._records:
            self._records[key] = self._found(claim)
        return self._records[key]

    def _found(self, claim: Claim) -> Records:
        frame = self._evidence.frame
        dim = claim.chosen.get(DIM)
        keep = {
            str(record["run_id"])
            for cell in self.cells(claim)
            for record in self._valid.of(cell)
            if dim is None or str(record["config"]["dataset"]["dim"]) == dim
        }
        needed = self._studies(claim)
        studies = [record for record in self._evidence.studies if (record.study, record.params) in needed]
        own = frame if frame.empty else frame[[str(run) in keep for run in frame["run_id"]]]
        return Records(Evidence(own, studies, [self._profile]), needed)

    @cached_property
    def _valid(self) -> Index:
        records = self._evidence.records
        return Index(record for record in records if record["verdict"] in COUNTED and record["status"] != "failed")

    def _studies(self, claim: Claim) -> list[tuple[str, Plain]]:
        from harness.figures.base import catalogue
        from harness.studies.base import resolve_study

        needs = catalogue()[claim.figure].studies(self._profile)
        return [(need.study, resolve_study(need)[1].model_dump(mode="json")) for need in needs]

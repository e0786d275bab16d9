"""The evidence for figures and claims: the run records and the study records of one
results root, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.compare.cells import Cells, cells_of
from harness.compare.plan import Plan, base_of_gallery, kept
from harness.compare.verdicts import LEFT_OUT, NotDrawn, uncounted_text
from harness.progress import Notice, silent
from harness.records.foreign import ForeignRecord, read_foreign
from harness.records.study import StudyRecord, read_studies
from workloads.arraytypes import JsonDict
from workloads.errors import OutcoreError

if TYPE_CHECKING:
    import pandas as pd

    from harness.plan.experiment import PlannedRun

Where = Callable[[Mapping[str, Any]], bool]
Planned = Callable[[JsonDict], Plan]


@dataclass(frozen=True)
class Evidence:
    """Run records, study records and experiments of one results root.

    Attributes:
        runs: table of runs of one code (`harness.records.code.from_same_code`), as
            `harness.results.table` reads it.
        studies: every study record, oldest first.
        experiments: experiments of these runs, as plain data, newest first.
        foreign: measurements by other code, oldest first; only drawn, beside ours.
        origin: name of the machine in every caption, for reference results; empty for
            one's own.
    """

    runs: pd.DataFrame
    studies: list[StudyRecord] = field(default_factory=list)
    experiments: list[JsonDict] = field(default_factory=list)
    foreign: list[ForeignRecord] = field(default_factory=list)
    origin: str = ""

    @cached_property
    def records(self) -> list[JsonDict]:
        """Every run as plain data."""
        return [] if self.runs.empty else list(self.runs["record"])

    @cached_property
    def folders(self) -> dict[str, str]:
        """Folder of each run, by its id."""
        return (
            {}
            if self.runs.empty
            else dict(zip(self.runs["run_id"], self.runs["path"], strict=True))
        )

    @cached_property
    def _by_cell(self) -> dict[str, pd.DataFrame]:
        standing = self.runs if self.runs.empty else self.runs[~self.runs["replaced"]]
        return (
            {}
            if standing.empty
            else {str(cell): runs for cell, runs in standing.groupby("cell")}
        )

    def runs_of(self, run: PlannedRun) -> pd.DataFrame:
        """Return the rows of a planned run, whoever planned it, without replaced
        ones."""
        return self._by_cell.get(run.key, self.runs[:0])

    def cells(
        self,
        figure: str,
        plan: Planned,
        *,
        least: int = 2,
        otherwise: Planned | None = None,
    ) -> Cells:
        """Return the measured cells of a figure's plan, under one experiment.

        An experiment is tried with its own runs, and with those that figures start from
        (`base_of_gallery`). Experiments that requested the figure
        (`harness.compare.plan.keep`) come first if they have enough cells. Among
        several, the one with the most measured cells is taken, and the newest of
        equals.

        Args:
            figure: the figure's id.
            plan: function from an experiment (plain data) to the figure's cells.
            least: fewest values of the axis for which the figure is drawn.
            otherwise: alternative cells, taken where more of them were measured.

        Raises:
            NotDrawn: fewer than `least` values of the axis were measured.
        """
        best = None
        best_rank = (False, -1)
        uncounted = dict[str, str]()
        plans = [plan] if otherwise is None else [plan, otherwise]
        bases = [base_of_gallery(content) for content in self.experiments]
        others = [base for base in bases if base not in self.experiments]
        for make, experiment in product(plans, [*self.experiments, *others]):
            # A user's experiment may lack the settings that the figure varies.
            with suppress(OutcoreError, LookupError):
                cells = cells_of(make(experiment), self.runs, self.foreign)
                asked = figure in experiment.get("figures", ()) and len(
                    cells.xs
                ) >= max(least, 1)
                rank = asked, cells.count
                uncounted |= cells.uncounted
                if rank > best_rank:
                    best = cells
                    best_rank = rank
        if best is None or len(best.xs) < least:
            raise NotDrawn(
                f"no comparable runs over at least {least} values of its "
                f"axis{_not_counted(uncounted)}"
            )
        return best

    def study(self, name: str, *, where: Where = lambda params: True) -> StudyRecord:
        """Return the newest record of a study whose parameters `where` accepts; raise
        NotDrawn without one."""
        return self._studies(name, where)[-1]

    def all_studies(
        self, name: str, *, where: Where = lambda params: True
    ) -> list[StudyRecord]:
        """Return the newest record of each set of parameters, in the order of their
        first; raise NotDrawn without."""
        return list(
            {record.key: record for record in self._studies(name, where)}.values()
        )

    def _studies(self, name: str, where: Where) -> list[StudyRecord]:
        found = [
            record
            for record in self.studies
            if record.study == name and where(record.params)
        ]
        if not found:
            raise NotDrawn(f"the study {name} was not made yet")
        return found


def _not_counted(verdicts: Mapping[str, str]) -> str:
    """Return a text on the runs (id -> verdict) that are never drawn, with the fix;
    empty without any."""
    if not verdicts:
        return ""
    fix = (
        "; `outcore bench` makes spoilt ones again"
        if "SPOILT" in verdicts.values()
        else ""
    )
    return f" ({uncounted_text(verdicts.values())}{LEFT_OUT}{fix})"


def load_evidence(root: Path, progress: Notice = silent) -> Evidence:
    """Read the evidence of a results root, without damaged records and runs of older
    code than the newest.

    Raises:
        InputError: the root has an invalid manifest of reference results.
    """
    from harness.records.code import Made, from_same_code
    from harness.records.hosts import host_fingerprint
    from harness.records.record import Code
    from harness.results.reference import read_reference
    from harness.results.table import load

    evidence = Evidence(
        load(root, progress), read_studies(root), foreign=read_foreign(root)
    )
    made = []
    for record in evidence.records:
        host = host_fingerprint(record["environment"])
        code = Code(**record["code"])
        made.append(
            Made(
                host,
                record["system"],
                code,
                record["run_id"],
                record["config"]["sampler"],
            )
        )
    runs = (
        evidence.runs[from_same_code(made)].reset_index(drop=True)
        if made
        else evidence.runs
    )
    names = [record["config"]["experiment"] for record in Evidence(runs).records]
    reference = read_reference(root)
    origin = reference.label if reference else ""
    return replace(
        evidence, runs=runs, experiments=kept(root, dict.fromkeys(names)), origin=origin
    )

"""The studies of a bench: each made once, datasets first; one failure does not stop the
others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.plan.datasets import Recipe, ensure
from harness.progress import TimeLeft
from harness.records.study import StudyRecord
from harness.settings import strict
from harness.studies.base import (
    StudyNeed,
    find_record,
    make_study,
    resolve_study,
    union_of,
)
from workloads.errors import OutcoreError

if TYPE_CHECKING:
    from harness.progress import Progress


@dataclass
class Studied:
    """The result of a sweep of studies: records of this and earlier calls, and reasons
    of failures by study id."""

    records: list[StudyRecord] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyEstimate:
    """Number of studies, number done, and seconds for the others."""

    studies: int
    done: int
    seconds: float


@dataclass
class StudySweep:
    """The union of the studies that one bench's figures need.

    Attributes:
        needs: studies with their parameters; equal ones are made once.
        fresh: whether to make studies again that have a record.
        scratch: folder for scratch files; None: under the data root.

    Raises:
        InputError: a study is unknown or a parameter invalid.
    """

    needs: Sequence[StudyNeed]
    results_root: Path
    data_root: Path
    progress: Progress
    _: KW_ONLY
    fresh: bool = False
    scratch: Path | None = None

    def __post_init__(self) -> None:
        self.needs = union_of(self.needs)

    def datasets(self) -> dict[str, Recipe]:
        """Return the recipes of the datasets that the studies read, by name."""
        found: dict[str, Recipe] = {}
        for need in self.needs:
            name = getattr(resolve_study(need)[1], "dataset", None)
            if name in need.datasets:
                found[str(name)] = strict(
                    Recipe, need.datasets[str(name)], f"datasets.{name}"
                )
        return found

    def _made(self, need: StudyNeed) -> StudyRecord:
        return make_study(
            need, self.data_root, self.results_root, self.progress, scratch=self.scratch
        )

    def estimate(self) -> StudyEstimate:
        """Estimate the remaining cost from each study's own rough model."""
        missing = [need for need in self.needs if self._known(need) is None]
        seconds = sum(
            (study.seconds(params) for study, params in map(resolve_study, missing)),
            0.0,
        )
        return StudyEstimate(len(self.needs), len(self.needs) - len(missing), seconds)

    def lines(self) -> list[str]:
        """Return one line a study, for `--dry-run`."""
        lines = []
        for study, params in map(resolve_study, self.needs):
            place = f" on {params.dataset}" if hasattr(params, "dataset") else ""
            lines.append(f"study {study.id}{place}: {study.title}")
        return lines

    def run(self) -> Studied:
        """Make every study that has no record."""
        known = [self._known(need) for need in self.needs]
        studied = Studied([record for record in known if record is not None])
        todo = [
            need
            for need, record in zip(self.needs, known, strict=True)
            if record is None
        ]
        recipes = self.datasets()
        resolved = [resolve_study(need) for need in todo]
        left = TimeLeft([study.seconds(params) for study, params in resolved])
        for number, (need, (study, params)) in enumerate(
            zip(todo, resolved, strict=True)
        ):
            place = f"study {number + 1}/{len(todo)}"
            left.begin(number, place)
            self.progress.title(f"{place} {study.id}", left)
            try:
                name = getattr(params, "dataset", None)
                if name in recipes:
                    ensure(str(name), recipes[str(name)], self.data_root, self.progress)
                studied.records.append(self._made(need))
            except OutcoreError as error:
                studied.failed[study.id] = str(error)
                self.progress.keep(f"study {study.id}: {error}")
        return studied

    def _known(self, need: StudyNeed) -> StudyRecord | None:
        return (
            None if self.fresh else find_record(need, self.data_root, self.results_root)
        )

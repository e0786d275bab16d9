"""What figures are drawn from: the run records and the study records of one results root, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.figures.query import NotDrawn
from harness.studies.record import StudyRecord, read_studies

if TYPE_CHECKING:
    import pandas as pd

Where = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Evidence:
    """All that was measured and computed under one results root.

    Attributes:
        frame: `harness.results.load()`: a row a run, the record as plain data in column `record`, its folder in `path`.
        studies: every study record, oldest first.
    """

    frame: pd.DataFrame
    studies: list[StudyRecord] = field(default_factory=list)

    def study(self, name: str, *, where: Where = lambda params: True) -> StudyRecord:
        """The newest record of a study whose parameters `where` accepts.

        Raises:
            NotDrawn: there is none.
        """
        found = [record for record in self.studies if record.study == name and where(record.params)]
        if not found:
            raise NotDrawn(f"the study {name} was not made yet")
        return found[-1]

    def all_studies(self, name: str, *, where: Where = lambda params: True) -> list[StudyRecord]:
        """The newest record of each distinct set of parameters, in the order in which they were made first.

        Raises:
            NotDrawn: there is none.
        """
        newest = {record.key: record for record in self.studies if record.study == name and where(record.params)}
        if not newest:
            raise NotDrawn(f"the study {name} was not made yet")
        return list(newest.values())


def load_evidence(root: Path) -> Evidence:
    """The evidence of a results root; what is damaged is left out."""
    from harness.results import load

    return Evidence(load(root), read_studies(root))

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
        frame: of `harness.results.load()` the runs of one code (`harness.code.of_one_code`): a row a run, the record as
            plain data in column `record`, its folder in `path`.
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
    """The evidence of a results root; what is damaged, or made by older code than the newest, is left out."""
    from harness.code import Made, of_one_code
    from harness.hosts import host_fingerprint
    from harness.record import Code
    from harness.results import load

    frame = load(root)
    if len(frame):
        made = [
            Made(
                host_fingerprint(record.get("environment") or {}), record["system"],
                Code(**(record.get("code") or {})), record["run_id"],
            )
            for record in frame["record"]
        ]  # fmt: skip
        frame = frame[of_one_code(made)].reset_index(drop=True)
    return Evidence(frame, read_studies(root))

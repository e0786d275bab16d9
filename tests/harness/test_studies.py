"""Studies are made once for their parameters and dataset, stored whole, and a failed
one never stops the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.records.study import read_studies
from harness.settings import Strict
from harness.studies import base
from harness.studies.base import (
    Study,
    StudyContext,
    StudyNeed,
    WorkloadParams,
    find_record,
    make_study,
    union_of,
)
from harness.studies.sweep import StudySweep
from workloads.errors import DatasetError, InputError

RECIPES = {
    "tiny": {
        "kind": "kronecker",
        "nodes": 400,
        "edges": 4000,
        "dim": 8,
        "classes": 4,
        "seed": 1,
    }
}


class Quiet:
    """Progress that keeps its messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def title(self, text: str, short: object) -> None:
        self.lines.append(text)

    def keep(self, text: str) -> None:
        self.lines.append(text)

    def __call__(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Register a study that counts the nodes of its first mini-batch, and one that
    fails; return the list of calls."""
    calls: list[int] = []

    def count(params: WorkloadParams, context: StudyContext) -> dict[str, Any]:
        from harness.judge.trace import trace_epochs

        calls.append(1)
        (trace,) = trace_epochs(context.workload(params), [0])
        assert context.scratch.is_dir()
        return {"nodes": trace.unique_rows}

    def fail(params: Strict, context: StudyContext) -> dict[str, Any]:
        raise InputError("this cannot be", "do not ask")

    known = {
        "counted": Study("counted", "counts", 1, WorkloadParams, count),
        "failing": Study("failing", "fails", 1, Strict, fail),
    }
    monkeypatch.setattr(base, "_STUDIES", known)
    monkeypatch.setattr(base, "studies", lambda: known)
    return calls


def need(**params: Any) -> StudyNeed:
    return StudyNeed(
        "counted",
        {"dataset": "tiny", "fanout": [3, 3], "batch_size": 2, **params},
        RECIPES,
    )


def test_a_study_is_made_once_and_found_again(
    counted: list[int], tmp_path: Path
) -> None:
    roots = (tmp_path / "results", tmp_path / "data")
    first = StudySweep([need(), need()], *roots, Quiet()).run()
    again = StudySweep([need()], *roots, Quiet()).run()
    assert len(counted) == 1
    assert [record.result for record in again.records] == [
        record.result for record in first.records
    ]
    assert first.records[0].dataset is not None
    assert first.records[0].dataset.num_nodes == 400
    assert [record.key for record in read_studies(roots[0])] == [first.records[0].key]
    assert not list((roots[1] / ".outcore" / "scratch").iterdir())


def test_other_parameters_are_another_study(counted: list[int], tmp_path: Path) -> None:
    done = StudySweep(
        [need(), need(batch_size=3)], tmp_path / "results", tmp_path / "data", Quiet()
    ).run()
    assert len(counted) == 2
    assert done.records[0].result["nodes"] < done.records[1].result["nodes"]


def test_a_damaged_record_is_made_again(counted: list[int], tmp_path: Path) -> None:
    roots = (tmp_path / "results", tmp_path / "data")
    StudySweep([need()], *roots, Quiet()).run()
    file = next((roots[0] / "studies").iterdir())
    file.write_text(file.read_text()[:100])
    assert read_studies(roots[0]) == []
    StudySweep([need()], *roots, Quiet()).run()
    assert len(counted) == 2
    assert json.loads(file.read_text())["study"] == "counted"


def test_one_that_fails_is_reported_and_the_others_go_on(
    counted: list[int], tmp_path: Path
) -> None:
    done = StudySweep(
        [StudyNeed("failing"), need()], tmp_path / "results", tmp_path / "data", Quiet()
    ).run()
    assert list(done.failed) == ["failing"]
    assert "this cannot be" in done.failed["failing"]
    assert len(done.records) == 1


def test_an_estimate_counts_what_is_done(counted: list[int], tmp_path: Path) -> None:
    roots = (tmp_path / "results", tmp_path / "data")
    before = StudySweep([need()], *roots, Quiet()).estimate()
    StudySweep([need()], *roots, Quiet()).run()
    after = StudySweep([need()], *roots, Quiet()).estimate()
    assert (before.studies, before.done, before.seconds) == (1, 0, 10.0)
    assert (after.studies, after.done, after.seconds) == (1, 1, 0.0)


def test_an_unknown_study_or_parameter_is_named(
    counted: list[int], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="counted"):
        union_of([StudyNeed("countd")])
    with pytest.raises(InputError, match="batch_siz"):
        union_of([need(batch_siz=3)])
    with pytest.raises(DatasetError, match="absent"):
        make_study(StudyNeed("counted", {"dataset": "absent"}), tmp_path, tmp_path)
    assert (
        find_record(StudyNeed("counted", {"dataset": "absent"}), tmp_path, tmp_path)
        is None
    )

"""`outcore systems show`: the parts of a data path, with memory and work of the newest
run that counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import cli
from harness.records.record import PlannedBuffer, Record, RunFacts
from systems.interface import PartUse
from tests.harness.records import make_record, save

PARTS = (
    PartUse(name="graph in memory", buffers=("indptr", "indices")),
    PartUse(
        name="sieve cache in host memory",
        buffers=("feature cache",),
        counts={"rows": 1000, "hits": 250},
    ),
    PartUse(
        name="direct reads",
        buffers=("reader buffers",),
        counts={"rows": 750, "requests": 700, "bytes": 3 << 20},
    ),
)
PLAN = [
    PlannedBuffer(name="indptr", bytes=1 << 20),
    PlannedBuffer(name="indices", bytes=2 << 20),
    PlannedBuffer(name="feature cache", bytes=4 << 20, tier="device"),
]


def a_run(parts: tuple[PartUse, ...] = PARTS, verdict: str = "VALID") -> Record:
    record = make_record("graphbolt", [1.0], verdict=verdict)
    record.facts = RunFacts(parts=parts)
    record.memory.plan = PLAN
    return record


def shown(capsys: pytest.CaptureFixture[str], root: Path, *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main(["systems", "show", *arguments, "--results-root", str(root)])
    assert end.value.code == 0
    return capsys.readouterr().out


def test_parts_come_from_the_newest_run_that_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = a_run(PARTS[:1])
    newest = a_run()
    spoilt = a_run(PARTS[:1], "SPOILT")
    without = a_run(())
    save(tmp_path, older, newest, spoilt, without)
    found = json.loads(shown(capsys, tmp_path, "graphbolt", "--json"))
    assert found["run"] == newest.run_id
    assert found["parts"] == [part.name for part in PARTS]
    assert [use["bytes"] for use in found["uses"]] == [
        {"host": 3 << 20},
        {"device": 4 << 20},
        {},
    ]
    assert found["uses"][1]["counts"] == {"rows": 1000, "hits": 250}


def test_the_table_has_size_and_work_of_each_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, a_run())
    text = shown(capsys, tmp_path, "graphbolt")
    lines = text.splitlines()
    assert lines[1] == "graph in memory → sieve cache in host memory → direct reads"
    (cache,) = [line for line in lines if line.startswith("sieve")]
    assert "4.0 MiB device" in cache
    assert "rows 1,000, hits 250 (25.0 %)" in cache
    assert "rows 750, requests 700, 3.0 MiB" in text


def test_without_a_run_the_parts_come_from_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, tmp_path, "pyg+")
    assert "graph behind a memory map → neighbour sampler → rows behind" in text
    assert "no run of it" in text
    assert json.loads(shown(capsys, tmp_path, "pyg+", "--json"))["uses"] == []

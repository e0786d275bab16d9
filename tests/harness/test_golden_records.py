"""Golden records, written by the commit that added `tests/golden`, are read, upgraded
and judged as they were then.

They are real runs of a tiny dataset, sealed again after paths and models of the machine
were removed: runs of several systems, one out of memory, one slowed on purpose and one
with its tables; and a study.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.compare.evidence import load_evidence
from harness.records.schema import SCHEMA, upgraded
from harness.records.study import read_studies
from harness.results import store
from harness.results.incoming import merge
from harness.results.perfetto import build_trace

GOLDEN = Path(__file__).parents[1] / "golden"
RUNS = sorted((GOLDEN / "runs").iterdir())
#: Rules that went: a wall makes their breaking impossible (a sandbox, a limit of swap),
#: or another rule includes them.
GONE = {
    "cap_is_a_kernel_cap",
    "dataset_stayed_the_same",
    "features_were_checked",
    "limit_is_what_was_asked_for",
    "nothing_was_swapped",
    "topology_is_told",
    "numbers_follow_from_their_parts",
    "worker_is_in_its_cap",
}
WITH_TABLES = next(run for run in RUNS if (run / "stages.parquet").is_file())


def written(run: Path) -> dict[str, Any]:
    """Return the content of a run's record file."""
    content: dict[str, Any] = json.loads((run / store.RECORD).read_text())
    return content


def outcomes(rules: list[dict[str, Any]]) -> list[tuple[str, str, bool, bool]]:
    """Return rules without the wording of their details."""
    return [(rule["rule"], rule["name"], rule["ok"], rule["known"]) for rule in rules]


def holds(now: Any, then: Any, where: str = "") -> list[str]:
    """Return the places in which `now` lacks or changes a part of `then`."""
    if isinstance(then, dict) and isinstance(now, dict):
        return [
            place
            for key in then
            for place in holds(now.get(key, "missing"), then[key], f"{where}.{key}")
        ]
    if isinstance(then, list) and isinstance(now, list) and len(now) == len(then):
        return [
            place
            for at, part in enumerate(then)
            for place in holds(now[at], part, f"{where}.{at}")
        ]
    return [] if now == then else [where]


# Since edition 3 other programs' share of the processors is judged at any length of
# epoch, and their share of the disk, of which a tenth spoils a run.
JUDGED_ANEW = {"processors_were_quiet", "disk_was_quiet", "disk_was_not_shared"}
SPOILT_SINCE = {"20261125-051441-141-in-memory-d70efb5f-r0"}  # a fifth of the disk


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_record_is_read_whole_and_judged_as_then(run: Path) -> None:
    then = upgraded(written(run), run.name)
    record = store.read_record(run)
    spoilt_since = run.name in SPOILT_SINCE
    assert record.verdict == ("SPOILT" if spoilt_since else then["verdict"])
    gone = GONE | JUDGED_ANEW
    kept = [rule for rule in outcomes(then["verdict_rules"]) if rule[1] not in gone]
    now = outcomes([rule.model_dump() for rule in record.verdict_rules])
    younger = [rule for rule in now if rule[:2] not in {old[:2] for old in kept}]
    assert [rule for rule in now if rule not in younger] == kept
    assert all(ok or name in JUDGED_ANEW for _, name, ok, _ in younger)
    changed = holds(
        record.to_json() | {"verdict_rules": []}, then | {"verdict_rules": []}
    )
    # Since schema 5 the distance is over T(E) / E, by the mean epoch, where it was over
    # a median one.
    allowed = {".summary.distance_to_limit", *([".verdict"] if spoilt_since else [])}
    assert set(changed) <= allowed
    assert record.config.config_hash == then["config_hash"]
    assert record.cell == record.config.cell
    assert record.cell.experiment == then["config"]["experiment"]


def test_the_records_show_each_kind_of_ending() -> None:
    found = [store.read_record(run) for run in RUNS]
    assert {record.status for record in found} == {"ok", "oom"}
    assert {record.verdict for record in found} >= {"INVALID", "CAVEATS"}
    slowed = [record for record in found if record.facts.test_clock]
    assert slowed
    assert all(record.verdict == "INVALID" for record in slowed)
    assert len({record.system for record in found}) >= 4


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_record_of_schema_1_is_upgraded(run: Path, tmp_path: Path) -> None:
    old = {
        key: value
        for key, value in written(run).items()
        if key not in ("evidence", "code", "seal")
    } | {"schema": 1}
    (tmp_path / store.RECORD).write_text(json.dumps(old))
    record = store.read_record(tmp_path)
    assert record.schema_version == SCHEMA
    assert record.verdict == old["verdict"]
    assert "evidence_is_kept" in {
        rule.name for rule in record.verdict_rules if not rule.ok
    }


def test_a_changed_number_is_found(tmp_path: Path) -> None:
    content = written(RUNS[0])
    content["duration_s"] += 1.0
    (tmp_path / store.RECORD).write_text(json.dumps(content))
    assert store.read_record(tmp_path).verdict == "INVALID"


def test_tables_are_read_and_give_a_trace() -> None:
    record = store.read_record(WITH_TABLES)
    stages = store.table(WITH_TABLES, "stages")
    batches = store.table(WITH_TABLES, "batches")
    assert list(stages.columns) == list(store.STAGE_COLUMNS)
    assert list(batches.columns) == list(store.BATCH_COLUMNS)
    assert len(batches) == sum(epoch.batches for epoch in record.epochs)
    trace = build_trace(record, stages, batches, store.table(WITH_TABLES, "telemetry"))
    assert {event["ph"] for event in trace["traceEvents"]} >= {"X", "C", "M"}


def test_records_and_studies_are_evidence_and_can_be_imported(tmp_path: Path) -> None:
    merged = merge([GOLDEN], tmp_path)
    assert sorted(merged.runs) == [run.name for run in RUNS]
    assert len(merged.studies) == 1
    (study,) = read_studies(tmp_path)
    (file,) = (GOLDEN / "studies").iterdir()
    assert study.model_dump(mode="json") == json.loads(file.read_text())
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    evidence = load_evidence(tmp_path)
    assert len(evidence.runs) == len(RUNS)
    assert len(evidence.studies) == 1
    assert set(evidence.runs["summary.epoch_s.median"].dropna()) == {
        content["summary"]["epoch_s"]["median"]
        for content in map(written, RUNS)
        if content["summary"]["epoch_s"]
    }

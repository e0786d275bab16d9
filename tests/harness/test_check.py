"""`outcore check` from the outside: JSON, exit codes, children that crash or hang, the
capped run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.check.case import DIMS, Case, CheckedEpoch, Observation, cases, left_out
from harness.check.rules import RULES, judge
from harness.check.runner import MEMORY, check_memory, check_system, judge_record
from harness.run.launch import PLAN_REFUSED
from tests.harness.run_tools import share_cache
from workloads.errors import InputError

pytestmark = pytest.mark.timeout(150)


def first_two(case: Case) -> bool:
    return (
        case.name.startswith(("dim 1 float32", "dim 127 float32"))
        and case.device == "cpu"
    )


def broken(system: str, **arguments: float) -> dict[str, str]:
    name = f"tests.systems.broken_systems:{system}"
    found = check_system(name, quick=True, only=first_two, **arguments)  # type: ignore[arg-type]
    return {result.name: result.detail for result in found if not result.ok}


@pytest.mark.slow("harness/check", seconds=6)
def test_a_crash_is_reported_and_the_other_cases_still_run() -> None:
    faults = broken("Crashes")
    assert "died of SIGSEGV" in faults["runs"]
    assert "dim 127" not in faults["runs"]


def test_writing_to_an_emulated_devices_memory_is_reported() -> None:
    def emulated(case: Case) -> bool:
        return (
            case.name.startswith("dim 127 float32") and case.device == "emulated:late"
        )

    found = check_system(
        "tests.systems.broken_systems:WritesToTheDevice", quick=True, only=emulated
    )
    faults = {result.name: result.detail for result in found if not result.ok}
    assert "died of SIGSEGV (the processor cannot read or write" in faults["runs"]


@pytest.mark.slow("harness/check")
def test_a_hang_is_reported_and_ended() -> None:
    assert "hung for 8 s" in broken("Hangs", case_limit_s=8.0)["runs"]


@pytest.mark.slow("harness/check")
def test_a_system_deaf_to_sigterm_is_found() -> None:
    assert broken("DeafToSigterm") == {
        "SIGTERM ends it": "still there 5 s after SIGTERM"
    }


def outcore(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from harness.cli import main; main()", *arguments]
    wide = {**os.environ, "COLUMNS": "300"}  # details stand on one line
    return subprocess.run(
        command, capture_output=True, text=True, timeout=140, check=False, env=wide
    )


@pytest.mark.slow("harness/check", "harness/cli/check.py", seconds=55)
def test_the_quick_check_prints_one_json_object() -> None:
    done = outcore("check", "gnndrive", "--quick", "--json", "-o", "extractors=2")
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads(done.stdout)
    assert content["system"] == "gnndrive"
    assert content["ok"] is True
    assert {"name", "ok", "detail", "judged"} == set(content["checks"][0])
    capped = content["checks"][-1]
    assert capped["name"] == MEMORY
    assert "asked for" in capped["detail"] or "skipped" in capped["detail"]


@pytest.mark.slow("harness/check", "harness/cli/check.py")
def test_what_breaks_is_printed_with_the_fix_and_the_path_of_the_log(
    tmp_path: Path,
) -> None:
    done = outcore(
        "check",
        "tests.systems.broken_systems:Raises",
        "--quick",
        "--results-root",
        str(tmp_path),
    )
    assert done.returncode == 1, done.stderr
    assert "ZeroDivisionError: prepare is not ready" in done.stdout
    assert [
        rule.name for rule in RULES if f"{rule.name}: {rule.fix}" in done.stdout
    ] == ["runs"]
    log = Path(done.stdout.strip().splitlines()[-1].removeprefix("log: "))
    assert log.parent == tmp_path / "checks" / "tests.systems.broken_systems.Raises"
    assert "broken_systems.py" in log.read_text()
    assert "case dim 1 float32" in log.read_text()


def test_an_unknown_system_or_option_is_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError):
        check_system("nope", folder=tmp_path)
    with pytest.raises(InputError, match="option extractor"):
        check_system("gnndrive", options={"extractor": 2}, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_full_check_has_every_dimension_and_dtype_on_every_tier() -> None:
    found = {
        (case.dim, case.dtype, case.device)
        for case in cases(("cpu", "cuda", "emulated"), quick=False)
    }
    wanted = {(dim, dtype) for dim in DIMS for dtype in ("float32", "float16")}
    assert {
        (dim, dtype, device)
        for dim, dtype in wanted
        for device in ("cpu", "emulated:late")
    } <= found


def test_each_promise_counts_the_cases_that_ran_for_it_and_names_those_that_did_not() -> (
    None
):
    epoch = CheckedEpoch(
        seeds_once=True, counters={"misses": 0, "hits": {"host": 0}, "rows": 0}
    )
    epoch.counters |= {
        "bytes_read": 0,
        "bytes_useful": 0,
        "io_requests": 0,
        "requests_by_size": {},
    }
    ran = [
        Observation(f"dim {dim} (cpu)", "run", [epoch], plan_bytes={"host": 1})
        for dim in (1, 2)
    ]
    never = [
        Observation(f"dim {dim} (cpu)", "run", error="no", error_type="OSError")
        for dim in (3, 4, 5, 6)
    ]
    sampled = Observation("sampling only (cpu)", "sample-only", [epoch])
    closed = Observation("closed in mid-epoch (cpu)", "close")
    crashed = Observation(
        "features gone (cpu)", "gone", crashed=True, error="died of SIGSEGV"
    )
    found = {
        one.name: one for one in judge([*ran, *never, sampled, closed, crashed], True)
    }
    # Two cases and the one that only samples gave epochs; seven cases are about epochs
    # of whole files.
    four = "4 did not run: dim 3 (cpu), dim 4 (cpu), dim 5 (cpu) and 1 more"
    assert found["every batch once an epoch"].detail == f"3 of 7 cases; {four}"
    assert found["counters consistent"].detail == f"2 of 6 cases; {four}"
    assert found["plan within budget"].detail == f"2 of 6 cases; {four}"
    assert (
        found["close() at any moment"].detail
        == "8 of 9 cases; 1 did not run: features gone (cpu)"
    )
    # Nobody asked for a loss, no damaged file was read, and no artefact was prepared.
    loss = found["loss curve equals the oracle's"]
    assert (loss.detail, loss.judged) == ("no case is about it", False)
    damaged = found["damaged feature file is reported"]
    assert (damaged.detail, damaged.judged) == (
        "features gone (cpu) did not run",
        False,
    )


def test_cases_that_a_host_or_a_system_leaves_out_are_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert left_out(("cpu", "cuda")) == {
        "cases on cuda": "this host has no GPU that torch can use"
    }
    assert left_out(("cpu",)) == {}
    assert left_out(("cpu", "cuda"), device="cpu") == {}
    assert list(left_out(("cpu",), faithful=False)) == ["cases of other samplers"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert left_out(("cpu", "cuda")) == {}


def test_the_capped_check_reads_the_verdict() -> None:
    finding = SimpleNamespace(
        name="memory_as_asked", ok=False, detail="held 90 MiB, 50 MiB asked for"
    )
    record = SimpleNamespace(status="ok", reason="", verdict_rules=[finding])
    assert judge_record(record, loads_everything=False).ok is False  # type: ignore[arg-type]
    record.status = "oom"
    record.reason = f"{PLAN_REFUSED}: in-memory: features needs 117 MiB"
    refused = judge_record(record, loads_everything=False)  # type: ignore[arg-type]
    assert refused.ok is False
    assert "`loads_everything`" in refused.fix
    assert judge_record(record, loads_everything=True).ok is True  # type: ignore[arg-type]
    record.reason = "the kernel ended it: out of memory under the cap"
    assert judge_record(record, loads_everything=True).ok is False  # type: ignore[arg-type]


@pytest.mark.slow("harness/check", seconds=55)
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("system", "ok"),
    [
        pytest.param(
            "gnndrive",
            True,
            marks=pytest.mark.slow("harness/check", "systems/gnndrive", seconds=90),
        ),
        ("tests.systems.broken_systems:HoldsTooMuch", False),
    ],
)
def test_memory_is_judged_by_a_real_run_under_a_cap(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, system: str, ok: bool
) -> None:
    share_cache(tmp_path / "results", tmp_path_factory)
    result = check_memory(system, tmp_path, {})
    if result.detail.startswith("skipped"):
        pytest.skip(result.detail)
    assert result.ok is ok, result.detail

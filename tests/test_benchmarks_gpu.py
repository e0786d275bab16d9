"""The phases of `scripts/gpu`: refused without a GPU; steps that fail, hang or die
leave the others and their results; all of it on an emulated device."""

from __future__ import annotations

import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu.steps")


def phase(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if name != "OUTCORE_GPU_DRY"
    }
    kept |= {"OUTCORE_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [ROOT / "scripts" / "gpu", *arguments],
        env=kept,
        capture_output=True,
        text=True,
        timeout=580,
    )


@pytest.mark.slow("benchmarks", "scripts/gpu", seconds=6)
@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has CUDA")
def test_without_a_gpu_a_phase_states_so_in_one_sentence(tmp_path: Path) -> None:
    done = phase("check", "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "no CUDA device is usable here" in done.stderr
    assert "OUTCORE_GPU_DRY=emulated:a10g" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "--device", "tpu"), "'tpu' is no GPU"),
        pytest.param(
            ("check", "--device", "emulated:a10g", "--only", "nothing"),
            "no step is called 'nothing'",
            marks=pytest.mark.slow("benchmarks/gpu", "scripts/gpu", seconds=8),
        ),
        (("cheque",), "invalid choice"),
    ],
)
def test_wrong_input_is_reported(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = phase(*arguments, "--out", str(tmp_path))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def answering(result: dict[str, Any]) -> str:
    return f"import json, sys; open(sys.argv[1], 'w').write(json.dumps({result!r}))"


OUTCOMES = {
    "good": (answering({"rate": 3}), "ok", None),
    "kept": (
        answering({"targets": [{"what": "w", "value": 2, "least": 1, "ok": True}]}),
        "ok",
        None,
    ),
    "missed": (
        answering({"targets": [{"what": "w", "value": 0.5, "least": 1, "ok": False}]}),
        "failed",
        None,
    ),
    "faulty": (answering({"faults": ["rows are wrong"]}), "failed", None),
    "raises": (
        "raise RuntimeError('an illegal memory access')",
        "failed",
        "RuntimeError: an illegal memory access",
    ),
    "lacks": (
        "import sys; print('DGL is not installed'); sys.exit(3)",
        "left out",
        "DGL is not installed",
    ),
    "dies": (
        "import os; print('at work', flush=True); os.abort()",
        "failed",
        "died of SIGABRT: at work",
    ),
    "hangs": ("import time; time.sleep(60)", "too slow", "ended after 2 s"),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_end_of_a_step_is_an_entry(
    steps: ModuleType, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, status, error = OUTCOMES[name]
    monkeypatch.setattr(steps, "LEAST_S", 1.0)
    step = steps.Step(name, dict, limit_s=1.5 if name == "hangs" else 60.0)
    setting = steps.Setting("emulated:a10g", tmp_path)
    entry = steps.run_step(
        "check",
        step,
        setting,
        time.monotonic() + 100,
        lambda *call: [sys.executable, "-c", code, str(call[-1])],
    )
    assert (entry["status"], entry.get("error")) == (status, error)
    assert Path(entry["log"]).is_file()


def test_a_step_cut_off_by_the_end_of_its_phase_is_left_for_the_next_call(
    steps: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LEAST_S", 1.0)
    call = [sys.executable, "-c", "import time; time.sleep(60)"]
    setting = steps.Setting("emulated:a10g", tmp_path)
    entry = steps.run_step(
        "check", steps.Step("s", dict), setting, time.monotonic() + 2, lambda *_: call
    )
    assert entry["status"] == "no time left"
    assert entry["error"].startswith("ended after")


def test_what_a_slow_step_started_is_ended_too(
    steps: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LEAST_S", 1.0)
    child = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, "
        "flush=True); time.sleep(99)"
    )
    code = (
        "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', "
        f"{child!r}], stdout=subprocess.PIPE); child.stdout.readline(); "
        "print(child.pid, flush=True); time.sleep(99)"
    )
    setting = steps.Setting("emulated:a10g", tmp_path)
    entry = steps.run_step(
        "check",
        steps.Step("s", dict, 3.0),
        setting,
        time.monotonic() + 100,
        lambda *_: [sys.executable, "-c", code],
    )
    pid = int(Path(entry["log"]).read_text())
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[
            0
        ] == "Z":
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the child is still there")


def test_a_phase_that_was_cut_off_goes_on(
    steps: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "code", lambda: {"commit": "abc", "dirty": False})
    setting = steps.Setting("emulated:a10g", tmp_path)
    three = [steps.Step(name, dict) for name in ("one", "two", "three")]
    journal = steps.Journal("check", setting, False)
    journal.add("one", {"status": "ok", "seconds": 1.0, "result": {}})
    journal.add("two", {"status": "failed", "seconds": 1.0, "error": "e"})
    assert set(json.loads((tmp_path / "check.json").read_text())["steps"]) == {
        "one",
        "two",
    }
    assert not journal.close(three)
    assert json.loads((tmp_path / "check.json").read_text())["complete"] is False
    assert [
        step.name
        for step in three
        if steps.Journal("check", setting, False).done(step.name)
    ] == ["one"]
    assert not steps.Journal("check", setting, True).done("one")  # --again
    other = steps.Setting("cuda", tmp_path)
    assert not steps.Journal("check", other, False).done("one")
    monkeypatch.setattr(steps, "code", lambda: {"commit": "abc", "dirty": True})
    assert not steps.Journal("check", setting, False).done("one")


def test_a_phase_out_of_time_leaves_the_rest_for_the_next_call(
    steps: ModuleType, tmp_path: Path
) -> None:
    setting = steps.Setting("emulated:a10g", tmp_path)
    assert not steps.run_phase(
        "check", [steps.Step("one", dict)], setting, limit_s=1.0, jobs=1, again=False
    )
    assert (
        json.loads((tmp_path / "check.json").read_text())["steps"]["one"]["status"]
        == "no time left"
    )


def test_the_sanitizer_watches_the_rows_of_a_table(steps: ModuleType) -> None:
    addresses = importlib.import_module("gpu.check").addresses
    table = torch.zeros(6, 4)
    rows = torch.tensor([5, 0])
    other = torch.ones(2, 4)
    begin = table.data_ptr()
    aten = torch.ops.aten
    tables = {begin: begin + table.nbytes}
    for func, args in (
        (aten.index_copy_.default, (table, 0, rows, other)),
        (aten.index_select.default, (table, 0, rows)),
    ):
        assert addresses(func, args, tables) == {begin: [begin + 80, begin]}
    part = table[2:4]
    assert addresses(aten.copy_.default, (part, other), tables) == {
        begin + 32: [begin + 32, begin + 48]
    }
    assert (
        addresses(aten.index_select.default, (other, 0, torch.tensor([1])), tables)
        == {}
    )


def test_a_comparison_without_all_of_its_rounds_is_not_done(
    steps: ModuleType, tmp_path: Path
) -> None:
    compare = importlib.import_module("gpu.compare")
    found = compare._compared(
        steps.Setting("cuda", tmp_path), {"cuda": "real", "emulated:x": "emulated"}
    )
    assert [fault.partition(":")[0] for fault in found["faults"]] == list(
        compare.SYSTEMS
    )
    assert found["error"] == {}
    assert [one["ok"] for one in found["targets"]] == [False]


@pytest.mark.slow(
    "benchmarks/gpu", "scripts/gpu", "harness/check", "workloads/accelerators"
)
def test_the_phases_run_on_an_emulated_device(
    steps: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def content(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / f"{name}.json").read_text())
        return found

    dry = {"OUTCORE_GPU_DRY": "emulated:a10g"}
    for only in ("machine", "gnndrive"):
        done = phase(
            "check", "--out", str(tmp_path), "--only", only, "--limit", "300", **dry
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert {"conformance gnndrive", "streams gnndrive"} <= set(
        content("check")["steps"]
    )
    done = phase("measure", "--out", str(tmp_path), **dry)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = content("measure")
    assert measured["complete"]
    assert {step["status"] for step in measured["steps"].values()} == {"ok"}
    assert measured["steps"]["utilisation"]["result"]["means"]["gpu_percent"] > 0
    done = phase("compare", "--out", str(tmp_path), "--only", "training", **dry)
    assert done.returncode == 0, done.stdout + done.stderr
    compare = importlib.import_module("gpu.compare")
    monkeypatch.setattr(compare, "SYSTEMS", ("gnndrive",))
    found = compare.systems(steps.Setting("emulated:a10g", tmp_path))
    runs = found["runs"]["gnndrive"]
    assert not found["faults"]
    assert [len(runs[kind]) for kind in ("real", "emulated")] == [2, 2]
    real, emulated = (
        statistics.median(s for one in runs[kind] for s in one["epoch_s"])
        for kind in runs
    )
    assert found["error"] == {"gnndrive": pytest.approx(emulated / real - 1)}

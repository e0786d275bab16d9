"""Foreign systems in folders: found, set up, run under a real cap, and distinguished from
systems of equal work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.foreign.environment import ENTRY_POINTS, HELPER, find
from harness.foreign.systems import identity
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import Record
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings
from harness.wire import spots
from harness.wire.protocol import _ADAPTER
from tests.harness.run_tools import REPOSITORY, left_behind, outcore_here, share_cache
from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.errors import HostError, InputError

FAULTY = f"env:{REPOSITORY / 'tests' / 'harness' / 'foreign_worker'}"
UNTRAINED = f"env:{REPOSITORY / 'tests' / 'harness' / 'untrained_worker'}"
SLOW = pytest.mark.slow(
    "harness/foreign", "harness/judge", "harness/wire", "harness/run"
)
TEMPLATE = REPOSITORY / "outcore" / "template" / "foreign"


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    root = tmp_path_factory.mktemp("foreign")
    make_tiny(root / "data" / "tiny", nodes=20_000, edges=100_000, dim=64)
    share_cache(root / "results", tmp_path_factory)
    with Series(root / "results", root / "data") as opened:
        yield opened


def run(series: Series, system: str, **changes: Any) -> Record:
    settings = {
        "dataset": "tiny",
        "fanout": [5, 5],
        "batch_size": 500,
        "epochs": 2,
        "hidden": 16,
        "memory": "+64MiB",
        "timeout": 100.0,
        **changes,
    }
    wanted = resolve(
        PlannedRun(system, RunSettings.model_validate(settings)),
        series.data_root,
        series.isolation.name,
    )
    dataset = Dataset.open(series.data_root / "tiny")
    record = execute(series, wanted, dataset)
    assert left_behind(series) == []
    return record


def test_a_worker_runs_under_a_real_cap_and_is_never_valid(series: Series) -> None:
    record = run(series, FAULTY, options={"madvise": "random"})
    assert record.status == "ok", record.reason
    assert record.memory.floor_bytes > 0
    assert record.memory.plan == []
    rules = {rule.name: rule for rule in record.verdict_rules}
    assert "memory_as_asked" not in rules
    assert not rules["mini_batches_equal_the_workload"].ok
    assert rules["mini_batches_equal_the_workload"].known
    assert rules["every_batch_once"].ok
    assert rules["features_equal_the_dataset"].ok
    assert sum(check.rows for check in record.readings.features) == 2 * 8 * 64
    assert record.verdict in ("CAVEATS", "SPOILT")
    assert record.code.system
    measured = record.epochs[1]
    assert set(measured.stages_s) == {"sample", "extract", "train"}
    assert measured.counters["rows"] > 4_000
    if series.availability.proves_memory:
        assert record.memory.cap_bytes
        assert 0 < record.memory.peak_bytes <= record.memory.cap_bytes


@pytest.mark.parametrize(
    "trains",
    [
        pytest.param(
            True,
            marks=pytest.mark.slow("harness/foreign", "harness/judge", "harness/wire"),
        ),
        False,
    ],
)
def test_a_worker_with_equal_digests_is_never_valid_as_it_may_train_on_nothing(
    series: Series, trains: bool
) -> None:
    record = run(series, UNTRAINED, options={"trains": trains}, verify=True)
    assert record.status == "ok", record.reason
    losses = [epoch.loss for epoch in record.epochs]
    assert None not in losses and losses[1] < losses[0]  # type: ignore[operator]
    rules = {rule.name: rule for rule in record.verdict_rules}
    proven = (
        "digests_equal_the_workload",
        "features_equal_the_dataset",
        "every_batch_once",
    )
    assert all(rules[name].ok for name in proven)
    assert "mini_batches_equal_the_workload" not in rules
    assert sum(check.rows for check in record.readings.features) > 2 * 4 * 100
    assert not rules["training_is_the_workloads"].ok
    assert rules["training_is_the_workloads"].known
    assert record.verdict in ("CAVEATS", "SPOILT")


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("rows", "features_equal_the_dataset"),
        pytest.param("spots", "features_equal_the_dataset", marks=SLOW),
        ("features in the floor", "floor_and_training_hold_no_features"),
        pytest.param(
            "features in the step", "floor_and_training_hold_no_features", marks=SLOW
        ),
        ("hop", "sizes_are_as_drawn"),
        pytest.param("number", "every_batch_once", marks=SLOW),
    ],
)
def test_a_fault_makes_a_run_invalid(series: Series, fault: str, rule: str) -> None:
    record = run(series, FAULTY, options={"fault": fault})
    assert record.status == "ok" and record.verdict == "INVALID", record.reason
    broken = {one.name for one in record.verdict_rules if not one.ok and one.known}
    assert rule in broken, broken


def test_an_epoch_takes_what_the_orchestrators_clock_states(series: Series) -> None:
    record = run(series, FAULTY, options={"fault": "clock"})
    assert record.status == "ok", record.reason
    assert all(
        epoch.gate_s and epoch.seconds == pytest.approx(epoch.gate_s, abs=1e-6)
        for epoch in record.epochs
    )


def test_a_worker_over_its_cap_ends_as_out_of_memory(series: Series) -> None:
    if not series.availability.proves_memory:
        pytest.skip(f"isolation {series.isolation.name} proves no memory cap")
    assert run(series, FAULTY, options={"fault": "too much memory"}).status == "oom"


def test_what_a_worker_refuses_or_raises_is_reported(series: Series) -> None:
    refused = run(series, FAULTY, options={"fault": "refuses"})
    assert refused.status == "unsupported"
    assert refused.reason == "this graph is not for me; choose another"
    crashed = run(series, FAULTY, options={"fault": "crashes"})
    assert crashed.status == "failed"
    assert "RuntimeError: no luck" in crashed.reason
    for fault, status, message in (
        ("leaves", "failed", "calibration failed: the worker exited with code 3"),
        (
            "counter",
            "failed",
            "epoch.counters.bytes_read: Input should be a valid integer",
        ),
        ("plan", "oom", "the plan does not fit: buffers of 1.0 TiB in host memory"),
    ):
        ended = run(series, FAULTY, options={"fault": fault})
        assert ended.status == status and message in ended.reason, ended.reason
        assert ended.verdict == ("INVALID" if status == "failed" else "CAVEATS")
    other = run(series, FAULTY, sampler="layerwise", fanout=[50, 50])
    assert other.status == "unsupported"
    assert "sampler is 'layerwise'" in other.reason


def test_the_helper_draws_and_digests_as_the_orchestrator_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(HELPER))
    import outcore_worker

    rng = np.random.default_rng(0)
    for epoch in range(3):
        nonce = rng.bytes(spots.NONCE_BYTES)
        assert outcore_worker.chosen(nonce, epoch, 17) == spots.chosen(nonce, epoch, 17)
        for size in (1, 128, 5000):
            ours = spots.positions(nonce, epoch, 3, size)
            assert np.array_equal(outcore_worker.positions(nonce, epoch, 3, size), ours)
            rows = rng.standard_normal((len(ours), 7)).astype(np.float16)
            assert outcore_worker.rows_digest(ours, rows) == spots.rows_digest(
                ours, rows
            )


def test_the_seed_nodes_of_an_epoch_are_an_event() -> None:
    event = _ADAPTER.validate_json(
        '{"event": "seeds", "epoch": 1, "rows": [[0, [5, 7]], [1, [9]]]}'
    )
    assert event.rows == [(0, [5, 7]), (1, [9])]  # type: ignore[union-attr]


def wheel(folder: Path, name: str) -> str:
    """Write a wheel with one module, as packages have it, and return its file name."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "HERE = True\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: "
        "true\nTag: "
        "py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return f"./{name}-1.0-py3-none-any.whl"


def described(folder: Path, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "system.json").write_text(
        json.dumps({"name": "mine", "command": ["python", "worker.py"], **more})
    )
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTCORE_ENVIRONMENTS", str(tmp_path / "environments"))
    return tmp_path / "environments"


@pytest.mark.slow("harness/foreign", "harness/cli/systems.py", "foreign", seconds=20)
def test_an_environment_is_made_once_from_its_lock(tmp_path: Path, place: Path) -> None:
    folder = described(tmp_path / "mine", install=[["--no-index", "-r", "lock.txt"]])
    (folder / "lock.txt").write_text(wheel(folder, "outcore_test_one") + "\n")
    data = tmp_path / "data"
    results = tmp_path / "results"
    done = outcore_here(
        "systems", "setup", str(folder), "-v", data=data, results=results
    )
    assert done.returncode == 0, done.stderr
    assert "Successfully installed outcore" in done.stderr
    made = find(str(folder)).environment
    assert made is not None
    assert [path.name for path in place.iterdir()] == [made.name]
    python = made / "bin" / "python"
    command = find(str(folder)).command()
    assert command[-2:] == [str(python), "worker.py"]
    assert str(REPOSITORY / "harness") not in command
    assert (
        subprocess.run(
            [python, "-c", "import outcore_test_one"], check=False
        ).returncode
        == 0
    )
    before = made.stat().st_mtime_ns
    first = identity(f"env:{folder}")
    assert (
        outcore_here(
            "systems", "setup", str(folder), data=data, results=results
        ).returncode
        == 0
    )
    assert made.stat().st_mtime_ns == before
    (folder / "lock.txt").write_text(wheel(folder, "outcore_test_two") + "\n")
    changed = find(str(folder))
    assert changed.environment != made
    assert changed.missing
    assert identity(f"env:{folder}") != first


@pytest.mark.slow("harness/foreign", "harness/cli/systems.py", "foreign")
def test_setup_names_what_it_compiles_and_how_long_that_takes(
    tmp_path: Path, place: Path
) -> None:
    assert find("pyg").compiled == ["torch-scatter", "torch-sparse"]
    assert find("graphbolt").compiled == []
    folder = described(
        tmp_path / "mine",
        install=[["--no-build-isolation", "--no-index", "-r", "sources.lock"]],
    )
    (folder / "sources.lock").write_text(
        "# compiled\noutcore-one==1\n\noutcore-two==2\n"
    )
    done = outcore_here(
        "systems",
        "setup",
        str(folder),
        data=tmp_path / "data",
        results=tmp_path / "results",
    )
    assert (
        "outcore-one and outcore-two are compiled, which takes 11 to 20 minutes for "
        "PyG's" in done.stderr
    )


def test_folders_with_the_same_lock_share_an_environment(
    tmp_path: Path, place: Path
) -> None:
    one = described(tmp_path / "one", install=[["-r", "lock.txt"]])
    (one / "lock.txt").write_text("numpy==1.26.4\n")
    other = described(tmp_path / "other", install=[["-r", "../one/lock.txt"]])
    assert find(str(one)).environment == find(str(other)).environment
    assert (
        find("dgl").environment
        == find("graphbolt").environment
        != find("pyg").environment
    )


@pytest.mark.slow("harness/foreign", "harness/cli/systems.py", "foreign")
def test_a_failed_setup_states_why_and_leaves_nothing(
    tmp_path: Path, place: Path
) -> None:
    folder = described(
        tmp_path / "mine", install=[["--no-index", "outcore-no-such-package==3"]]
    )
    done = outcore_here(
        "systems",
        "setup",
        str(folder),
        data=tmp_path / "data",
        results=tmp_path / "results",
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "`pip install --no-index outcore-no-such-package==3` failed" in last
    assert "PIP_INDEX_URL" in last
    assert list(place.iterdir()) == []


def test_an_environment_needs_its_python_and_a_writable_place(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = described(tmp_path / "mine", python=["2.1"], install=[["numpy"]])
    found = find(str(folder))
    assert "systems setup" in found.missing
    with pytest.raises(HostError, match=r"needs Python 2\.1, which is not here"):
        found.setup()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTCORE_ENVIRONMENTS", str(tmp_path / "file" / "below"))
    with pytest.raises(HostError, match="OUTCORE_ENVIRONMENTS"):
        find(str(described(tmp_path / "other", install=[["numpy"]]))).setup()
    with pytest.raises(InputError, match="Outcore's own packages"):
        find(str(described(tmp_path / "plain"))).setup()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ('{"name": "x"}', "command: Field required"),
        ('{"name": "x", "command": ["w"], "fast": true}', "fast: Extra"),
        (
            '{"name": "x", "command": ["w"], "devices": ["tpu"]}',
            "devices.0: Input should be",
        ),
        (
            '{"name": "x", "command": ["w"], "options": {"model_config": 1}}',
            "cannot be named 'model_config'",
        ),
        (
            '{"name": "x", "command": ["w"], "options": {"a b": 1}}',
            "cannot be named 'a b'",
        ),
        (
            '{"name": "x", "command": ["w"], "options": {"a": null}}',
            "options.a.default: give a number",
        ),
        (
            '{"name": "x", "command": ["w"], "options": {"a": {"default": 1, '
            '"choices": [2]}}}',
            "1 is none of the choices",
        ),
    ],
)
def test_a_wrong_manifest_names_its_key(
    content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "system.json").write_text(content)
    with pytest.raises(InputError, match=message):
        find(str(tmp_path))


def test_a_folder_is_found_by_the_entry_point_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(tmp_path / "outcore_test_paper", options={"depth": 4})
    (tmp_path / "outcore_test_paper" / "__init__.py").write_text(
        "raise RuntimeError('never imported')\n"
    )
    metadata = tmp_path / "outcore_test_paper-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: outcore-test-paper\nVersion: 0.1\n"
    )
    (metadata / "entry_points.txt").write_text(
        f"[{ENTRY_POINTS}]\npaper = outcore_test_paper\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find("paper").path == tmp_path / "outcore_test_paper"


def test_an_interpreter_of_the_authors_own_is_used_as_it_is(tmp_path: Path) -> None:
    link = tmp_path / "theirs" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)
    folder = described(tmp_path / "mine", command=[str(link), "worker.py"])
    (folder / "worker.py").write_text("")
    found = find(str(folder))
    assert found.command()[-2:] == [str(link), str(folder / "worker.py")]
    assert found.sources() == [folder, HELPER]


def test_new_system_writes_a_foreign_worker_that_runs_by_hand(tmp_path: Path) -> None:
    data = make_tiny(tmp_path / "data" / "tiny").path
    done = outcore_here(
        "new-system",
        "my-paper",
        "--foreign",
        "--folder",
        str(tmp_path / "mine"),
        data=tmp_path,
        results=tmp_path,
    )
    assert done.returncode == 0
    assert f"outcore check env:{tmp_path / 'mine'}" in done.stdout
    assert "class MyPaper(Worker)" in (tmp_path / "mine" / "worker.py").read_text()
    assert find(str(tmp_path / "mine")).manifest.name == "my-paper"
    script = [sys.executable, str(tmp_path / "mine" / "worker.py")]
    trained = [
        str(data),
        "batch_size=50",
        "fanout=[3,3]",
        "epochs=4",
        "madvise=random",
        "learning_rate=0.1",
    ]
    by_hand = subprocess.run(
        [*script, *trained],
        env={**os.environ, "PYTHONPATH": str(HELPER)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = by_hand.stdout.splitlines()
    assert by_hand.returncode == 0 and len(lines) == 4, by_hand.stderr
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in lines]
    assert all("8 mini-batches" in line for line in lines)
    assert losses[-1] < losses[0]


def test_systems_lists_the_shipped_folders_and_their_options(tmp_path: Path) -> None:
    done = outcore_here("systems", "--json", data=tmp_path, results=tmp_path)
    listed = {one["name"]: one for one in json.loads(done.stdout)["systems"]}
    assert {"env:dgl", "env:graphbolt", "env:pyg", "gnndrive"} <= set(listed)
    assert not listed["env:pyg"]["faithful"]
    done = outcore_here("systems", "env:graphbolt", data=tmp_path, results=tmp_path)
    assert done.returncode == 0
    assert "workers" in done.stdout
    assert done.stdout.startswith("env:graphbolt")

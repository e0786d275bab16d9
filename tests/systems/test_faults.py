"""Faults common to all systems: little memory, a killed preparation, other data, a full
disk, a thread that fails."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from systems.interface import MemoryBudget, System
from systems.registry import load, names
from tests.support import make_tiny
from tests.systems.support_systems import reference, run, running, workload_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError, DatasetError
from workloads.workload import Workload

pytestmark = pytest.mark.timeout(120)

REPOSITORY = Path(__file__).parents[2]
#: Systems that prepare files and reuse them.
PREPARING = [
    "ginex",
    "ali+pg",
    "diskgnn",
    "mariusgnn",
    "pagraph",
    "pagraph+pp",
    "data-tiering",
]
DEVICE = "emulated:instant"


def kept(
    name: str, workload: Workload, root: Path, **options: Any
) -> AbstractContextManager[System]:
    """Prepare a system whose artefacts stay under `root`."""
    return running(
        name,
        workload,
        device=DEVICE,
        device_bytes=4 << 20,
        root=root,
        epochs=1,
        **options,
    )


def right(system: System, workload: Workload) -> bool:
    """Check that an epoch equals the reference; of a system that samples in its own
    way, that it has mini-batches."""
    structure, features, order = run(system)
    return (
        (structure, features) == reference(workload)
        if system.info.faithful
        else bool(order)
    )


@pytest.mark.parametrize("name", names())
def test_every_refusal_for_want_of_memory_names_system_part_and_way_out(
    tiny_dataset: Dataset, name: str
) -> None:
    """As the budget of host, device or disk grows from zero, a plan fits it or is
    refused in one sentence."""
    workload = workload_of(tiny_dataset)
    system_class = load(name)
    try:
        system_class.load_libraries()
    except Exception as error:
        pytest.skip(str(error))
    refused = 0
    for tier, sizes in (
        ("host", [0, *(int(4096 * 1.7**step) for step in range(18))]),
        ("device", [0, *(4096 * 4**step for step in range(6))]),
        ("disk", [0, *(4096 * 4**step for step in range(6))]),
    ):
        for size in sizes:
            room = {"host": None, "device": 4 << 20, "disk": None, tier: size}
            device = max(4096, room["device"] or 0)
            budget = MemoryBudget(room["host"], room["device"], room["disk"])
            arguments = {
                "device": DEVICE,
                "device_bytes": device,
                "budget": budget,
                "epochs": 1,
                "prepare": False,
            }
            try:
                with running(name, workload, **arguments) as system:  # type: ignore[arg-type]
                    plan = system.plan()
                assert budget.host is None or plan.total("host") <= budget.host, size
                assert plan.total("device") <= (budget.device or 0)
                assert plan.total("disk") <= (budget.disk or 1 << 62)
            except BudgetError as error:
                refused += 1
                assert (
                    error.fix and name in error.message and "\n" not in error.message
                ), error
                assert any(
                    word in error.message
                    for word in ("needs", "need", "does not fit", "take")
                ), error
    assert refused


# ali+pg prepares what ginex prepares, pagraph a part of what pagraph+pp does; diskgnn
# has its own test.
@pytest.mark.parametrize(
    "name",
    [
        "ginex",
        "data-tiering",
        pytest.param(
            "mariusgnn",
            marks=pytest.mark.slow(
                "systems/mariusgnn", "systems/engine/store", seconds=5
            ),
        ),
        pytest.param(
            "pagraph+pp",
            marks=pytest.mark.slow(
                "systems/pagraph_plus_pp", "systems/engine/store", seconds=5
            ),
        ),
    ],
)
def test_a_preparation_killed_before_its_end_is_started_anew(
    tmp_path: Path, name: str
) -> None:
    dataset = make_tiny(tmp_path / "d")
    code = """
    import os, sys
    from pathlib import Path
    from systems.engine.store import artefacts
    from tests.systems.test_faults import kept
    from tests.systems.support_systems import workload_of
    from workloads.dataset import Dataset
    artefacts._seal = lambda *_: os.kill(os.getpid(), 9)  # killed when all files are written but not sealed
    with kept(sys.argv[1], workload_of(Dataset.open(Path(sys.argv[2]))), Path(sys.argv[3])):
        pass
    """
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(code),
        name,
        str(dataset.path),
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list((tmp_path / "artefacts").glob(".*tmp*")), (
        "it was killed before it wrote anything"
    )
    workload = workload_of(dataset)
    with kept(name, workload, tmp_path) as system:
        assert system.notes()["prepared"] == "made"
        assert right(system, workload)
    assert not list((tmp_path / "artefacts").glob(".*tmp*")), (
        "files of the killed preparation are left"
    )
    with kept(name, workload, tmp_path) as system:
        assert system.notes()["prepared"] == "reused"


@pytest.mark.parametrize("name", PREPARING)
def test_artefacts_of_another_dataset_or_seed_are_not_used(
    tmp_path: Path, name: str
) -> None:
    one, two = (make_tiny(tmp_path / f"d{seed}", seed=seed) for seed in range(2))
    for dataset in (one, two):
        workload = workload_of(dataset)
        with kept(name, workload, tmp_path) as system:
            assert system.notes()["prepared"] == "made"
            assert right(system, workload)


@pytest.mark.parametrize("name", PREPARING)
def test_a_disk_that_is_full_while_preparing_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a small tmpfs")
    try:
        workload = workload_of(
            make_tiny(tmp_path / "d", nodes=30_000, edges=200_000, train_fraction=0.01)
        )
        options = {"split": "50"} if name == "ali+pg" else {}
        reported = pytest.raises((DataIOError, DatasetError, BudgetError))
        with reported as caught, kept(name, workload, folder, **options):
            pass
        error = caught.value
        assert "\n" not in error.message
        assert error.fix
        if isinstance(error, DataIOError):
            assert error.errno == errno.ENOSPC
            assert str(folder) in f"{error.message} {error.path}"
        assert [
            path for path in folder.rglob("*") if path.is_file() and path.stat().st_size
        ] == []
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.mark.parametrize("name", names())
def test_an_error_in_a_thread_is_raised_and_ends_all_threads(
    tmp_path: Path, tiny_dataset: Dataset, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error interrupts sampling, or loading where sampling was done
    beforehand."""
    system_class = load(name)
    try:
        system_class.load_libraries()
    except Exception as error:
        pytest.skip(str(error))
    from systems.engine.pipeline import Pipeline

    stage = Pipeline.stage
    failing = threading.Event()

    def with_a_fault(self, label, workers, work, source, sink=None):  # type: ignore[no-untyped-def]
        def sometimes(number: int, item: Any) -> Any:
            if failing.is_set() and number == 3:
                raise ZeroDivisionError(f"in {label}")
            return work(number, item)

        return stage(self, label, workers, sometimes, source, sink)

    monkeypatch.setattr(Pipeline, "stage", with_a_fault)
    before = {thread.ident for thread in threading.enumerate()}
    with kept(name, workload_of(tiny_dataset), tmp_path) as system:
        failing.set()
        with pytest.raises(ZeroDivisionError, match="in "):
            run(system)
        assert [
            thread.name
            for thread in threading.enumerate()
            if thread.ident not in before
        ] == []

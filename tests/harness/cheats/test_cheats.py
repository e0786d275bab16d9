"""Every cheat is caught by the rule that it names, and the honest system by none."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from harness.isolation import cgroup1, select
from harness.isolation.cgroup2 import Cgroup2Cap
from harness.isolation.walls import sandbox
from harness.isolation.walls.sandbox import Walls
from harness.judge import rules
from harness.records import seal
from harness.records.code import code_of
from harness.records.record import Record
from harness.results import store as results
from harness.results.frozen import freeze
from harness.run import cold, orchestrator
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.run.spec import setting_of
from systems import _native
from systems.engine.store import artefacts
from tests.harness.cheats import CHEATS
from tests.harness.cheats.act import (
    NAME,
    BallastInCalibration,
    BallastInLibraries,
    Cheating,
    CopiesInLibraries,
    PreparesInLibraries,
    together,
)
from tests.harness.cheats.elsewhere import KEY
from tests.harness.run_tools import config, share_cache
from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.making.make import MakeSpec, make_dataset
from workloads.making.salt import Salt

pytestmark = pytest.mark.skipif(
    not select("auto").availability.proves_memory,
    reason="no memory cgroup on this host",
)

SANDBOXED = pytest.mark.skipif(
    not sandbox.walls().kind, reason=f"no sandbox here: {sandbox.walls().missing}"
)
#: Where the seconds of a preparation are counted; one cheat of this kind runs in every
#: `make test`.
COUNTED = pytest.mark.slow(
    "harness/run", "harness/worker", "harness/judge", "systems/engine/store"
)
#: Cheats that are caught by the rule of others, which run in every `make test`, or that
#: take long.
LIKE_OTHERS = frozenset(
    "computes_after_the_preparation computes_behind_the_gate counts_larger_requests "
    "device_memory_as_cache half_beside_the_dataset half_precision "
    "honest_while_warming_up mini_batches_without_rows no_labels one_seed_node "
    "one_table other_seed prefetch_between_gates prepares_on_both_sides reads_nothing "
    "repeated_seeds same_every_epoch stale_rows wrong_rows".split()
)
LIKE = pytest.mark.slow(
    "harness/run", "harness/worker", "harness/judge", "harness/isolation", seconds=8
)
#: Cheats of one run, each caught by a rule that the others of its run keep.
TOGETHER = (
    "counts_too_much+prepares_unseen+one_row_in_fifty+unplanned_device_cache+ignores_the_order",
    "tells_of_more_requests+calls_its_misses_hits+works_between_gates+smaller_fan_out",
    "fills_device_memory+faster_device",
    "slower_clock+fewer_mini_batches+calls_every_byte_useful",
)
# Memory, with every tolerance of the rules, could hold a third of the feature bytes
# that an epoch touches.
NODES = 100_000
DIM = 1024
SETTINGS: dict[str, Any] = {
    "dataset": "table",
    "fanout": [4, 4],
    "batch_size": 75,
    "max_batches": 30,
    "epochs": 2,
    "warmup": 1,
    "hidden": 16,
    "device": "emulated:null",
    "device_memory": "10MiB",
    "timeout": 90.0,
    "memory": "+56MiB",
}
# Rules that an honest run may break here: the checkout has changed files, the machine
# is busy.
OF_THE_MACHINE = {
    "code_is_committed",
    "clock_is_close_to_the_gates",
    "device_profile_was_quiet",
    "disk_was_not_shared",
    "disk_was_quiet",
    "no_cache_below_the_kernel",
    "processors_were_not_shared",
    "processors_were_quiet",
    "watched_throughout",
}


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    with tempfile.TemporaryDirectory(
        prefix="outcore-cheats-", dir="/var/tmp"
    ) as folder:
        root = Path(folder)
        make_tiny(
            root / "data" / "table",
            nodes=NODES,
            edges=750_000,
            dim=DIM,
            train_fraction=0.5,
        )
        Salt.of_root(root / "data")  # as beside generated datasets
        share_cache(root / "results", tmp_path_factory)
        with Series(root / "results", root / "data") as opened:
            opened.prepare([wanted(opened, "honest")], table(opened))
            yield opened


def table(series: Series) -> Dataset:
    return Dataset.open(series.data_root / "table")


def wanted(
    series: Series, cheat: str, place: str = "", *, system: str = NAME, **changes: Any
) -> Any:
    return config(
        series,
        system,
        **{**SETTINGS, "options": {"cheat": cheat, "place": place}, **changes},
    )


def broken(record: Record) -> dict[str, str]:
    return {
        outcome.name: outcome.detail
        for outcome in record.verdict_rules
        if not outcome.ok
    }


@contextmanager
def kept_warm(path: Path) -> Iterator[None]:
    """Bring a file into the page cache from another process, again and again."""
    code = (
        "import os, sys, time\nfile, part, warm = os.open(sys.argv[1], "
        "os.O_RDONLY), 1 << 17, os.POSIX_FADV_WILLNEED\n"
        "while True:\n    for at in range(0, os.fstat(file).st_size, part): "
        "os.posix_fadvise(file, at, part, warm)\n"
        "    time.sleep(0.05)"
    )
    reader = subprocess.Popen([sys.executable, "-S", "-E", "-c", code, str(path)])
    try:
        yield
    finally:
        reader.kill()
        reader.wait()


@contextmanager
def served(features: np.ndarray) -> Iterator[str]:
    """Serve feature rows from a process that is not the worker."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        place = f"{folder}/rows"
        listener.bind(place)
        listener.listen(1)

        def serve() -> None:
            try:
                connection, _ = listener.accept()
                with connection:
                    stream = connection.makefile("rb")
                    while head := stream.read(8):
                        nodes = np.frombuffer(
                            stream.read(8 * int.from_bytes(head, "little")), dtype="<i8"
                        )
                        connection.sendall(
                            np.ascontiguousarray(features[nodes]).tobytes()
                        )
            except OSError:
                return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield place
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=10)


@contextmanager
def copy_in_memory(features: Path) -> Iterator[str]:
    """Copy the features to a zram disk."""
    control = Path("/sys/class/zram-control")
    try:
        number = (control / "hot_add").read_text().strip()
    except OSError as error:
        pytest.skip(f"this host has no zram ({error.strerror})")
    try:
        disk = f"/dev/zram{number}"
        size = features.stat().st_size + (64 << 20)
        Path(f"/sys/block/zram{number}/disksize").write_text(str(size))
        subprocess.run(
            ["mkfs.ext4", "-q", "-m", "0", disk], check=True, capture_output=True
        )
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["mount", disk, folder], check=True)
            try:
                yield shutil.copy(features, folder)
            finally:
                subprocess.run(["umount", folder], check=True)
    finally:
        Path(f"/sys/block/zram{number}/reset").write_text("1")
        (control / "hot_remove").write_text(number)


@contextmanager
def reserved_pages(nbytes: int) -> Iterator[None]:
    """Reserve huge pages in the kernel."""
    knob = Path("/proc/sys/vm/nr_hugepages")
    before = knob.read_text()
    try:
        knob.write_text(str(-(-nbytes // (2 << 20)) + 2))
        with mmap.mmap(
            -1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000
        ):
            pass
    except OSError as error:
        knob.write_text(before)
        pytest.skip(f"this host reserves no huge pages ({error.strerror})")
    try:
        yield
    finally:
        knob.write_text(before)


@contextmanager
def handed_over(features: Path) -> Iterator[str]:
    """Hold a copy of the features in a memory file of another process, which hands it
    over once."""
    code = (
        "import os, socket, sys\nwith socket.socket(socket.AF_UNIX) as owner, "
        "open(sys.argv[1], 'rb') as file:\n"
        "    memory = os.memfd_create('rows')\n    while part := file.read(1 << "
        "20): os.write(memory, part)\n"
        "    owner.bind(sys.argv[2])\n    owner.listen(1)\n    print(flush=True)\n"
        "    with owner.accept()[0] as asking: socket.send_fds(asking, [b'm'], "
        "[memory])\n    sys.stdin.read()"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-S",
            "-E",
            "-c",
            code,
            str(features),
            f"{folder}/rows",
        ]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as owner:
            assert owner.stdin
            assert owner.stdout
            owner.stdout.readline()
            yield f"{folder}/rows"
            owner.kill()  # it still waits where a wall keeps the worker from asking


@contextmanager
def kept_artefact(series: Series, features: Path, **setting: Any) -> Iterator[None]:
    """Keep a copy of the features as an earlier run of the system under `setting` keeps
    an artefact."""

    def make(folder: Path) -> None:
        shutil.copy(features, folder / "half.npy")

    with mock.patch.dict(artefacts._UNDER):
        artefacts.work_under(
            setting_of(series, wanted(series, "honest", **setting)),
            code_of(NAME).system,
        )
        made = artefacts.prepare(series.artefacts(NAME), "half", KEY, make)
        freeze(series.frozen, series.artefacts(NAME))
    try:
        yield
    finally:
        shutil.rmtree(made.path)


@contextmanager
def in_pieces(features: Path, folder: str) -> Iterator[str]:
    """Write the features of even nodes as files below 1 MiB."""
    rows = np.load(features, mmap_mode="r")
    each = ((1 << 20) - 1) // rows[0].nbytes
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for number, first in enumerate(range(0, len(rows), 2 * each)):
            Path(place, f"{number:06}").write_bytes(
                rows[first : first + 2 * each : 2].tobytes()
            )
        del rows  # else its pages stay in memory
        yield place


@contextmanager
def slow_gate(monkeypatch: pytest.MonkeyPatch, gate: int) -> Iterator[None]:
    """Let the orchestrator take five seconds for the files of a large dataset at the
    run's gate of that number."""
    calls = iter(range(1, 1000))

    def slow(
        files: Iterable[Path], resident: Callable[[Iterable[Path]], int] = cold.resident
    ) -> int:
        time.sleep(5.0 if next(calls) == gate else 0.0)
        return resident(files)

    with monkeypatch.context() as patch:
        patch.setattr(cold, "resident", slow)
        yield


@contextmanager
def generated(series: Series) -> Iterator[Dataset]:
    """Generate a dataset."""
    spec = MakeSpec(
        "rmat",
        nodes=20_000,
        edges=100_000,
        dim=DIM,
        labels="random",
        fractions=(0.5, 0.1, 0.1),
    )
    dataset = make_dataset(series.data_root / "generated", spec)
    try:
        yield dataset
    finally:
        shutil.rmtree(dataset.path)


def knows_the_observer(cheat: str) -> bool:
    """Say whether a cheat's place is the process id of the orchestrator."""
    return together(cheat).__module__.endswith("walls")


def run(series: Series, cheat: str) -> Record:
    dataset = table(series)
    features = dataset.file("features")
    if cheat == "warm_cache":
        with kept_warm(features):
            return execute(series, wanted(series, cheat), dataset)
    if cheat == "warm_artefact":
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            copy = shutil.copy(features, folder)
            with kept_warm(Path(copy)):
                return execute(series, wanted(series, cheat, str(copy)), dataset)
    if "in_pieces" in cheat:
        with in_pieces(
            features, "/dev/shm" if "memory" in cheat else "/var/tmp"
        ) as place:
            return execute(series, wanted(series, cheat, place), dataset)
    if cheat == "half_of_the_calibration":
        copying = f"{CopiesInLibraries.__module__}:{CopiesInLibraries.__name__}"
        return execute(series, wanted(series, cheat, system=copying), dataset)
    if cheat in (
        "memory_of_an_earlier_run",
        "half_in_shared_memory",
        "half_in_memory_within_epochs",
    ):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            return execute(
                series, wanted(series, cheat, shutil.copy(features, folder)), dataset
            )
    if (
        together(cheat).rule == "nothing_was_prepared_before"
        and "artefact" not in cheat
    ):
        with tempfile.TemporaryDirectory(
            dir=dataset.path if "beside" in cheat else "/var/tmp"
        ) as folder:
            copy = shutil.copy(features, folder)
            return execute(series, wanted(series, cheat, copy), dataset)
    if "half_of_an_artefact" in cheat:
        with kept_artefact(series, features):
            return execute(series, wanted(series, cheat), dataset)
    if cheat == "half_in_a_memory_file":
        with handed_over(features) as place:
            return execute(series, wanted(series, cheat, place), dataset)
    if cheat == "another_processes_memory":
        with served(np.asarray(dataset.load("features"))) as place:
            return execute(series, wanted(series, cheat, place), dataset)
    if cheat in ("disk_in_memory", "half_on_another_disk"):
        with copy_in_memory(features) as place:
            return execute(series, wanted(series, cheat, place), dataset)
    if cheat == "computes_rows":
        with generated(series) as made:
            return execute(series, wanted(series, cheat, dataset="generated"), made)
    if cheat in ("huge_pages", "half_in_huge_pages"):
        with reserved_pages(dataset.feature_bytes):
            return execute(series, wanted(series, cheat), dataset)
    place = str(os.getpid()) if knows_the_observer(cheat) else ""
    return execute(
        series, wanted(series, cheat, place, **together(cheat).settings), dataset
    )


def test_there_are_enough_cheats_and_each_rule_catches_one_in_every_run_of_the_tests() -> (
    None
):
    hands = [name for name in globals() if name.startswith("test_a_hand")]
    assert len(CHEATS) - 1 + len(hands) >= 25
    assert set(CHEATS) > LIKE_OTHERS
    assert {act.rule for act in CHEATS.values()} == {
        CHEATS[name].rule for name in set(CHEATS) - LIKE_OTHERS
    }


@pytest.fixture(scope="module")
def honest(series: Series) -> Record:
    """Run the honest system once for all tests."""
    return execute(series, wanted(series, "honest"), table(series))


def test_the_honest_system_beside_them_is_not_called_invalid(honest: Record) -> None:
    assert honest.status == "ok", honest.reason
    assert set(broken(honest)) <= OF_THE_MACHINE, broken(honest)
    assert honest.evidence is not None
    assert min(honest.evidence.least_bytes.values()) > 8 << 20
    assert all(check.ok for check in honest.evidence.features)
    assert len(honest.evidence.features) >= 8


ALONE = ("takes_every_processor", "computes_in_unseen_children")


def with_rule() -> list[Any]:
    """Return the cheats of each run, which rules have to catch, except those that need
    every processor. Those that share a run are run alone, too, where slow tests are."""
    slow = LIKE_OTHERS.union(name for cheats in TOGETHER for name in cheats.split("+"))
    names = sorted(
        name for name, act in CHEATS.items() if act.rule and name not in ALONE
    )
    return [
        *TOGETHER,
        *(pytest.param(name, marks=LIKE if name in slow else ()) for name in names),
    ]


def refusing(cheat: str) -> set[str]:
    """Return the verdicts that keep a cheat's run from counting: SPOILT, too, where
    only clocks betray it, on a busy machine."""
    timed = {entry.name for entry in rules() if entry.timed}
    reported = {CHEATS[name].rule for name in cheat.split("+")}
    return {"INVALID", "SPOILT"} if reported <= timed else {"INVALID"}


@pytest.fixture
def judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure no profile again, which has its own test."""
    monkeypatch.setattr(orchestrator, "_DOUBTS_S", ())


@pytest.mark.alone
@pytest.mark.parametrize("name", ALONE)
@pytest.mark.usefixtures("judged_once")
def test_a_run_on_every_processor_is_caught(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small table will do, without holder and profile, for this rule counts the
    seconds of processors alone. The host is one whose kernel cannot keep a cap on its
    processors."""
    make = cgroup1._make
    monkeypatch.setattr(
        cgroup1,
        "_make",
        lambda controller, name: (
            None if controller == "cpuset" else make(controller, name)
        ),
    )
    monkeypatch.setattr(Cgroup2Cap, "set_processors", lambda cap, processors: None)
    make_tiny(
        tmp_path / "data" / "table", nodes=5_000, edges=25_000, train_fraction=0.5
    )
    with Series(tmp_path / "results", tmp_path / "data") as small:
        record = run(small, name)
    others = {"processors_were_quiet", "processors_were_not_shared"}
    if others & set(broken(record)):
        pytest.skip("other programs use the processors that this cheat would use")
    assert (record.status, record.verdict) == ("ok", "INVALID"), broken(record)
    assert CHEATS[name].rule in broken(record), broken(record)


@pytest.mark.parametrize("cheat", with_rule())
@pytest.mark.usefixtures("judged_once")
def test_the_cheat_is_caught(
    series: Series, cheat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The gate before the first epoch, and the one before the second.
    slow = {"after_the_preparation": 3, "behind_the_gate": 5}
    gate = next((gate for end, gate in slow.items() if cheat.endswith(end)), None)
    with slow_gate(monkeypatch, gate) if gate else nullcontext():
        record = run(series, cheat)
    assert record.verdict in refusing(cheat), broken(record)
    if cheat == "holds_more_than_planned" and record.status == "oom":
        # The interpreter's own memory decides whether the cap is reached.
        assert "plan_was_kept" in broken(record), record.reason
        return
    assert record.status == "ok", record.reason
    caught = {CHEATS[name].rule for name in cheat.split("+")}
    assert caught <= set(broken(record)), broken(record)
    # Each alone makes a run invalid.
    assert {rule.severity for rule in rules() if rule.name in caught} == {"INVALID"}


@SANDBOXED
@pytest.mark.parametrize(
    "cheat",
    [pytest.param(name, marks=LIKE) for name, act in CHEATS.items() if act.wall],
)
def test_a_wall_makes_the_cheat_impossible(
    series: Series, cheat: str, tmp_path: Path
) -> None:
    copy = tmp_path / "features"
    copy.write_bytes(bytes(1 << 20))  # what the cheat would read is there, outside
    place = str(os.getpid()) if knows_the_observer(cheat) else str(copy)
    record = execute(
        series, wanted(series, cheat, place, **CHEATS[cheat].settings), table(series)
    )
    assert record.status == "failed" and CHEATS[cheat].wall in record.reason, (
        record.status,
        record.reason,
    )


@SANDBOXED
def test_the_salt_is_hidden_where_the_data_root_is_the_current_folder(
    series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.chdir(series.data_root)
    record = execute(series, wanted(series, "reads_the_salt"), table(series))
    assert (
        record.status == "failed" and CHEATS["reads_the_salt"].wall in record.reason
    ), (record.status, record.reason)


def test_rows_without_a_salt_can_be_computed_and_the_record_states_so(
    series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datasets of older Outcores have none: what the cheat computes are their rows."""
    monkeypatch.setattr(Salt, "key", lambda self, seed: seed)
    monkeypatch.setattr(Salt, "digest", "")
    record = run(series, "computes_rows")
    assert record.status == "ok", record.reason
    assert set(broken(record)) <= OF_THE_MACHINE, broken(record)
    assert record.notes["salt"] == "none"


@SANDBOXED
def test_no_wall_has_a_hole_and_the_record_names_the_sandbox(series: Series) -> None:
    record = execute(
        series, wanted(series, "tries_every_wall", str(os.getpid())), table(series)
    )
    assert record.status == "ok", record.reason
    assert record.readings.sandbox is not None
    assert record.readings.sandbox.kind.startswith("bubblewrap")
    assert set(broken(record)) <= OF_THE_MACHINE, broken(record)


def test_a_run_without_walls_states_so(
    series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "walls", lambda: Walls(missing="a test"))
    record = run(series, "honest")
    assert record.status == "ok", record.reason
    assert broken(record)["worker_was_sandboxed"] == "not sandboxed: a test"


@SANDBOXED
def test_a_worker_can_write_to_nothing_that_judges_it(series: Series) -> None:
    record = run(series, "opens_what_judges_it")
    assert record.status == "ok", record.reason


def test_a_calibration_cannot_leave_anything_among_the_artefacts(
    series: Series,
) -> None:
    record = run(series, "half_of_the_calibration")
    assert record.status == "failed"
    assert "No such file" in record.reason


@pytest.mark.parametrize(
    ("cheat", "refusal"),
    [
        ("shrinks_for_training", "_Shrinking: a Batch itself is wanted"),
        ("rows_on_demand", "_Lazy: a Tensor itself is wanted"),
        pytest.param("no_table", "NoneType: a Tensor itself is wanted", marks=LIKE),
        (
            "writes_to_device_memory",
            "ended by SIGSEGV: the processor cannot read or write",
        ),
    ],
)
def test_what_could_look_otherwise_to_the_training_step_is_refused(
    series: Series, cheat: str, refusal: str
) -> None:
    record = run(series, cheat)
    assert record.verdict == "INVALID"
    assert record.status == "failed"
    assert refusal in record.reason


def test_the_training_step_gets_the_mini_batch_that_was_digested(
    series: Series,
) -> None:
    record = run(series, "shrinks_after_the_digest")
    assert record.status == "ok", record.reason
    judged = {outcome.name: outcome.ok for outcome in record.verdict_rules}
    assert judged["training_took_its_time"]
    assert judged["digests_equal_the_workload"]


@LIKE
@pytest.mark.parametrize("stages", ["all", "sample+extract"])
def test_rows_of_a_mapped_table_are_read_though_nothing_is_computed(
    series: Series, stages: str
) -> None:
    record = execute(
        series,
        wanted(series, "hands_out_the_map", stages=stages, max_batches=8),
        table(series),
    )
    assert record.status == "ok" and record.evidence is not None, record.reason
    for epoch in record.measured:
        assert epoch.device_bytes is not None
        assert epoch.device_bytes > record.evidence.least_bytes[epoch.epoch]


def test_a_system_that_draws_its_own_mini_batches_is_never_valid(
    series: Series,
) -> None:
    record = run(series, "smaller_and_unfaithful")
    assert record.status == "ok"
    assert record.verdict != "VALID"
    assert "mini_batches_equal_the_workload" in broken(record)


def test_a_little_work_at_gates_is_a_caveat(series: Series) -> None:
    record = run(series, "samples_ahead_at_gates")
    assert record.status == "ok"
    assert record.verdict != "VALID"
    assert "little_was_done_between_epochs" in broken(record)


@LIKE
def test_rows_that_change_during_the_training_step_are_reported(series: Series) -> None:
    record = run(series, "one_table")
    assert record.status == "ok"
    assert record.verdict == "INVALID"
    assert "features_equal_the_dataset" in broken(record)
    assert any("changed during" in check.detail for check in record.readings.features)


@pytest.mark.parametrize(
    ("cheat", "rule", "verdict"),
    [
        (BallastInLibraries, "libraries_are_small", "CAVEATS"),
        (BallastInCalibration, "floor_is_of_the_run", "INVALID"),
    ],
)
def test_memory_that_is_taken_while_code_is_loaded_is_reported(
    series: Series, cheat: type[Cheating], rule: str, verdict: str
) -> None:
    asked = config(series, f"{cheat.__module__}:{cheat.__name__}", **SETTINGS)
    record = execute(series, asked, table(series))
    assert record.status == "ok", record.reason
    assert rule in broken(record)
    assert {entry.severity for entry in rules() if entry.name == rule} == {verdict}
    others = {"libraries_are_small", "floor_is_of_the_run"} - {rule}
    assert not others & set(broken(record))


@pytest.fixture(scope="module")
def counted(series: Series) -> Record:
    """Run the cheats that gain nothing, since their work is measured."""
    record = run(
        series, "spends_time_on_checks+prepares_in_plan+half_of_an_artefact_told"
    )
    assert record.status == "ok", record.reason
    assert set(broken(record)) <= OF_THE_MACHINE, broken(record)
    return record


def test_an_artefact_of_an_earlier_run_counts_with_the_seconds_of_its_making(
    counted: Record,
) -> None:
    assert counted.preprocess.reused
    assert counted.preprocess.made_s > 0
    assert counted.preprocess.made_bytes_written >= NODES * DIM * 4


@pytest.fixture(scope="module")
def other(series: Series) -> Record:
    """Run a system whose artefact was made without a cap, and that loads code by names
    that no import has."""
    features = table(series).file("features")
    # A worker sees code in the folders of its packages and in the current one alone.
    made = tempfile.TemporaryDirectory(dir=Path.cwd() / "build")
    with made as place, kept_artefact(series, features, memory="none"):
        Path(place, "rows_of_today.py").write_text("DEPTH = 64\n")
        shutil.copy(_native.__file__, f"{place}/rows.so")
        asked = wanted(
            series, "loads_by_name+half_of_an_artefact_of_another_setting", place
        )
        record = execute(series, asked, table(series))
    assert record.status == "ok", record.reason
    return record


def test_an_artefact_that_was_made_under_another_setting_is_made_anew(
    other: Record,
) -> None:
    assert not other.preprocess.reused
    assert other.preprocess.seconds >= 1.5


def test_code_that_is_in_no_fingerprint_is_reported(other: Record) -> None:
    assert other.verdict != "VALID"
    assert "rows.so" in broken(other)["code_is_known"]
    assert "rows_of_today.py" in broken(other)["code_is_known"]


def test_seconds_of_digests_that_were_not_asked_for_stay_on_the_clock(
    counted: Record,
) -> None:
    for epoch in counted.measured:
        assert epoch.checking_s == 0.0
        assert epoch.seconds > 30 * 0.05


def test_preparing_in_the_plan_counts_as_preparing(counted: Record) -> None:
    assert counted.preprocess.seconds >= 1.5


@COUNTED
@pytest.mark.parametrize(
    "cheat",
    [
        "keeps_what_it_prepared",
        "keeps_what_it_prepared_at_home",
        "packs_while_closing",
        "finishes_while_closing",
    ],
)
def test_preparing_for_the_next_run_does_not_help_it(
    series: Series, cheat: str
) -> None:
    for record in (run(series, cheat), run(series, cheat)):
        assert record.status == "ok", record.reason
        assert record.preprocess.seconds >= 1.5
        assert set(broken(record)) <= OF_THE_MACHINE, broken(record)


def test_work_after_the_last_epoch_is_part_of_what_a_training_costs_once(
    series: Series,
) -> None:
    record = run(series, "works_while_closing")
    assert record.status == "ok", record.reason
    assert record.readings.closing is not None
    assert record.readings.closing.seconds >= 1.5
    assert record.summary.once_s is not None
    assert record.summary.once_s >= record.preprocess.seconds + 1.2


def test_a_file_that_was_added_to_an_artefact_is_named_by_the_next_run(
    series: Series,
) -> None:
    run(series, "packs_while_closing")
    message = run(series, "packs_while_closing").notes["refused_artefacts"]
    assert "extra.bin" in message
    assert "made anew" in message


@COUNTED
@pytest.mark.parametrize(
    "name",
    [
        f"{PreparesInLibraries.__module__}:PreparesInLibraries",
        "tests.harness.cheats.at_import:PreparesAtImport",
    ],
)
def test_preparing_where_code_is_loaded_counts_as_preparing(
    series: Series, name: str
) -> None:
    asked = config(series, name, **SETTINGS)
    record = execute(series, asked, table(series))
    assert record.status == "ok", record.reason
    assert record.preprocess.seconds >= 1.5
    assert "preparation_took_what_it_says" not in broken(record)


def again(
    series: Series,
    honest: Record,
    change: Callable[[dict[str, Any]], None],
    *,
    reseal: bool,
) -> Record:
    """Read the honest run again with its record changed by `change`, sealed anew if
    `reseal`."""
    folder = results.find(series.results_root, honest.run_id)
    file = folder / results.RECORD
    before = file.read_bytes()
    try:
        content = json.loads(before)
        change(content)
        file.write_text(json.dumps(seal.sealed(content, folder) if reseal else content))
        return results.read_record(folder)
    finally:
        file.write_bytes(before)


def halve(content: dict[str, Any]) -> None:
    for epoch in content["epochs"]:
        epoch["seconds"] /= 2
    content["summary"]["epoch_s"]["median"] /= 2
    content["summary"]["epoch_s"]["interval"] = [
        value / 2 for value in content["summary"]["epoch_s"]["interval"]
    ]


def test_a_hand_that_changes_seconds_breaks_the_seal(
    series: Series, honest: Record
) -> None:
    record = again(series, honest, halve, reseal=False)
    assert record.verdict == "INVALID"
    assert "record_is_sealed" in broken(record)
    assert (
        results.read_record(results.find(series.results_root, honest.run_id)).verdict
        == honest.verdict
    )


def test_a_hand_that_writes_another_median_changes_nothing(
    series: Series, honest: Record
) -> None:
    def change(content: dict[str, Any]) -> None:
        content["summary"]["epoch_s"]["median"] /= 2

    record = again(series, honest, change, reseal=True)
    assert record.summary.epoch_s == honest.summary.epoch_s


def test_a_hand_that_seals_again_is_held_to_the_gates(
    series: Series, honest: Record
) -> None:
    def change(content: dict[str, Any]) -> None:
        halve(content)
        for epoch in content["epochs"]:
            epoch["seconds"] -= (
                0.2  # more than clocks may differ by, even in the shortest epoch
            )

    record = again(series, honest, change, reseal=True)
    assert record.verdict in {"INVALID", "SPOILT"}  # SPOILT: a busy machine
    assert "clock_agrees_with_the_gates" in broken(record)


def test_a_hand_that_writes_another_verdict_is_judged_anew(
    series: Series, honest: Record
) -> None:
    def change(content: dict[str, Any]) -> None:
        content["epochs"][1]["batches"] -= 1
        content["verdict"] = "VALID"
        content["verdict_rules"] = []

    record = again(series, honest, change, reseal=True)
    assert record.verdict == "INVALID"
    assert "every_batch_once" in broken(record)


def test_a_hand_that_removes_the_evidence_gets_a_caveat(
    series: Series, honest: Record
) -> None:
    def change(content: dict[str, Any]) -> None:
        halve(content)
        content["evidence"] = None
        content["seal"] = {}
        content["verdict"] = "VALID"

    record = again(series, honest, change, reseal=False)
    assert record.verdict == "CAVEATS"
    assert "evidence_is_kept" in broken(record)


def test_a_hand_that_changes_a_table_is_refused(
    series: Series, honest: Record, tmp_path: Path
) -> None:
    from workloads.errors import InputError

    folder = tmp_path / honest.run_id
    shutil.copytree(results.find(series.results_root, honest.run_id), folder)
    batches = results.table(folder, "batches")
    batches["released_at"] /= 2
    batches.to_parquet(folder / "batches.parquet", index=False)
    with pytest.raises(InputError, match="changed after it was written"):
        results.table(folder, "batches")


def test_a_hand_that_pools_runs_of_different_code_is_not_followed(
    series: Series, honest: Record
) -> None:
    from harness.records.hosts import measured_on

    def change(content: dict[str, Any]) -> None:
        content["code"]["harness"] = "0" * 16

    assert honest.code == code_of(NAME)
    other = again(series, honest, change, reseal=True)
    assert measured_on(other.to_json()) != measured_on(honest.to_json())

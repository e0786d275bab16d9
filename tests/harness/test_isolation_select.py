"""Choosing a backend: the strictest that works, the reasons against the others, and
memory measured without any cap."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.isolation import BACKENDS, IoLimit, Limits, names, select, sweep_all
from harness.isolation.none import NO_IO_LIMIT, NOT_ENFORCED, NoIsolation, marked
from harness.isolation.probe import probe
from tests.harness.cap_tools import (
    CAPPING,
    MIB,
    REPOSITORY,
    alive,
    groups_named,
    needs_cap,
    needs_root,
    on_disk,
    python,
    start_in,
)
from workloads.errors import HostError, InputError

pytestmark = pytest.mark.alone


def test_auto_takes_the_strictest_backend_that_works() -> None:
    chosen = select("auto")
    order = [backend.name for backend in BACKENDS]
    assert list(chosen.passed_over) == order[: order.index(chosen.backend.name)]
    assert all(chosen.passed_over.values())


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="cgroup2"):
        select("cgroups")
    assert names()[0] == "auto"
    assert names()[-1] == "none"


def test_a_backend_that_does_not_work_here_is_refused_with_its_reason() -> None:
    for backend in BACKENDS:
        found = backend.available()
        if not found.ok:
            with pytest.raises(HostError, match=backend.name):
                select(backend.name)
            return
    pytest.skip("every backend works here")


@needs_root
@pytest.mark.parametrize(
    "others_run", [False, True], ids=["alone", "beside root's caps"]
)
def test_an_unprivileged_user_gets_no_cap_and_every_reason(others_run: bool) -> None:
    with (
        select().backend.create("other", Limits(64 * MIB))
        if others_run
        else contextlib.nullcontext()
    ):
        done = _choose_as_nobody()
    if "Permission denied" in done.stderr:
        pytest.skip("the checkout cannot be read by another user")
    name, caveats, passed_over = json.loads(done.stdout)
    assert name == "none"
    assert NOT_ENFORCED in caveats
    assert passed_over == ["cgroup2", "cgroup1", "systemd"]
    assert all(any(other in caveat for caveat in caveats) for other in passed_over)


def _choose_as_nobody() -> subprocess.CompletedProcess[str]:
    code = (
        "import json; from harness.isolation import select, Limits\n"
        "s = select(); cap = s.backend.create('x', Limits(1 << 20))\n"
        "print(json.dumps([s.backend.name, cap.caveats, list(s.passed_over)])); "
        "cap.close()"
    )
    return subprocess.run(
        [
            "setpriv",
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            sys.executable,
            "-c",
            code,
        ],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=False,
    )


def test_without_a_cap_memory_is_measured_and_orphans_are_ended() -> None:
    code = (
        "import os,time\nif os.fork()==0:\n os.setsid()\n x=bytearray(32<<20)\n"
        " print(os.getpid(),flush=True)\n time.sleep(60)"
    )
    cap = NoIsolation().create("orphan", Limits(MIB, (IoLimit("8:0", read_iops=1),)))
    assert NOT_ENFORCED in cap.caveats
    assert NO_IO_LIMIT in cap.caveats
    child = subprocess.Popen(
        cap.command(python(code)), stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    orphan = int(child.stdout.readline())
    child.wait()
    assert cap.pids() == [orphan]
    assert cap.memory().anon >= 32 * MIB
    assert cap.memory().peak >= 32 * MIB
    assert cap.io() is None
    cap.close()
    assert not alive(orphan)


def test_without_a_cap_what_a_killed_owner_left_is_swept() -> None:
    code = (
        "import subprocess, time\nfrom harness.isolation import Limits\n"
        "from harness.isolation.none import NoIsolation\n"
        "cap = NoIsolation().create('left', Limits())\nchild = "
        "subprocess.Popen(cap.command(['sleep', '300']))\n"
        "while child.pid not in cap.pids(): time.sleep(0.01)\nprint(child.pid, "
        "flush=True); time.sleep(300)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert owner.stdout is not None
    inside = int(owner.stdout.readline())
    own = NoIsolation().create("kept", Limits())
    kept = start_in(own, "import time; print(1, flush=True); time.sleep(60)")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert any("_left." in name for name in sweep_all())
    deadline = time.monotonic() + 5
    while alive(inside) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(inside)
    assert marked(own.name) == [kept.pid]
    own.close()
    assert kept.wait() == -signal.SIGKILL


@needs_cap
@pytest.mark.parametrize("backend", CAPPING, ids=lambda backend: backend.name)
def test_the_probe_proves_a_cap_that_holds(backend: type) -> None:
    for folder in on_disk():
        found = probe(backend(), folder)
        assert found.proven and found.page_cache_charged and found.allocation_stopped, (
            found
        )
        assert found.pinned_stopped is None
        assert found.escapes == ()
        assert list(folder.iterdir()) == []
    assert groups_named("_probe.") == []


def test_the_probe_does_not_prove_a_cap_that_is_none() -> None:
    for folder in on_disk():
        found = probe(NoIsolation(), folder)
        assert not found.proven
        assert len(found.escapes) == 2
        assert list(folder.iterdir()) == []


def test_the_probe_refuses_a_folder_in_memory() -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("no tmpfs here")
    with pytest.raises(HostError, match="tmpfs"):
        probe(NoIsolation(), memory)

"""Where containers cannot work, one sentence gives the reason and the fix, and nothing
is left behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker.errors
import pytest

from harness.isolation import Limits, select
from harness.isolation.docker import exec as docker_exec
from harness.isolation.docker.backend import Docker, _trial
from harness.isolation.docker.cap import DockerCap
from harness.isolation.docker.engine import connect, socket_present
from harness.isolation.docker.image import find
from harness.isolation.docker.options import Wanted
from harness.isolation.processes import cap_name
from tests.harness.cap_tools import MIB, REPOSITORY, needs_root
from tests.harness.isolation.docker_tools import needs_docker, one_file
from tests.harness.run_tools import outcore_here
from workloads.errors import HostError, InputError


@pytest.fixture(autouse=True)
def tried_anew() -> Iterator[None]:
    _trial.cache_clear()
    yield
    _trial.cache_clear()


def test_without_an_engine_at_docker_host_the_fix_names_that_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    found = Docker.available()
    assert not found.ok
    assert "no Docker Engine here" in found.reason
    assert "unset DOCKER_HOST" in found.fix
    assert not socket_present()
    assert Docker.sweep() == []
    with pytest.raises(HostError, match="isolation docker does not work here"):
        select("docker")
    arguments = ("run", "in-memory", "--dataset", "x", "--isolation", "docker")
    done = outcore_here(*arguments, data=tmp_path, results=tmp_path / "results")
    assert done.returncode == 3
    assert "unset DOCKER_HOST" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_engine_that_does_not_answer_is_reported_from_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/dead.sock")
    with pytest.raises(HostError, match="does not answer") as raised:
        connect()
    assert "start it" in raised.value.fix
    assert Docker.sweep() == []


def test_an_engine_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(HostError, match="not on this host"):
        connect()


@needs_docker
@pytest.mark.alone
@needs_root
def test_a_user_without_the_group_is_reported_to_join_it() -> None:
    code = (
        "from harness.isolation.docker.backend import Docker\n"
        "found = Docker.available()\n"
        "print(found.reason, found.fix)"
    )
    engine = (
        {"DOCKER_HOST": os.environ["DOCKER_HOST"]}
        if "DOCKER_HOST" in os.environ
        else {}
    )
    done = subprocess.run(
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
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), **engine},
    )
    if "Permission denied" in done.stderr:
        pytest.skip("the checkout cannot be read by another user")
    assert (
        "may not talk to the Docker Engine" in done.stdout
        and "usermod -aG docker" in done.stdout
    ), done.stderr


@needs_docker
@pytest.mark.alone
def test_an_image_that_is_not_there_is_not_pulled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTCORE_IMAGE", "outcore-test-nobody-has-this:1")
    found = Docker.available()
    assert not found.ok
    assert "no such image" in found.reason
    assert "containers/build" in found.fix


@needs_docker
@pytest.mark.alone
def test_an_image_of_another_family_is_refused() -> None:
    client = connect()
    client.api.import_image_from_data(
        one_file(), repository="outcore-test-plain", tag="1"
    )
    try:
        with pytest.raises(InputError, match="has no label"):
            find(client, "outcore-test-plain:1")
    finally:
        client.images.remove("outcore-test-plain:1", force=True)


@needs_docker
@pytest.mark.alone
def test_an_image_with_other_code_is_refused() -> None:
    client = connect()
    labels = [
        "LABEL org.outcore.layout=image",
        "LABEL org.outcore.source=0000000000000000",
    ]
    client.api.import_image_from_data(
        one_file(), repository="outcore-test-old", tag="1", changes=labels
    )
    try:
        with pytest.raises(HostError, match="other code") as raised:
            find(client, "outcore-test-old:1")
        assert "containers/build" in raised.value.fix
    finally:
        client.images.remove("outcore-test-old:1", force=True)


@needs_docker
@pytest.mark.alone
@needs_root
def test_a_full_disk_under_the_engines_data_is_reported(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(data)], check=True
    )
    try:
        with _engine(tmp_path, data) as client:
            image = find(client, "outcore-host")
            cap = DockerCap(client, Wanted(cap_name("full"), Limits(64 * MIB), image))
            with cap:
                cap.command(["true"])
            with (data / "filler").open("wb") as filler, pytest.raises(OSError):
                while True:
                    filler.write(bytes(1 << 16))
                    filler.flush()
            with pytest.raises(HostError, match="no space left") as raised:
                DockerCap(
                    client, Wanted(cap_name("full"), Limits(64 * MIB), image)
                ).command(["true"])
            assert "free some space under the engine's data root" in raised.value.fix
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)


def _answering(engine: subprocess.Popen[bytes], listens: str, log: Path) -> Any:
    """Return a client once the engine answers; its socket exists earlier."""
    import docker

    deadline = time.monotonic() + 30
    while engine.poll() is None:
        try:
            return docker.DockerClient(base_url=listens, version="auto", timeout=30)
        except docker.errors.DockerException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    pytest.skip(f"a second engine does not start here: {log.read_text()[-300:]}")


@contextmanager
def _engine(folder: Path, data: Path) -> Iterator[Any]:
    """Run a second engine with its data in `data`."""
    listens = f"unix://{folder}/docker.sock"
    command_ = [
        shutil.which("dockerd") or "/usr/sbin/dockerd",
        "--data-root",
        str(data),
        "--exec-root",
        str(folder / "exec"),
        "--pidfile",
        str(folder / "docker.pid"),
        "--host",
        listens,
        "--iptables=false",
        "--ip6tables=false",
        "--bridge=none",
        "--storage-driver=vfs",
    ]
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(command_, stdout=log, stderr=log)
    try:
        yield _answering(engine, listens, folder / "log")
    finally:
        engine.terminate()
        engine.wait(timeout=30)


class LateEngine:
    """Engine that reports an exit status late, fails to answer now and then, or has
    lost the container."""

    def __init__(self, noted_after_s: float, container: str = "up") -> None:
        self.now = 0.0
        self.noted = noted_after_s
        self.container = container
        self.api = self

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def exec_create(self, *_: object, **__: object) -> dict[str, Any]:
        return {"Id": "work"}

    def exec_start(self, work: str, **_: object) -> socket.socket:
        return socket.socketpair()[
            0
        ]  # the other end is closed at once: the output has ended

    def inspect_container(self, name: str) -> dict[str, Any]:
        if self.container == "removed":
            raise docker.errors.NotFound("no such container")
        return {"State": {"Running": self.container == "up"}}

    def exec_inspect(self, work: str) -> dict[str, Any]:
        if self.container == "removed" or self.now < 1.0:
            raise docker.errors.APIError("busy")
        noted = self.now >= self.noted
        return {"Running": not noted, "ExitCode": 7 if noted else None}


@pytest.mark.parametrize(
    ("engine", "status"),
    [
        (LateEngine(0.0), 7),
        (LateEngine(20.0), 7),
        (LateEngine(1e9), 125),
        (LateEngine(0.0, "ended"), 128 + 9),
        (LateEngine(0.0, "removed"), 128 + 9),
    ],
    ids=["busy", "late", "silent", "ended", "removed"],
)
def test_an_ending_that_the_engine_notes_late_is_not_reported_as_a_kill(
    monkeypatch: pytest.MonkeyPatch, engine: LateEngine, status: int
) -> None:
    """On a busy machine, five seconds without an exit status were once reported as a
    SIGKILL."""
    monkeypatch.setattr(docker_exec, "time", engine)
    monkeypatch.setattr("harness.isolation.docker.engine.connect", lambda: engine)
    assert docker_exec.run("container", "", ["true"]) == status

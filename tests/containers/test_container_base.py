"""A base image made by debootstrap, without a registry, holds capped containers.

Downloads a hundred megabytes of packages and takes a minute.
"""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.isolation.docker.backend import Docker, _trial
from harness.isolation.docker.engine import connect
from harness.isolation.probe import probe
from harness.isolation.source import source_digest
from tests.harness.cap_tools import needs_root, on_disk
from tests.harness.isolation.docker_tools import needs_docker

BASE = "outcore-test-base:1"
FULL = "outcore-test-full:1"
SCRIPT = Path(__file__).resolve().parents[2] / "containers" / "base"
pytestmark = [
    needs_docker,
    pytest.mark.usefixtures("engine_alone"),
    needs_root,
    pytest.mark.slow("containers", "harness/isolation", "scripts/setup", seconds=140),
    pytest.mark.skipif(
        shutil.which("debootstrap") is None, reason="debootstrap is not installed"
    ),
    pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command here"),
]


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    done = subprocess.run(
        [SCRIPT, BASE], capture_output=True, text=True, check=False, timeout=280
    )
    if done.returncode == 3:
        pytest.skip(f"no base image can be made here: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    yield BASE
    connect().images.remove(BASE, force=True)


def test_a_base_without_a_registry_holds_capped_containers(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    labels = (
        "org.outcore.layout=image org.outcore.python=/usr/bin/python3 "
        f"org.outcore.source={source_digest()}"
    )
    client.images.build(
        fileobj=io.BytesIO(f"FROM {base}\nLABEL {labels}\n".encode()), tag=FULL, rm=True
    )
    monkeypatch.setenv("OUTCORE_IMAGE", FULL)
    _trial.cache_clear()
    try:
        found = Docker.available()
        assert found.ok and found.proves_memory, found
        assert Docker().describe()["layout"] == "image"
        for folder in on_disk():
            proven = probe(Docker(), folder)
            assert proven.proven, proven
    finally:
        _trial.cache_clear()
        client.images.remove(FULL, force=True)

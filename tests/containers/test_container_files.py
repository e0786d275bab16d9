"""Files in containers/ are consistent: the compose file, the Dockerfile's sources, the
packages, the scripts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from harness.isolation.source import source_digest

REPOSITORY = Path(__file__).resolve().parents[2]
CONTAINERS = REPOSITORY / "containers"
# Part of every virtual environment, or a dependency of torch with CUDA that pip finds
# by itself.
_BEYOND_THE_LOCK = {"setuptools", "triton"}


@pytest.mark.skipif(
    subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False
    ).returncode
    != 0
    if shutil.which("docker")
    else True,
    reason="no docker compose here",
)
def test_compose_itself_accepts_the_file() -> None:
    subprocess.run(
        ["docker", "compose", "-f", str(CONTAINERS / "compose.yaml"), "config", "-q"],
        check=True,
    )


def test_every_locked_package_is_for_runs_for_building_or_for_neither() -> None:
    lock = (REPOSITORY / "requirements.lock").read_text()
    parts = {what: _requirements(what, lock) for what in ("run", "build")}
    names = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in parts["run"]
    }
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for wanted in project["dependencies"]:
        assert re.sub(r"[-_.]+", "-", re.split(r"[<>=]", wanted)[0]).lower() in names
    assert not names & {"pytest", "ruff", "mypy", "dgl"}
    # No package that a run needs was classified as a tool: requirements of each package
    # are listed, too.
    for name in names:
        for line in metadata.requires(name) or []:
            asked = Requirement(line)
            if asked.marker is None or asked.marker.evaluate({"extra": ""}):
                plain = re.sub(r"[-_.]+", "-", asked.name).lower()
                assert (
                    plain in names
                    or plain.startswith(("nvidia-", "cuda-"))
                    or plain in _BEYOND_THE_LOCK
                ), (name, line)
    assert not set(parts["run"]) & set(parts["build"])
    assert len(parts["build"]) >= 4


def test_the_digest_of_the_code_follows_the_code_and_nothing_else(
    tmp_path: Path,
) -> None:
    for layer in ("harness", "outcore", "systems", "workloads"):
        (tmp_path / layer).mkdir()
        (tmp_path / layer / "one.py").write_text(layer)
    before = source_digest(tmp_path)
    (tmp_path / "harness" / "__pycache__").mkdir()
    (tmp_path / "harness" / "__pycache__" / "one.py").write_text("made")
    (tmp_path / "README.md").write_text("words")
    assert source_digest(tmp_path) == before
    (tmp_path / "systems" / "one.py").write_text("changed")
    assert source_digest(tmp_path) != before
    message = subprocess.run(
        ["python3", str(REPOSITORY / "harness" / "isolation" / "source.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert message.stdout.strip() == source_digest()


@pytest.mark.parametrize("script", ["base", "build"])
def test_scripts_are_sound_and_refuse_what_they_do_not_know(script: str) -> None:
    subprocess.run(["bash", "-n", str(CONTAINERS / script)], check=True)
    if script == "build":
        done = subprocess.run(
            [CONTAINERS / script, "--nonsense"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "unknown argument --nonsense" in done.stderr


def _requirements(what: str, lock: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(CONTAINERS / "requirements"), what],
        input=lock,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()

"""Helpers for tests of containers: whether an engine runs here, and which containers of
ours it holds."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from harness.isolation.docker.backend import Docker
from harness.isolation.docker.engine import LABEL, connect

_FOUND = Docker.available()
needs_docker = pytest.mark.skipif(
    not _FOUND.ok, reason=f"no containers here: {_FOUND.reason}"
)


def containers(part: str = "") -> list[Any]:
    """Return containers of ours, running or not, whose name contains `part`."""
    found = connect().containers.list(
        all=True, filters={"label": f"{LABEL}.cap"}, ignore_removed=True
    )
    return [container for container in found if part in container.name]


def one_file() -> bytes:
    """Return an archive with one empty file, to import as an image."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("file"))
    return buffer.getvalue()

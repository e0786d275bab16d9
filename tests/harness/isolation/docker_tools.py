"""What the tests of containers share: whether an engine runs here, and what it holds of ours."""

from __future__ import annotations

from typing import Any

import pytest

from harness.isolation.docker.backend import Docker
from harness.isolation.docker.engine import LABEL, connect

_FOUND = Docker.available()
needs_docker = pytest.mark.skipif(not _FOUND.ok, reason=f"no containers here: {_FOUND.reason}")


def containers(part: str = "") -> list[Any]:
    """Containers of ours, running or not, whose name holds `part`."""
    found = connect().containers.list(all=True, filters={"label": f"{LABEL}.cap"}, ignore_removed=True)
    return [container for container in found if part in container.name]

"""Run this checkout's `outcore` command with the data and results folders of a
benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def outcore(root: Path, *arguments: str) -> dict[str, Any]:
    """Run the command and return its JSON output; exit if it prints none or reports an
    error."""
    done = started(root, *arguments, "--json")
    if not done.stdout.strip():
        sys.exit(
            f"outcore {' '.join(arguments)} printed nothing; stderr: "
            f"{done.stderr[-2000:]}"
        )
    result: dict[str, Any] = json.loads(done.stdout)
    if "error" in result:
        sys.exit(f"outcore {' '.join(arguments)}: {result['error']['message']}")
    return result


def started(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with data and results below `root`; return the completed
    process."""
    call, environment = command(root, *arguments)
    return subprocess.run(
        call, env=environment, capture_output=True, text=True, check=False
    )


def command(root: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment of the command with data and results below
    `root`."""
    environment = {
        **os.environ,
        "OUTCORE_DATA": str(root / "data"),
        "OUTCORE_RESULTS": str(root / "results"),
    }
    return [
        sys.executable,
        "-c",
        "from harness.cli import main; main()",
        *arguments,
    ], environment

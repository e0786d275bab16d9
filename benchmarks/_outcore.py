"""The `outcore` command of this checkout, on a benchmark's own data and results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def outcore(root: Path, *arguments: str) -> dict[str, Any]:
    """What the command prints as JSON; a failure of the command itself ends the benchmark."""
    done = started(root, *arguments, "--json")
    if not done.stdout.strip():
        sys.exit(f"outcore {' '.join(arguments)} printed nothing; stderr: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    if "error" in result:
        sys.exit(f"outcore {' '.join(arguments)}: {result['error']['message']}")
    return result


def started(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as it ended, with its data and results below `root`."""
    return subprocess.run(
        [sys.executable, "-c", "from harness.cli import main; main()", *arguments],
        env={**os.environ, "OUTCORE_DATA": str(root / "data"), "OUTCORE_RESULTS": str(root / "results")},
        capture_output=True,
        text=True,
        check=False,
    )

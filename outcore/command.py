"""The `outcore` command, which names the extra that is missing where a package is not installed."""

from __future__ import annotations

import sys

from outcore.extras import named
from workloads.errors import HostError


def main() -> None:
    """Run the command line of `harness.cli`; a missing optional package is one sentence and exit code 3."""
    try:
        with named():
            from harness.cli import main as run

            run()
    except HostError as error:
        print(f"outcore: {error}", file=sys.stderr)
        sys.exit(error.exit_code)

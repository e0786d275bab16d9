"""A system that prepares while a worker imports its module, hoping that no clock
runs."""

from __future__ import annotations

import sys
import time

from tests.harness.cheats.act import Cheating

if "harness.worker.main" in sys.orig_argv:
    time.sleep(1.5)


class PreparesAtImport(Cheating):
    """Cheat that has prepared before its class exists."""

"""A system that prepares while a worker imports its module, where it hopes that no clock runs."""

from __future__ import annotations

import sys
import time

from tests.harness.cheats.act import Cheating

if "harness.worker.main" in sys.orig_argv:
    time.sleep(1.5)


class PreparesAtImport(Cheating):
    """Has prepared before its class is there."""

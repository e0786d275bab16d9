"""Emulated SSD classes, measured by fio inside their limits: error of each rate, direct and buffered.

    python benchmarks/ssd_emulation.py [FOLDER] [--classes aws-nvme/16,aws-gp3] [--rounds 1]

Run as root on a quiet machine; about 20 s a class. Exit code 1 if a direct rate is more than 3 % off its limit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.ssd.emulate import TOLERANCE, problem, resolve_class, verify
from harness.ssd.measure import limiting
from harness.ssd.testfile import check_folder, one_at_a_time

CLASSES = "aws-nvme/16,aws-gp3/16,aws-gp3,samsung-pm883/2,samsung-pm1725b/32,intel-s3510/4"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--classes", default=CLASSES)
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    device = check_folder(chosen.folder)
    isolation = limiting()
    wrong, worst = 0, 0.0
    print(f"{'class':<20}{'rate':<24}{'measured':>16}{'limit':>16}{'off':>9}")
    with one_at_a_time(device):
        for name in chosen.classes.split(",") * chosen.rounds:
            limits = resolve_class(name, chosen.folder).limits(device)
            checks = verify(isolation, limits, chosen.folder)
            for check in checks:
                print(
                    f"{name:<20}{check.name:<24}{check.measured:>16,.0f}{check.allowed:>16,.0f}{check.error:>+9.2%}",
                    flush=True,
                )
                if not check.name.startswith("buffered"):
                    worst = max(worst, abs(check.error))
            wrong += bool(problem(checks))
    print(f"worst of the direct rates {worst:.2%} (at most {TOLERANCE:.0%}); {wrong} classes out of bounds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

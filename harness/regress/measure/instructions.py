"""Instruction counts of the native hot paths by valgrind's callgrind, independent of
load, caches and disk."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.regress.decision import Decision, MetricResult
from harness.regress.measure.build import clean_environment
from workloads.errors import HostError

PARTS = ("sampler", "reader", "changeset", "packing", "gather")
# Counts repeat to a few instructions of the interpreter around the call.
LEAST_CHANGE = 0.01
TIMEOUT_S = 300.0
_CHILD = Path(__file__).with_name("instructions_child.py")


def is_there() -> bool:
    """Return whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def count(python: Path) -> dict[str, int]:
    """Return part -> instructions of one call by the native modules of `python`; raise
    HostError if valgrind fails."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise HostError(
            "instructions cannot be counted without valgrind",
            "apt-get install valgrind",
        )
    with tempfile.TemporaryDirectory(prefix="outcore-callgrind-") as folder:
        # -P: the child's own folder is not searched for modules.
        tool = [
            valgrind,
            "--tool=callgrind",
            "--dump-before=getpgid",
            f"--callgrind-out-file={folder}/out",
            "-q",
        ]
        command = [*tool, str(python), "-P", str(_CHILD)]
        environment = clean_environment() | {
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=TIMEOUT_S,
                env=environment,
            )
        except subprocess.TimeoutExpired as error:
            raise HostError(
                f"valgrind took longer than {TIMEOUT_S:.0f} s",
                "count on a quieter machine",
            ) from error
        names = done.stdout.split()
        if done.returncode or not names:
            message = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
            raise HostError(
                f"the native parts do not run under valgrind: {message}",
                "see benchmarks/native_counts.py",
            )
        # Dumps 1, 3, … cover the code before each part.
        return {
            name: _total(Path(folder, f"out.{2 * number}"))
            for number, name in enumerate(names, start=1)
        }


def _total(file: Path) -> int:
    found = re.search(
        r"^(?:totals|summary): (\d+)",
        file.read_text(encoding="utf-8", errors="replace"),
        re.MULTILINE,
    )
    if found is None:
        raise HostError(
            f"callgrind wrote no total into {file.name}", "use valgrind 3.15 or later"
        )
    return int(found[1])


def compare_counts(
    base: Mapping[str, int], head: Mapping[str, int]
) -> list[MetricResult]:
    """Return one metric per part; a part that only one side has is undecided."""
    results = []
    for name in dict.fromkeys([*base, *head]):
        before = base.get(name)
        after = head.get(name)
        made = MetricResult(
            "native",
            f"{name} instructions",
            "exact",
            "instructions",
            before,
            after,
            "undecided",
        )
        if before is not None and after is not None:
            ratio = after / before
            most = 1 + LEAST_CHANGE
            decision: Decision = (
                "regressed"
                if ratio > most
                else "improved"
                if ratio < 1 / most
                else "same"
            )
            note = "by callgrind" if decision != "same" else ""
            made = replace(made, decision=decision, ratio=ratio, samples=1, note=note)
        results.append(made)
    return results

"""Child process that drives the system under check: `python -m harness.check.child SPEC`, JSON lines on stdout.

`SPEC` is a JSON object: `system`, `folder`, and `cases` (each as `Case`) or `endless` (a case, run until SIGTERM).
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.check.case import Case


def main(argv: list[str]) -> int:
    """Drive every case; print one JSON line at its start and one with its observation."""
    faulthandler.enable()
    spec = json.loads(argv[0])
    sys.path.insert(0, "")
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keeps output of the system out of the JSON lines
    from systems.registry import load

    system = load(spec["system"])
    folder = Path(spec["folder"])
    if "endless" in spec:
        return _endless(folder, _case(spec["endless"]), system, out)
    from harness.check.drive import drive

    for content in spec["cases"]:
        case = _case(content)
        print(json.dumps({"start": case.name}), file=out, flush=True)
        print(json.dumps(asdict(drive(folder, case, system))), file=out, flush=True)
    return 0


def _case(content: dict[str, Any]) -> Case:
    return Case(**{**content, "fanout": tuple(content["fanout"])})


def _endless(folder: Path, case: Case, system: Any, out: Any) -> int:
    """Run epochs until SIGTERM, which unwinds the stack and closes the system, as in the worker."""
    from harness.check.stage import Stage

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Stage(folder, case, system).ready() as running:
        for number in range(1 << 15):
            for count, batch in enumerate(running.epoch(number)):
                batch.release()
                if number == 0 and count == 1:
                    print("running", file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Child process that drives the system under check: `python -m harness.check.child FD`.

`FD` is the descriptor of a `multiprocessing.connection.Connection`. It gives the name
of the system, a folder, the cases, and whether to run the first of them until SIGTERM;
it takes each case at its start, then its observation.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until all is imported, as in the worker

import faulthandler
import json
import signal
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.check.case import Case


def main(argv: list[str]) -> None:
    """Drive every case; send it at its start, and its observation at its end."""
    faulthandler.enable()
    sys.path.insert(0, "")
    parent: Connection[Any, Any] = Connection(int(argv[0]))
    name, folder, cases, endless = parent.recv()
    from systems.registry import load

    system = load(name)
    gc.enable()
    if endless:
        _endless(folder, cases[0], system, parent)
        return
    from harness.check.drive import drive

    for case in cases:
        parent.send(case)
        seen = drive(folder, case, system)
        json.dumps(
            asdict(seen)
        )  # fails here where a counter of the system is no plain data
        parent.send(seen)


def _endless(
    folder: Path, case: Case, system: Any, parent: Connection[Any, Any]
) -> None:
    """Run epochs until SIGTERM, which unwinds the stack and closes the system, as in
    the worker."""
    from harness.check.stage import Stage

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Stage(folder, case, system).ready() as running:
        for number in range(1 << 15):
            for count, batch in enumerate(running.epoch(number)):
                batch.release()
                if number == 0 and count == 1:
                    parent.send("running")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Starts the ranks of a data-parallel run by torchrun, inside the cap, and says which one ended when one did.

`python -m harness.ranks WORLD SPEC EVENT_FD GO_FD PARENT [BOARD]`. Rank 0 is the worker that talks to the
orchestrator; every rank opens the pipes through this process, since torchrun hands no descriptors on.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Run torchrun until all ranks are done, or one is not: then it ends the others."""
    from harness.worker import die_with_parent

    world, spec, event_fd, go_fd, parent, *board = argv
    die_with_parent(int(parent))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    import os

    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    # A named pipe is opened by every rank itself; a number is one of this process's.
    events, go = (f"/proc/{os.getpid()}/fd/{end}" if end.isdecimal() else end for end in (event_fd, go_fd))
    try:
        torchrun(
            [
                f"--nproc-per-node={world}",
                "--rdzv-backend=c10d",
                "--rdzv-endpoint=127.0.0.1:0",
                "--local-addr=127.0.0.1",
                "--max-restarts=0",
                "--monitor-interval=0.1",
                "--module",
                "harness.worker",
                spec,
                events,
                go,
                str(os.getpid()),
                *board,
            ]
        )
    except ChildFailedError as error:
        _report(Path(events), int(world), error)
        return 1
    return 0


def _report(pipe: Path, world: int, error: object) -> None:
    """Tell of the rank that was ended from outside; one that could say why itself has done so.

    Ranks that left because it went may be found at the same moment, with any timestamp; torchrun ends others itself.
    """
    import os

    from harness.protocol import Channel, Failed

    failures = getattr(error, "failures", {})
    killed = {rank: entry for rank, entry in failures.items() if entry.exitcode < 0}
    first_cause = {rank: entry for rank, entry in killed.items() if entry.exitcode != -signal.SIGTERM} or killed
    if not first_cause:
        return
    rank, first = min(first_cause.items(), key=lambda entry: entry[1].timestamp)
    name = signal.Signals(-first.exitcode).name
    handle = os.open(pipe, os.O_WRONLY)
    try:
        message = f"rank {rank} of {world} was ended by {name}, and the others with it"
        Channel(handle, -1).send(Failed(kind="rank", message=message))
    finally:
        os.close(handle)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

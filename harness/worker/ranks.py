"""Launcher of a data-parallel run's ranks by torchrun, inside the cap; it reports the
rank that a signal ended. Rank 0 is the worker that talks to the orchestrator; every
rank opens the pipes through this process, since torchrun passes on no descriptors.
Usage: `python -m harness.worker.ranks WORLD SPEC EVENT_FD GO_FD PARENT [BOARD]`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from harness.wire.pipes import die_with_parent
from harness.wire.protocol import Channel, Failed
from workloads.accelerators.pool import DESCRIPTORS_VARIABLE

_OPTIONS = (
    "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:0 --local-addr=127.0.0.1 "
    "--max-restarts=0 --monitor-interval=0.1"
).split()


def main(argv: list[str]) -> int:
    """Run torchrun until all ranks complete or one fails, after which it ends the
    others; return the exit code."""
    world, spec, event_fd, go_fd, parent, *board = argv
    die_with_parent(int(parent))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    # Every rank opens a named pipe itself; a number is a descriptor of this process.
    events, go = (
        f"/proc/{os.getpid()}/fd/{end}" if end.isdecimal() else end
        for end in (event_fd, go_fd)
    )
    os.environ[DESCRIPTORS_VARIABLE] = f"/proc/{os.getpid()}/fd"
    try:
        worker = [
            "--module",
            "harness.worker.main",
            spec,
            events,
            go,
            str(os.getpid()),
            *board,
        ]
        torchrun([f"--nproc-per-node={world}", *_OPTIONS, *worker])
    except ChildFailedError as error:
        _report(Path(events), int(world), error)
        return 1
    return 0


def _report(pipe: Path, world: int, error: object) -> None:
    """Report the first rank ended by a signal; a rank that failed otherwise has
    reported it itself. Ranks that exit because of it may have any timestamp, so they
    are left out; torchrun ends others by SIGTERM."""
    killed = {
        rank: entry
        for rank, entry in getattr(error, "failures", {}).items()
        if entry.exitcode < 0
    }
    first_cause = {
        rank: entry
        for rank, entry in killed.items()
        if entry.exitcode != -signal.SIGTERM
    } or killed
    if not first_cause:
        return
    rank, first = min(first_cause.items(), key=lambda entry: entry[1].timestamp)
    message = (
        f"rank {rank} of {world} was ended by {signal.Signals(-first.exitcode).name}, "
        "and the others with it"
    )
    with pipe.open("wb", buffering=0) as events:
        Channel(events.fileno(), -1).send(Failed(kind="rank", message=message))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How many functions lie between `outcore run` and the first feature byte?

Runs each system given on a small graph without a cap, and prints the functions of this
repository that are active in turn: those of the command when it starts the worker,
those of the worker when it starts the thread that reads, and those of the thread when
it enters the first function that reads feature rows.
`python -m benchmarks.first_byte ginex pyg+`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from systems.interface import StageClock

REPOSITORY = Path(__file__).resolve().parent.parent
#: Functions that read feature rows: file, name.
READERS = {
    ("systems/engine/io/reader.py", "read"),
    ("systems/engine/io/reader.py", "read_groups"),
    ("systems/engine/io/arrays.py", "gather"),
}
_MARK = "first feature byte: "
_STARTED: dict[int, list[str]] = {}  # stack that started each thread, by `id`


def stack(frame: FrameType | None) -> list[str]:
    """Return the functions of a stack, `file:function`, outermost first."""
    return [f"{file}:{name}" for file, name in reversed(list(_functions(frame)))]


def _functions(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    while frame is not None:
        place = _place(frame)
        if place is not None and not place[1].startswith("<"):
            yield place
        frame = frame.f_back


def _place(frame: FrameType) -> tuple[str, str] | None:
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(REPOSITORY) or ".venv" in path.parts:
        return None
    return path.relative_to(REPOSITORY).as_posix(), frame.f_code.co_name


def _on_call(frame: FrameType, event: str, _: Any) -> None:
    """Keep the stack that starts a thread; at the first read, print the whole way."""
    if event != "call":
        return
    if frame.f_code is threading.Thread.start.__code__:
        _STARTED[id(frame.f_locals["self"])] = stack(frame)
    elif _place(frame) in READERS and _reads_features(frame):
        threading.setprofile(None)
        sys.setprofile(None)
        started = _STARTED.get(id(threading.current_thread()), [])
        print(_MARK + " ".join([*started, *stack(frame)]), file=sys.stderr, flush=True)


def _reads_features(frame: FrameType) -> bool:
    """Return whether a reader's file is the feature table; copies in memory are."""
    reader = frame.f_locals.get("self")
    return reader is None or "features" in Path(reader.path).name


def stage_clock(_: str) -> StageClock:
    """Return a plain clock; the worker calls this before it makes the system."""
    threading.setprofile(_on_call)
    sys.setprofile(_on_call)
    return StageClock()


def way(system: str, folder: Path) -> list[str]:
    """Run a system for one mini-batch; return the functions passed, `file:function`,
    each once."""
    from harness import cli
    from harness.results.store import WORKER_LOG

    launches: list[list[str]] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and "harness.worker.main" in arguments[1]:
            launches.append(stack(sys._getframe()))

    sys.addaudithook(note)
    results = folder / "results"
    workload = "--fanout 3,3 --hidden 8 --batch-size 50 --max-batches 1 --epochs 2"
    roots = ["--data-root", str(folder / "data"), "--results-root", str(results)]
    line = ["run", system, "--dataset", "small", "--isolation", "none", "--quiet"]
    try:
        cli.main([*line, *workload.split(), *roots])
    except SystemExit:
        pass
    (log,) = (results / "runs").glob(f"*/{WORKER_LOG}")
    (found,) = [
        line.removeprefix(_MARK)
        for line in log.read_text(encoding="utf-8").splitlines()
        if line.startswith(_MARK)
    ]
    own = {"benchmarks/first_byte.py"}
    passed = [*launches[-1], *found.split()]
    return [each for each in dict.fromkeys(passed) if each.partition(":")[0] not in own]


def main(systems: list[str]) -> None:
    """Print the way of each system, and its number of functions and files."""
    import os

    from harness.check.case import Case
    from harness.check.stage import make_dataset

    os.environ["OUTCORE_TEST_CLOCK"] = "benchmarks.first_byte:"
    for system in systems:
        with TemporaryDirectory() as name:
            folder = Path(name)
            made = make_dataset(
                folder / "made", Case("small", nodes=2000, edges=20_000)
            )
            (folder / "data").mkdir()
            made.path.rename(folder / "data" / "small")
            passed = way(system, folder)
        files = {each.partition(":")[0] for each in passed}
        print(f"{system}: {len(passed)} functions in {len(files)} files")
        print("\n".join(f"  {each}" for each in passed))


if __name__ == "__main__":
    main(sys.argv[1:] or ["ginex", "pyg+"])

"""Artefacts that a system prepares once and reuses: folders that are complete or
absent, named by a hash of their key and of the setting that they were made under.

A folder is written under a temporary name and renamed once all its files are on disk,
so an interrupted preparation is never mistaken for a finished one; the next preparation
removes its remains and starts anew.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from systems.engine.io.memory import give_back_free_memory
from workloads.errors import BudgetError, DataIOError, fault_of, is_of_host
from workloads.tempfolder import TemporaryFolder, sync, try_lock
from workloads.units import format_bytes
from workloads.workload import Workload

_SEAL = "artefact.json"
_IN_USE = ".in-use"
# Folders that `prepare` made, and folders of earlier runs that it returned, in this
# process.
_MADE: set[Path] = set()
_REUSED: set[Path] = set()
# Setting and code of this process's run (`work_under`).
_UNDER: dict[str, Any] = {}


class Cost(NamedTuple):
    """Cost of making an artefact: seconds, and bytes that its process read from and
    wrote to devices meanwhile."""

    seconds: float
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class Prepared:
    """An artefact folder.

    Attributes:
        reused: whether an earlier run made it.
        facts: plain data that its maker saved beside the files.
    """

    path: Path
    reused: bool
    facts: dict[str, Any]

    @property
    def files(self) -> list[Path]:
        """Files of the artefact, sorted."""
        return sorted(path for path in self.path.rglob("*") if path.is_file())


def work_under(setting: Mapping[str, Any], code: str) -> None:
    """Let this process reuse only artefacts of runs under its own setting, whose making
    took what its own would take.

    Args:
        setting: all that changes the cost of a preparation but not its content (memory
            cap, limits of the disk, cores); plain data. Artefacts of each setting are
            kept.
        code: fingerprint of the code that prepares; an artefact of other code is
            replaced.
    """
    _UNDER.update(setting=dict(setting), code=code)


def process_io() -> tuple[int, int]:
    """Return the bytes that this process and its ended children have read from and
    written to devices."""
    values = dict(
        line.split(": ")
        for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    )
    return int(values["read_bytes"]), int(values["write_bytes"])


def identity(
    workload: Workload, *, model: bool = False, **parts: Any
) -> dict[str, Any]:
    """Return the key of an artefact: the dataset's content, sampler, seed and ranks of
    this workload, and `parts`.

    Args:
        model: whether the artefact depends on the model too.
        parts: options and sizes that change its content; plain data.
    """
    drawn = {
        "sampler": asdict(workload.sampler),
        "seed": workload.seed,
        "rank": workload.rank,
        "world": workload.world,
    }
    found: dict[str, Any] = {"dataset": workload.dataset.content, **drawn, **parts}
    if workload.partition is not None:
        found["partition"] = workload.partition.name
    if model:
        found["model"] = asdict(workload.model)
    return found


def find(root: Path, name: str, key: Mapping[str, Any]) -> Prepared | None:
    """Return the folder that `prepare` would reuse, or None if it would make one;
    nothing is written."""
    wanted, text = _place(root, name, key)
    facts = _complete(wanted, text)
    return None if facts is None else Prepared(wanted, True, facts)


def prepare(
    root: Path,
    name: str,
    key: Mapping[str, Any],
    make: Callable[[Path], Mapping[str, Any] | None],
    *,
    disk_budget: int | None = None,
) -> Prepared:
    """Return the folder of artefact `name` for `key`; call `make(folder)` unless a
    complete one exists.

    Args:
        name: kind of artefact, the prefix of the folder.
        key: all dependencies of the content (`identity`), plain data; each key has its
            own folder.
        make: fills the empty folder; its result (plain data) is saved as `facts`.
        disk_budget: most bytes of the finished folder.

    Raises:
        DataIOError: a write failed (a full disk, a failing device); nothing is left
            behind.
        BudgetError: the finished folder is larger than `disk_budget`; nothing is left
            behind.
    """
    wanted, text = _place(root, name, key)
    root.mkdir(parents=True, exist_ok=True)
    found = _complete(wanted, text)
    if found is not None:
        with suppress(
            OSError
        ):  # another user's folder is reused without the time stamp
            os.utime(wanted / _SEAL)
        _REUSED.update({wanted} - _MADE)
        return Prepared(wanted, True, found)
    try:
        with TemporaryFolder(root, wanted.name) as folder:
            began, (read, written) = time.monotonic(), process_io()
            facts = dict(make(folder) or {})
            # preparation's freed memory must not count against the next phase
            give_back_free_memory()
            _seal(
                folder,
                name,
                disk_budget,
                {"key": text, "facts": facts},
                Cost(began, read, written),
            )
            if wanted.exists():
                # Incomplete, damaged, of other code, or made meanwhile.
                shutil.rmtree(wanted)
            folder.rename(wanted)
            sync(root)
            _MADE.add(wanted)
    except OSError as error:
        # numpy reports a short write without an errno.
        code = errno.ENOSPC if error.errno is None else error.errno
        if error.errno is not None and not is_of_host(error):
            raise
        reason, fix = fault_of(code)
        if code == errno.ENOSPC:
            fix = (
                "make room on the disk of the results folder or lower the disk-space "
                "limit"
            )
        message = f"preparing {name} failed: {reason}"
        path = str(error.filename or wanted)
        raise DataIOError(message, path=path, errno=code, fix=fix) from error
    return Prepared(wanted, False, facts)


@contextmanager
def in_use(root: Path) -> Iterator[None]:
    """Protect everything under `root` (`Runtime.artefacts`) from removal by `unused`
    while the body runs."""
    with _use_lock(root, fcntl.LOCK_SH):
        yield


@contextmanager
def unused(root: Path) -> Iterator[bool]:
    """Yield whether no process uses `root`; if so, block new users while the body
    runs."""
    try:
        with _use_lock(root, fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield True
    except BlockingIOError:
        yield False


@contextmanager
def _use_lock(root: Path, kind: int) -> Iterator[None]:
    handle = os.open(root / _IN_USE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, kind)  # released by the kernel when the process ends
        yield
    finally:
        os.close(handle)


def last_used(folder: Path) -> float:
    """Return the Unix time of an artefact's making or last reuse; for an unfinished
    one, of its last write."""
    seal = folder / _SEAL
    return (seal if seal.exists() else folder).stat().st_mtime


def is_remains(folder: Path) -> bool:
    """Return whether the writer of a temporary folder has ended."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return try_lock(handle)
    finally:
        os.close(handle)


def _place(root: Path, name: str, key: Mapping[str, Any]) -> tuple[Path, str]:
    wanted = {"key": key, "setting": _UNDER.get("setting")}
    named, text = (
        json.dumps(one, sort_keys=True, default=str)
        for one in (wanted, {**wanted, **_UNDER})
    )
    return (
        root / f"{name}-{hashlib.blake2b(named.encode(), digest_size=10).hexdigest()}",
        text,
    )


def _complete(folder: Path, text: str) -> dict[str, Any] | None:
    """Return the facts of a finished folder of this key that holds the listed files
    alone, of their sizes; else None."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        seal = json.loads((folder / _SEAL).read_text(encoding="utf-8"))
        same_sizes = all(
            (folder / file).stat().st_size == size
            for file, size in seal["files"].items()
        )
        if seal["key"] == text and same_sizes and not unlisted(folder):
            return dict(seal["facts"])
    return None


def listed(folder: Path) -> set[str]:
    """Return the files that a finished artefact lists, by their paths in it."""
    return set(json.loads((folder / _SEAL).read_text(encoding="utf-8"))["files"])


def unlisted(folder: Path) -> list[str]:
    """Return what a finished artefact holds beside the files that it lists and folders,
    sorted."""
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    return sorted(found - listed(folder) - {_SEAL})


def reused() -> dict[Path, Cost]:
    """Return the folders of earlier runs that `prepare` returned in this process, with
    the cost of their making."""
    return {
        path: Cost(*json.loads((path / _SEAL).read_text(encoding="utf-8"))["cost"])
        for path in sorted(_REUSED)
    }


def remove_unfinished(root: Path) -> None:
    """Remove everything under `root` (`Runtime.artefacts`) but finished artefacts,
    unless a process uses `root`.

    What a system left there by other means than `prepare` would be prepared work that
    no later run counts.
    """
    with unused(root) as free:
        for path in unfinished(root) if free else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def unfinished(root: Path) -> set[Path]:
    """Return what lies under `root` (`Runtime.artefacts`) beside finished artefacts."""
    return set(root.iterdir()) - finished(root) - {root / _IN_USE}


def finished(root: Path) -> set[Path]:
    """Return the folders of finished artefacts under `root` (`Runtime.artefacts`)."""
    return {
        path
        for path in root.iterdir()
        if not path.is_symlink() and (path / _SEAL).is_file()
    }


def _seal(
    folder: Path,
    name: str,
    budget: int | None,
    content: Mapping[str, Any],
    before: Cost,
) -> None:
    made = {
        path: path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    total = sum(made.values())
    if budget is not None and total > budget:
        message = (
            f"{name} takes {format_bytes(total)} on disk, the disk budget is "
            f"{format_bytes(budget)}"
        )
        raise BudgetError(message, "raise the disk-space limit")
    for path in made:
        sync(path)
    files = {str(path.relative_to(folder)): size for path, size in made.items()}
    seal = folder / _SEAL
    cost = [
        now - then
        for now, then in zip((time.monotonic(), *process_io()), before, strict=True)
    ]
    seal.write_text(
        json.dumps({**content, "files": files, "cost": cost}), encoding="utf-8"
    )
    sync(seal)
    sync(folder)

"""Freeze the artefacts of a run at its gates, and remove before the next run those that
changed since.

What a run adds to its artefacts once its last gate is open is work on no clock. A
frozen artefact is known by the content of its seal and by size, inode and times of each
of its files, kept in a folder that no worker sees. The kernel sets the time of a file's
last change, so that it cannot be changed without a trace.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from harness.cache import Cache
from systems.engine.store.artefacts import finished, listed, unlisted, unused

KIND = "frozen"


def freeze(kept: Cache, root: Path, but: Collection[str] = ()) -> None:
    """Keep the state of the finished artefacts under `root`, without those named in
    `but`; a frozen one stays so."""
    for folder in finished(root):
        if folder.name in but or unlisted(folder):
            continue
        known = kept.get(KIND, _key(folder))
        seal = _seal_of(folder)
        if known is None or known["seal"] != seal:
            kept.put(KIND, _key(folder), {"seal": seal, "files": _state(folder)})


def refuse_changed(kept: Cache, root: Path) -> dict[str, str]:
    """Remove finished artefacts under `root` that are not as they were frozen, unless a
    process uses `root`.

    Returns:
        The reason in a sentence, by the artefact's name, for each that is not to be
        trusted.
    """
    refused = {
        folder.name: why
        for folder in sorted(finished(root))
        if (why := _changed(kept, folder))
    }
    with unused(root) as free:
        for name in refused if free else ():
            shutil.rmtree(root / name, ignore_errors=True)
            kept.path(KIND, _key(root / name)).unlink(missing_ok=True)
    return refused


def _changed(kept: Cache, folder: Path) -> str:
    """Return why an artefact is not as it was frozen; empty if it is."""
    if extra := unlisted(folder):
        return (
            f"artefact {folder.name} holds {extra[0]}, which its maker does not list: "
            "it is made anew"
        )
    known = kept.get(KIND, _key(folder))
    if known is None or known["seal"] != _seal_of(folder):
        return (
            f"artefact {folder.name} was finished after the last gate of a run: it is "
            "made anew"
        )
    if known["files"] != _state(folder):
        return (
            f"artefact {folder.name} changed after the last gate of its run: it is "
            "made anew"
        )
    return ""


def _key(folder: Path) -> str:
    """Return the name of an artefact's entry: its system's folder and its own."""
    return f"{folder.parent.name}-{folder.name}"


def _seal_of(folder: Path) -> str:
    """Return a digest of the artefact's seal, which holds key, files and cost."""
    return hashlib.sha256((folder / "artefact.json").read_bytes()).hexdigest()


def _state(folder: Path) -> str:
    """Return a digest over names, sizes, inodes and times of the artefact's files."""
    digest = hashlib.sha256()
    for name in sorted(listed(folder)):
        known: tuple[int, ...] = ()
        with suppress(FileNotFoundError):
            found = os.lstat(folder / name)
            known = (
                found.st_mode,
                found.st_size,
                found.st_ino,
                found.st_mtime_ns,
                found.st_ctime_ns,
            )
        digest.update(f"{name}:{known}\n".encode())
    return digest.hexdigest()

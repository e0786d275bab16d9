"""Prepared artefacts of systems under the data root: listed with size and last use, removed while not in use.

`<data root>/.outcore/artefacts/<system>/<name>-<key>`, made by `systems/engine/store/artefacts.py`, which notes each
use. A worker holds a lock on its system's folder until it exits, so no artefact of a running system is removed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from systems.engine.store.artefacts import is_remains, last_used, unused
from workloads.tempfolder import temporary_prefix

ARTEFACTS = Path(".outcore") / "artefacts"


@dataclass(frozen=True)
class ArtefactInfo:
    """One artefact folder.

    Attributes:
        system: name of the system's folder.
        key: name of the artefact's folder: kind, and a digest of all its dependencies.
        bytes: size of all its files on disk.
        last_used: Unix seconds of the last run that made or reused it.
        complete: False for the remains of a killed preparation.
    """

    system: str
    key: str
    path: Path
    bytes: int
    last_used: float
    complete: bool = True


def list_artefacts(data_root: Path) -> list[ArtefactInfo]:
    """Return every artefact and all remains under a data root, least recently used first.

    An artefact in preparation by a living process is not listed.
    """
    found = []
    for folder in _folders(Path(data_root) / ARTEFACTS):
        for path in _folders(folder):
            complete = not path.name.startswith(".")
            # Other processes may remove folders meanwhile.
            with suppress(FileNotFoundError):
                if complete or is_remains(path):
                    found.append(ArtefactInfo(folder.name, path.name, path, _bytes(path), last_used(path), complete))
    return sorted(found, key=lambda info: (info.last_used, info.system, info.key))


def stale(
    infos: Sequence[ArtefactInfo], *, keep_bytes: int | None = None, older_than_s: float | None = None
) -> list[ArtefactInfo]:
    """Return the artefacts to remove: remains of killed preparations, and those that either limit selects.

    Args:
        infos: artefacts in the order of `list_artefacts`.
        keep_bytes: total bytes to keep, most recently used artefacts first; None: no limit.
        older_than_s: seconds since the last use after which an artefact is removed; None: no limit.
    """
    now, kept = time.time(), 0
    found = []
    for info in reversed(infos):
        old = older_than_s is not None and now - info.last_used > older_than_s
        much = keep_bytes is not None and kept + info.bytes > keep_bytes
        if not info.complete or old or much:
            found.append(info)
        else:
            kept += info.bytes
    return found[::-1]


def remove_artefacts(infos: Iterable[ArtefactInfo]) -> list[ArtefactInfo]:
    """Remove artefacts, except those of running systems; return the removed ones.

    Each folder is renamed first, so that a killed removal leaves no incomplete artefact.
    """
    removed = []
    for info in infos:
        root = info.path.parent
        if not root.is_dir():
            continue
        with unused(root) as free, suppress(FileNotFoundError):
            if not free or not (info.complete or is_remains(info.path)):
                continue
            gone = info.path
            if info.complete:
                gone = root / f"{temporary_prefix(info.path.name)}removed"
                info.path.rename(gone)
            shutil.rmtree(gone)
            removed.append(info)
    return removed


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())

"""What systems prepared and keep under the data root: listed with size and last use, removed while nobody uses it.

`<data root>/.outcore/artefacts/<system>/<name>-<key>`, made by `systems/engine/artefacts.py`, which notes each use. A
worker holds a lock on its system's folder as long as it lives, so nothing of a system that is running is removed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from systems.engine.artefacts import is_remains, last_used, unused
from workloads.tempfolder import temporary_prefix

ARTEFACTS = Path(".outcore") / "artefacts"


@dataclass(frozen=True)
class ArtefactInfo:
    """One artefact folder.

    Attributes:
        system: whose, as its folder is named.
        key: the folder's name: what it is, and a digest of all it depends on.
        path: the folder.
        bytes: on disk, of all its files.
        last_used: Unix seconds when a run made it or used it again.
        complete: False for the remains of a preparation that was killed.
    """

    system: str
    key: str
    path: Path
    bytes: int
    last_used: float
    complete: bool = True


def list_artefacts(data_root: Path) -> list[ArtefactInfo]:
    """Every artefact under a data root and all remains of one, the one not used for the longest time first.

    What a living process is just making is not listed.
    """
    found = []
    for folder in _folders(Path(data_root) / ARTEFACTS):
        for path in _folders(folder):
            complete = not path.name.startswith(".")
            # Folders come and go while others run.
            with suppress(FileNotFoundError):
                if complete or is_remains(path):
                    found.append(ArtefactInfo(folder.name, path.name, path, _bytes(path), last_used(path), complete))
    return sorted(found, key=lambda info: (info.last_used, info.system, info.key))


def stale(
    infos: Sequence[ArtefactInfo], *, keep_bytes: int | None = None, older_than_s: float | None = None
) -> list[ArtefactInfo]:
    """Which of them to remove.

    Args:
        infos: as `list_artefacts` gives them.
        keep_bytes: those used last are kept, as many as together have at most so many bytes.
        older_than_s: those that were used within so many seconds are kept.

    Remains of killed preparations go in any case. With neither argument nothing else does; with both, what either
    would remove.
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
    """Remove them, except those of systems that are running; returns those removed.

    Each is renamed first, so that no half of one is ever found, even if this is killed.
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

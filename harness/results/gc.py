"""Removal of results and artefacts: half-written and replaced runs, files of figures no
longer known, preparations.

A system's artefacts are `<data root>/.outcore/artefacts/<system>/<name>-<key>`, made by
`systems/engine/store/artefacts.py`, which notes each use. A worker holds a lock on its
system's folder until it exits, so no artefact of a running system is removed.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from harness.records.hosts import host_fingerprint
from harness.records.record import Record, Status, Verdict
from harness.results import store as results
from systems.engine.store.artefacts import is_remains, last_used, unused
from workloads.tempfolder import remove_stale, temporary_prefix

FIGURES = "figures"


# Configuration, round, host, and the fingerprints of harness, system and sampler.
_Place = tuple[str, int, str, str, str, str]
# From the least that a run can be worth to the most.
_VERDICTS: tuple[Verdict, ...] = ("INVALID", "SPOILT", "CAVEATS", "VALID")
_STATUSES: tuple[Status, ...] = ("failed", "unsupported", "timeout", "oom", "ok")


@dataclass(frozen=True)
class Removable:
    """A file or folder that can be removed, and the reason."""

    path: Path
    why: str


def doomed(
    root: Path, figures: Collection[str], *, failed: bool = False, damaged: bool = False
) -> list[Removable]:
    """Return the files and folders under a results root that can be removed.

    A record is replaced by a newer one of the same configuration, round, host with its
    drive, and code, that counts at least as much: neither its verdict nor its status is
    worse. A failed one replaces no record.

    Args:
        root, figures: results root, and the ids of all known figures.
        failed, damaged: whether to include failed runs, and unreadable records, except
            those of another schema.
    """
    found = [
        Removable(path, "half-written")
        for path in sorted(results.runs_folder(root).glob(f"{results.PARTIAL}*"))
    ]
    kept: dict[_Place, dict[Path, Record]] = {}
    bad: list[results.BadRecord] = []
    for folder, record in results.scan(root, bad):
        if record.status == "failed":
            if failed:
                found.append(Removable(folder, "failed"))
            continue
        place = kept.setdefault(_place(record), {})
        for earlier, known in list(place.items()):
            if counts_as_much(record, known):
                found.append(Removable(earlier, f"replaced by {folder.name}"))
                del place[earlier]
        place[folder] = record
    if damaged:
        found += [
            Removable(Path(entry.path), entry.reason)
            for entry in bad
            if not entry.other_schema
        ]
    return [*found, *_stale_figures(root / FIGURES, figures)]


def _place(record: Record) -> _Place:
    """Return all that two runs must share for one to replace the other."""
    host = host_fingerprint(record.environment)
    code = record.code
    return (
        record.config_hash,
        record.config.round,
        host,
        code.harness,
        code.system,
        code.sampler,
    )


def counts_as_much(newer: Record, older: Record) -> bool:
    """Return whether neither verdict nor status of a run is worse than those of
    another."""
    verdicts = _VERDICTS.index(newer.verdict) >= _VERDICTS.index(older.verdict)
    return verdicts and _STATUSES.index(newer.status) >= _STATUSES.index(older.status)


def _stale_figures(folder: Path, known: Collection[str]) -> Iterator[Removable]:
    """Yield the files of figures no longer in the catalogue, as listed in the JSON
    written beside each drawing."""
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            ours = content["id"] == path.stem and content["status"] in (
                "drawn",
                "not drawn",
            )
            names = [str(name) for name in content["files"]]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        for name in [*names, path.name] if ours and path.stem not in known else ():
            if (
                Path(name).name == name
                and Path(name).stem == path.stem
                and (folder / name).is_file()
            ):
                yield Removable(folder / name, "no figure of that name")


def remove(root: Path, found: list[Removable]) -> None:
    """Remove `found`, and temporary folders of imports whose process is gone."""
    for entry in found:
        if entry.path.is_dir() and not entry.path.is_symlink():
            shutil.rmtree(entry.path)
        else:
            entry.path.unlink(missing_ok=True)
    remove_stale(root)


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


def list_artefacts(root: Path) -> list[ArtefactInfo]:
    """Return every artefact in the folder of all systems' artefacts, and all remains
    but those in preparation, least recently used first."""
    found = []
    for folder in _folders(root):
        for path in _folders(folder):
            complete = not path.name.startswith(".")
            # Other processes may remove folders meanwhile.
            with suppress(FileNotFoundError):
                if complete or is_remains(path):
                    found.append(
                        ArtefactInfo(
                            folder.name,
                            path.name,
                            path,
                            _bytes(path),
                            last_used(path),
                            complete,
                        )
                    )
    return sorted(found, key=attrgetter("last_used", "system", "key"))


def stale(
    infos: Sequence[ArtefactInfo],
    *,
    keep_bytes: int | None = None,
    older_than_s: float | None = None,
) -> list[ArtefactInfo]:
    """Return the artefacts to remove of `list_artefacts`: remains of killed
    preparations, and those a limit selects.

    Limits (None: none): the bytes to keep, of the most recently used artefacts, and the
    seconds since the last use.
    """
    now = time.time()
    kept = 0
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

    Each folder is renamed first, so that a killed removal leaves no incomplete
    artefact.
    """
    removed = []
    for info in infos:
        root = info.path.parent
        if not root.is_dir():
            continue
        with unused(root) as free, suppress(FileNotFoundError):
            if not free or not (info.complete or is_remains(info.path)):
                continue
            renamed = root / f"{temporary_prefix(info.path.name)}removed"
            shutil.rmtree(info.path.rename(renamed) if info.complete else info.path)
            removed.append(info)
    return removed


def _folders(root: Path) -> list[Path]:
    return (
        sorted(path for path in root.iterdir() if path.is_dir())
        if root.is_dir()
        else []
    )


def _bytes(folder: Path) -> int:
    return sum(
        path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()
    )

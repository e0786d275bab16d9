"""Removal of files from a results root: half-written runs, replaced records, files of figures no longer known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.records.hosts import host_fingerprint
from harness.results import store as results

FIGURES = "figures"


@dataclass(frozen=True)
class Doomed:
    """A file or folder that can be removed, and the reason."""

    path: Path
    why: str


def doomed(root: Path, figures: Collection[str], *, failed: bool = False, damaged: bool = False) -> list[Doomed]:
    """Return the files and folders under a results root that can be removed.

    A record is replaced by a newer one of the same configuration, round and host; a failed one replaces no record.

    Args:
        root, figures: results root, and the ids of all known figures.
        failed, damaged: whether to include failed runs, and unreadable records, except those of another schema.
    """
    found = [Doomed(path, "half-written") for path in sorted(results.runs_folder(root).glob(f"{results.PARTIAL}*"))]
    newest: dict[tuple[str, int, str], Path] = {}
    bad: list[results.BadRecord] = []
    for folder, record in results.scan(root, bad):
        if record.status == "failed":
            if failed:
                found.append(Doomed(folder, "failed"))
            continue
        key = (record.config_hash, record.config.round, host_fingerprint(record.environment))
        if key in newest:
            found.append(Doomed(newest[key], f"replaced by {folder.name}"))
        newest[key] = folder
    if damaged:
        found += [Doomed(Path(entry.path), entry.reason) for entry in bad if not entry.other_schema]
    return [*found, *_stale_figures(root / FIGURES, figures)]


def _stale_figures(folder: Path, known: Collection[str]) -> Iterator[Doomed]:
    """Yield the files of figures no longer in the catalogue, as listed in the JSON written beside each drawing."""
    if not folder.is_dir():
        return
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            ours = content["id"] == path.stem and content["status"] in ("drawn", "not drawn")
            names = [str(name) for name in content["files"]]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if not ours or path.stem in known:
            continue
        for name in [*names, path.name]:
            if Path(name).name == name and Path(name).stem == path.stem and (folder / name).is_file():
                yield Doomed(folder / name, "no figure of that name")


def remove(root: Path, found: list[Doomed]) -> None:
    """Remove `found`, and temporary folders of imports whose process is gone."""
    from workloads.tempfolder import remove_stale

    for entry in found:
        if entry.path.is_dir() and not entry.path.is_symlink():
            shutil.rmtree(entry.path)
        else:
            entry.path.unlink(missing_ok=True)
    remove_stale(root)

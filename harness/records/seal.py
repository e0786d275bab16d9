"""Seal of a run folder: a digest of each part, so that a later change is detected (rule
29)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from workloads.arraytypes import JsonDict

# Without the log, from which no number is taken.
TABLES = ("telemetry.parquet", "stages.parquet", "batches.parquet")
RECORD = "record"
# Notes on tables of which a run folder has a thinned copy: digests of the sealed table
# and of the copy, and their rows.
THINNED = "thinned.json"


def sealed(content: JsonDict, folder: Path) -> JsonDict:
    """Return a record's content with the seal over it and over the tables in
    `folder`."""
    seal = {
        name: file_digest(folder / name) for name in TABLES if (folder / name).is_file()
    }
    seal[RECORD] = content_digest(content | {"seal": seal})
    return content | {"seal": seal}


def broken(content: JsonDict) -> str:
    """Return the reason why a record's content differs from its seal; empty if it does
    not."""
    seal = content.get("seal") or {}
    if not seal:
        return "it was never sealed"
    others = {name: digest for name, digest in seal.items() if name != RECORD}
    if seal.get(RECORD) != content_digest(content | {"seal": others}):
        return "record.json was changed after it was written"
    return ""


def is_sealed(table: Path, digest: str) -> bool:
    """Return whether a table is the one sealed by `digest`, or the copy of it that
    `thinned.json` beside it notes."""
    own = file_digest(table)
    note = table.with_name(THINNED)
    if own == digest or not note.is_file():
        return own == digest
    reported = json.loads(note.read_text(encoding="utf-8"))
    copy = reported.get(table.name) if isinstance(reported, dict) else None
    return isinstance(copy, dict) and (copy.get("sealed"), copy.get("digest")) == (
        digest,
        own,
    )


def content_digest(content: JsonDict, digits: int = 32) -> str:
    """Return the hex digits of a digest of plain data, independent of the order of its
    keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def file_digest(path: Path) -> str:
    """Return the digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]

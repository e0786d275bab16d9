"""The seal of a run folder: a digest of each of its parts, so that what was changed afterwards is seen (rule 29)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

Plain = dict[str, Any]

# The log is for people; no number comes from it.
TABLES = ("telemetry.parquet", "stages.parquet", "batches.parquet")
RECORD = "record"


def sealed(content: Plain, folder: Path) -> Plain:
    """`content` of a record with the seal over itself and over the tables in `folder`."""
    seal = {name: file_digest(folder / name) for name in TABLES if (folder / name).is_file()}
    seal[RECORD] = content_digest(content | {"seal": seal})
    return content | {"seal": seal}


def broken(content: Plain) -> str:
    """Why the record itself is not as it was sealed; empty where it is."""
    seal = content.get("seal") or {}
    if not seal:
        return "it was never sealed"
    others = {name: digest for name, digest in seal.items() if name != RECORD}
    if seal.get(RECORD) != content_digest(content | {"seal": others}):
        return "record.json was changed after it was written"
    return ""


def content_digest(content: Plain) -> str:
    """Digest of plain data, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def file_digest(path: Path) -> str:
    """Digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]

"""Cache of measurements and derived facts, by fingerprint of all that they depend
on."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from harness.atomic import whole_file
from workloads.errors import OutcoreError

_ROOT = Path(__file__).resolve().parents[1]


class Cache:
    """Small JSON files in a folder, by kind and fingerprint; a damaged file counts as
    missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, kind: str, key: str) -> Path:
        """Return the file of an entry."""
        return self.folder / f"{kind}-{key}.json"

    def get(
        self, kind: str, key: str, max_age_s: float = math.inf
    ) -> dict[str, Any] | None:
        """Return an entry's content; None where it is missing, damaged or, by its
        `measured_at`, `max_age_s` old."""
        try:
            content = json.loads(self.path(kind, key).read_text(encoding="utf-8"))
            fresh = (
                math.isinf(max_age_s)
                or 0 <= time.time() - content["measured_at"] < max_age_s
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return content if isinstance(content, dict) and fresh else None

    def put(self, kind: str, key: str, content: dict[str, Any]) -> None:
        """Write an entry atomically; on a full disk the next run measures again."""
        with (
            suppress(OutcoreError),
            whole_file(self.path(kind, key), "the cache") as partial,
        ):
            partial.write_text(json.dumps(content), encoding="utf-8")

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry, if there is one."""
        with suppress(OSError):
            self.path(kind, key).unlink()


def digest_of(content: Any) -> str:
    """Return 16 hex digits over plain data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(settings: BaseModel, keys: Iterable[str]) -> str:
    """Return 16 hex digits over some fields of `settings`, the versions of Python and
    torch, and the code."""
    import torch

    digest = hashlib.sha256()
    for layer in ("workloads", "systems", "harness/worker", "harness/wire"):
        for file in sorted((_ROOT / layer).rglob("*")):
            if file.suffix in (".py", ".so", ".toml"):
                stat = file.stat()
                digest.update(
                    f"{file.relative_to(_ROOT)}:{stat.st_size}:{stat.st_mtime_ns}\n".encode()
                )
    versions = {
        "python": sys.version,
        "torch": torch.__version__,
        "code": digest.hexdigest()[:16],
    }
    return digest_of(
        {**settings.model_dump(mode="json", include=set(keys)), **versions}
    )

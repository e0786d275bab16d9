"""Cache of measurements and derived facts under a results root, by fingerprint of all that they depend on."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

_ROOT = Path(__file__).resolve().parents[1]


class Cache:
    """Small JSON files in `folder`, `<results root>/cache`, by fingerprint; a damaged file counts as missing."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "cache"

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the content of an entry; None where it is missing or damaged."""
        try:
            content = json.loads((self.folder / f"{kind}-{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def put(self, kind: str, key: str, content: dict[str, Any]) -> None:
        """Write an entry atomically; on a full disk the next run measures again."""
        file = self.folder / f"{kind}-{key}.json"
        partial = file.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(content), encoding="utf-8")
            partial.rename(file)
        except OSError:
            partial.unlink(missing_ok=True)


def fingerprint(settings: BaseModel, keys: Iterable[str]) -> str:
    """Return 16 hex digits over some fields of `settings`, the versions of Python and torch, and the code."""
    import torch

    content = {
        **settings.model_dump(mode="json", include=set(keys)),
        "python": sys.version,
        "torch": torch.__version__,
        "code": _code_fingerprint(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _code_fingerprint() -> str:
    """Return a digest that changes with any source of the lower layers, so that other code is measured again."""
    digest = hashlib.sha256()
    for layer in ("workloads", "systems"):
        for file in sorted((_ROOT / layer).rglob("*")):
            if file.suffix in (".py", ".so", ".toml"):
                stat = file.stat()
                digest.update(f"{file.relative_to(_ROOT)}:{stat.st_size}:{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]

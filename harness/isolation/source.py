"""Digest of Outcore's code, which labels an image, so that runs of different code are
not mixed up. Imports nothing of Outcore's: `containers/build` reads it before anything
is installed."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_LAYERS = ("harness", "outcore", "systems", "workloads")
_KINDS = (".py", ".cpp", ".hpp", ".toml")


def source_digest(root: Path = _ROOT) -> str:
    """Return 16 hex digits over the code of the three layers: the same in a checkout
    and in an image made of it."""
    digest = hashlib.sha256()
    for layer in _LAYERS:
        for file in sorted((root / layer).rglob("*")):
            if file.suffix in _KINDS and "__pycache__" not in file.parts:
                digest.update(
                    f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0"
                )
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.stdout.write(f"{source_digest()}\n")

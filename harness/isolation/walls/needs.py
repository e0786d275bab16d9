"""Parts of the host that a command in a sandbox or a container needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.isolation.walls.syscalls import Sockets


@dataclass(frozen=True)
class Needs:
    """Parts of the host that the work inside needs: a sandbox or a container shows
    these and code alone. `read_only`, `writable`: folders and files, visible inside at
    the same paths. `hidden`: folders that appear empty inside, but for those needed
    parts, even where they lie in a folder of code. `gpu`: whether the work computes on
    a GPU. `sockets`: sockets that the work may open. `image`: container image that
    contains the work; None for Outcore's own."""

    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    gpu: bool = False
    sockets: Sockets = "none"
    image: str | None = None

    def mounts(self) -> dict[Path, bool]:
        """Return whether each needed path is read-only, targets of links included; a
        path that is needed for both is writable."""
        links = (path.resolve() for path in self.read_only)
        named = (path.absolute() for path in self.read_only)
        writable = (path.absolute() for path in self.writable)
        return dict.fromkeys([*named, *links], True) | dict.fromkeys(writable, False)

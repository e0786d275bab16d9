"""Mounts of this process, mount points of the cgroup hierarchies, and the groups of a
process."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from harness.isolation.files import read_text

IN_MEMORY = (
    "tmpfs",
    "ramfs",
    "devtmpfs",
    "hugetlbfs",
)  # file systems whose files are memory


@dataclass(frozen=True)
class Mount:
    """One mount: mount point, file-system type, options (of the mount, then of the file
    system), device (`major:minor`), source, and the folder of the file system that is
    mounted."""

    point: Path
    kind: str
    options: str
    device: str
    source: str = ""
    root: str = "/"

    @property
    def upper(self) -> str:
        """Upper folder of an overlay, else empty."""
        return next(
            (
                _plain(one[9:])
                for one in self.options.split(",")
                if one.startswith("upperdir=")
            ),
            "",
        )


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy: its mount point and the group of this process inside
    it."""

    mount: Path
    own: Path
    controllers: tuple[str, ...]

    def bases(self) -> list[Path]:
        """Return where groups may be made: this process's group, so that its limits
        hold too, else the mount's root."""
        return [self.own] if self.own == self.mount else [self.own, self.mount]


def groups_of(proc: Path, pid: int | str = "self") -> dict[str, str]:
    """Return controller -> path of a process's group; the key of cgroup v2 is the empty
    string."""
    groups: dict[str, str] = {}
    for line in read_text(proc / str(pid) / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _inside(mount: Path, mount_root: str, path: str) -> Path:
    """Return a group's folder below `mount`, of which a container may have only the
    part below `mount_root`."""
    if mount_root != "/" and (path == mount_root or path.startswith(mount_root + "/")):
        path = path[len(mount_root) :]
    folder = mount / path.lstrip("/")
    # In a container's own cgroup namespace the path may lead outside (`/..`); then only
    # the mount is visible.
    return folder if ".." not in folder.parts and folder.is_dir() else mount


def all_mounts(proc: Path = Path("/proc")) -> list[Mount]:
    """Return every mount; a later one covers earlier ones on the same point."""
    found = []
    for line in read_text(proc / "self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        kind, _, right = right.partition(" ")
        source, _, own = right.partition(" ")
        if len(fields) > 5:
            options = f"{fields[5]},{own}" if own else fields[5]
            found.append(
                Mount(
                    Path(_plain(fields[4])),
                    kind,
                    options,
                    fields[2],
                    _plain(source),
                    _plain(fields[3]),
                )
            )
    return found


def mount_of(path: Path, proc: Path = Path("/proc")) -> Mount:
    """Return the mount that holds `path` or, where it does not exist yet, its nearest
    existing parent."""
    real = existing(path).resolve()
    # In a chroot the table does not show the mount of /; the device number of the file
    # still does.
    number = real.stat().st_dev
    best = Mount(Path("/"), "unknown", "", f"{os.major(number)}:{os.minor(number)}")
    for mount in all_mounts(proc):
        if real.is_relative_to(mount.point) and len(mount.point.parts) >= len(
            best.point.parts
        ):
            best = mount
    return best


def existing(path: Path) -> Path:
    """Return `path` or its nearest parent that exists."""
    return next(
        candidate
        for candidate in (path, *path.absolute().parents)
        if candidate.exists()
    )


def _plain(text: str) -> str:
    """Return a path without the kernel's octal escapes, like `\\040` for a space."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def v1(controller: str, proc: Path = Path("/proc")) -> Hierarchy | None:
    """Return the cgroup v1 hierarchy that has `controller`, None where none is
    mounted."""
    own = groups_of(proc)
    for mount in all_mounts(proc):
        if (
            mount.kind == "cgroup"
            and controller in mount.options.split(",")
            and controller in own
        ):
            return Hierarchy(
                mount.point,
                _inside(mount.point, mount.root, own[controller]),
                (controller,),
            )
    return None


def v2(proc: Path = Path("/proc")) -> Hierarchy | None:
    """Return the cgroup v2 hierarchy and its controllers (none where v1 holds them),
    None where it is not mounted."""
    own = groups_of(proc)
    for mount in all_mounts(proc):
        if mount.kind == "cgroup2":
            controllers = tuple(read_text(mount.point / "cgroup.controllers").split())
            return Hierarchy(
                mount.point,
                _inside(mount.point, mount.root, own.get("", "/")),
                controllers,
            )
    return None


def version(proc: Path = Path("/proc")) -> str:
    """Return `v2`, `v1`, `hybrid` (v2 mounted, memory with v1) or `none`, for the run
    record."""
    unified = v2(proc)
    memory = v1("memory", proc)
    if unified and "memory" in unified.controllers:
        return "v2"
    if memory:
        return "hybrid" if unified else "v1"
    return "none"

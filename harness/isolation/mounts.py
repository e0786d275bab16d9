"""Mount points of the cgroup hierarchies, and the groups of this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.isolation.files import read_text


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy: its mount point and the group of this process inside it."""

    mount: Path
    own: Path
    controllers: tuple[str, ...]

    def bases(self) -> list[Path]:
        """Return where groups may be made: this process's group, so that its limits hold too, else the mount's root."""
        return [self.own] if self.own == self.mount else [self.own, self.mount]


def _own_groups(proc: Path) -> dict[str, str]:
    """Return controller -> path of this process's group; the key of cgroup v2 is the empty string."""
    groups: dict[str, str] = {}
    for line in read_text(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def _inside(mount: Path, mount_root: str, path: str) -> Path:
    """Return a group's folder below `mount`, of which a container may have only the part below `mount_root`."""
    if mount_root != "/" and (path == mount_root or path.startswith(mount_root + "/")):
        path = path[len(mount_root) :]
    folder = mount / path.lstrip("/")
    # In a container's own cgroup namespace the path may lead outside (`/..`); then only the mount is visible.
    return folder if ".." not in folder.parts and folder.is_dir() else mount


def _mounts(proc: Path) -> list[tuple[str, str, Path, list[str]]]:
    """Return (file-system type, mounted root, mount point, super options) of every mount."""
    found = []
    for line in read_text(proc / "self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) > 4 and len(kind) > 2:
            found.append((kind[0], fields[3], Path(fields[4].replace("\\040", " ")), kind[2].split(",")))
    return found


def v1(controller: str, proc: Path = Path("/proc")) -> Hierarchy | None:
    """Return the cgroup v1 hierarchy that has `controller`, None where none is mounted."""
    own = _own_groups(proc)
    for kind, root, mount, options in _mounts(proc):
        if kind == "cgroup" and controller in options and controller in own:
            return Hierarchy(mount, _inside(mount, root, own[controller]), (controller,))
    return None


def v2(proc: Path = Path("/proc")) -> Hierarchy | None:
    """Return the cgroup v2 hierarchy and its controllers (none where v1 holds them), None where it is not mounted."""
    own = _own_groups(proc)
    for kind, root, mount, _ in _mounts(proc):
        if kind == "cgroup2":
            controllers = tuple(read_text(mount / "cgroup.controllers").split())
            return Hierarchy(mount, _inside(mount, root, own.get("", "/")), controllers)
    return None


def version(proc: Path = Path("/proc")) -> str:
    """Return `v2`, `v1`, `hybrid` (v2 mounted, memory with v1) or `none`, for the run record."""
    unified, memory = v2(proc), v1("memory", proc)
    if unified and "memory" in unified.controllers:
        return "v2"
    if memory:
        return "hybrid" if unified else "v1"
    return "none"

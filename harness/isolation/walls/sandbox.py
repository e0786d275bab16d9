"""Sandbox of a worker, made by bubblewrap: it sees code, its dataset, its scratch and
its artefacts, and nothing else.

The worker has its own process, IPC, network, UTS and mount spaces, no capability and no
way to gain one, and a list of refused system calls
(`harness/isolation/walls/syscalls.py`). The memory cap is outside: the launcher joins
the cap, then executes bubblewrap. `docs/threat-model.md` names each wall.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.isolation.walls.host_view import USR_LINKS, code_folders, code_paths
from harness.isolation.walls.needs import Needs
from harness.isolation.walls.syscalls import program
from workloads.errors import HostError

INSTALL = "apt-get install bubblewrap libseccomp2"
#: Environment variable that turns the sandbox off (value `off`); runs are then recorded
#: as not sandboxed.
VARIABLE = "OUTCORE_SANDBOX"
WALLS = (
    "processes",
    "ipc",
    "network",
    "host name",
    "mounts",
    "no capabilities",
    "no new privileges",
    "system calls",
)
_TRIAL_S = 20.0
# io_uring registers its buffers as locked memory, which the cap charges: root keeps the
# capability for it.
_UNLOCK = 'ulimit -l unlimited 2>/dev/null; exec "$@"'
_SPACES = (
    "--unshare-pid --unshare-ipc --unshare-uts --cap-drop ALL --die-with-parent".split()
)
_SYSTEM = "--proc /proc --dev /dev --tmpfs /tmp --ro-bind /sys /sys".split()
# Root owns these files, and needs no capability to write to them.
_OF_ROOT = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi")


@dataclass(frozen=True)
class Walls:
    """Walls between a worker and the host: mechanism with its version, and the names of
    its walls. `missing`, `fix`: reason why there are none, and its remedy; empty
    otherwise."""

    kind: str = ""
    walls: tuple[str, ...] = ()
    missing: str = ""
    fix: str = ""


@functools.cache
def walls() -> Walls:
    """Return the walls of this host's sandbox, found by trying."""
    if os.environ.get(VARIABLE) == "off":
        return Walls(missing=f"{VARIABLE} is off", fix=f"unset {VARIABLE}")
    if shutil.which("bwrap") is None:
        return Walls(missing="bubblewrap is not installed", fix=INSTALL)
    try:
        words, descriptors = _wrapped(["true"], Needs())
    except HostError as error:
        return Walls(missing=error.message, fix=error.fix)
    try:
        done = subprocess.run(
            words,
            pass_fds=descriptors,
            capture_output=True,
            text=True,
            timeout=_TRIAL_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Walls(missing=f"bubblewrap does not start: {error}", fix=INSTALL)
    finally:
        close(descriptors)
    if done.returncode:
        fault = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[
            -1
        ]
        fix = (
            "run as root, or allow user namespaces (sysctl user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone)"
        )
        return Walls(missing=f"bubblewrap makes no sandbox here ({fault})", fix=fix)
    version = subprocess.run(
        ["bwrap", "--version"], capture_output=True, text=True, timeout=_TRIAL_S
    ).stdout.split()
    return Walls(
        kind=f"bubblewrap {version[-1] if version else ''}".strip(), walls=WALLS
    )


def command(argv: Sequence[str], needs: Needs) -> tuple[list[str], list[int]]:
    """Return `argv` in a sandbox, and the descriptors that it inherits; unchanged where
    this host has no sandbox."""
    return (list(argv), []) if walls().missing else _wrapped(argv, needs)


def close(descriptors: Sequence[int]) -> None:
    """Close descriptors of `command` after its start."""
    for descriptor in descriptors:
        os.close(descriptor)


def hidden_inside(needs: Needs, shown: Sequence[Path]) -> Iterator[Path]:
    """Yield the hidden folders that lie in shown ones and hold no code; others do not
    exist inside."""
    code = [*code_folders(), *_current()]
    for place in {
        place for path in needs.hidden for place in (path.absolute(), path.resolve())
    }:
        is_shown = any(place.is_relative_to(folder) for folder in shown)
        if (
            place.is_dir()
            and is_shown
            and not any(folder.is_relative_to(place) for folder in code)
        ):
            yield place


def _wrapped(argv: Sequence[str], needs: Needs) -> tuple[list[str], list[int]]:
    refused = os.memfd_create("outcore-seccomp", os.MFD_CLOEXEC)
    os.write(refused, program(needs.sockets))
    os.lseek(refused, 0, os.SEEK_SET)
    unlocked = ["/bin/sh", "-c", _UNLOCK, "outcore"]
    options = [*_spaces(needs), *_view(needs), "--seccomp", str(refused)]
    return [*unlocked, *_alone(needs), "bwrap", *options, "--", *argv], [refused]


def _alone(needs: Needs) -> list[str]:
    """Return the command for a network without a loopback device, over which no byte
    can be sent; it needs root."""
    return (
        ["unshare", "--net", "--"]
        if os.geteuid() == 0 and needs.sockets != "loopback"
        else []
    )


def _spaces(needs: Needs) -> list[str]:
    # bubblewrap brings the loopback device of a new network space up.
    network = [] if _alone(needs) else ["--unshare-net"]
    root = ["--cap-add", "CAP_IPC_LOCK"]
    users = ["--unshare-user", "--disable-userns"]
    return [*_SPACES, *network, *(root if os.geteuid() == 0 else users)]


def _view(needs: Needs) -> list[str]:
    """Return the options for the files inside: code, then hidden folders and needed
    files, each after its parents."""
    shown = [*code_paths(), *_current()]
    places = dict.fromkeys(shown, "--ro-bind")
    places |= dict.fromkeys(hidden_inside(needs, shown), "--tmpfs")
    for path, read_only in needs.mounts().items():
        places[path] = "--ro-bind" if read_only else "--bind"
    options = [*_links(), *_SYSTEM, *_kernel(), *_devices(needs)]
    for path, option in sorted(places.items(), key=lambda item: len(item[0].parts)):
        source = [] if option == "--tmpfs" else [str(path)]
        options += [option, *source, str(path)]
    folder = Path.cwd()
    within = any(folder.is_relative_to(path) for path in places)
    return [*options, "--remount-ro", "/", "--chdir", str(folder) if within else "/"]


def _current() -> list[Path]:
    """Return the current folder, from which a worker imports modules; none for the root
    folder."""
    return [Path.cwd()] if Path.cwd() != Path("/") else []


def _links() -> list[str]:
    options: list[str] = []
    for name in USR_LINKS:
        path = Path("/") / name
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            options += ["--ro-bind", str(path), str(path)]
    return options


def _kernel() -> list[str]:
    """Return the options that hide the control groups, and make settings of the kernel
    read-only."""
    options: list[str] = []
    for name in _OF_ROOT:
        path = f"/proc/{name}"
        options += ["--ro-bind-try", path, path]
    groups = Path("/sys/fs/cgroup")
    hidden = ["--tmpfs", str(groups), "--remount-ro", str(groups)]
    return [*options, *(hidden if groups.is_dir() else [])]


def _devices(needs: Needs) -> list[str]:
    options: list[str] = []
    with suppress(OSError):
        for node in sorted(Path("/dev").glob("nvidia*")) if needs.gpu else ():
            options += ["--dev-bind", str(node), str(node)]
    return options

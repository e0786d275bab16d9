"""Seccomp profile of a worker's container: the engine's own default with io_uring, without what a sandbox refuses.

Engines from 25 on deny io_uring by default. The default profile is compiled into the engine and no request returns it,
but the engine writes the resulting list of system calls and actions, already resolved for this kernel, architecture and
set of capabilities, into the runtime specification of every container. That list is read from a container with the
capabilities of workers (none), so an updated engine updates the profile. io_uring's three calls are added, and those
that a sandbox refuses (`harness/isolation/walls/syscalls.py`) are denied.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from harness.isolation.files import read_text
from harness.isolation.walls.syscalls import AF_UNIX, REFUSED, Sockets
from workloads.errors import HostError, InputError
from workloads.parsing import parse_json

CALLS = ("io_uring_setup", "io_uring_enter", "io_uring_register")
ALLOW, DENY = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
# Keys that a runtime's specification and an engine's profile share; other keys do not belong in a profile.
_KEYS = ("defaultAction", "defaultErrnoRet", "architectures", "syscalls")


def from_environment() -> dict[str, Any] | None:
    """Read the profile that `$OUTCORE_SECCOMP` names; None for none. Raises InputError: the file is no profile."""
    name = os.environ.get("OUTCORE_SECCOMP", "")
    if not name:
        return None
    try:
        profile = parse_json(Path(name).read_bytes())
        if "defaultAction" not in profile:
            raise ValueError("it has no defaultAction")
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"OUTCORE_SECCOMP is {name}, which is no seccomp profile ({error})", "unset it") from error
    return dict(profile)


def engine_default(pid: int, proc: Path = Path("/proc")) -> dict[str, Any]:
    """Return the profile that the engine's default became for the running container of process `pid`. The parent of a
    container's first process is its shim, whose working folder is the container's bundle, wherever engine and runtime
    keep their data. Raises HostError: this user may not read it (root may), or the engine uses no profile."""
    status = re.search(r"^PPid:\s*(\d+)", read_text(proc / str(pid) / "status"), re.MULTILINE)
    parent = status[1] if status else "0"
    try:
        specification = json.loads((proc / parent / "cwd" / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fix = "make one as root (`containers/seccomp-profile > FILE`) and set OUTCORE_SECCOMP=FILE"
        raise HostError("the engine's own seccomp profile cannot be read by this user", fix) from error
    profile = specification.get("linux", {}).get("seccomp")
    if not profile:
        raise HostError("the engine starts containers without a seccomp profile", "nothing needs to be allowed then")
    return {key: profile[key] for key in _KEYS if key in profile}


def with_io_uring(profile: dict[str, Any], action: str = ALLOW) -> dict[str, Any]:
    """Return `profile` with io_uring's calls allowed, or denied (EPERM) as in engines from 25 on, else unchanged."""
    rules = [{**rule, "names": [name for name in rule["names"] if name not in CALLS]} for rule in profile["syscalls"]]
    own = {"names": list(CALLS), "action": action}
    return {**profile, "syscalls": [*(rule for rule in rules if rule["names"]), own]}


def with_walls(profile: dict[str, Any], sockets: Sockets) -> dict[str, Any]:
    """Return `profile` with the calls denied (EPERM) that a sandbox refuses, and with the sockets that a worker needs,
    whatever the profile does by default."""
    refused = " ".join(REFUSED.values()).split()
    of_sockets = [] if sockets == "loopback" else ["socket", "socketpair"]
    left = [[name for name in rule["names"] if name not in (*refused, *of_sockets)] for rule in profile["syscalls"]]
    rules = [{**rule, "names": names} for rule, names in zip(profile["syscalls"], left, strict=True) if names]
    rules.append({"names": refused, "action": DENY})
    if sockets == "none":
        rules.append({"names": of_sockets, "action": DENY})
    if sockets == "unix":
        family = {"index": 0, "value": AF_UNIX}
        rules.append({"names": ["socketpair"], "action": ALLOW})
        rules.append({"names": ["socket"], "action": ALLOW, "args": [{**family, "op": "SCMP_CMP_EQ"}]})
        rules.append({"names": ["socket"], "action": DENY, "args": [{**family, "op": "SCMP_CMP_NE"}]})
    return {**profile, "syscalls": rules}

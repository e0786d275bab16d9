"""System calls that a worker is refused, in a sandbox as a BPF program made by
libseccomp, in a container as a profile.

Seccomp cannot see what io_uring does for a process, so a call that has an operation of
io_uring (`socket`, `setxattr`) needs another wall beside the list.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from dataclasses import dataclass
from typing import Any, Literal

from workloads.errors import HostError

#: Sockets of a run: of none, of its own processes by names of files, and of its ranks
#: over the loopback device.
Sockets = Literal["none", "unix", "loopback"]

#: Calls refused with EPERM, by the wall that each belongs to.
REFUSED = {
    "memory of other processes": "ptrace process_vm_readv process_vm_writev "
    "process_madvise pidfd_getfd kcmp",
    "memory that no cap charges": "mq_open mq_unlink msgget msgsnd msgrcv add_key "
    "request_key keyctl setxattr "
    "lsetxattr fsetxattr setxattrat userfaultfd",
    "mounts and name spaces": "mount umount2 pivot_root chroot move_mount "
    "open_tree fsopen fsconfig "
    "fsmount fspick "
    "mount_setattr unshare setns open_by_handle_at",
    "the kernel": "bpf perf_event_open kexec_load kexec_file_load init_module "
    "finit_module "
    "delete_module reboot swapon "
    "swapoff acct quotactl syslog",
}

#: Family of sockets that have names of files.
AF_UNIX = 1
# Flag of reserved huge pages, which are charged to no memory cgroup, and the argument
# that has it.
_HUGE_PAGES = {"mmap": (3, 0x40000), "memfd_create": (1, 0x4), "shmget": (2, 0o4000)}
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_SPACES = (
    0x20000,
    0x2000000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NOT_EQUAL = "SCMP_CMP_NE"
_HAS_FLAG = "SCMP_CMP_MASKED_EQ"
_NUMBERS = {_NOT_EQUAL: 1, _HAS_FLAG: 7}


@dataclass(frozen=True)
class Refusal:
    """Refused system call. `comparison`: libseccomp's name of the comparison of
    `argument` with `value` by which the call is refused; empty: always. `code`: error
    number."""

    name: str
    comparison: str = ""
    argument: int = 0
    value: int = 0
    code: int = errno.EPERM


def refusals(sockets: Sockets) -> list[Refusal]:
    """Return the refused calls of a worker that needs these sockets."""
    names = " ".join(REFUSED.values()).split()
    found = [Refusal(name) for name in names]
    if sockets == "none":
        found += [Refusal("socket"), Refusal("socketpair")]
    if sockets == "unix":
        found.append(Refusal("socket", _NOT_EQUAL, 0, AF_UNIX))
    found += [Refusal(name, _HAS_FLAG, *place) for name, place in _HUGE_PAGES.items()]
    found += [Refusal("clone", _HAS_FLAG, 0, flag) for flag in _NEW_SPACES]
    # A filter cannot see the flags of clone3; the C library then uses clone.
    found.append(Refusal("clone3", code=errno.ENOSYS))
    return found


def profile(sockets: Sockets) -> dict[str, Any]:
    """Return the refused calls as a container engine's seccomp profile."""
    rules: list[dict[str, Any]] = []
    for one in refusals(sockets):
        rule: dict[str, Any] = {
            "names": [one.name],
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": one.code,
        }
        if one.comparison:
            values = {"value": one.value, "valueTwo": one.value}
            rule["args"] = [{"index": one.argument, "op": one.comparison, **values}]
        rules.append(rule)
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}


class _Compare(ctypes.Structure):
    """Comparison of an argument of a call (`struct scmp_arg_cmp`)."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


@functools.cache
def program(sockets: Sockets) -> bytes:
    """Return the refused calls as a BPF program. Raises HostError: libseccomp is
    missing, or fails."""
    library = _library()
    rules = library.seccomp_init(ctypes.c_uint32(_ALLOW))
    try:
        for one in refusals(sockets):
            _refuse(library, rules, one)
        return _exported(library, rules)
    finally:
        library.seccomp_release(rules)


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError as error:
        raise HostError(
            "libseccomp is not installed", "apt-get install libseccomp2"
        ) from error
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_release.argtypes = (ctypes.c_void_p,)
    library.seccomp_rule_add_array.argtypes = (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Compare),
    )
    library.seccomp_export_bpf.argtypes = (ctypes.c_void_p, ctypes.c_int)
    return library


def _refuse(library: ctypes.CDLL, rules: int, one: Refusal) -> None:
    number = library.seccomp_syscall_resolve_name(one.name.encode())
    if number == -1:
        return  # an older libseccomp does not know a newer call
    compare = (_Compare * 1)()
    if one.comparison:
        compare[0] = _Compare(
            one.argument, _NUMBERS[one.comparison], one.value, one.value
        )
    count = int(bool(one.comparison))
    failed = library.seccomp_rule_add_array(
        rules, _ERRNO | one.code, number, count, compare
    )
    if failed:
        raise HostError(
            f"libseccomp cannot refuse {one.name} ({os.strerror(-failed)})",
            "update libseccomp",
        )


def _exported(library: ctypes.CDLL, rules: int) -> bytes:
    descriptor = os.memfd_create("outcore-seccomp", os.MFD_CLOEXEC)
    try:
        failed = library.seccomp_export_bpf(rules, descriptor)
        if failed:
            raise HostError(
                f"libseccomp makes no program ({os.strerror(-failed)})",
                "update libseccomp",
            )
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)

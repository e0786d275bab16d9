"""List of system calls that a worker's sandbox refuses, as the BPF program of a seccomp filter made by libseccomp.

Seccomp cannot see what io_uring does for a process, so a call that has an operation of io_uring (`socket`, `setxattr`)
needs another wall beside the list.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import Literal

from workloads.errors import HostError

#: Sockets of a run: of none, of its own processes by names of files, and of its ranks over the loopback device.
Sockets = Literal["none", "unix", "loopback"]

#: Calls refused with EPERM, by the wall that each belongs to.
REFUSED = {
    "memory of other processes": "ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp",
    "memory that no cap charges": "mq_open mq_unlink msgget msgsnd msgrcv add_key request_key keyctl setxattr "
    "lsetxattr fsetxattr setxattrat userfaultfd",
    "mounts and name spaces": "mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick "
    "mount_setattr unshare setns open_by_handle_at",
    "the kernel": "bpf perf_event_open kexec_load kexec_file_load init_module finit_module delete_module reboot swapon "
    "swapoff acct quotactl syslog",
}

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NOT_EQUAL, _MASKED_EQUAL = 1, 7
#: Family of sockets that have names of files.
AF_UNIX = 1
_HUGE_PAGES = {"mmap": (3, 0x40000), "memfd_create": (1, 0x4), "shmget": (2, 0o4000)}
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_SPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)


class _Compare(ctypes.Structure):
    """Comparison of an argument of a call (`struct scmp_arg_cmp`)."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


@functools.cache
def program(sockets: Sockets) -> bytes:
    """Return the BPF program that refuses the calls. Raises HostError: libseccomp is missing, or fails."""
    library = _library()
    rules = library.seccomp_init(ctypes.c_uint32(_ALLOW))
    try:
        for name in " ".join(REFUSED.values()).split():
            _refuse(library, rules, name)
        for name in ("socket", "socketpair") if sockets == "none" else ():
            _refuse(library, rules, name)
        if sockets == "unix":
            _refuse(library, rules, "socket", _Compare(0, _NOT_EQUAL, AF_UNIX, 0))
        # Reserved huge pages are charged to no memory cgroup.
        for name, (argument, flag) in _HUGE_PAGES.items():
            _refuse(library, rules, name, _Compare(argument, _MASKED_EQUAL, flag, flag))
        for flag in _NEW_SPACES:
            _refuse(library, rules, "clone", _Compare(0, _MASKED_EQUAL, flag, flag))
        # A filter cannot see the flags of clone3; the C library then uses clone.
        _refuse(library, rules, "clone3", code=errno.ENOSYS)
        return _exported(library, rules)
    finally:
        library.seccomp_release(rules)


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError as error:
        raise HostError("libseccomp is not installed", "apt-get install libseccomp2") from error
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


def _refuse(library: ctypes.CDLL, rules: int, name: str, *compare: _Compare, code: int = errno.EPERM) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number == -1:
        return  # an older libseccomp does not know a newer call
    arguments = (_Compare * len(compare))(*compare)
    failed = library.seccomp_rule_add_array(rules, _ERRNO | code, number, len(compare), arguments)
    if failed:
        raise HostError(f"libseccomp cannot refuse {name} ({os.strerror(-failed)})", "update libseccomp")


def _exported(library: ctypes.CDLL, rules: int) -> bytes:
    descriptor = os.memfd_create("outcore-seccomp", os.MFD_CLOEXEC)
    try:
        failed = library.seccomp_export_bpf(rules, descriptor)
        if failed:
            raise HostError(f"libseccomp makes no program ({os.strerror(-failed)})", "update libseccomp")
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)

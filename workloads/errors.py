"""Errors that a user may see: each gives the fault and its fix in a sentence."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from typing import Self

_REMOUNT = "choose a folder on a file system that is mounted for writing"
_SPACE = "free some space there (`df -h`, `df -i`), or choose another disk"
_DEVICE = "check the device (`dmesg` has the kernel's messages)"


def _open_files() -> tuple[str, str]:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    fix = (
        f"raise it: `ulimit -n {max(4096, 4 * limit)}`, in a new shell if this one may "
        "not"
    )
    return f"too many open files: a process may have {limit} here (`ulimit -n`)", fix


def _memory() -> tuple[str, str]:
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    allowed = "any" if locked == resource.RLIM_INFINITY else f"{locked >> 10} KiB of"
    reason = (
        f"the kernel gives no more memory (a process may lock {allowed} memory, "
        "`ulimit -l`)"
    )
    return reason, "free some memory, or raise the limit of locked memory"


def _file_size() -> tuple[str, str]:
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return (
            "the file is larger than its file system allows",
            "choose a folder on another file system",
        )
    return (
        f"the file is larger than the {limit} bytes that a process may write (`ulimit "
        "-f`)",
        "raise that limit",
    )


#: Cause and fix by the number of the error.
_CAUSES: dict[int, Callable[[], tuple[str, str]]] = {
    errno.EMFILE: _open_files,
    errno.ENFILE: lambda: (
        os.strerror(errno.ENFILE),
        "end other programs, or raise `sysctl fs.file-max` as root",
    ),
    errno.ENOMEM: _memory,
    errno.EFBIG: _file_size,
    errno.ENOSPC: lambda: (os.strerror(errno.ENOSPC), _SPACE),
    errno.EDQUOT: lambda: (
        os.strerror(errno.EDQUOT),
        "free some space of this user there, or raise the quota",
    ),
    errno.EROFS: lambda: (os.strerror(errno.EROFS), _REMOUNT),
    errno.EIO: lambda: (os.strerror(errno.EIO), _DEVICE),
    errno.ENODEV: lambda: (os.strerror(errno.ENODEV), _DEVICE),
    errno.ENXIO: lambda: (os.strerror(errno.ENXIO), _DEVICE),
    errno.ESTALE: lambda: (
        os.strerror(errno.ESTALE),
        "mount the network file system again",
    ),
}
_MAY_NOT = "check the permissions of the file, and of the folders above it"
_OF_PLACE = dict.fromkeys((errno.EACCES, errno.EPERM), _MAY_NOT) | dict.fromkeys(
    (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
    "check the path",
)


def fault_of(error: OSError | int, fix: str = "") -> tuple[str, str]:
    """Return the cause of an error (or of its number) in words, and the fix for this
    cause.

    `fix` is for errors of the place: a wrong path, a missing permission.
    """
    code = error if isinstance(error, int) else error.errno or 0
    if code in _CAUSES:
        return _CAUSES[code]()
    if isinstance(error, int):
        reason = os.strerror(code)
    else:
        reason = error.strerror or str(error)
    return reason, fix or _OF_PLACE.get(code, "")


def is_of_host(error: OSError) -> bool:
    """Return whether the cause is a limit or a disk of the host, whatever file was
    opened."""
    return error.errno in _CAUSES


class OutcoreError(Exception):
    """Error that a user can fix: `message` names the fault, with the value and its
    place, and `fix` the remedy."""

    kind = "error"
    exit_code = 2

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    @classmethod
    def from_os(cls, error: OSError, message: str, fix: str = "") -> Self:
        """Return the error for a refusal of the system: its reason follows `message`,
        and `fix` is for a wrong place or permission; other causes, like a full disk,
        have their own fix."""
        reason, own = fault_of(error, fix)
        return cls(f"{message}: {reason}", own)

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}" if self.fix else self.message

    def as_dict(self) -> dict[str, str]:
        """Return the error as the CLI prints it under `--json`."""
        return {"kind": self.kind, "message": self.message, "fix": self.fix}


class InputError(OutcoreError):
    """Wrong input: an unknown key, a wrong unit, an impossible combination."""

    kind = "input"


def require(
    valid: object, message: str, fix: str = "", error: type[OutcoreError] = InputError
) -> None:
    """Raise `error` with `message` and `fix` unless an input is valid."""
    if not valid:
        raise error(message, fix)


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Check that an option has one of its values; raises InputError with the option,
    its value and its valid values."""
    fault = f"{option} is {value!r}"
    fix = f"choose {', '.join(choices[:-1])} or {choices[-1]}"
    require(value in choices, fault, fix)


class DatasetError(OutcoreError):
    """Missing, truncated, swapped or corrupted dataset."""

    kind = "dataset"


class BudgetError(OutcoreError):
    """Plan that does not fit its budget; names the part that exceeds it."""

    kind = "budget"


class HostError(OutcoreError):
    """Host that lacks a capability of the run; the fix is the command that repairs the
    host."""

    kind = "host"
    exit_code = 3


class DataIOError(OutcoreError):
    """Failed read or write of data during a run; names file and offset."""

    kind = "io"
    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        offset: int = -1,
        errno: int = 0,
        fix: str = "",
    ) -> None:
        super().__init__(message, fix)
        self.path = path
        self.offset = offset
        self.errno = errno

    @classmethod
    def of(
        cls, error: OSError, message: str, path: object, fix: str = ""
    ) -> DataIOError:
        """Return the error for a failed call on `path`; reason and fix are from
        `from_os`."""
        reason, own = fault_of(error, fix)
        return cls(
            f"{message}: {reason}", path=str(path), errno=error.errno or 0, fix=own
        )

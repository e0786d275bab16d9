"""Errors that a user may see: each names the fault and its fix in one sentence."""

from __future__ import annotations


class OutcoreError(Exception):
    """Error that a user can fix: `message` names the fault, with the value and its place, and `fix` the remedy."""

    kind = "error"
    exit_code = 2

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}" if self.fix else self.message

    def as_dict(self) -> dict[str, str]:
        """Return the error as the CLI prints it under `--json`."""
        return {"kind": self.kind, "message": self.message, "fix": self.fix}


class InputError(OutcoreError):
    """Wrong input: an unknown key, a wrong unit, an impossible combination."""

    kind = "input"


def require(valid: object, message: str, fix: str = "", error: type[OutcoreError] = InputError) -> None:
    """Raise `error` with `message` and `fix` unless an input is valid."""
    if not valid:
        raise error(message, fix)


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Check that an option has one of its values; raises InputError with the option, its value and its valid values."""
    require(value in choices, f"{option} is {value!r}", f"choose {', '.join(choices[:-1])} or {choices[-1]}")


class DatasetError(OutcoreError):
    """Missing, truncated, swapped or corrupted dataset."""

    kind = "dataset"


class BudgetError(OutcoreError):
    """Plan that does not fit its budget; names the part that exceeds it."""

    kind = "budget"


class HostError(OutcoreError):
    """Host that lacks a capability of the run; the fix is the command that repairs the host."""

    kind = "host"
    exit_code = 3


class DataIOError(OutcoreError):
    """Failed read or write of data during a run; names file and offset."""

    kind = "io"
    exit_code = 1

    def __init__(self, message: str, *, path: str = "", offset: int = -1, errno: int = 0, fix: str = "") -> None:
        super().__init__(message, fix)
        self.path = path
        self.offset = offset
        self.errno = errno

    @classmethod
    def of(cls, error: OSError, message: str, path: object, fix: str = "") -> DataIOError:
        """Return the error for a failed call on `path`; the system's reason follows the message."""
        return cls(f"{message}: {error.strerror or error}", path=str(path), errno=error.errno or 0, fix=fix)

"""The one family of errors that a user may see: what is wrong, and the fix, in a sentence."""

from __future__ import annotations


class OutcoreError(Exception):
    """A mistake or a limit that a person can mend.

    Args:
        message: one sentence that says what is wrong, with the value and its place.
        fix: one phrase that says what to do.
    """

    kind = "error"
    exit_code = 2

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}; {self.fix}" if self.fix else self.message

    def as_dict(self) -> dict[str, str]:
        """The error as the CLI prints it under `--json`."""
        return {"kind": self.kind, "message": self.message, "fix": self.fix}


class InputError(OutcoreError):
    """Wrong input: an unknown key, a wrong unit, an impossible combination."""

    kind = "input"


class DatasetError(OutcoreError):
    """A dataset is missing, truncated, swapped or corrupted."""

    kind = "dataset"


class BudgetError(OutcoreError):
    """A plan does not fit its budget; names the part that does not."""

    kind = "budget"


class HostError(OutcoreError):
    """This host cannot do it; the fix is the command that mends the host."""

    kind = "host"
    exit_code = 3


class DataIOError(OutcoreError):
    """A read or write of data failed while running; names file and offset."""

    kind = "io"
    exit_code = 1

    def __init__(self, message: str, *, path: str = "", offset: int = -1, errno: int = 0, fix: str = "") -> None:
        super().__init__(message, fix)
        self.path = path
        self.offset = offset
        self.errno = errno

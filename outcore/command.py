"""The `outcore` command, and the extra to name where a package is missing: the loader
needs few, the harness many."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires
from re import fullmatch

from workloads.errors import HostError

#: Packages whose import name is another one.
_DISTRIBUTIONS = {"PIL": "pillow", "pynvml": "nvidia-ml-py", "ruamel": "ruamel.yaml"}


def extra_of(module: str) -> str | None:
    """Return the extra of Outcore that installs a module's package; None where no extra
    does."""
    package = _DISTRIBUTIONS.get(
        module.partition(".")[0], module.partition(".")[0]
    ).lower()
    try:
        needed = requires("outcore") or []
    except PackageNotFoundError:
        return None
    for line in needed:
        found = fullmatch(r"([\w.-]+)(?:\[.*\])?.*;\s*extra == ['\"](\w+)['\"]", line)
        if found and found[1].lower() == package:
            return found[2]
    return None


@contextmanager
def named() -> Iterator[None]:
    """Turn the import error of a package of an extra into a HostError with the way to
    install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            raise
        raise HostError(
            f"{error.name} is not installed", f"pip install 'outcore[{extra}]'"
        ) from error


def main() -> None:
    """Run the command line of `harness.cli`; a missing optional package is one sentence
    and exit code 3."""
    try:
        with named():
            from harness.cli import main as run

            run()
    except HostError as error:
        print(f"outcore: {error}", file=sys.stderr)
        sys.exit(error.exit_code)

"""Every command explains itself and takes the flags that all commands share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from harness.cli import build_app


def commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every leaf of the command tree."""
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        yield from commands(child, (*path, name))


LEAVES = dict(commands(get_command(build_app())))


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(build_app(), [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_takes_the_shared_flags(path: tuple[str, ...]) -> None:
    flags = {flag for parameter in LEAVES[path].params for flag in parameter.opts}  # type: ignore[attr-defined]
    assert {"--json", "-q", "-v"} <= flags

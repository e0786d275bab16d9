"""Every command explains itself and takes the flags that all commands share."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from harness.cli import build_app
from harness.cli.common import parse_options
from harness.figures.base import chosen
from harness.plan.experiment import load_experiment
from harness.settings import check_options
from systems.registry import load


def commands(
    command: object, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
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
def test_every_command_has_examples_that_it_takes(path: tuple[str, ...]) -> None:
    """The command's own parser reads the words; names of systems, profiles, figures and
    papers are those there are."""
    leaf = LEAVES[path]
    help_ = leaf.help
    epilog = leaf.epilog or ""  # type: ignore[attr-defined]
    head, *examples = epilog.split("\n\n")
    assert head == "Examples:"
    assert 1 <= len(examples) <= 2
    assert "Examples" not in help_
    for example in examples:
        words = shlex.split(example)
        assert words[: len(path) + 1] == ["outcore", *path]
        assert len(example) <= 78
        given = leaf.make_context(" ".join(path), words[len(path) + 1 :]).params  # type: ignore[attr-defined]
        system = given.get("system")
        for name in system if isinstance(system, list) else [system]:
            assert not name or ":" in name or load(name)
            if name and ":" not in name and given.get("option"):
                check_options(name, parse_options(given["option"]))
        if given.get("profile"):
            load_experiment(given["profile"])
        if (asked := given.get("figures") or given.get("names")) and path[0] in (
            "bench",
            "figures",
        ):
            assert chosen(asked)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_takes_the_shared_flags(path: tuple[str, ...]) -> None:
    flags = {flag for parameter in LEAVES[path].params for flag in parameter.opts}  # type: ignore[attr-defined]
    assert {"--json", "-q", "-v"} <= flags

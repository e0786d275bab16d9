"""Command-line options made from the settings of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from harness.cli.common import expanded, option
from harness.settings import RunSettings, strict

OptionPairs = Annotated[list[str] | None, typer.Option("-o", "--option", help="key=value of the system")]


def takes_settings(
    *names: str, required: tuple[str, ...] = (), pairs: bool = False, **instead: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator: the command gets an option for each setting, and all, checked, as `settings`.

    Args:
        names: names of the settings, in the order of `--help`.
        required: names of the settings that have to be given.
        pairs: whether `-o key=value` gives the settings' `options`.
        instead: help texts, by setting, that replace the settings' own.
    """

    def make(given: dict[str, Any]) -> RunSettings:
        if pairs:
            given["options"] = parse_options(given.pop("option") or [])
        return strict(RunSettings, given, "")

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        options = [_option(name, name in required, instead.get(name, "")) for name in names]
        return expanded(
            command, {"settings": ([*options, *([option("option", OptionPairs, None)] if pairs else [])], make)}
        )

    return decorate


def _option(name: str, required: bool, text: str) -> inspect.Parameter:
    field = RunSettings.model_fields[name]
    default = field.get_default(call_default_factory=True)
    kind: Any = type(default) if isinstance(default, bool | int | float) else str
    if name == "timeout":
        kind, default = str, f"{default:.0f}s"
    elif isinstance(default, list):
        default = ",".join(map(str, default))
    elif default is None:
        kind = (int if name == "layers" else str) if required else (int | None if name == "layers" else str | None)
    annotation = Annotated[kind, typer.Option(f"--{name.replace('_', '-')}", help=text or field.description)]
    return option(name, annotation, inspect.Parameter.empty if required else default)


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """Parse `key=value` pairs into options; values are YAML: numbers, true/false, lists, else text.

    Raises:
        InputError: a pair has no key or no `=`.
    """
    import yaml

    from workloads.errors import InputError

    options: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise InputError(f"option {pair!r} has no value", "write it like -o key=value")
        try:
            options[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            options[key.strip()] = value
    return options

"""Command-line options made from the settings of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from harness.settings import RunSettings, strict


def takes_settings(*names: str, required: tuple[str, ...] = (), **instead: str) -> Callable[[Any], Any]:
    """Give a command an option for each of these settings, and pass all of them, checked, as `settings`.

    Args:
        names: names of the settings, in the order of `--help`.
        required: names of the settings that have to be given.
        instead: help texts, by setting, that replace the settings' own.

    A parameter `option` of the command (`-o key=value`) becomes the settings' `options`.
    """

    def decorate(command: Any) -> Any:
        hints = get_type_hints(command, include_extras=True)
        signature = inspect.signature(command)
        parameters = []
        for name, own in signature.parameters.items():
            if name == "settings":
                parameters += [_option(each, each in required, instead.get(each, "")) for each in names]
            else:
                parameters.append(own.replace(annotation=hints[name]))
        # A default may come before a parameter without one: commands are called by name alone.
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]

        def call(**given: Any) -> Any:
            asked = {name: given.pop(name) for name in names}
            if "option" in signature.parameters:
                asked["options"] = parse_options(given.pop("option") or [])
                given["option"] = None
            return command(settings=strict(RunSettings, asked, ""), **given)

        call.__name__, call.__doc__ = command.__name__, command.__doc__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call

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
    flags = [f"--{name.replace('_', '-')}"]
    annotation = Annotated[kind, typer.Option(*flags, help=text or field.description)]
    default = inspect.Parameter.empty if required else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


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

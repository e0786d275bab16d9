"""Parts shared by the verbs: groups of options, examples, JSON output, signal
handlers."""

from __future__ import annotations

import inspect
import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from harness.progress import Progress as Progress
from harness.run.places import ARTEFACTS_VARIABLE, SCRATCH_VARIABLE, Places
from harness.settings import RunSettings, strict
from workloads.errors import InputError
from workloads.parsing import ParseError, parse_yaml


@dataclass(frozen=True, kw_only=True)
class Options:
    """A group of options: a verb's parameter of this type stands for one option per
    field."""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the options; those of a subclass come before those of its bases."""
        hints = get_type_hints(cls, include_extras=True)
        defaults = {field.name: field.default for field in fields(cls)}
        names = [name for base in cls.__mro__ for name in inspect.get_annotations(base)]
        return [option(name, hints[name], defaults[name]) for name in names]


@dataclass(frozen=True, kw_only=True)
class Call(Options):
    """Options that every verb takes."""

    json: Annotated[
        bool,
        typer.Option("--json", help="one JSON object on stdout, nothing else there"),
    ] = False
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="no progress")] = False
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="more progress")] = (
        False
    )

    def progress(self) -> Progress:
        """Return the progress display, silent with `--json`."""
        return Progress(quiet=self.quiet or self.json, verbose=self.verbose)

    @contextmanager
    def working(self, what: str) -> Iterator[Progress]:
        """Show `what`, and the time that it takes, while the body runs."""
        with self.progress() as progress, progress.during(what):
            yield progress

    def emit(self, content: Any, shown: Callable[[], None] | Iterable[str]) -> None:
        """End the progress display and print the result: `content` with `--json`, else
        what `shown` prints or holds."""
        Progress.end_all()
        if self.json:
            print(json.dumps(content, allow_nan=False))
        elif callable(shown):
            shown()
        else:
            for line in shown:
                print(line)


@dataclass(frozen=True, kw_only=True)
class OnResults(Call):
    """Options of a verb that uses the results root."""

    results_root: Annotated[
        Path,
        typer.Option(
            "--results-root",
            envvar="OUTCORE_RESULTS",
            help="where records lie",
            show_default=True,
        ),
    ] = Path("results")


@dataclass(frozen=True, kw_only=True)
class OnData(Call):
    """Options of a verb that uses the data root."""

    data_root: Annotated[
        Path,
        typer.Option(
            "--data-root",
            envvar="OUTCORE_DATA",
            help="where datasets lie",
            show_default=True,
        ),
    ] = Path("data")


@dataclass(frozen=True, kw_only=True)
class OnBoth(OnData, OnResults):
    """Options of a verb that uses both roots."""


@dataclass(frozen=True, kw_only=True)
class OnPlaces(OnData):
    """Options of a verb that writes scratch files and artefacts, or looks at them."""

    scratch: Annotated[
        Path | None,
        typer.Option(
            "--scratch",
            envvar=SCRATCH_VARIABLE,
            help="where runs put scratch files; else under the data",
        ),
    ] = None
    artefacts_root: Annotated[
        Path | None,
        typer.Option(
            "--artefacts",
            envvar=ARTEFACTS_VARIABLE,
            help="where systems keep what they prepare; else there",
        ),
    ] = None

    @property
    def places(self) -> Places:
        """Folders of scratch files and artefacts."""
        return Places.of(self.data_root, self.scratch, self.artefacts_root)


@dataclass(frozen=True, kw_only=True)
class OnRuns(OnPlaces, OnBoth):
    """Options of a verb that makes runs."""


def option(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    """Return a parameter of a command; without a default it has to be given."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def expanded(
    command: Callable[..., Any],
    groups: Mapping[
        str, tuple[list[inspect.Parameter], Callable[[dict[str, Any]], Any]]
    ]
    | None = None,
) -> Callable[..., Any]:
    """Return a command with one option for each field of its groups of options, as
    Typer reads it.

    `groups`, beside the parameters that are `Options`: parameter -> (its options,
    function from their values to its).
    """
    found: dict[str, Any] = dict(groups or {})
    parameters: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for name, own in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, Options):
            found[name] = (kind.parameters(), lambda given, kind=kind: kind(**given))
            if issubclass(kind, Call):
                shared = found[name][0]
                continue
        parameters += (
            found[name][0] if name in found else [option(name, kind, own.default)]
        )
    parameters += shared  # options that every verb takes come last

    def call(**given: Any) -> Any:
        made = {
            name: make({each.name: given.pop(each.name) for each in own})
            for name, (own, make) in found.items()
        }
        return command(**made, **given)

    call.__name__ = command.__name__
    call.__doc__ = command.__doc__
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


OptionPairs = Annotated[
    list[str] | None, typer.Option("-o", "--option", help="key=value of the system")
]


def takes_settings(
    *names: str, required: tuple[str, ...] = (), pairs: bool = False, **instead: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator: the command gets an option for each setting, and all,
    checked, as `settings`.

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
        options = [
            _option(name, name in required, instead.get(name, "")) for name in names
        ]
        options += [option("option", OptionPairs, None)] if pairs else []
        return expanded(command, {"settings": (options, make)})

    return decorate


def _option(name: str, required: bool, text: str) -> inspect.Parameter:
    field = RunSettings.model_fields[name]
    default = field.get_default(call_default_factory=True)
    kind: Any = type(default) if isinstance(default, bool | int | float) else str
    if name == "timeout":
        kind = str
        default = f"{default:.0f}s"
    elif isinstance(default, list):
        default = ",".join(map(str, default))
    elif default is None:
        kind = (
            (int if name == "layers" else str)
            if required
            else (int | None if name == "layers" else str | None)
        )
    annotation = Annotated[
        kind,
        typer.Option(f"--{name.replace('_', '-')}", help=text or field.description),
    ]
    return option(name, annotation, inspect.Parameter.empty if required else default)


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """Parse `key=value` pairs, whose values are YAML, else text; raise InputError for a
    pair without a key or `=`, or a key given twice."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise InputError(
                f"option {pair!r} has no value", "write it like -o key=value"
            )
        if key.strip() in options:
            raise InputError(
                f"option {key.strip()!r} is given twice", "keep one of them"
            )
        try:
            options[key.strip()] = parse_yaml(value)
        except ParseError:
            options[key.strip()] = value
    return options


class Verbs(typer.Typer):
    """A group of verbs, whose parameters may be groups of options."""

    def verb(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Add a verb, called like its function without trailing underscores, with
        hyphens for others; its docstring ends with examples."""
        text, _, examples = inspect.cleandoc(function.__doc__ or "").partition(
            "\n\nExamples:\n"
        )
        lines = [line.strip() for line in examples.splitlines()]
        # Help texts join lines, but not paragraphs.
        epilog = "\n\n".join(["Examples:", *lines]) if lines else None
        name = function.__name__.rstrip("_").replace("_", "-")
        return self.command(name, help=text, epilog=epilog)(expanded(function))


def unwind_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that caps, processes
    and folders are removed."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)

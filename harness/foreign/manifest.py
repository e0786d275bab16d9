"""Description of a foreign system, by its author: an image's label or a folder's
`system.json`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from workloads.errors import InputError
from workloads.parsing import ParseError, parse_json

if TYPE_CHECKING:
    from systems.interface import SystemInfo

MANIFEST = "system.json"
Device = Literal["cpu", "cuda", "emulated"]


def _plain(value: object) -> bool | int | float | str:
    if (
        not isinstance(value, bool | int | float | str)
        or value != value
        or value in (math.inf, -math.inf)
    ):
        raise ValueError("give a number, a text, true or false")
    return value


PlainValue = Annotated[Any, AfterValidator(_plain)]


def _option_name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or hasattr(BaseModel, name):
        raise ValueError(
            f"an option cannot be named {name!r}: use small letters, digits and _, and "
            "no name of pydantic's"
        )
    return name


def _as_choice(given: object) -> object:
    return given if isinstance(given, dict | Choice) else {"default": given}


OptionName = Annotated[str, AfterValidator(_option_name)]


class Choice(BaseModel):
    """Option of a foreign system: its default, whose type is the option's, its meaning
    and its valid values, if few."""

    model_config = ConfigDict(extra="forbid")

    default: PlainValue
    meaning: str = Field(default="", max_length=200)
    choices: list[PlainValue] = Field(default_factory=list)

    @model_validator(mode="after")
    def _default_is_a_choice(self) -> Choice:
        if self.choices and (type(self.default), self.default) not in [
            (type(one), one) for one in self.choices
        ]:
            raise ValueError(f"the default {self.default!r} is none of the choices")
        return self


class Description(BaseModel):
    """Facts of a foreign system, the same in an image's label and in a manifest.

    Attributes:
        faithful: whether its mini-batches equal the workload's, which digests then
            prove.
        expands: nodes whose neighbours a hop draws: `all` so far, as the workload's
            sampler does, or only those `new` in the hop before, as PyG's does; `outcore
            check` compares sizes with a sampler that expands likewise.
        checks: whether the worker reads the eight bytes at an epoch's start and reports
            the rows for `checks`.
        options: defaults by name, or a `Choice`.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=64)
    summary: str = Field(default="", max_length=200)
    paper: str = Field(default="–", max_length=64)
    devices: list[Device] = Field(
        default_factory=lambda: list[Device](("cpu",)), min_length=1
    )
    faithful: bool = False
    deterministic_counters: bool = True
    expands: Literal["all", "new"] = "all"
    checks: bool = False
    options: dict[OptionName, Annotated[Choice, BeforeValidator(_as_choice)]] = Field(
        default_factory=dict
    )

    def info(self) -> SystemInfo:
        """Return the description as every system has it."""
        from systems.interface import Options, SystemInfo

        fields: dict[str, Any] = {}
        for name, option in self.options.items():
            kind: Any = (
                Literal[tuple(option.choices)]
                if option.choices
                else type(option.default)
            )
            fields[name] = (
                kind,
                Field(option.default, description=option.meaning or "the system's own"),
            )
        known = self.model_dump(
            include={"name", "paper", "summary", "faithful", "deterministic_counters"}
        )
        made = create_model("ForeignOptions", __base__=Options, **fields)
        return SystemInfo(**known, devices=tuple(self.devices), options=made)


D = TypeVar("D", bound=Description)


class Manifest(Description):
    """Content of a folder's `system.json`.

    Attributes:
        command: words that start the worker: `python` is the environment's own
            (Outcore's without `install`), and a word that names a file, relative to the
            folder, becomes its path.
        python: versions of Python that the packages install on, like `3.11`, best
            first; empty: any.
        install: arguments of `pip install`, one list a step, run in the folder; empty:
            no environment is made.
    """

    command: list[str] = Field(min_length=1)
    python: list[str] = Field(default_factory=list)
    install: list[list[str]] = Field(default_factory=list)


def described(content: object, where: str) -> Description:
    """Return the description in an image's label; raise InputError, which names the
    key, if it is invalid."""
    return _validated(Description, content, where)


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest; raise InputError if it is no JSON, or a key is invalid
    or missing."""
    file = folder / MANIFEST
    try:
        content = parse_json(file.read_bytes())
    except (OSError, ParseError) as error:
        raise InputError(
            f"{file} cannot be read as JSON: {error}", "correct the file"
        ) from error
    return _validated(Manifest, content, str(file))


def _validated(model: type[D], content: object, where: str) -> D:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if part != "[key]")
        message = str(first["msg"]).removeprefix("Value error, ")
        raise InputError(
            f"{where}: {key or 'content'}: {message}", "correct it"
        ) from error

"""Options of systems: their base class, and fields that a plan may lower to what the budget holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator


@dataclass(frozen=True)
class _Auto:
    """What a field made by `auto` is to be: at best (0: one for each core), and at least."""

    wanted: int
    least: int


def auto(wanted: int = 0, *, most: int, description: str, least: int = 1) -> Any:
    """A field of `Options` whose default 0, also written `auto`, is `wanted` where the plan then fits, else fewer.

    Args:
        wanted: the paper's value; 0: one for each core.
        most: the largest that may be asked for, and
        least: the smallest that is tried; what is asked for by number is taken as it is, or refused.
        description: of the value; what `auto` means is added.
    """
    first = wanted or "one for each core"
    described = f"{description}; auto: {first}, fewer where the budget holds no more"
    field: Any = Field(0, ge=0, le=most, description=described)
    field.metadata.append(_Auto(wanted, least))
    return field


def _fewer(wanted: int, least: int) -> list[int]:
    """`wanted` and what is tried below it, largest first: every number up to 8, halves above."""
    found = [wanted]
    while found[-1] > least:
        found.append(max(least, found[-1] - 1 if found[-1] <= 8 else found[-1] // 2))
    return found


class Options(BaseModel):
    """A system's own options; each field has a description and the paper's default. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def automatic(cls, cores: int) -> dict[str, list[int]]:
        """The values to try for each field made by `auto`, best first; fields in the order in which they give way."""
        found = {}
        for name, info in cls.model_fields.items():
            steps = next((entry for entry in info.metadata if isinstance(entry, _Auto)), None)
            if steps is not None:
                found[name] = _fewer(steps.wanted or cores, steps.least)
        return found

    @field_validator("*", mode="before")
    @classmethod
    def _auto(cls, value: object, info: ValidationInfo) -> object:
        """`auto` of a number is 0."""
        return 0 if value == "auto" and cls.model_fields[str(info.field_name)].annotation is int else value

    @field_validator("*", mode="before")
    @classmethod
    def _words_that_yaml_takes_for_values(cls, value: object, info: ValidationInfo) -> object:
        """`-o io_granularity=4096` and `-o host_cache=off` mean words: YAML reads a number and a truth value."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        words = get_args(annotation) if get_origin(annotation) is Literal else ()
        if type(value) is int and str(value) in words:
            return str(value)
        if value is False and (annotation is str or "off" in words):
            return "off"
        return value

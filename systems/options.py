"""Options and facts of systems: their base classes, and fields that a plan may lower to
fit the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from workloads.errors import InputError
from workloads.units import parse_bytes


@dataclass(frozen=True)
class _Auto:
    """Best value (0: one per core) and smallest value of a field made by `auto`."""

    wanted: int
    least: int


def auto(wanted: int = 0, *, most: int, description: str, least: int = 1) -> Any:
    """Make an `Options` field whose default 0, also written `auto`, means `wanted` or
    the largest value that fits.

    Args:
        wanted: the paper's value; 0: one per core.
        most: largest value allowed.
        description: description of the value; the meaning of `auto` is appended.
        least: smallest value tried automatically; an explicit value is used as given or
            refused.
    """
    first = wanted or "one for each core"
    described = f"{description}; auto: {first}, fewer where the budget holds no more"
    field: Any = Field(0, ge=0, le=most, description=described)
    field.metadata.append(_Auto(wanted, least))
    return field


def size(default: str, *words: str, description: str) -> Any:
    """Make an `Options` field that holds its default, another of `words`, or a size
    such as 32MiB."""

    def checked(value: str, info: ValidationInfo) -> str:
        known = (default, *words)
        if value not in known:
            try:
                parse_bytes(value, str(info.field_name))
            except InputError as error:
                raise ValueError(f"{error}; or write {' or '.join(known)}") from None
        return value

    field: Any = Field(default, description=description)
    field.metadata.append(AfterValidator(checked))
    return field


def _fewer(wanted: int, least: int) -> list[int]:
    """List `wanted` and the smaller values to try, largest first: every number up to 8,
    halves above."""
    found = [wanted]
    while found[-1] > least:
        found.append(max(least, found[-1] - 1 if found[-1] <= 8 else found[-1] // 2))
    return found


class Options(BaseModel):
    """Base class of a system's options; each field has a description and the paper's
    default; unknown keys fail."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def automatic(cls, cores: int) -> dict[str, list[int]]:
        """Return the values to try for each field made by `auto`, best first, in the
        order of the fields."""
        found = {}
        for name, info in cls.model_fields.items():
            steps = next(
                (entry for entry in info.metadata if isinstance(entry, _Auto)), None
            )
            if steps is not None:
                found[name] = _fewer(steps.wanted or cores, steps.least)
        return found

    @field_validator("*", mode="before")
    @classmethod
    def _words(cls, value: object, info: ValidationInfo) -> object:
        """Read `auto` as 0 for integers; restore words that YAML parsed
        (`io_granularity=4096`, `host_cache=off`)."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        words = get_args(annotation) if get_origin(annotation) is Literal else ()
        if value == "auto" and annotation is int:
            return 0
        if type(value) is int and str(value) in words:
            return str(value)
        if value is False and (annotation is str or "off" in words):
            return "off"
        if value is True and "on" in words:
            return "on"
        return value


class PartUse(BaseModel):
    """A part of a system's data path, and its work in the last epoch.

    Attributes:
        name: name of the part in words, such as `graph in memory`.
        buffers: names of its buffers in the plan.
        counts: counts of the epoch: `rows` that reached the part, `hits` among them,
            `requests` to the disk, `bytes` read or copied, and others that it observed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    buffers: tuple[str, ...] = ()
    counts: dict[str, float] = Field(default_factory=dict)


class Facts(BaseModel):
    """Named, typed facts of a run that code computes with, beside the counters; None:
    unknown or not applicable.

    A system with more facts derives a class with more fields, of plain types and with
    the unit in the name (`pack_s`, `disk_bytes`). Records keep every field under its
    name. A field with `repr=False` is not among the notes.

    Attributes:
        io: the reader's mode and fallbacks, such as `io_uring registered`.
        reads_in: stages in which the system submits its own reads; empty: `extract`.
        prepared_reused: whether preparation found the artefacts of an earlier run.
        samples_reused: whether epochs train on mini-batches sampled for an earlier
            epoch (replay).
        parts: the data path, filled in by the worker from `System.data_path`.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    io: str | None = None
    reads_in: tuple[str, ...] = ()
    prepared_reused: bool | None = Field(default=None, repr=False)
    samples_reused: bool = Field(default=False, repr=False)
    parts: tuple[PartUse, ...] = Field(default=(), repr=False)

    def notes(self) -> dict[str, str]:
        """Return the facts as text for people, seconds and ratios to three decimals."""
        found: dict[str, str] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.repr and value not in (None, ()):
                text = f"{value:.3f}" if isinstance(value, float) else str(value)
                found[name] = "+".join(value) if isinstance(value, tuple) else text
        if self.prepared_reused is not None:
            found["prepared"] = "reused" if self.prepared_reused else "made"
        return found

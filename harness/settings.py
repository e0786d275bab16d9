"""Settings of a run, strictly checked: an error names the key, the fault and the
nearest valid name."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from workloads.errors import InputError, OutcoreError
from workloads.sampling import listing
from workloads.units import parse_memory_bytes

M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """A model that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid")


Role = Literal[
    "system", "workload", "budget", "place", "length", "repeat", "watch", "label"
]
"""What a setting is to a comparison of runs (`harness/compare/comparable.py` derives
every view from it).

`system`: what is compared, with its options. `workload`: what is computed. `budget`:
memory and processors. `place`: drive and how limits are enforced. `length`: how long a
training is, and what is tested after it; no read of an epoch depends on it. `repeat`: a
repetition with other random draws. `watch`: what the harness looks at and how long it
waits. `label`: who asked for the run; no part of its identity.
"""
Decides = Literal["batches", "step", ""]


def setting(
    default: Any,
    role: Role,
    description: str = "",
    decides: Decides = "",
    **limits: Any,
) -> Any:
    """Return the field of a setting.

    Args:
        default: default value.
        role: what the setting is to a comparison of runs.
        description: text for `--help` and `docs/settings.md`.
        decides: part of a cached calibration that depends on the setting: `batches`
            (choice of mini-batches), `step` (memory and time of a training step) or
            neither.
        limits: limits of the value, as pydantic has them.
    """
    return Field(
        default,
        description=description,
        json_schema_extra={"decides": decides, "role": role},
        **limits,
    )


def roles_of(model: type[BaseModel]) -> dict[str, Role]:
    """Return the role of each field of a model of settings; raise TypeError for a field
    without one."""
    found: dict[str, Role] = {}
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if not isinstance(extra, dict) or extra.get("role") not in get_args(Role):
            raise TypeError(
                f"{model.__name__}.{name} has no role: declare it by `setting`"
            )
        found[name] = cast(Role, extra["role"])
    return found


def of_role(model: type[BaseModel], *roles: Role) -> tuple[str, ...]:
    """Return the names of the fields of a model that have one of these roles, in their
    order."""
    return tuple(name for name, role in roles_of(model).items() if role in roles)


class SharedSettings(BaseModel):
    """Settings with the same form in an experiment, a command and a record."""

    memory: str = setting(
        "none",
        "budget",
        "768MiB (cap), 0.25x (budget, share of the features), +64MiB (budget) or none",
    )
    model: Literal["sage", "gcn", "gat"] = setting(
        "sage", "workload", "sage, gcn or gat", "step"
    )
    hidden: int = setting(256, "workload", "hidden width", "step", ge=1)
    heads: int = setting(4, "workload", "attention heads of gat", "step", ge=1)
    learning_rate: float = setting(0.003, "workload", "learning rate of Adam", gt=0)
    dropout: float = setting(
        0.0,
        "workload",
        "share of the hidden features that is dropped in training",
        ge=0,
        lt=1,
    )
    sampler: str = setting(
        listing.DEFAULT,
        "workload",
        f"{listing.choices()}; your own: package.module:NAME",
        "batches",
    )
    fanout: list[int] = setting(
        [10, 10, 10],
        "workload",
        "neighbours per hop, seed nodes' hop first; layerwise: nodes per layer",
        "batches",
        min_length=1,
    )
    replace: bool = setting(
        False, "workload", "draw neighbours with replacement", "batches"
    )
    shuffle: bool = setting(
        True, "workload", "draw the order of seed nodes anew each epoch", "batches"
    )
    batch_size: int = setting(
        1000, "workload", "seed nodes per mini-batch", "batches", ge=1
    )
    max_batches: int = setting(
        0,
        "workload",
        "most mini-batches of an epoch for each process; 0: all",
        "batches",
        ge=0,
    )
    epochs: int = setting(3, "length", "epochs, warm-up included", "batches", ge=1)
    warmup: int = setting(1, "length", "first epochs, left out of the statistics", ge=0)
    device: str = setting("cpu", "workload", "cpu, cuda or emulated:NAME", "step")
    disk_class: str = setting(
        "none", "place", "SSD class of the run: none, NAME or NAME/k"
    )
    stages: Literal["all", "sample", "sample+extract"] = setting(
        "all", "workload", "all, sample or sample+extract", "step"
    )
    cores: int = setting(
        0, "budget", "processor cores for the run; 0: all", "step", ge=0
    )
    ranks: int = setting(
        1,
        "workload",
        "processes that train each step together, by torchrun",
        "batches",
        ge=1,
        le=64,
    )
    partition: Literal["none", "self-reliant"] = setting(
        "none",
        "workload",
        "split of the training nodes among ranks: none or self-reliant",
        "batches",
    )
    keep_order: bool = setting(
        False, "workload", "train mini-batches in the seed plan's order"
    )
    seed: int = setting(
        0, "repeat", "random seed of sampling, shuffling and weights", "batches", ge=0
    )
    verify: bool = setting(
        False, "watch", "digests of all features in every epoch, off the epoch's clock"
    )
    test_nodes: int = setting(
        0, "length", "test nodes for the accuracy after each epoch; 0: none", ge=0
    )
    options: dict[str, Any] = setting({}, "system", "options of the system, by name")


class RunSettings(Strict, SharedSettings):
    """Settings of `outcore run` and of `run:` in a YAML file; an entry of `systems:`
    may override them."""

    dataset: str | None = setting(
        None, "workload", "name under the data root, or a path"
    )
    layers: int | None = setting(
        None, "workload", "as many as fanout has hops; shadow: any number", ge=1
    )
    device_memory: str | int | None = setting(
        None, "budget", "memory of the device tier, like 2GiB"
    )
    isolation: Literal["auto", "cgroup2", "cgroup1", "systemd", "docker", "none"] = (
        setting("auto", "place", "auto, cgroup2, cgroup1, systemd, docker or none")
    )
    timeout: float | str = setting(
        3600.0, "watch", "longest time of the run, like 600s or 2h"
    )

    @field_validator("fanout", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(re.fullmatch(r"-?\d{1,9}", part) for part in parts):
            raise ValueError(
                "give a whole number of neighbours for each hop, like 10,10,10"
            )
        return parts

    @field_validator("fanout")
    @classmethod
    def _positive(cls, value: list[int]) -> list[int]:
        if any(count == 0 or count < -1 for count in value):
            raise ValueError(
                "every hop needs a positive number of neighbours, or -1 for all of them"
            )
        return value

    @field_validator("sampler")
    @classmethod
    def _known(cls, value: str) -> str:
        if ":" not in value and value not in listing.names():
            raise ValueError(
                f"there is no such sampler; use {listing.choices()}, or "
                "package.module:NAME"
            )
        return value

    @field_validator("memory", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        text = "none" if value is None else str(value)
        try:
            return canonical_memory(text)
        except InputError:
            return text  # `check_settings` reports the fault


def deciding(*what: str) -> tuple[str, ...]:
    """Return the names of the shared settings that decide `what`, in their order."""
    extras = (
        (name, field.json_schema_extra)
        for name, field in SharedSettings.model_fields.items()
    )
    return tuple(
        name
        for name, extra in extras
        if isinstance(extra, dict) and extra["decides"] in what
    )


@dataclass(frozen=True)
class MemorySetting:
    """Parsed value of `--memory`: a cap, a budget or, with neither, unlimited
    memory."""

    cap_bytes: int | None = None
    budget_bytes: int | None = None


def strict(model: type[M], content: object, where: str) -> M:
    """Validate `content`, found at key `where`, as `model`; raise InputError with the
    path of a key at fault."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        loc = [str(part) for part in first["loc"]]
        path = ".".join([part for part in (where, *loc) if part])
        if first["type"] == "extra_forbidden":
            raise unknown_name(
                "key", path, loc[-1], list(model.model_fields)
            ) from error
        given = "" if first["type"] == "missing" else f", but is {first['input']!r}"
        message = first["msg"].removeprefix("Value error, ")
        fault = f"{path or model.__name__}: {message[0].lower()}{message[1:]}{given}"
        raise InputError(fault, "correct that key") from error


def unknown_name(what: str, path: str, name: str, valid: Sequence[str]) -> InputError:
    """Return the error for an unknown name, with the nearest valid name.

    Args:
        what, path: kind of the name, like `setting`, and its path in the input.
        name, valid: the unknown name, and all valid names.
    """
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    hint = (
        f"did you mean {near[0]!r}?"
        if near
        else f"choose one of {', '.join(sorted(valid))}"
    )
    return InputError(f"{path} is not a known {what}", hint)


def parse_memory(text: str, feature_bytes: int) -> MemorySetting:
    """Parse `768MiB` (cap), `0.25x` or `+64MiB` (budgets) or `none`; raise InputError
    for any other form."""
    text = text.strip()
    if text.lower() == "none":
        return MemorySetting()
    if text.endswith(("x", "X")):
        try:
            share = float(text[:-1])
        except ValueError as error:
            raise InputError(
                f"memory is {text!r}, which is not a share", "write it like 0.25x"
            ) from error
        if not 0 < share < 1e6:
            raise InputError(
                f"memory is {text!r}, and a share has to be above 0",
                "write it like 0.25x",
            )
        return MemorySetting(budget_bytes=round(share * feature_bytes))
    if text.startswith("+"):
        return MemorySetting(budget_bytes=parse_memory_bytes(text[1:]))
    return MemorySetting(cap_bytes=parse_memory_bytes(text, share=True))


#: Longest time that a setting takes: a year. Timers of the system overflow beyond some
#: 290 years.
LONGEST_S = 366 * 24 * 3600.0


def parse_seconds(value: float | str, what: str = "timeout") -> float:
    """Parse `600`, `600s`, `10min` or `2h`; raise InputError, in which `what` names the
    value, for any other form."""
    text = str(value).strip().lower()
    for suffix, factor in (("min", 60.0), ("h", 3600.0), ("s", 1.0), ("", 1.0)):
        with suppress(ValueError):
            if (
                text.endswith(suffix)
                and 0
                < (seconds := float(text.removesuffix(suffix)) * factor)
                <= LONGEST_S
            ):
                return seconds
    raise InputError(
        f"{what} is {value!r}, which is not a time",
        "write it like 600s, 10min or 2h, up to a year",
    )


def check_settings(settings: RunSettings) -> None:
    """Check settings without opening the dataset; raise InputError if a value or a
    combination is impossible."""
    if settings.dataset is not None and not settings.dataset.strip():
        raise InputError(f"dataset is {settings.dataset!r}", "name one, or its folder")
    parse_memory(settings.memory, 1)
    parse_seconds(settings.timeout)
    sampler = listing.find(settings.sampler)
    # A subgraph that all layers share may have any depth.
    if (
        settings.layers is not None
        and settings.layers != len(settings.fanout)
        and not sampler.one_subgraph
    ):
        fault = (
            f"layers is {settings.layers}, and fanout has {len(settings.fanout)} hops"
        )
        raise InputError(fault, "give one fan-out a layer")
    if settings.replace and not sampler.replacement:
        fault = (
            f"replace is set, and the {settings.sampler} sampler draws without "
            "replacement"
        )
        raise InputError(fault, "leave replace out")
    if settings.warmup >= settings.epochs:
        fault = (
            f"warmup is {settings.warmup} of {settings.epochs} epochs, which leaves "
            "none to measure"
        )
        raise InputError(fault, "raise epochs or lower warmup")
    emulated = settings.device.startswith("emulated:")
    if settings.test_nodes and (settings.stages != "all" or emulated):
        fault = f"test_nodes is {settings.test_nodes}, and nothing is really trained"
        raise InputError(fault, "use device cpu or cuda and stages all")
    if settings.device_memory is not None:
        parse_memory_bytes(settings.device_memory, "device_memory")
        if settings.device == "cpu":
            raise InputError(
                "device_memory is set, and device cpu has no memory of its own",
                "leave it out",
            )
    elif emulated:
        raise InputError(
            f"device {settings.device} has no device_memory",
            "set it, like device_memory 2GiB",
        )
    if settings.device not in ("cpu", "cuda") and not (
        emulated or settings.device.startswith("cuda:")
    ):
        raise unknown_name(
            "device",
            f"device {settings.device!r}",
            settings.device,
            ["cpu", "cuda", "emulated:a10g"],
        )
    if emulated:
        from workloads.accelerators.profile import load_profile

        load_profile(settings.device.removeprefix("emulated:"))
    if settings.partition != "none" and settings.ranks == 1:
        raise InputError(
            "partition is set, and one rank trains all nodes",
            "set ranks above 1, or leave it out",
        )
    if settings.disk_class != "none":
        if settings.isolation == "none":
            raise InputError(
                "disk_class needs a cgroup, and isolation is none", "use isolation auto"
            )
        from harness.ssd.classes import parse_disk_class

        parse_disk_class(settings.disk_class)


def check_options(system: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a system's options with the defaults filled in; raise InputError for an
    unknown system, name or value."""
    from harness.foreign.systems import system_info

    info = system_info(system)
    try:
        return info.options.model_validate(dict(options)).model_dump(mode="json")
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "options"
        if first["type"] == "extra_forbidden":
            known = list(info.options.model_fields)
            raise unknown_name(
                f"option of {system}", f"option {name}", name, known
            ) from error
        fault = (
            f"{first['msg'].removeprefix('Value error, ')}, but is {first['input']!r}"
        )
        raise InputError(
            f"{system}: option {name}: {fault}", f"see `outcore systems {system}`"
        ) from error


def complete_options(system: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with every default filled in; those of a system that is not
    installed here as they are."""
    try:
        return check_options(system, options)
    except OutcoreError:
        return dict(options)


def canonical_memory(text: str) -> str:
    """Return one form for `+67108864` and `+64MiB`, which are the same run; raise
    InputError if the size is invalid."""
    text = text.strip()
    if text.lower() == "none" or text.endswith(("x", "X")):
        return text.lower()
    budget = text.startswith("+")
    size = parse_memory_bytes(text.removeprefix("+"), share=not budget)
    shown = f"{size // 2**20}MiB" if size % 2**20 == 0 else f"{size}B"
    return f"+{shown}" if budget else shown


_WORDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true, false",
    list: "list",
    dict: "mapping",
}
_LIMITS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_PAGE = """# The settings of a run

Options of `outcore run` (`--batch-size`), keys under `run:` and `grid:` of an
experiment (`batch_size`), and fields of a record's `config`. Made from
`harness/settings.py`: `python -m harness.settings > docs/settings.md`.

| setting | what it is | values | default |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page of all settings as Markdown."""
    rows = []
    for name, field in RunSettings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        limits = (
            (sign, getattr(limit, word, None))
            for limit in field.metadata
            for word, sign in _LIMITS.items()
        )
        known = (f"{sign} {value}" for sign, value in limits if value is not None)
        values = " ".join([_values(field.annotation), *known])
        rows.append(
            f"| `{name}` | {field.description} | {values} | "
            f"{'' if default in (None, {}) else default} |"
        )
    return _PAGE + "\n".join(rows) + "\n"


def _values(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    parts = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return " or ".join(
        _WORDS[get_origin(part) or part] for part in parts if part is not type(None)
    )


if __name__ == "__main__":
    sys.stdout.write(page())

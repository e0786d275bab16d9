"""The declarative experiment: strict models, YAML with grids, and the resolved configuration of every run."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from harness.record import DatasetConfig, RunConfig
from workloads.errors import InputError
from workloads.units import parse_bytes

M = TypeVar("M", bound=BaseModel)
PROFILES = Path(__file__).resolve().parent / "profiles"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunSettings(_Strict):
    """What `outcore run` takes and `run:` in a YAML file holds; a system of the list may override any of it.

    The first `warmup` of `epochs` are recorded and left out of the statistics.
    """

    dataset: str | None = None
    memory: str = "none"
    model: Literal["sage", "gcn", "gat"] = "sage"
    layers: int | None = Field(default=None, ge=1)
    hidden: int = Field(default=256, ge=1)
    heads: int = Field(default=4, ge=1)
    learning_rate: float = Field(default=0.003, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    sampler: Literal["neighbor"] = "neighbor"
    fanout: list[int] = Field(default_factory=lambda: [10, 10, 10], min_length=1)
    replace: bool = False
    shuffle: bool = True
    batch_size: int = Field(default=1000, ge=1)
    max_batches: int = Field(default=0, ge=0)
    epochs: int = Field(default=3, ge=1)
    warmup: int = Field(default=1, ge=0)
    device: str = "cpu"
    device_memory: str | int | None = None
    isolation: Literal["auto", "cgroup2", "cgroup1", "systemd", "docker", "none"] = "auto"
    disk_class: str = "none"
    stages: Literal["all", "sample", "sample+extract"] = "all"
    cores: int = Field(default=0, ge=0)
    keep_order: bool = False
    seed: int = Field(default=0, ge=0)
    verify: bool = False
    timeout: float | str = 3600.0
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("fanout", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value

    @field_validator("fanout")
    @classmethod
    def _positive(cls, value: list[int]) -> list[int]:
        if any(count == 0 or count < -1 for count in value):
            raise ValueError("every hop needs a positive number of neighbours, or -1 for all of them")
        return value

    @field_validator("memory", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        text = "none" if value is None else str(value)
        try:
            return canonical_memory(text)
        except InputError:
            return text  # `check_settings` says what is wrong with it


class SystemEntry(_Strict):
    """One entry of `systems:`: a name, or a mapping with the system's options, overrides and a grid of its own."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)


class Experiment(_Strict):
    """A sweep: base settings, a grid over them, systems, datasets made on demand."""

    name: str
    description: str = ""
    datasets: dict[str, dict[str, Any]] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    systems: list[str | dict[str, Any]]
    rounds: int = Field(default=1, ge=1)
    order_seed: int = 0
    figures: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class PlannedRun:
    """One cell of the grid before its dataset is opened."""

    system: str
    settings: RunSettings
    round: int = 0
    experiment: str = ""
    figure_tags: tuple[str, ...] = field(default=())


def strict(model: type[M], content: object, where: str) -> M:
    """`content` as `model`; the first fault as one sentence with the key's path and the nearest valid name.

    Raises:
        InputError: an unknown key, a wrong type, a value out of range.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        loc = [str(part) for part in first["loc"]]
        path = ".".join([part for part in (where, *loc) if part])
        if first["type"] == "extra_forbidden":
            raise unknown_name("key", path, loc[-1], list(model.model_fields)) from error
        given = "" if first["type"] == "missing" else f", but is {first['input']!r}"
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(
            f"{path or model.__name__}: {message[0].lower()}{message[1:]}{given}", "mend that key"
        ) from error


def unknown_name(what: str, path: str, name: str, valid: Sequence[str]) -> InputError:
    """The error for a name that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(sorted(valid))}"
    return InputError(f"{path} is not a known {what}", hint)


def load_experiment(source: Path | str) -> Experiment:
    """An experiment from a YAML file, or one of the bench profiles by name (`quick`).

    Raises:
        InputError: the file is missing, is not YAML, or has a fault; says which key.
    """
    path = Path(source)
    if path.suffix not in (".yaml", ".yml"):
        path = PROFILES / f"{source}.yaml"
        if not path.is_file():
            known = sorted(file.stem for file in PROFILES.glob("*.yaml"))
            raise unknown_name("bench profile", f"profile {str(source)!r}", str(source), known)
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"experiment {path} cannot be read: {error.strerror}", "check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"experiment {path} is not YAML: {' '.join(str(error).split())}", "mend the file") from error
    if not isinstance(content, dict):
        raise InputError(f"experiment {path} is not a mapping", "start it with `name:` and `systems:`")
    return parse_experiment(content)


def parse_experiment(content: Mapping[str, Any]) -> Experiment:
    """An experiment from plain data, every cell of its grid checked.

    Raises:
        InputError: a fault, with the key's path.
    """
    experiment = strict(Experiment, {"systems": [], **content}, "")
    if not experiment.systems:
        raise InputError("systems: the list is empty", "name at least one system")
    for _ in cells(experiment):
        pass
    return experiment


def cells(experiment: Experiment) -> Iterator[PlannedRun]:
    """Every run of the grid, systems next to each other, without rounds."""
    for index, raw in enumerate(experiment.systems):
        where = f"systems[{index}]"
        if isinstance(raw, str):
            entry = SystemEntry(name=raw)
        else:
            known = {key: value for key, value in raw.items() if key in SystemEntry.model_fields}
            short = {key: value for key, value in raw.items() if key not in SystemEntry.model_fields}
            _check_keys(short, where)
            entry = strict(SystemEntry, known, where)
            entry = entry.model_copy(update={"run": {**entry.run, **short}})
        _check_keys(experiment.run, "run")
        _check_keys(entry.run, f"{where}.run")
        for choice in itertools.product(_axis(experiment.grid, "grid"), _axis(entry.grid, f"{where}.grid")):
            merged: dict[str, Any] = {**experiment.run, **entry.run}
            merged["options"] = {**experiment.run.get("options", {}), **entry.run.get("options", {}), **entry.options}
            for part in choice:
                for key, value in part.items():
                    if key.startswith("options."):
                        merged["options"] = {**merged["options"], key.removeprefix("options."): value}
                    else:
                        merged[key] = value
            yield PlannedRun(
                entry.name,
                strict(RunSettings, merged, "run"),
                experiment=experiment.name,
                figure_tags=tuple(experiment.figures),
            )


def _axis(grid: Mapping[str, list[Any]], where: str) -> list[dict[str, Any]]:
    for key, values in grid.items():
        if not key.startswith("options.") and key not in RunSettings.model_fields:
            raise unknown_name("setting", f"{where}.{key}", key, list(RunSettings.model_fields))
        if not values:
            raise InputError(f"{where}.{key}: the list is empty", "give it at least one value")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _check_keys(content: Mapping[str, Any], where: str) -> None:
    for key in content:
        if key not in RunSettings.model_fields:
            raise unknown_name("setting", f"{where}.{key}", key, list(RunSettings.model_fields))


@dataclass(frozen=True)
class MemorySetting:
    """What `--memory` asks for; at most one of cap and budget is set, none of them means unlimited."""

    cap_bytes: int | None = None
    budget_bytes: int | None = None


def parse_memory(text: str, feature_bytes: int) -> MemorySetting:
    """`768MiB` (cap), `0.25x` (budget, share of the feature table), `+64MiB` (budget) or `none`.

    Raises:
        InputError: it is none of these.
    """
    text = text.strip()
    if text.lower() == "none":
        return MemorySetting()
    if text.endswith(("x", "X")):
        try:
            share = float(text[:-1])
        except ValueError as error:
            raise InputError(f"memory is {text!r}, which is not a share", "write it like 0.25x") from error
        if not 0 < share < 1e6:
            raise InputError(f"memory is {text!r}, and a share has to be above 0", "write it like 0.25x")
        return MemorySetting(budget_bytes=round(share * feature_bytes))
    if text.startswith("+"):
        return MemorySetting(budget_bytes=parse_bytes(text[1:], "memory"))
    return MemorySetting(cap_bytes=parse_bytes(text, "memory"))


def canonical_memory(text: str) -> str:
    """The one way to write a memory setting, so that `+67108864` and `+64MiB` are the same run."""
    text = text.strip()
    if text.lower() == "none" or text.endswith(("x", "X")):
        return text.lower()
    size = parse_bytes(text.removeprefix("+"), "memory")
    shown = f"{size // 2**20}MiB" if size % 2**20 == 0 else f"{size}B"
    return f"+{shown}" if text.startswith("+") else shown


def parse_seconds(value: float | str, what: str = "timeout") -> float:
    """Seconds from `600`, `600s`, `10min` or `2h`."""
    text = str(value).strip().lower()
    for suffix, factor in (("min", 60.0), ("h", 3600.0), ("s", 1.0), ("", 1.0)):
        if text.endswith(suffix):
            try:
                seconds = float(text[: len(text) - len(suffix)]) * factor
            except ValueError:
                continue
            if seconds > 0:
                return seconds
    raise InputError(f"{what} is {value!r}, which is not a time", "write it like 600s, 10min or 2h")


def check_settings(settings: RunSettings) -> None:
    """Refuse what cannot be, before anything runs and without opening the dataset.

    Raises:
        InputError: an impossible combination, a wrong unit.
    """
    parse_memory(settings.memory, 1)
    parse_seconds(settings.timeout)
    if settings.layers is not None and settings.layers != len(settings.fanout):
        raise InputError(
            f"layers is {settings.layers}, and fanout has {len(settings.fanout)} hops",
            "give one fan-out a layer",
        )
    if settings.warmup >= settings.epochs:
        raise InputError(
            f"warmup is {settings.warmup} of {settings.epochs} epochs, which leaves none to measure",
            "raise epochs or lower warmup",
        )
    if settings.device_memory is not None:
        parse_bytes(settings.device_memory, "device_memory")
        if settings.device == "cpu":
            raise InputError("device_memory is set, and device cpu has no memory of its own", "leave it out")
    elif settings.device.startswith("emulated:"):
        raise InputError(f"device {settings.device} has no device_memory", "set it, like device_memory 2GiB")
    if settings.device not in ("cpu", "cuda") and not settings.device.startswith(("cuda:", "emulated:")):
        raise unknown_name("device", f"device {settings.device!r}", settings.device, ["cpu", "cuda", "emulated:a10g"])
    if settings.device.startswith("emulated:"):
        from workloads.accelerators.profile import load_profile

        load_profile(settings.device.removeprefix("emulated:"))
    if settings.disk_class != "none":
        if settings.isolation == "none":
            raise InputError("disk_class needs a cgroup, and isolation is none", "use isolation auto")
        from harness.ssd.classes import parse_disk_class

        parse_disk_class(settings.disk_class)


def check_options(system: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A system's options, complete with defaults.

    Raises:
        InputError: the system or an option does not exist, or a value is wrong.
    """
    from systems.registry import load

    info = load(system).info
    try:
        return info.options.model_validate(dict(options)).model_dump(mode="json")
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "options"
        if first["type"] == "extra_forbidden":
            raise unknown_name(
                f"option of {system}", f"option {name}", name, list(info.options.model_fields)
            ) from error
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(
            f"{system}: option {name}: {message}, but is {first['input']!r}", f"see `outcore systems {system}`"
        ) from error


def resolve(run: PlannedRun, data_root: Path, isolation: str) -> RunConfig:
    """The whole configuration of a run, every default filled in; opens the dataset.

    Args:
        run: one cell of the grid.
        data_root: where datasets lie.
        isolation: the backend of the series, which `auto` became.

    Raises:
        InputError, DatasetError: it cannot run, and why.
    """
    from workloads.dataset import find_dataset

    settings = run.settings
    check_settings(settings)
    options = check_options(run.system, settings.options)
    if settings.dataset is None:
        raise InputError("no dataset is named", "set dataset, see `outcore data list`")
    dataset = find_dataset(settings.dataset, data_root)
    return RunConfig(
        system=run.system,
        dataset=DatasetConfig(
            name=dataset.name,
            fingerprint=dataset.fingerprint,
            num_nodes=dataset.num_nodes,
            num_edges=dataset.num_edges,
            dim=dataset.dim,
            dtype=str(dataset.feature_dtype),
            num_classes=dataset.num_classes,
            train_nodes=len(dataset.memmap("train")),
        ),
        layers=len(settings.fanout),
        device_memory_bytes=None if settings.device_memory is None else parse_bytes(settings.device_memory),
        isolation=isolation,
        timeout_s=parse_seconds(settings.timeout),
        options=options,
        experiment=run.experiment,
        figure_tags=list(run.figure_tags),
        round=run.round,
        **settings.model_dump(
            include={
                "model", "hidden", "heads", "learning_rate", "dropout", "sampler", "fanout", "replace", "shuffle",
                "batch_size", "max_batches", "epochs", "warmup", "device", "disk_class", "stages", "memory", "cores",
                "keep_order", "seed", "verify",
            }
        ),
    )  # fmt: skip

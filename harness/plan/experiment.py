"""Declarative experiments: strict models, YAML with grids, and the resolved
configuration of every run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from harness.records.cell import cell_key
from harness.records.record import DatasetConfig, RunConfig
from harness.settings import (
    RunSettings,
    SharedSettings,
    Strict,
    check_options,
    check_settings,
    complete_options,
    parse_seconds,
    strict,
    unknown_name,
)
from workloads.errors import InputError
from workloads.parsing import ParseError, parse_json, parse_yaml
from workloads.units import parse_bytes

PROFILES = Path(__file__).resolve().parent / "profiles"


class SystemEntry(Strict):
    """One entry of `systems:`: the system's name, its options, overrides of `run:` and
    its own grid."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)


class Experiment(Strict):
    """A sweep: base settings, a grid over them, systems, datasets made on demand.
    `gallery` shortens it for figures beyond the headline (`harness/figures/grids.py`)
    by `run`, `rounds`, `grid` and `datasets`; its own runs stay."""

    name: str
    description: str = ""
    datasets: dict[str, dict[str, Any]] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    systems: list[str | dict[str, Any]]
    rounds: int = Field(default=1, ge=1)
    order_seed: int = 0
    figures: list[str] = Field(default_factory=list)
    gallery: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class PlannedRun:
    """One cell of the grid before its dataset is opened. `axes`: values of the grid at
    this cell, by setting."""

    system: str
    settings: RunSettings
    round: int = 0
    rounds: int = 1
    experiment: str = ""
    figure_tags: tuple[str, ...] = field(default=())
    axes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Identity of the cell (`harness.records.cell`): that of the records of its
        runs."""
        settings = self.settings
        options = complete_options(self.system, settings.options)
        name = Path(str(settings.dataset)).name
        plain = settings.model_dump(mode="json")
        device_bytes = (
            None
            if settings.device_memory is None
            else parse_bytes(settings.device_memory)
        )
        return cell_key(
            self.system,
            name,
            plain,
            options,
            layers=settings.layers,
            device_memory_bytes=device_bytes,
        )


def load_experiment(source: Path | str) -> Experiment:
    """Read a YAML or JSON file, or a bench profile by name (`quick`).

    Raises:
        InputError: it is missing, no YAML or JSON, or invalid.
    """
    path = Path(source)
    if path.suffix not in (".yaml", ".yml", ".json"):
        path = PROFILES / f"{source}.yaml"
        if not path.is_file():
            known = sorted(file.stem for file in PROFILES.glob("*.yaml"))
            raise unknown_name(
                "bench profile", f"profile {str(source)!r}", str(source), known
            )
    kind, parse = (
        ("JSON", parse_json) if path.suffix == ".json" else ("YAML", parse_yaml)
    )
    try:
        content = parse(path.read_bytes())
    except OSError as error:
        raise InputError.from_os(
            error, f"experiment {path} cannot be read", "check the path"
        ) from error
    except ParseError as error:
        raise InputError(
            f"experiment {path} is not {kind}: {error}", "correct the file"
        ) from error
    if not isinstance(content, dict):
        raise InputError(
            f"experiment {path} is not a mapping",
            "start it with `name:` and `systems:`",
        )
    return parse_experiment(content)


def parse_experiment(content: Mapping[str, Any]) -> Experiment:
    """Return an experiment from plain data, every cell checked; raise InputError with
    the path of an invalid key."""
    experiment = strict(Experiment, {"systems": [], **content}, "")
    if not experiment.systems:
        raise InputError("systems: the list is empty", "name at least one system")
    for _ in cells(experiment):
        pass
    return experiment


def cells(experiment: Experiment) -> Iterator[PlannedRun]:
    """Yield every cell of the grid once, system by system."""
    for index, raw in enumerate(experiment.systems):
        where = f"systems[{index}]"
        reported = {"name": raw} if isinstance(raw, str) else raw
        if "name" not in reported:
            raise InputError(
                f"{where} has no name of a system",
                "write it like {name: gnndrive, options: {...}}",
            )
        short = {
            key: value
            for key, value in reported.items()
            if key not in SystemEntry.model_fields
        }
        _check_keys(short, where)
        entry = strict(
            SystemEntry,
            {key: value for key, value in reported.items() if key not in short},
            where,
        )
        entry = entry.model_copy(update={"run": {**entry.run, **short}})
        _check_keys(experiment.run, "run")
        _check_keys(entry.run, f"{where}.run")
        for choice in itertools.product(
            _axis(experiment.grid, "grid"), _axis(entry.grid, f"{where}.grid")
        ):
            merged: dict[str, Any] = {**experiment.run, **entry.run}
            merged["options"] = {
                **experiment.run.get("options", {}),
                **entry.run.get("options", {}),
                **entry.options,
            }
            for part in choice:
                for key, value in part.items():
                    if key.startswith("options."):
                        merged["options"] = {
                            **merged["options"],
                            key.removeprefix("options."): value,
                        }
                    else:
                        merged[key] = value
            settings = strict(RunSettings, merged, "run")
            tags = tuple(experiment.figures)
            axes = {key: value for part in choice for key, value in part.items()}
            yield PlannedRun(
                entry.name, settings, 0, experiment.rounds, experiment.name, tags, axes
            )


def _axis(grid: Mapping[str, list[Any]], where: str) -> list[dict[str, Any]]:
    _check_keys((key for key in grid if not key.startswith("options.")), where)
    for key, values in grid.items():
        if not values:
            raise InputError(
                f"{where}.{key}: the list is empty", "give it at least one value"
            )
    return [
        dict(zip(grid, values, strict=True))
        for values in itertools.product(*grid.values())
    ]


def _check_keys(keys: Iterable[str], where: str) -> None:
    for key in keys:
        if key not in RunSettings.model_fields:
            raise unknown_name(
                "setting", f"{where}.{key}", key, list(RunSettings.model_fields)
            )


def resolve(run: PlannedRun, data_root: Path, isolation: str) -> RunConfig:
    """Return a run's configuration with every default; raise InputError or DatasetError
    if the run is impossible."""
    from workloads.dataset import find_dataset

    settings = run.settings
    check_settings(settings)
    options = check_options(run.system, settings.options)
    if settings.dataset is None:
        raise InputError("no dataset is named", "set dataset, see `outcore data list`")
    dataset = find_dataset(settings.dataset, data_root)
    return RunConfig(
        system=run.system,
        dataset=DatasetConfig.of(dataset),
        layers=settings.layers or len(settings.fanout),
        device_memory_bytes=None
        if settings.device_memory is None
        else parse_bytes(settings.device_memory),
        isolation=isolation,
        timeout_s=parse_seconds(settings.timeout),
        options=options,
        experiment=run.experiment,
        axes=dict(run.axes),
        figure_tags=list(run.figure_tags),
        round=run.round,
        **settings.model_dump(include=set(SharedSettings.model_fields) - {"options"}),
    )

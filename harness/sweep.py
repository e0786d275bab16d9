"""A sweep: the runs of one or several experiments in interleaved rounds, resumed where it stopped."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness import results
from harness.code import is_current
from harness.environment import this_host
from harness.estimate import CostModel
from harness.experiment import Experiment, PlannedRun, cells, check_options, check_settings, resolve
from harness.hosts import host_fingerprint
from harness.orchestrator import execute
from harness.record import Record, RunConfig
from harness.series import Series
from harness.verdict import spoilt
from workloads.dataset import find_dataset
from workloads.errors import InputError
from workloads.units import parse_bytes

if TYPE_CHECKING:
    from harness.datasets import Recipe


class Progress(Protocol):
    """Where a sweep says what it does."""

    def title(self, text: str) -> None:
        """A new part of the work."""

    def __call__(self, text: str) -> None:
        """One step of it."""


@dataclass
class Outcome:
    """What a sweep did: records of this call and of earlier ones; over hosts, why those of a label did nothing."""

    records: list[Record] = field(default_factory=list)
    skipped: int = 0
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """What a sweep would cost. `seconds` is from earlier records where there are some, else a rough model.

    `artefact_bytes`: what preparing the runs may leave on disk, roughly; until `outcore results gc --artefacts`.
    """

    runs: int
    done: int
    dataset_bytes: int
    artefact_bytes: int
    seconds: float
    measured: bool


def union(experiments: Sequence[Experiment]) -> list[PlannedRun]:
    """The cells of all experiments, each once: what two of them share carries the figures of both."""
    merged: dict[str, PlannedRun] = {}
    for experiment in experiments:
        for cell in cells(experiment):
            key = _cell_key(cell)
            known = merged.get(key)
            if known is None:
                merged[key] = cell
            else:
                tags = tuple(dict.fromkeys([*known.figure_tags, *cell.figure_tags]))
                merged[key] = replace(known, figure_tags=tags, rounds=max(known.rounds, cell.rounds))
    return list(merged.values())


def _cell_key(cell: PlannedRun) -> str:
    """What tells two cells apart; sizes in bytes, since `32MiB` and `33554432` are one run."""
    device = cell.settings.device_memory
    settings = cell.settings.model_copy(update={"device_memory": None if device is None else parse_bytes(device)})
    return f"{cell.system} {settings.model_dump_json()}"


def order(planned: Sequence[PlannedRun], seed: int) -> list[PlannedRun]:
    """Every cell once in each of its rounds; what is compared stands together, shuffled by seed (rule 16)."""
    groups: dict[str, list[PlannedRun]] = {}
    for cell in planned:
        comparable = cell.settings.model_dump_json(exclude={"options", "memory"})
        groups.setdefault(comparable, []).append(cell)
    ordered: list[PlannedRun] = []
    for number in range(max((cell.rounds for cell in planned), default=0)):
        for index, group in enumerate(groups.values()):
            shuffled = [cell for cell in group if number < cell.rounds]
            random.Random(f"{seed}/{number}/{index}").shuffle(shuffled)
            ordered += [replace(cell, round=number) for cell in shuffled]
    return ordered


class Sweep:
    """One call of `outcore bench`.

    Args:
        experiments: what to run; the first one's order seed counts.
        results_root, data_root: where records and datasets lie.
        progress: told what is going on.
        fresh: run again what has a record already.
        retry: run again what does not count only for what else went on at that moment.
        isolation: the backend asked for; `auto` takes the experiments' own.

    Raises:
        InputError: a system, an option or a setting that cannot be.
    """

    def __init__(
        self,
        experiments: Sequence[Experiment],
        results_root: Path,
        data_root: Path,
        progress: Progress,
        *,
        fresh: bool = False,
        retry: bool = True,
        isolation: str = "auto",
    ) -> None:
        from harness.datasets import recipes_of

        if not experiments:
            raise InputError("there is no experiment to run", "name one, or a profile")
        self._results_root = results_root
        self._data_root = data_root
        self._progress = progress
        self._fresh = fresh
        self._retry = retry
        first = experiments[0]
        self.planned = order(union(experiments), first.order_seed)
        self.recipes: dict[str, Recipe] = recipes_of(experiments)
        for cell in self.planned:
            check_settings(cell.settings)
            check_options(cell.system, cell.settings.options)
        self.isolation = isolation if isolation != "auto" else self._common_isolation()

    def _common_isolation(self) -> str:
        """The backend that all runs ask for: caps of different kinds do not compare."""
        wanted = sorted({cell.settings.isolation for cell in self.planned} - {"auto"})
        if len(wanted) > 1:
            raise InputError(f"run.isolation is {' and '.join(wanted)} in one sweep", "run them as two experiments")
        return wanted[0] if wanted else "auto"

    def estimate(self) -> Estimate:
        """Runs, bytes of datasets to make, and time, without running anything."""
        model = CostModel(results.records(self._results_root))
        seconds, measured, done, artefacts = 0.0, True, 0, 0
        finished = self._finished()
        for cell in self.planned:
            if self._is_there(str(cell.settings.dataset)):
                config = resolve(cell, self._data_root, "auto")
                if any(hash_ == _loose(config) and config.round == round_ for hash_, round_ in finished):
                    done += 1
                    continue
            measured &= model.knows(cell)
            recipe = self.recipes.get(str(cell.settings.dataset))
            seconds += model.seconds(cell, recipe)
            artefacts += model.artefact_bytes(cell, recipe)
        return Estimate(len(self.planned), done, self.missing_bytes({}), artefacts, seconds, measured)

    def make_datasets(self) -> None:
        """Make the datasets that are not there yet.

        Raises:
            DatasetError, DataIOError: one cannot be made.
        """
        from harness.datasets import ensure

        for name in self._names():
            if name in self.recipes:
                self._progress.title(f"dataset {name}")
                ensure(name, self.recipes[name], self._data_root, self._progress)

    def _names(self) -> list[str]:
        return list(dict.fromkeys(str(cell.settings.dataset) for cell in self.planned))

    def configs(self, isolation: str) -> list[RunConfig]:
        """The configuration of every run, in the sweep's order, under a backend. Raises InputError, DatasetError."""
        return [resolve(cell, self._data_root, isolation) for cell in self.planned]

    def run(
        self, series: Series, on_record: Callable[[Record], None] = lambda record: None, only: int | None = None
    ) -> Outcome:
        """Make what is missing, then run everything that has no record yet, or one cell: the one in place `only`.

        Raises:
            InputError, DatasetError: something cannot run; nothing was run.
            DataIOError: a record could not be written (disk full); what ran before is kept.
        """
        self.make_datasets()
        configs = self.configs(series.isolation.name)
        datasets = {name: find_dataset(name, self._data_root) for name in self._names()}
        outcome = Outcome()
        finished = {(record.config_hash, record.config.round): record for record in self._done_records()}
        todo = []
        for number, (cell, config) in enumerate(zip(self.planned, configs, strict=True)):
            if only is not None and number != only:
                continue
            earlier = finished.get((config.config_hash, config.round))
            if earlier is None:
                todo.append((cell, config))
            else:
                outcome.records.append(earlier)
                outcome.skipped += 1
        if todo:
            self._progress.title(f"{len(todo)} runs, {outcome.skipped} done before")
            series.prepare([config for _, config in todo], datasets[str(todo[0][0].settings.dataset)])
        for number, (cell, config) in enumerate(todo, start=1):
            self._progress.title(f"run {number}/{len(todo)} {config.system} {config.memory} round {config.round}")
            record = execute(series, config, datasets[str(cell.settings.dataset)], self._progress)
            outcome.records.append(record)
            on_record(record)
        return outcome

    def _is_there(self, name: str) -> bool:
        return any((folder / "dataset.json").is_file() for folder in (self._data_root / name, Path(name)))

    def _done_records(self) -> Iterable[Record]:
        """Records that need not be made again.

        Every ending but a failure is a result, if it was made on this host, by the code as it is now, and not spoilt by
        what else went on there.
        """
        if self._fresh:
            return []
        bad: list[results.BadRecord] = []
        found = [
            record
            for record in results.records(self._results_root, bad)
            if record.status != "failed"
            and not (self._retry and spoilt(record))
            and is_current(record.code, record.system)
        ]
        if bad:
            self._progress.title(f"{len(bad)} records cannot be read and count as not run, like {bad[0].reason}")
        here = ("", this_host(self._data_root))
        return [record for record in found if host_fingerprint(record.environment) in here]

    def _finished(self) -> set[tuple[str, int]]:
        return {(_loose(record.config), record.config.round) for record in self._done_records()}

    def missing_bytes(self, more: Mapping[str, Recipe]) -> int:
        """Bytes of the datasets that are still to be made; `more`: those that studies need."""
        names = {str(cell.settings.dataset) for cell in self.planned}
        wanted = {**more, **{name: self.recipes[name] for name in names & set(self.recipes)}}
        return sum(recipe.expected_bytes() for name, recipe in wanted.items() if not self._is_there(name))


def _loose(config: RunConfig) -> str:
    """Identity without the isolation backend, which is chosen only when a series begins."""
    return config.model_copy(update={"isolation": "auto"}).config_hash

"""Sweep: the runs of one or several experiments in interleaved rounds, resumed at the
first missing run."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.judge import spoilt
from harness.plan.datasets import Recipe, ensure, recipes_of
from harness.plan.experiment import Experiment, PlannedRun, cells, resolve
from harness.progress import Progress, TimeLeft
from harness.records.code import is_current
from harness.records.environment import this_host
from harness.records.hosts import host_fingerprint
from harness.records.record import Record, RunConfig
from harness.results import store as results
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import SharedSettings, check_options, check_settings
from harness.ssd.device import block_device
from systems.registry import load
from workloads.dataset import Dataset, find_dataset
from workloads.errors import InputError

# seconds of a run outside its epochs: start, eviction, its share of the calibration
FIXED_S = 8.0
# Rows a second read one by one from a medium device, and from memory.
DISK_ROWS_PER_S = 90_000.0
MEMORY_ROWS_PER_S = 3_000_000.0
# share of a mini-batch's draws that reach a new node, for many draws from a skewed
# graph
DISTINCT = 0.5


@dataclass
class Outcome:
    """Records of a sweep, `skipped` of them of earlier calls; `elsewhere`: runs made
    although they have a record from another drive or host; `problems`: reasons why
    labels of hosts lack runs, by label; `left_out`: reasons why hosts get no more runs,
    by host. `earlier`: further records of its cells, by the present
    code on the same hosts, that earlier calls made."""

    records: list[Record] = field(default_factory=list)
    skipped: int = 0
    elsewhere: int = 0
    earlier: list[Record] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of a sweep. `seconds`: by a rough model, scaled by earlier records
    if there are any. `artefact_bytes`: approximate bytes of artefacts on disk, kept
    until `outcore results gc --artefacts`. `missing`: runs without a record, in order.
    `finished`: whether each planned run has one, in the plan's order; `done` have."""

    runs: int
    done: int
    dataset_bytes: int
    artefact_bytes: int
    seconds: float
    measured: bool
    missing: list[PlannedRun]
    finished: list[bool] = field(default_factory=list)


def modelled_s(settings: SharedSettings, train_nodes: float, num_nodes: int) -> float:
    """Return a run's seconds without regard to the system: rows of all epochs over a
    rate, plus a fixed cost."""
    batches = settings.max_batches or max(1, round(train_nodes / settings.batch_size))
    expansion = 1
    rows = 1
    for count in settings.fanout:
        expansion *= max(1, count)
        rows += expansion
    asked = (
        settings.epochs
        * batches
        * min(num_nodes, DISTINCT * settings.batch_size * rows)
    )
    rate = (
        MEMORY_ROWS_PER_S
        if settings.memory == "none" or settings.stages == "sample"
        else DISK_ROWS_PER_S
    )
    return FIXED_S + asked / rate


class CostModel:
    """Expected cost of a run: that of earlier runs of its cell, else a rough model,
    corrected for each system by its earlier runs. Only runs with status `ok` count."""

    def __init__(self, records: Iterable[Record]) -> None:
        found: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
        written: defaultdict[str, list[float]] = defaultdict(list)
        measured: defaultdict[str, list[float]] = defaultdict(list)
        for record in records:
            config = record.config
            if record.status != "ok" or not record.duration_s:
                continue
            measured[record.cell.key].append(record.duration_s)
            written[record.system].append(
                record.preprocess.bytes_written / max(1, config.dataset.feature_bytes)
            )
            expected = modelled_s(
                config, config.dataset.train_nodes, config.dataset.num_nodes
            )
            found[record.system, config.memory == "none"].append(
                record.duration_s / expected
            )
        self._factors = {
            key: statistics.median(values) for key, values in found.items()
        }
        self._measured = {
            key: statistics.median(values) for key, values in measured.items()
        }
        # The mean, not the median: most runs reuse artefacts that one run wrote.
        self._written = {
            system: statistics.fmean(values) for system, values in written.items()
        }

    def knows(self, cell: PlannedRun) -> bool:
        """Return whether the system was measured before, under a cap or without one as
        in `cell`."""
        return (cell.system, cell.settings.memory == "none") in self._factors

    def seconds(self, cell: PlannedRun, recipe: Recipe | None) -> float:
        """Return the expected seconds of one run."""
        if (measured := self._measured.get(cell.key)) is not None:
            return measured
        nodes = (recipe.num_nodes() if recipe else 0) or 1_000_000
        expected = modelled_s(
            cell.settings, nodes * (recipe.train_fraction if recipe else 0.01), nodes
        )
        return expected * self._factors.get(
            (cell.system, cell.settings.memory == "none"), 1.0
        )

    def artefact_bytes(self, cell: PlannedRun, recipe: Recipe | None) -> int:
        """Return the expected bytes of artefacts on disk, from the system's earlier
        runs or its declared share."""
        share = self._written.get(cell.system)
        if share is None:
            # A foreign system declares no share.
            share = 0.0 if ":" in cell.system else load(cell.system).info.artefact_share
        return round(share * recipe.feature_bytes()) if recipe else 0


def union(experiments: Sequence[Experiment]) -> list[PlannedRun]:
    """Return the cells of all experiments, each once; a shared cell has the figure tags
    of all its experiments."""
    merged: dict[str, PlannedRun] = {}
    for cell in (cell for experiment in experiments for cell in cells(experiment)):
        known = merged.setdefault(cell.key, cell)
        if known is not cell:
            tags = tuple(dict.fromkeys([*known.figure_tags, *cell.figure_tags]))
            merged[cell.key] = replace(
                known, figure_tags=tags, rounds=max(known.rounds, cell.rounds)
            )
    return list(merged.values())


def order(planned: Sequence[PlannedRun], seed: int) -> list[PlannedRun]:
    """Return every cell once in each of its rounds; comparable cells are adjacent,
    shuffled by seed (rule 16)."""
    groups: dict[str, list[PlannedRun]] = {}
    for cell in planned:
        groups.setdefault(
            cell.settings.model_dump_json(exclude={"options", "memory"}), []
        ).append(cell)
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
        experiments: experiments to run; the first one's order seed counts.
        results_root, data_root: folders of records and datasets.
        progress: display of the progress.
        fresh: run cells that have a record already, too.
        retry: run again cells whose record was spoilt by other programs.
        isolation: isolation backend; `auto` takes that of the experiments.

    Raises:
        InputError: a system, an option or a setting is invalid.
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
        if not experiments:
            raise InputError("there is no experiment to run", "name one, or a profile")
        self._results_root = results_root
        self._data_root = data_root
        self._progress = progress
        self._fresh = fresh
        self._retry = retry
        self._known: list[Record] | None = None
        self._prepared: Series | None = None
        self.planned = order(union(experiments), experiments[0].order_seed)
        self.recipes: dict[str, Recipe] = recipes_of(experiments)
        for cell in self.planned:
            check_settings(cell.settings)
            check_options(cell.system, cell.settings.options)
        self.isolation = isolation if isolation != "auto" else self._common_isolation()

    def _common_isolation(self) -> str:
        """Return the backend requested by all runs, since caps of different kinds are
        not comparable."""
        wanted = sorted(
            {cell.settings.isolation for cell in self.planned} - {"auto"}
        ) or ["auto"]
        if len(wanted) > 1:
            raise InputError(
                f"run.isolation is {' and '.join(wanted)} in one sweep",
                "run them as two experiments",
            )
        return wanted[0]

    def estimate(self) -> Estimate:
        """Estimate runs, bytes of missing datasets and artefacts, and seconds, without
        running anything."""
        known = self._earlier()
        model = CostModel(known)
        finished = self._finished(known)
        seconds = 0.0
        measured = True
        artefacts = 0
        for cell, done in zip(self.planned, finished, strict=True):
            if done:
                continue
            measured &= model.knows(cell)
            recipe = self.recipes.get(str(cell.settings.dataset))
            seconds += model.seconds(cell, recipe)
            artefacts += model.artefact_bytes(cell, recipe)
        left = [
            cell for cell, done in zip(self.planned, finished, strict=True) if not done
        ]
        missing = self.missing_bytes({})
        return Estimate(
            len(self.planned),
            sum(finished),
            missing,
            artefacts,
            seconds,
            measured,
            left,
            finished,
        )

    def _finished(self, known: Sequence[Record]) -> list[bool]:
        """Return for each planned run whether a record of it is kept, so that it is not
        run again."""
        if self._fresh:
            return [False] * len(self.planned)
        kept = self._done(known)
        found = []
        for cell in self.planned:
            # Which isolation backend a run gets is chosen only when a series begins.
            there = self._is_there(str(cell.settings.dataset))
            found.append(
                there and _identity(resolve(cell, self._data_root, "auto")) in kept
            )
        return found

    def make_datasets(self) -> None:
        """Make the missing datasets. Raises DatasetError, DataIOError: a dataset cannot
        be made."""
        for name in self._names():
            if name in self.recipes:
                self._progress.title(f"dataset {name}")
                ensure(name, self.recipes[name], self._data_root, self._progress)

    def _names(self) -> list[str]:
        return list(dict.fromkeys(str(cell.settings.dataset) for cell in self.planned))

    def configs(self, isolation: str) -> list[RunConfig]:
        """Return the configurations under a backend, in order. Raises InputError,
        DatasetError: a run is impossible."""
        return [resolve(cell, self._data_root, isolation) for cell in self.planned]

    def one(self, series: Series, number: int) -> Record:
        """Return the newest record of the planned run at index `number`, made now where
        there is none. The datasets have to exist (`make_datasets`), and the first call
        prepares the series for all planned runs. Raises as `run`."""
        if self._known is None:
            self._known = self._earlier()
        cell = self.planned[number]
        config = resolve(cell, self._data_root, series.isolation.name)
        if not self._fresh:
            done = self._done(self._known).get(_identity(config), [])
            same = [one for one in done if one.config_hash == config.config_hash]
            if same:
                return same[-1]
        if self._prepared is not series:
            self._prepare(series)
        dataset = find_dataset(str(cell.settings.dataset), self._data_root)
        record = execute(series, config, dataset, self._progress)
        self._known.append(record)
        return record

    def _prepare(self, series: Series) -> None:
        """Prepare a series for all planned runs."""
        datasets = [find_dataset(name, self._data_root) for name in self._names()]
        _check_one_drive(datasets)
        series.prepare(self.configs(series.isolation.name), datasets[0])
        self._prepared = series

    def run(
        self, series: Series, on_record: Callable[[Record], None] = lambda record: None
    ) -> Outcome:
        """Make missing datasets, then execute all runs without a record. Raises
        InputError, DatasetError: a run is impossible; nothing was run. Raises
        DataIOError: a record could not be written (disk full); earlier records are
        kept."""
        self.make_datasets()
        configs = self.configs(series.isolation.name)
        datasets = {name: find_dataset(name, self._data_root) for name in self._names()}
        known = self._earlier()
        outcome = Outcome()
        done = self._done(known)
        model = CostModel(known)
        todo = []
        for cell, config in zip(self.planned, configs, strict=True):
            earlier = [
                one
                for one in done.get(_identity(config), ())
                if one.config_hash == config.config_hash
            ]
            outcome.earlier += earlier
            outcome.records += [] if self._fresh else earlier[-1:]
            if self._fresh or not earlier:
                name = str(cell.settings.dataset)
                todo.append(
                    (
                        config,
                        datasets[name],
                        model.seconds(cell, self.recipes.get(name)),
                    )
                )
        outcome.skipped = len(outcome.records)
        outcome.elsewhere = (
            0
            if self._fresh
            else self._elsewhere(known, [config for config, _, _ in todo])
        )
        if outcome.elsewhere:
            message = (
                f"{outcome.elsewhere} of these runs were made on another drive or host"
            )
            self._progress.keep(
                f"{message}, so they are made here too: {self._data_root} is on "
                f"{self._drive()}"
            )
        if todo:
            _check_one_drive(dataset for _, dataset, _ in todo)
            self._progress.title(
                f"{len(todo)} runs, {outcome.skipped} done before",
                "preparing the series",
            )
            series.prepare([config for config, _, _ in todo], todo[0][1])
        left = TimeLeft([seconds for _, _, seconds in todo])
        for number, (config, dataset, _) in enumerate(todo):
            place = f"run {number + 1}/{len(todo)}"
            left.begin(number, place)
            self._progress.title(
                f"{place} {config.system} {config.memory} round {config.round}", left
            )
            try:
                record = execute(series, config, dataset, self._progress)
            except (KeyboardInterrupt, SystemExit):
                done_runs = (
                    f"{outcome.skipped + number} of {outcome.skipped + len(todo)} runs "
                    "are done"
                )
                self._progress.keep(f"{done_runs}; the same command goes on")
                raise
            outcome.records.append(record)
            on_record(record)
        return outcome

    def _elsewhere(
        self, records: Sequence[Record], configs: Sequence[RunConfig]
    ) -> int:
        """Return how many of these runs have a record from another drive or host, which
        would be kept on this one."""
        here = self._hosts()
        kept = worth_keeping(records, retry=self._retry)
        others = {
            _identity(record.config)
            for record in kept
            if not _was_made_on(record, here)
        }
        return sum(_identity(config) in others for config in configs)

    def _drive(self) -> str:
        found = block_device(self._data_root)
        return f"drive {found.drive or 'unknown'} ({found.model or found.file_system})"

    def _hosts(self) -> dict[str, str]:
        """Return the fingerprint of this host with the drive under each dataset, by the
        dataset's name; with the drive of the data root for other names."""
        places: dict[str, Path] = {}
        for name in self._names():
            inside = self._data_root / name
            places[Path(name).name] = (
                inside if inside.exists() or not Path(name).exists() else Path(name)
            )
        common = this_host(self._data_root)
        return defaultdict(
            lambda: common, {name: this_host(place) for name, place in places.items()}
        )

    def _is_there(self, name: str) -> bool:
        return any(
            (folder / "dataset.json").is_file()
            for folder in (self._data_root / name, Path(name))
        )

    def _earlier(self) -> list[Record]:
        """Return every readable record, oldest first, and report how many are not."""
        bad: list[results.BadRecord] = []
        found = list(results.records(self._results_root, bad, self._progress))
        if bad:
            self._progress.keep(
                f"{len(bad)} records cannot be read and count as not run, like "
                f"{bad[0].reason}"
            )
        return found

    def _done(self, records: Sequence[Record]) -> dict[tuple[str, int], list[Record]]:
        """Return the records to keep that were made on this host with this drive, by
        the identity of their configuration, oldest first."""
        found: dict[tuple[str, int], list[Record]] = {}
        here = self._hosts()
        for record in worth_keeping(records, retry=self._retry):
            if _was_made_on(record, here):
                found.setdefault(_identity(record.config), []).append(record)
        return found

    def missing_bytes(self, more: Mapping[str, Recipe]) -> int:
        """Return the expected bytes of missing datasets; `more`: recipes that studies
        need."""
        names = {str(cell.settings.dataset) for cell in self.planned}
        wanted = {
            **more,
            **{name: self.recipes[name] for name in names & set(self.recipes)},
        }
        return sum(
            recipe.expected_bytes()
            for name, recipe in wanted.items()
            if not self._is_there(name)
        )


def worth_keeping(records: Iterable[Record], *, retry: bool) -> list[Record]:
    """Return the records that need not be made again, on whatever host: those of any
    status but `failed`, made by the present code and, with `retry`, not spoilt by other
    programs."""
    return [
        record
        for record in records
        if record.status != "failed"
        and not (retry and spoilt(record))
        and is_current(record.code, record.system, record.config.sampler)
    ]


def _was_made_on(record: Record, hosts: Mapping[str, str]) -> bool:
    """Return whether a record was made on this host, or names none; `hosts`:
    fingerprint by the dataset's name."""
    return host_fingerprint(record.environment) in (
        "",
        hosts[record.config.dataset.name],
    )


def _check_one_drive(datasets: Iterable[Dataset]) -> None:
    """Raise InputError where datasets lie on several drives: the profile of a series is
    that of one."""
    by_drive = {block_device(dataset.path).drive: dataset.path for dataset in datasets}
    if len(by_drive) > 1:
        paths = " and ".join(map(str, by_drive.values()))
        raise InputError(
            f"the datasets lie on {len(by_drive)} drives: {paths}",
            "bench those of each drive by themselves",
        )


def _identity(config: RunConfig) -> tuple[str, int]:
    """Return a digest over all settings but labels and isolation backend, and the
    round."""
    return config.model_copy(update={"isolation": "auto"}).config_hash, config.round

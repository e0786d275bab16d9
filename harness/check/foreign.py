"""Check of a foreign system (`outcore check env:NAME`): what can be judged of a worker
that samples by itself.

Three epochs run under a real cap on a small graph, driven as a run is. Nothing but
events and what the worker leaves behind is looked at, so the language of the worker
does not matter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.check.case import Case
from harness.check.draws import FALSE_ALARMS, Draws
from harness.check.rules import RUNS, CheckResult
from harness.check.stage import make_dataset
from harness.foreign.systems import description, image_of
from harness.isolation.base import Limits
from harness.judge.memory import WARM_BYTES
from harness.judge.trace import TraceFacts, check_features
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import RunConfig
from harness.run import calibrate
from harness.run.launch import Ending, Worker
from harness.run.series import Series
from harness.run.spec import worker_spec, workload_of_run
from harness.settings import RunSettings, strict
from harness.wire.protocol import (
    Batches,
    BatchRow,
    Checks,
    EpochDone,
    Event,
    Gate,
    Nodes,
    Seeds,
)
from harness.wire.spots import NONCE_BYTES, Spot
from workloads.arraytypes import Int64Array
from workloads.dataset import Dataset
from workloads.errors import HostError, OutcoreError
from workloads.sampling.make import make_seed_plan
from workloads.sampling.once import Drawn
from workloads.units import format_bytes

# Hubs and isolated nodes, and lists shorter and longer than the fan-out; 5 MB, so that
# a check takes seconds.
_CASE = Case("foreign", nodes=20_000, edges=200_000, train=2_000, dim=64)
_SETTINGS: dict[str, Any] = {
    "memory": "+512MiB",
    "fanout": [5, 3, 2],  # differ, so that hops in the wrong order have other sizes
    "batch_size": 110,
    "epochs": 3,  # an order or draws kept for two epochs would pass for new ones in two
    "warmup": 1,
    "hidden": 16,
    "timeout": "300s",
}
COUNT = "number of mini-batches"
SEEDS = "each training node a seed once an epoch"
SIZES = "sizes of mini-batches"
DRAWS = "neighbours drawn alike, anew, along in-edges"
DIGESTS = "digests equal the workload's"
ROWS = "feature rows equal the dataset's"
LOSSES = "losses are finite"
LEFT = "nothing is left behind"
MEMORY = "constructor and step() hold no features"
_FIXES = {
    RUNS: "run the worker by hand (docs/foreign.md), and read its log",
    COUNT: "train ceil(training nodes / batch size) mini-batches, the last one short",
    SEEDS: "shuffle all training nodes anew each epoch, and drop none",
    SIZES: "draw `fanout` distinct in-neighbours a hop, seed nodes' hop first; state "
    "`expands` in the manifest",
    DRAWS: "draw each time anew and uniformly from `indices[indptr[v]:indptr[v + 1]]`, "
    "the in-neighbours of node v",
    DIGESTS: "digest mini-batches as workloads/sampling/digest.py does, or leave "
    "`faithful` out",
    ROWS: "pass the rows as the model reads them, in the order of their nodes, and "
    "set `checks` in the manifest",
    LOSSES: "look for features that are not normalised, or a learning rate that is "
    "too high",
    MEMORY: "load and map features in `prepare()`, whose memory is the budget's",
    LEFT: "end processes in `close()`; `outcore_worker.own_temporary_folder()` takes "
    "what libraries forget",
}


@dataclass
class _Report:
    """Events of all epochs, and what the worker left behind."""

    batches: dict[int, list[BatchRow]] = field(default_factory=dict)
    seeds: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    nodes: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    spots: dict[int, list[Spot]] = field(default_factory=dict)
    epochs: list[EpochDone] = field(default_factory=list)
    nonces: dict[int, bytes] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    feature_read_bytes: int = 0

    @property
    def sizes(self) -> dict[tuple[int, int], int]:
        """Number of nodes of each mini-batch, by epoch and number."""
        return {
            (epoch, row[0]): row[1]
            for epoch, rows in self.batches.items()
            for row in rows
        }

    def drawn(self, epoch: int) -> list[Drawn]:
        """Return an epoch's mini-batches whose nodes and seed nodes were reported."""
        nodes = self.nodes.get(epoch, {})
        seeds = self.seeds.get(epoch, {})
        edges = {row[0]: row[2] for row in self.batches.get(epoch, [])}
        return [
            Drawn(
                np.array(nodes[index], dtype=np.int64),
                edges.get(index, 0),
                np.array(seeds[index], dtype=np.int64),
            )
            for index in sorted(nodes.keys() & seeds.keys())
        ]


def check_foreign(
    name: str,
    *,
    options: dict[str, Any] | None = None,
    folder: Path | None = None,
    logs: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[CheckResult]:
    """Check a foreign system and return one result per promise.

    Args:
        name: `env:NAME` or `image:NAME`.
        options: options of the system.
        folder: parent of the temporary folder; by default /var/tmp, since files should
            lie on a disk.
        logs: folder in which the worker's log is kept if a promise is broken; None: it
            is not.
        progress: called with the name of each step.

    Raises:
        InputError: unknown system or option, or an option has an invalid value.
        HostError: its environment is not set up, or no container engine is available.
    """
    disk = Path("/var/tmp")
    parent = folder or (disk if os.access(disk, os.W_OK) else None)
    with tempfile.TemporaryDirectory(
        prefix="outcore-check-", dir=parent, ignore_cleanup_errors=True
    ) as temporary:
        base = Path(temporary)
        dataset = make_dataset(base / "data", _CASE)
        log = base / "worker.log"
        isolation = "docker" if image_of(name) is not None else "auto"
        with Series(
            base / "results", dataset.path.parent, isolation=isolation
        ) as series:
            settings = strict(
                RunSettings,
                {**_SETTINGS, "options": options or {}, "dataset": dataset.name},
                "",
            )
            config = resolve(
                PlannedRun(name, settings), series.data_root, series.isolation.name
            )
            if reason := series.unsupported(config):
                raise HostError(reason)
            progress(f"running {config.epochs} epochs under a cap")
            try:
                ending, reported = _run(series, config, dataset, log)
            except OutcoreError as error:
                ending = Ending("failed", str(error))
                reported = _Report()
            progress("comparing with the workload")
            results = list(_judge(series, config, dataset, ending, reported))
        if (
            logs is not None
            and log.is_file()
            and not all(result.ok for result in results)
        ):
            logs.mkdir(parents=True, exist_ok=True)
            kept = logs / log.name
            kept.write_bytes(log.read_bytes())
            results = [
                one if one.ok else replace(one, log=str(kept)) for one in results
            ]
        return results


def _run(
    series: Series, config: RunConfig, dataset: Dataset, log: Path
) -> tuple[Ending, _Report]:
    reported = _Report()
    with (
        series.scratch() as folder,
        worker_spec(series, config, dataset, folder, folder.name) as (spec, _),
    ):
        try:
            held = calibrate.calibrate(series, spec, folder)
        except OutcoreError:
            with suppress(OSError):
                log.write_bytes((folder / "calibrate.log").read_bytes())
            raise
        reported.feature_read_bytes = held.feature_read_bytes
        cap_bytes, budget = calibrate.memory_of(config, dataset, held)
        spec = spec.model_copy(update={"budget_host": budget, "seeds": True})

        def hear(event: Event) -> bytes:
            if isinstance(event, Batches):
                reported.batches.setdefault(event.epoch, []).extend(event.rows)
            elif isinstance(event, Seeds):
                reported.seeds.setdefault(event.epoch, {}).update(event.rows)
            elif isinstance(event, Nodes):
                reported.nodes.setdefault(event.epoch, {}).update(event.rows)
            elif isinstance(event, Checks):
                reported.spots.setdefault(event.epoch, []).extend(event.rows)
            elif isinstance(event, EpochDone):
                reported.epochs.append(event)
            elif isinstance(event, Gate) and event.is_epoch_start and spec.challenge:
                return reported.nonces.setdefault(event.epoch, os.urandom(NONCE_BYTES))
            return b""

        with series.isolation.create("check", Limits(memory_bytes=cap_bytes)) as cap:
            with Worker(cap, spec, folder, log, series.hidden) as worker:
                ending = worker.watch(config.timeout_s, hear)
            reported.left += [f"temporary file {name}" for name in worker.left_files]
    return ending, reported


def _judge(
    series: Series,
    config: RunConfig,
    dataset: Dataset,
    ending: Ending,
    reported: _Report,
) -> Iterator[CheckResult]:
    def result(promise: str, faults: list[str], good: str) -> CheckResult:
        return CheckResult(
            promise,
            not faults,
            "; ".join(faults[:3]) or good,
            _FIXES[promise] if faults else "",
        )

    complete = len(reported.epochs) == config.epochs
    faults = (
        []
        if ending.status == "ok" and complete
        else [ending.reason or f"it ran {len(reported.epochs)} epochs"]
    )
    yield result(
        RUNS,
        faults,
        f"{config.epochs} epochs under a cap of isolation {series.isolation.name}",
    )
    foreign = description(config.system)
    promises = [
        name for name in list(_FIXES)[1:] if name != DIGESTS or foreign.faithful
    ]
    if faults:
        yield from (
            CheckResult(name, True, "it does not run", judged=False)
            for name in promises
        )
        return
    workload = workload_of_run(series, config, dataset)
    wanted = make_seed_plan(workload).num_batches
    epochs = range(config.epochs)
    rows = [reported.batches.get(epoch, []) for epoch in epochs]
    yield result(COUNT, list(_count_faults(rows, wanted)), f"{wanted} an epoch")
    yield result(
        SEEDS,
        list(_seed_faults(reported, dataset, config)),
        f"{_CASE.train} seed nodes, shuffled each epoch",
    )
    sizes = [
        (sum(row[1] for row in found), sum(row[2] for row in found)) for found in rows
    ]
    draws = Draws(workload, foreign.expands, config.epochs)
    way = (
        "every node of a hop"
        if foreign.expands == "all"
        else "a node once (`expands`: new)"
    )
    bounds = (
        f"as our sampler's, which expands {way}; a right one fails at a rate of "
        f"{FALSE_ALARMS:g}"
    )
    yield result(SIZES, draws.odd_sizes(sizes), bounds)
    drawn = [reported.drawn(epoch) for epoch in epochs]
    if any(drawn):
        bounds = f"every node of {sum(map(len, drawn))} mini-batches; at the same rate"
        yield result(DRAWS, list(_draw_faults(drawn, draws)), bounds)
    else:
        yield CheckResult(
            DRAWS, True, "its worker does not report the event `nodes`", judged=False
        )
    trace = TraceFacts(workload, config, series.cache)
    if foreign.faithful:
        other = [
            f"epoch {one.epoch} differs"
            for one in reported.epochs
            if one.digest != trace.epoch(one.epoch).digest
        ]
        yield result(DIGESTS, other, "of every epoch")
    checks, unchecked = check_features(
        trace,
        foreign.faithful,
        reported.epochs,
        reported.spots,
        reported.nonces,
        reported.sizes,
    )
    wrong = [
        f"epoch {one.epoch}, mini-batch {one.batch}: {one.detail}"
        for one in checks
        if not one.ok
    ]
    compared = sum(one.rows for one in checks)
    yield result(
        ROWS,
        wrong + ([unchecked] if unchecked else []),
        f"{compared} rows, drawn when their epoch began",
    )
    infinite = [
        f"epoch {k}, mini-batch {row[0]} has none"
        for k, found in enumerate(rows)
        for row in found
        if row[4] is None
    ]
    yield result(LOSSES, infinite, "of every mini-batch")
    read = reported.feature_read_bytes
    loaded = [
        f"{format_bytes(read)} of features are read while floor and training are "
        "measured"
    ]
    yield result(MEMORY, loaded if read > WARM_BYTES else [], "measured before the run")
    yield result(LEFT, reported.left, "no process, no temporary file")


def _count_faults(rows: Sequence[Sequence[BatchRow]], wanted: int) -> Iterator[str]:
    for epoch, found in enumerate(rows):
        if (numbers := len({row[0] for row in found})) != wanted or len(
            found
        ) != wanted:
            twice = (
                f", {len(found) - numbers} of them twice"
                if len(found) > numbers
                else ""
            )
            yield f"epoch {epoch} has {len(found)} of {wanted}{twice}"


def _draw_faults(epochs: Sequence[Sequence[Drawn]], draws: Draws) -> Iterator[str]:
    strange = [
        f"epoch {epoch}, the mini-batch of seed node {batch.seeds[:1].tolist()} {why}"
        for epoch, batches in enumerate(epochs)
        for batch in batches
        if (why := draws.strange(batch))
    ]
    yield from strange or draws.odd_shapes(
        [draws.measure(batches) for batches in epochs]
    )


def _seed_faults(
    reported: _Report, dataset: Dataset, config: RunConfig
) -> Iterator[str]:
    stored = dataset.load("train").astype(np.int64)
    before = {
        "the stored order": np.split(
            stored, range(config.batch_size, len(stored), config.batch_size)
        )
    }
    for epoch in range(config.epochs):
        by_batch = reported.seeds.get(epoch, {})
        if not by_batch:
            yield (
                f"epoch {epoch}: seed nodes were not reported, though the spec's "
                "`seeds` asks for them"
            )
            continue
        batches = [
            np.array(by_batch[index], dtype=np.int64) for index in sorted(by_batch)
        ]
        order = np.concatenate(batches)
        ids, counts = np.unique(order, return_counts=True)
        if not np.array_equal(np.sort(order), np.sort(stored)):
            repeated = int((counts > 1).sum())
            missing = len(np.setdiff1d(stored, ids))
            foreign = len(np.setdiff1d(ids, stored))
            yield (
                f"epoch {epoch}: {missing} are missing, {repeated} repeated, {foreign} "
                "no training nodes"
            )
        elif config.shuffle:
            alike = [
                where for where, others in before.items() if not mixed(others, batches)
            ]
            if alike:
                yield (
                    f"epoch {epoch}: its mini-batches mix those of {alike[0]} "
                    "otherwise than a shuffle does"
                )
        short = [
            index
            for index, row in enumerate(reported.batches.get(epoch, []))
            if row[3] != len(by_batch.get(index, ()))
        ]
        if short:
            yield (
                f"epoch {epoch}: mini-batch {short[0]} counts other seed nodes than it "
                "names"
            )
        before[f"epoch {epoch}"] = batches


def mixed(before: Sequence[Int64Array], after: Sequence[Int64Array]) -> bool:
    """Return whether the mini-batches of an epoch mix those of another as an
    independent order of the same seed nodes does: by the chi-squared test of how many
    seed nodes each two share, which a shuffle fails at a rate of 10^-6 in an epoch. An
    order kept, mini-batches in another order, and a shuffle within a buffer fail."""
    from scipy.stats import chi2_contingency

    before, after = (
        [batch for batch in batches if len(batch)] for batches in (before, after)
    )
    one, two = (
        np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
        for batches in (before, after)
    )
    places = (np.argsort(np.concatenate(batches)) for batches in (before, after))
    shared = np.zeros((len(before), len(after)), dtype=np.int64)
    np.add.at(shared, (one[next(places)], two[next(places)]), 1)
    return bool(chi2_contingency(shared, correction=False).pvalue > FALSE_ALARMS)

"""A study as a registered object: parameters, computation, and the record that stores
its result."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, Field

from harness.records.record import DatasetConfig, RunConfig
from harness.records.study import StudyRecord, read_study, study_path, write_study
from harness.settings import Strict, strict, unknown_name
from harness.ssd.device import block_device
from harness.worker.build import workload_of
from workloads.arraytypes import JsonDict
from workloads.dataset import Dataset, find_dataset
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

Run = Callable[[Any, "StudyContext"], JsonDict]


class DatasetParams(Strict):
    """Parameters of a study of one dataset."""

    dataset: str


class WorkloadParams(DatasetParams):
    """Parameters of a study of one workload's mini-batches, named as the settings of a
    run."""

    model: str = "sage"
    sampler: str = "neighbor"
    fanout: list[int] = Field(default_factory=lambda: [10, 10, 10])
    replace: bool = False
    shuffle: bool = True
    batch_size: int = Field(default=50, ge=1)
    max_batches: int = Field(default=0, ge=0)
    epochs: int = Field(default=1, ge=1)
    seed: int = 0


#: Shares of rows, ascending, each once, above 0 and at most 1.
Shares = Annotated[
    list[Annotated[float, Field(gt=0, le=1)]],
    Field(min_length=1),
    AfterValidator(lambda value: sorted(set(value))),
]


@dataclass(frozen=True)
class Study:
    """One study.

    Attributes:
        version: number raised when the meaning of the result changes, so that old
            records are not used.
        params: model of the parameters; with a field `dataset` where the study needs
            one.
        run: function from parameters to the result, plain data for JSON.
        seconds: function from parameters to a rough estimate for `--dry-run`.
    """

    id: str
    title: str
    version: int
    params: type[Strict]
    run: Run
    seconds: Callable[[Any], float] = lambda params: 10.0


@dataclass(frozen=True)
class StudyNeed:
    """A study that a figure needs: its id, its parameters, and recipes for the datasets
    that may be missing."""

    study: str
    params: JsonDict = field(default_factory=dict)
    datasets: JsonDict = field(default_factory=dict)


@dataclass(frozen=True)
class StudyContext:
    """The resources of a study: the bench's roots, and a `scratch` folder on the data's
    disk, removed afterwards."""

    data_root: Path
    results_root: Path
    scratch: Path
    progress: Callable[[str], None] = lambda text: None

    def dataset(self, name: str) -> Dataset:
        """Open a dataset under the data root; raise InputError if no dataset has this
        name."""
        return find_dataset(name, self.data_root)

    def workload(self, params: WorkloadParams) -> Workload:
        """Return the workload of the parameters, equal to a run's with the same
        settings."""
        dataset = self.dataset(params.dataset)
        # A study of mini-batches has further parameters beside the workload's.
        settings = params.model_dump(
            include=set(WorkloadParams.model_fields) - {"dataset"}
        )
        config = RunConfig(
            system="in-memory",
            dataset=DatasetConfig.of(dataset),
            layers=len(params.fanout),
            warmup=0,
            **settings,
        )
        return workload_of(config, dataset)


def sample_all(
    workload: Workload, epochs: int, **options: Any
) -> Iterator[tuple[int, int, SampledBatch]]:
    """Yield (epoch, index, mini-batch) in training order; `options` are those of
    `make_sampler`."""
    sampler = make_sampler(workload, **options)
    plan = make_seed_plan(workload)
    for epoch in range(epochs):
        for index, seeds in enumerate(plan.batches(epoch)):
            yield epoch, index, sampler.sample(epoch, index, seeds)


_STUDIES: dict[str, Study] = {}


def study(
    id_: str,
    title: str,
    seconds: Callable[[Any], float] = lambda params: 10.0,
    version: int = 1,
) -> Callable[[Run], Run]:
    """Register the decorated function as a study; the model of its parameters is that
    of the annotation of `params`."""

    def keep(run: Run) -> Run:
        _STUDIES[id_] = Study(
            id_, title, version, get_type_hints(run)["params"], run, seconds
        )
        return run

    return keep


def studies() -> dict[str, Study]:
    """Return every study by id, from the modules of this folder that register one."""
    package = importlib.import_module("harness.studies")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"harness.studies.{module.name}")
    return dict(sorted(_STUDIES.items()))


def resolve_study(need: StudyNeed) -> tuple[Study, Any]:
    """Return the study of a need, and its parameters with every default filled in.

    Raises:
        InputError: there is no such study, or a parameter is invalid.
    """
    known = studies()
    if need.study not in known:
        raise unknown_name("study", f"study {need.study!r}", need.study, list(known))
    study = known[need.study]
    return study, strict(study.params, need.params, f"study {study.id}")


def study_key(study: Study, params: Any, fingerprint: str) -> str:
    """Return the identity of one study record, 16 hex digits; `fingerprint`: of the
    dataset, or of the measured drive (`harness.ssd.identity`)."""
    content = {
        "study": study.id,
        "version": study.version,
        "params": params.model_dump(mode="json"),
        "of": fingerprint,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def union_of(needs: Sequence[StudyNeed]) -> list[StudyNeed]:
    """Return each need once, by study and resolved parameters."""
    merged: dict[str, StudyNeed] = {}
    for need in needs:
        study, params = resolve_study(need)
        merged.setdefault(f"{study.id} {params.model_dump_json()}", need)
    return list(merged.values())


def find_record(
    need: StudyNeed, data_root: Path, results_root: Path
) -> StudyRecord | None:
    """Return the existing record of a need for the dataset's present content, of a
    study of the drive for the drive under `data_root`; None where there is none."""
    study, params = resolve_study(need)
    name = getattr(params, "dataset", None)
    if name is None:
        fingerprint = block_device(data_root).drive
    else:
        if not (data_root / name / "dataset.json").is_file():
            return None
        fingerprint = find_dataset(name, data_root).fingerprint
    return read_study(
        study_path(results_root, study.id, study_key(study, params, fingerprint))
    )


def make_study(
    need: StudyNeed,
    data_root: Path,
    results_root: Path,
    progress: Callable[[str], None] = lambda text: None,
    *,
    scratch: Path | None = None,
) -> StudyRecord:
    """Compute one study on an existing dataset and write its record.

    Args:
        need: study and parameters.
        progress: called with the current step.
        scratch: folder for scratch files; None: under the data root.

    Raises:
        InputError, DatasetError, HostError: the study cannot be computed.
        DataIOError: the record cannot be written.
    """
    from harness.records.environment import describe

    study, params = resolve_study(need)
    scratch_root = scratch or data_root / ".outcore" / "scratch"
    scratch_root.mkdir(parents=True, exist_ok=True)
    started = datetime.now(UTC)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(
        prefix=f"study-{study.id}-", dir=scratch_root, ignore_cleanup_errors=True
    ) as name:
        context = StudyContext(data_root, results_root, Path(name), progress)
        of = getattr(params, "dataset", None)
        dataset = None if of is None else DatasetConfig.of(context.dataset(of))
        result = study.run(params, context)
    record = StudyRecord(
        study=study.id,
        version=study.version,
        key=study_key(
            study,
            params,
            dataset.fingerprint if dataset else block_device(data_root).drive,
        ),
        params=params.model_dump(mode="json"),
        dataset=dataset,
        started_at=started.isoformat(timespec="milliseconds"),
        seconds=time.perf_counter() - begin,
        environment=describe(data_root),
        result=result,
    )
    write_study(results_root, record)
    return record

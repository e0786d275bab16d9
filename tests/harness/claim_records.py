"""Made-up records of the cells and studies that a claim declares, with numbers chosen
by a test."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from harness.claims.declared import DeclaredRuns
from harness.claims.judge import Judged, judge_one
from harness.claims.published import Claim
from harness.compare.evidence import Evidence
from harness.figures.base import catalogue
from harness.plan.experiment import PlannedRun, load_experiment
from harness.records.record import RunConfig
from harness.records.study import StudyRecord
from harness.results.table import runs_table
from harness.settings import check_options, parse_memory
from harness.studies.base import studies
from tests.harness.study_records import made_study
from workloads.arraytypes import JsonDict
from workloads.units import parse_bytes

STAGES = (
    "sample",
    "ask",
    "inspect",
    "extract",
    "transfer",
    "train",
    "switch",
    "cache_update",
    "data_prep",
)
# A change of one made-up record.
Change = Callable[[JsonDict], None]
Results = Callable[[JsonDict], JsonDict]


def profile(device: str = "") -> JsonDict:
    """Return the profile `quick` as plain data, on `device` if it is given."""
    plain = load_experiment("quick").model_dump()
    if device:
        plain["run"]["device"] = device
    return plain


class MadeUp:
    """Made-up evidence for claims, of the runs that a profile plans."""

    def __init__(self, plain: JsonDict) -> None:
        self.plain = plain
        self._nothing = DeclaredRuns(Evidence(pd.DataFrame()), plain)
        self._recipes: dict[str, JsonDict] = dict(plain["datasets"])
        self._known: set[str] = set()

    def cells(self, claim: Claim) -> list[PlannedRun]:
        """Return the cells that the claim declares."""
        if claim.figure not in self._known:
            self._known.add(claim.figure)
            for experiment in catalogue()[claim.figure].experiments(self.plain):
                self._recipes.update(experiment.datasets)
        return self._nothing.cells(claim)

    def judge(
        self, claim: Claim, change: Change, results: Results | None = None
    ) -> Judged:
        """Judge the claim with a run for every declared cell, changed by `change`, and
        `results` for every study."""
        records = [
            self.record(number, cell) for number, cell in enumerate(self.cells(claim))
        ]
        for record in records:
            change(record)
        made = [] if results is None else self._studies(claim, results)
        return judge_one(claim.id, Evidence(runs_table(records), made), self.plain)

    def _studies(self, claim: Claim, results: Results) -> list[StudyRecord]:
        made = []
        for need in catalogue()[claim.figure].studies(self.plain):
            params = (
                studies()[need.study]
                .params.model_validate(need.params)
                .model_dump(mode="json")
            )
            made.append(made_study(need.study, results(params), **params))
        return made

    def record(self, number: int, cell: PlannedRun) -> JsonDict:
        """Make the record of a cell's run; `number` is part of its id."""
        settings = cell.settings
        name = str(cell.settings.dataset)
        dim = int(self._recipes[name].get("dim", 128))
        dataset = {
            "name": name,
            "fingerprint": name,
            "num_nodes": 2_000_000,
            "num_edges": 40_000_000,
            "dim": dim,
            "dtype": "float32",
        }
        shared = settings.model_dump(
            include=set(RunConfig.model_fields) - {"dataset", "options", "layers"}
        )
        memory = (
            None
            if settings.device_memory is None
            else parse_bytes(settings.device_memory)
        )
        config = RunConfig.model_validate(
            {
                **shared,
                "system": cell.system,
                "dataset": dataset,
                "device_memory_bytes": memory,
                "layers": settings.layers or len(settings.fanout),
                "options": check_options(cell.system, settings.options),
            }
        )
        budget = parse_memory(settings.memory, 2_000_000 * dim * 4).budget_bytes
        record: JsonDict = {
            "run_id": f"20260101-{number:06d}-{cell.system}",
            "system": cell.system,
            "status": "ok",
            "verdict": "VALID",
            "class": "storage-bound",
            "config": config.model_dump(mode="json"),
            "memory": {"budget_bytes": budget, "cap_bytes": budget},
            "summary": {"stages_s": {}, "topology_over_budget": None},
            "environment": {},
            "disk": {},
            "facts": {"reorder_s": 1.0, "pack_s": 1.0, "samples_reused": False},
            "preprocess": {"seconds": 1.0, "made_s": 0.0},
            "epochs": [],
        }
        scale(record, 1.0)
        return record


def scale(record: JsonDict, seconds: float) -> None:
    """Set the seconds of the record's epochs, with stages, bytes and packing in
    proportion; preparation takes 1 s."""
    cost = {
        "once_s": 1.0,
        "first_s": 0.0,
        "each_s": 0.0,
        "mean_epoch_s": seconds,
        "fresh_epoch_s": seconds,
    }
    record["summary"].update(cost)
    record["epochs"] = [
        {
            "epoch": epoch,
            "warmup": epoch == 0,
            "seconds": seconds,
            "batches": 16,
            "digest": "",
            "test_accuracy": 0.5,
            "stages_s": dict.fromkeys(STAGES, 0.1 * seconds),
            "device_bytes": int(1e9 * seconds),
            "device_requests": 1000,
            "counters": {"bytes_loaded": int(1e9 * seconds)},
        }
        for epoch in range(4)
    ]
    record["facts"]["pack_s"] = seconds

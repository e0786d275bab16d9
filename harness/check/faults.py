"""Cases with a damaged feature file: the system has to raise an error with file and offset, never use wrong rows."""

from __future__ import annotations

import os
import shutil

from harness.check.case import Observation
from harness.check.stage import Stage, note_error, run_epoch
from workloads.dataset import Dataset


def _own_copy(stage: Stage) -> Stage:
    """Return the stage over a copy of the dataset, which may be damaged."""
    path = stage.dataset.path.with_name(stage.dataset.name + "-damaged")
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(stage.dataset.path, path)
    return Stage(stage.artefacts.parent, stage.case, stage.system, dataset=Dataset.open(path))


def cut(stage: Stage, seen: Observation) -> None:
    """Run an epoch on a feature file that was truncated to half before the start."""
    stage = _own_copy(stage)
    seen.expected_failure = True
    features = stage.dataset.file("features")
    os.truncate(features, features.stat().st_size // 2)
    _try(stage, seen)


def cut_late(stage: Stage, seen: Observation) -> None:
    """Truncate the feature file to 100 bytes of rows in mid-epoch; a system with all rows in memory may continue."""
    stage = _own_copy(stage)
    features = stage.dataset.file("features")
    try:
        with stage.ready() as system:
            next(batches := system.epoch(0)).release()
            os.truncate(features, stage.dataset.data_offset("features") + 100)
            for batch in batches:
                batch.release()
            seen.epochs.append(run_epoch(stage, system, 1))
    except Exception as error:
        seen.expected_failure = True
        note_error(seen, error, stage.dataset)


def gone(stage: Stage, seen: Observation) -> None:
    """Run an epoch after the feature file was removed."""
    stage = _own_copy(stage)
    seen.expected_failure = True
    stage.dataset.file("features").unlink()
    _try(stage, seen)


def _try(stage: Stage, seen: Observation) -> None:
    try:
        with stage.ready() as system:
            seen.epochs.append(run_epoch(stage, system, 0))
    except Exception as error:
        note_error(seen, error, stage.dataset)

"""A study's record on disk: written once for its parameters and dataset, read by
figures like a run record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.atomic import whole_file
from harness.records.record import DatasetConfig
from harness.settings import Strict

STUDIES = "studies"
SCHEMA = 1


class StudyRecord(Strict):
    """The result of one study.

    Attributes:
        study, version: id of the study, and version of its result's meaning.
        key: identity over study, version, parameters and the dataset's fingerprint.
        params: parameters with every default filled in.
        dataset: None for studies of the device.
        environment: `host_fingerprint` and versions.
        result: plain data, documented by the study.
    """

    schema_version: int = SCHEMA
    study: str
    version: int
    key: str
    params: dict[str, Any]
    dataset: DatasetConfig | None = None
    started_at: str
    seconds: float
    environment: dict[str, Any]
    result: dict[str, Any]


def study_path(root: Path, study: str, key: str) -> Path:
    """Return `<results root>/studies/<study>-<key>.json`."""
    return Path(root) / STUDIES / f"{study}-{key}.json"


def write_study(root: Path, record: StudyRecord) -> Path:
    """Write one record as a whole or not at all. Raises DataIOError: it cannot be
    written."""
    path = study_path(root, record.study, record.key)
    text = json.dumps(record.model_dump(mode="json"), indent=1, allow_nan=False)
    with whole_file(path, f"the record of the study {record.study}") as file:
        file.write_text(text + "\n", encoding="utf-8")
    return path


def read_study(path: Path) -> StudyRecord | None:
    """Read one record; None where it is missing, damaged or of another schema, so that
    the study is made again."""
    try:
        record = StudyRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return record if record.schema_version == SCHEMA else None


def read_studies(root: Path) -> list[StudyRecord]:
    """Read every readable record, oldest first."""
    found = [
        read_study(path) for path in sorted((Path(root) / STUDIES).glob("[!.]*.json"))
    ]
    return sorted(
        (record for record in found if record is not None),
        key=lambda record: record.started_at,
    )

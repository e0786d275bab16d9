"""Epoch times that somebody measured with other code: kept apart from run records, never judged, never counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from harness.atomic import whole_file
from harness.records.seal import content_digest
from harness.settings import RunSettings, Strict

FOREIGN = "foreign"
SCHEMA = 1


class ForeignRecord(Strict):
    """Measurement by other code, as its author tells it; no part of it was seen by Outcore.

    Attributes:
        system, version: name of the other code, and its version.
        settings: settings of the measured runs, in the words of `outcore run`.
        seconds: seconds of each measured epoch.
        counters: counts of one epoch by name, as in a run record, where known.
        how: how it was measured, in words.
        host: where it was measured, in words; may be empty.
    """

    schema_version: int = SCHEMA
    system: str = Field(min_length=1)
    version: str = Field(min_length=1)
    settings: RunSettings
    seconds: list[float] = Field(min_length=1)
    counters: dict[str, float] = Field(default_factory=dict)
    how: str = Field(min_length=1)
    host: str = ""
    added_at: str = ""

    @property
    def key(self) -> str:
        """Identity over all but the time of adding, 16 hex digits."""
        return content_digest(self.model_dump(mode="json", exclude={"added_at"}), 16)

    @property
    def label(self) -> str:
        """Name in figures and tables, which tells that the code is not Outcore's."""
        return f"{self.system} {self.version} (other code)"


def write_foreign(root: Path, record: ForeignRecord) -> tuple[Path, bool]:
    """Write a record, whole or not at all, unless one of equal content is there.

    Returns:
        Its file, `<results root>/foreign/<key>.json`, and whether it was written now. Raises DataIOError: it cannot be
        written.
    """
    path = Path(root) / FOREIGN / f"{record.key}.json"
    if path.is_file():
        return path, False
    content: dict[str, Any] = record.model_dump(mode="json")
    content["added_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    with whole_file(path, "the record") as file:
        file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path, True


def read_foreign(root: Path, bad: list[Path] | None = None) -> list[ForeignRecord]:
    """Read every record, oldest first; add files that are damaged, changed or of another version to `bad`."""
    found = []
    for path in sorted((Path(root) / FOREIGN).glob("[!.]*.json")):
        try:
            record = ForeignRecord.model_validate_json(path.read_bytes())
            if record.schema_version == SCHEMA and record.key == path.stem:
                found.append(record)
                continue
        except (OSError, ValidationError):
            pass
        if bad is not None:
            bad.append(path)
    return sorted(found, key=lambda record: record.added_at)

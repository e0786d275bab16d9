"""Epoch times that somebody measured with other code: kept apart from run records,
never judged, never counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from harness.atomic import whole_file
from harness.records.seal import content_digest
from harness.settings import RunSettings, Strict

FOREIGN = "foreign"
SCHEMA = 1
#: Counts of an epoch, in the words of a run record; figures compare some with a run's.
Counter = Literal[
    "batches",
    "seeds",
    "nodes",
    "edges",
    "rows",
    "misses",
    "io_requests",
    "bytes_read",
    "bytes_useful",
    "bytes_loaded",
    "bytes_written",
    "device_requests",
    "device_bytes",
    "device_written_bytes",
]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class ForeignRecord(Strict):
    """Measurement by other code, as its author reports it; no part of it was seen by
    Outcore.

    Attributes:
        system, version: name of the other code, and its version.
        settings: settings of the measured runs, in the words of `outcore run`.
        seconds: seconds of each measured epoch.
        counters: counts of one epoch by name, where known.
        how: how it was measured, in words.
        host: where it was measured, in words; may be empty.
    """

    schema_version: int = SCHEMA
    system: Words
    version: Words
    settings: RunSettings
    seconds: list[float] = Field(min_length=1)
    counters: dict[Counter, Annotated[float, Field(ge=0, le=1e18)]] = Field(
        default_factory=dict
    )
    how: Annotated[Words, Field(max_length=2000)]
    host: str = ""
    added_at: str = ""

    @field_validator("seconds")
    @classmethod
    def _possible(cls, value: list[float]) -> list[float]:
        if not all(1e-6 <= one <= 1e9 for one in value):
            raise ValueError("an epoch takes from 1e-6 to 1e9 s")
        return value

    @model_validator(mode="after")
    def _of_the_rows(self) -> Self:
        rows = self.counters.get("rows")
        misses = self.counters.get("misses")
        if rows is not None and misses is not None and misses > rows:
            raise ValueError(f"misses are {misses:.0f}, more than the {rows:.0f} rows")
        return self

    @property
    def key(self) -> str:
        """Identity over all but the time of adding, 16 hex digits."""
        return content_digest(self.model_dump(mode="json", exclude={"added_at"}), 16)

    @property
    def label(self) -> str:
        """Name in figures and tables, which shows that the code is not Outcore's."""
        return f"{self.system} {self.version} (other code)"


def write_foreign(root: Path, record: ForeignRecord) -> tuple[Path, bool]:
    """Write a record, whole or not at all, unless one of equal content is there.

    Returns:
        Its file, `<results root>/foreign/<key>.json`, and whether it was written now.
        Raises as `whole_file`.
    """
    path = Path(root) / FOREIGN / f"{record.key}.json"
    if _read(path) is not None:
        return path, False
    content: dict[str, Any] = record.model_dump(mode="json")
    content["added_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    with whole_file(path, "the record") as file:
        file.write_text(
            json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
    return path, True


def read_foreign(root: Path, bad: list[Path] | None = None) -> list[ForeignRecord]:
    """Read every record, oldest first; add files that are damaged, changed or of
    another version to `bad`."""
    paths = sorted((Path(root) / FOREIGN).glob("[!.]*.json"))
    found = {path: _read(path) for path in paths}
    if bad is not None:
        bad += [path for path, record in found.items() if record is None]
    return sorted(
        (record for record in found.values() if record is not None),
        key=lambda record: record.added_at,
    )


def _read(path: Path) -> ForeignRecord | None:
    """Read a record; return None where there is none, or it is damaged, changed or of
    another version."""
    try:
        record = ForeignRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return (
        record if record.schema_version == SCHEMA and record.key == path.stem else None
    )

"""Import of results of several hosts into one root: checked as untrusted files, then
imported all or not at all."""

from __future__ import annotations

import base64
import binascii
import filecmp
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.records.record import Record
from harness.records.study import STUDIES, read_study
from harness.results import store as results
from harness.results.archive import RUN_FILES, unpack
from workloads.errors import DataIOError, InputError, is_of_host
from workloads.tempfolder import TemporaryFolder

MAX_ROWS = 50_000_000
_NUMBERS = ("BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE")
_TEXTS = ("stage", "thread", "digest")
_COLUMNS = {
    "stages": results.STAGE_COLUMNS,
    "batches": results.BATCH_COLUMNS,
    "telemetry": ("t", "epoch"),
}
_TAKE_OUT = "take that run out, or make it again"


@dataclass
class Merged:
    """Outcome of an import.

    Attributes:
        runs, studies: names of the imported runs and studies.
        skipped: names of runs and studies already present with the same content.
        kept: names of studies already present with another result, which stays.
    """

    runs: list[str] = field(default_factory=list)
    studies: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def merge(
    sources: Sequence[Path], root: Path, read: list[Record] | None = None
) -> Merged:
    """Import the runs and studies of results roots, run folders or archives into
    `root`, all or none; add the records of all runs in the sources to `read`.

    A run already present with the same content is skipped. A study is computed, not
    measured, and may exist on every host: the one present in `root` is kept.

    Raises:
        InputError: a source is invalid, or holds a run with a known id and other
            content.
        DataIOError: `root` cannot be written (disk full); nothing was imported.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder(root, "import") as stage:
            merged, moves = _staged(sources, stage, root, read)
            os.sync()
            _move(moves)
        return merged
    except OSError as error:
        fault = f"runs could not be imported into {root}, and nothing was taken"
        raise DataIOError.of(
            error, fault, root, "choose another --results-root"
        ) from error


def _staged(
    sources: Sequence[Path], stage: Path, root: Path, read: list[Record] | None
) -> tuple[Merged, list[tuple[Path, Path]]]:
    """Copy and check all sources beneath `stage`; return the outcome and the renames
    that would import them."""
    merged = Merged()
    moves: dict[Path, Path] = {}
    for number, source in enumerate(sources):
        own = stage / str(number)
        own.mkdir()
        unpack(source, own)
        found = [
            *sorted((own / results.RUNS).glob("*")),
            *sorted((own / STUDIES).glob("*")),
        ]
        if not found:
            raise InputError(
                f"{source} holds no run and no study",
                "name a results root, a run's folder or an archive",
            )
        for path in found:
            is_run = path.parent.name == results.RUNS
            if is_run:
                record = _check_run(path, str(source))
                if read is not None:
                    read.append(record)
            else:
                _check_study(path, str(source))
            is_same = _same_run if is_run else _same_study
            target = root / path.relative_to(own)
            known = moves.get(target, target)
            if not known.exists():
                moves[target] = path
                (merged.runs if is_run else merged.studies).append(path.name)
            elif is_same(known, path):
                merged.skipped.append(path.name)
            elif is_run:
                fault = (
                    f"run {path.name} of {source} has another content than the run of "
                    f"that id in {known.parent}"
                )
                raise InputError(fault, "remove one of them; nothing was taken")
            else:
                merged.kept.append(path.name)
    return merged, [(path, target) for target, path in moves.items()]


def _move(moves: Sequence[tuple[Path, Path]]) -> None:
    """Rename all into place; undo the renames if one fails."""
    done: list[tuple[Path, Path]] = []
    try:
        for path, target in moves:
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
            done.append((path, target))
    except OSError:
        for path, target in done:
            target.rename(path)
        raise


def _check_run(folder: Path, source: str) -> Record:
    """Check a run folder, and return its record."""
    try:
        record = results.read_record(folder)
    except InputError as error:
        fault = error.message.replace(str(folder), folder.name)
        raise InputError(f"{source} cannot be imported: {fault}", _TAKE_OUT) from error
    if record.run_id != folder.name:
        raise InputError(
            f"{source} holds the run {record.run_id!a} under the name {folder.name}",
            _TAKE_OUT,
        )
    for path in sorted(folder.glob("*.parquet")):
        check_table(path, source)
    return record


def check_table(path: Path, source: str) -> None:
    """Check that a table has flat columns of numbers and text only; nothing in it is
    unpickled or executed.

    pyarrow reads only the file's footer, whose Arrow schema is searched for extension
    types before any is built.

    Raises:
        InputError: the table is invalid; names the table and the column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    shown = f"{path.stem} of run {path.parent.name} in {source}"
    try:
        found = pq.read_metadata(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and is_of_host(error):
            raise
        raise InputError(
            f"{shown} is no parquet file, or is cut off", _TAKE_OUT
        ) from error
    try:
        schema = base64.b64decode(
            (found.metadata or {}).get(b"ARROW:schema", b""), validate=True
        )
    except binascii.Error as error:
        raise InputError(f"{shown} has a damaged schema", _TAKE_OUT) from error
    if b"ARROW:extension" in schema or b"arrow.py_extension_type" in schema:
        raise InputError(
            f"{shown} has columns of a type that would have to be loaded by code",
            _TAKE_OUT,
        )
    if found.num_rows > MAX_ROWS:
        raise InputError(
            f"{shown} has {found.num_rows} rows, {MAX_ROWS} is the limit", _TAKE_OUT
        )
    columns = [found.schema.column(index) for index in range(found.num_columns)]
    for column in columns:
        if not _is_plain(column, text=column.name in _TEXTS, empty=found.num_rows == 0):
            raise InputError(
                f"{shown} has a column {column.path!a} that is neither numbers nor "
                "text",
                _TAKE_OUT,
            )
    names = [column.name for column in columns]
    wanted = _COLUMNS[path.stem]
    if not set(wanted) <= set(names) or (
        path.stem != "telemetry" and len(names) != len(wanted)
    ):
        raise InputError(
            f"{shown} has other columns than {', '.join(wanted)}", _TAKE_OUT
        )


def _is_plain(column: Any, *, text: bool, empty: bool) -> bool:
    """Return whether a parquet column is flat and holds numbers, or text if `text`."""
    if column.max_repetition_level != 0 or column.path != column.name:
        return False
    logical = column.logical_type.type
    if column.physical_type == "BYTE_ARRAY":
        return bool(text and logical == "STRING")
    numbers = column.physical_type in _NUMBERS and logical in ("NONE", "INT", "UNKNOWN")
    # The columns of a table without rows, and columns of unknown values only, have no
    # type of their own.
    return bool(numbers and (not text or empty or logical == "UNKNOWN"))


def _check_study(path: Path, source: str) -> None:
    record = read_study(path)
    if record is None or f"{record.study}-{record.key}.json" != path.name:
        raise InputError(
            f"study {path.name} of {source} is damaged or of another version",
            "take it out",
        )


def _same_run(one: Path, other: Path) -> bool:
    names = [
        name for name in RUN_FILES if (one / name).exists() or (other / name).exists()
    ]
    same, _, _ = filecmp.cmpfiles(one, other, names, shallow=False)
    return same == names


def _same_study(one: Path, other: Path) -> bool:
    first = read_study(one)
    second = read_study(other)
    return first is not None and second is not None and first.result == second.result

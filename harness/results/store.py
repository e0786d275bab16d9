"""Run records on disk: written once and whole, read back as one table."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import ValidationError

from harness.progress import Notice, silent, tracked
from harness.records import seal
from harness.records.record import Record
from harness.records.schema import SchemaError, upgraded
from workloads.errors import DataIOError, InputError
from workloads.tempfolder import sync

if TYPE_CHECKING:
    import pandas as pd

RUNS = "runs"
EXPERIMENTS = "experiments"
RECORD = "record.json"
WORKER_LOG = "worker.log"
# Prefix of a run being written; the orchestrator's start removes remains of killed
# ones.
PARTIAL = ".partial-"
# Time of day, host, and configuration with round
# (`harness.run.orchestrator.new_run_id`).
_CONFIGURED = r"([0-9a-f]{8}-r\d+)"
_RUN_ID = re.compile(rf"\d{{8}}-(\d{{6}}-\d{{3}})-.+?-([0-9a-f]{{6}}-)?{_CONFIGURED}")

STAGE_COLUMNS = ("epoch", "batch", "stage", "thread", "start", "end")
BATCH_COLUMNS = (
    "epoch",
    "batch",
    "nodes",
    "edges",
    "seeds",
    "loss",
    "correct",
    "digest",
    "released_at",
)


def runs_folder(root: Path) -> Path:
    """Return `<results root>/runs`."""
    return root / RUNS


def write_run(
    root: Path,
    record: Record,
    tables: Mapping[str, pd.DataFrame],
    *,
    log: Path | None = None,
) -> Path:
    """Write one run folder, `<root>/runs/<run_id>`, whole or not at all, and return it.

    Args:
        root, record: results root, and content of `record.json`, whose `seal` is set.
        tables: tables `telemetry`, `stages`, `batches` by name, written as parquet.
        log: log of the worker, copied to `worker.log`.

    Raises:
        DataIOError: the disk is full or cannot be written; nothing is left behind.
    """
    folder = runs_folder(root) / record.run_id
    partial = folder.with_name(f"{PARTIAL}{record.run_id}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, table in tables.items():
            table.to_parquet(partial / f"{name}.parquet", index=False)
        if log is not None and log.exists():
            shutil.copyfile(log, partial / WORKER_LOG)
        plain = json.loads(json.dumps(record.to_json(), allow_nan=False, default=str))
        content = seal.sealed(plain, partial)
        record.seal = content["seal"]
        (partial / RECORD).write_text(
            json.dumps(content, indent=1) + "\n", encoding="utf-8"
        )
        for path in [*partial.iterdir(), partial]:
            sync(path)
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        fault = (
            f"run {record.run_id} could not be recorded under {folder.parent}, and "
            "nothing half-written is left"
        )
        raise DataIOError.of(
            error, fault, folder, "choose another --results-root"
        ) from error
    return folder


def sweep_partial(root: Path) -> list[str]:
    """Remove half-written runs of a killed orchestrator; return their names."""
    left = sorted(runs_folder(root).glob(f"{PARTIAL}*"))
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in left]


class BadRecord(NamedTuple):
    """A folder under `runs/` whose record cannot be read, with the reason as one
    sentence.

    `other_schema`: whether the record has the schema of another version of Outcore and
    may be whole.
    """

    path: str
    reason: str
    other_schema: bool = False


def read_record(path: Path) -> Record:
    """Read a record from its folder or its `record.json`, upgrade its schema, derive
    its cost and judge it anew (rule 29). Raises InputError: the record is missing,
    damaged, or of a schema unknown to this version."""
    file = path / RECORD if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise InputError(f"{file} is not a run record", "remove the run's folder")
        record = Record.model_validate(upgraded(content, str(file)))
    except FileNotFoundError as error:
        raise InputError(
            f"there is no run record at {file}", "see `outcore results list`"
        ) from error
    except OSError as error:
        raise InputError.from_os(error, f"{file} cannot be read") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{file} is damaged at {place}: {first['msg']}", "remove the run's folder"
        ) from error
    except (ValueError, RecursionError) as error:
        fault = str(error).splitlines()[0]
        raise InputError(
            f"{file} is cut off or damaged: {fault}", "remove the run's folder"
        ) from error
    from harness.judge import judged_anew
    from harness.judge.metrics import summarised_anew

    record.summary = summarised_anew(record)
    return judged_anew(record, seal.broken(content) if record.evidence else "")


def run_folders(root: Path) -> list[Path]:
    """Return the folders of complete runs, oldest first (run ids begin with the
    time)."""
    return [path for path in _folders(root) if (path / RECORD).is_file()]


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in runs_folder(root).glob("[!.]*") if path.is_dir())


def scan(
    root: Path, bad: list[BadRecord] | None = None, progress: Notice = silent
) -> Iterator[tuple[Path, Record]]:
    """Yield every readable run with its folder, oldest first; add unreadable ones to
    `bad`, never raise."""
    for folder in tracked(progress, _folders(root), "reading records", "records"):
        try:
            record = read_record(folder)
            if record.run_id != folder.name:
                # A copy under another name would count one run twice.
                raise InputError(
                    f"{folder / RECORD} is of the run {record.run_id}, whose folder "
                    "has another name"
                )
        except InputError as error:
            if bad is not None:
                bad.append(
                    BadRecord(
                        str(folder), error.message, isinstance(error, SchemaError)
                    )
                )
            continue
        yield folder, record


def records(
    root: Path, bad: list[BadRecord] | None = None, progress: Notice = silent
) -> Iterator[Record]:
    """Yield every readable record, oldest first; add unreadable ones to `bad`."""
    for _, record in scan(root, bad, progress):
        yield record


def short_ids(root: Path) -> dict[str, str]:
    """Return each run id with its shortest form: configuration and round, these after
    the host where hosts share them, else the time of day, else all of it."""
    forms = {}
    for path in run_folders(root):
        forms[path.name] = [path.name]
        if found := _RUN_ID.fullmatch(path.name):
            time_of_day, host, configured = found.groups(default="")
            short = [configured, host + configured, time_of_day]
            forms[path.name] = list(dict.fromkeys([*short, path.name]))
    count = Counter(form for found in forms.values() for form in found)
    return {
        run: next(form for form in found if count[form] == 1)
        for run, found in forms.items()
    }


def find(root: Path, run: str) -> Path:
    """Return the folder of the run whose id is, begins with, or has after a dash,
    `run`; `latest` is the newest. Raises InputError: no run or several runs match."""
    by_id = {path.name: path for path in run_folders(root)}
    if run == "latest" and by_id:
        return by_id[max(by_id)]
    if run in by_id:
        return by_id[run]
    found = [name for name in by_id if name.startswith(run)] or [
        name for name in by_id if f"-{run}" in name
    ]
    if not found:
        raise InputError(
            f"there is no run {run!r} under {runs_folder(root)}",
            "see `outcore results list`",
        )
    if len(found) > 1:
        named = ", ".join([*found[:3], "..."] if len(found) > 3 else found)
        raise InputError(
            f"{len(found)} runs match {run!r}: {named}", "give more of the run id"
        )
    return by_id[found[0]]


def table(path: Path, name: Literal["telemetry", "stages", "batches"]) -> pd.DataFrame:
    """Read a table of a run folder; columns of `stages` and `batches`: `STAGE_COLUMNS`,
    `BATCH_COLUMNS`, times in s. Raises InputError: the table is missing, damaged or not
    as sealed."""
    import pandas as pd

    file = path / f"{name}.parquet"
    if not file.is_file():
        raise InputError(
            f"the run at {path} has no {name}", "it ended before any was written"
        )
    try:
        kept = json.loads((path / RECORD).read_text(encoding="utf-8")).get("seal") or {}
        if file.name in kept and not seal.is_sealed(file, kept[file.name]):
            raise InputError(
                f"{file} was changed after it was written", "remove the run's folder"
            )
        return pd.read_parquet(file)
    except OSError as error:
        raise InputError.from_os(
            error, f"{file} cannot be read", "remove the run's folder"
        ) from error
    except ValueError as error:
        raise InputError(
            f"{file} is cut off or damaged", "remove the run's folder"
        ) from error

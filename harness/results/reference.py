"""Reference results: the whole bench of one class of hosts, in a folder with a manifest
and an archive of its runs.

The archive is unpacked beside them, where figures and report are written, so that the
folder is a results root of its own: nothing measured elsewhere is pooled with it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.atomic import locked
from harness.records.seal import file_digest
from harness.records.study import STUDIES
from harness.results import store as results
from harness.results.archive import unpack
from harness.settings import Strict
from workloads.errors import DataIOError, InputError
from workloads.tempfolder import TemporaryFolder

FOLDER = "reference"
#: Samples of telemetry of a run that an archive keeps, by default.
SAMPLES = 1200
MANIFEST = "reference.json"
ARCHIVE = "runs.tar.xz"
#: Digest of the archive that the folder was unpacked from.
_UNPACKED = ".unpacked"
_PARTS = (results.RUNS, STUDIES, results.EXPERIMENTS)
_FIX = "take both files from one commit"


class Reference(Strict):
    """Manifest of reference results.

    Attributes:
        host_class: name of the folder.
        host: properties of the host, as its records state them.
        first_day, last_day: days of the first and the last run (UTC), like
            `2026-11-26`.
        commits: number of runs by commit of the code that measured; a suffix `-dirty`
            reports uncommitted changes.
        commands: commands that make the runs.
        versions: versions of Python and of packages.
        runs, studies: numbers in the archive.
        experiments: names of the experiments in the archive, oldest first.
        planned_runs, planned_studies: numbers that the commands plan.
        missing: planned runs and studies without a record.
        left_out: sentences on what the archive lacks of the results root.
        digest, bytes: digest and size of the archive.
    """

    schema_version: int = 1
    host_class: str
    host: dict[str, Any]
    first_day: str
    last_day: str
    commits: dict[str, int]
    commands: list[str]
    versions: dict[str, str]
    runs: int
    studies: int
    experiments: list[str]
    planned_runs: int
    planned_studies: int
    missing: list[str]
    left_out: list[str]
    digest: str
    bytes: int

    @property
    def label(self) -> str:
        """Name for captions and pages."""
        commits = " and ".join(
            commit[:7] + "-dirty" * commit.endswith("-dirty") for commit in self.commits
        )
        return f"Reference machine {self.host_class}, {self.last_day}, commit {commits}"


def read_reference(root: Path) -> Reference | None:
    """Read the manifest of a results root; None where it has none. Raises InputError:
    the manifest is invalid."""
    file = root / MANIFEST
    try:
        return Reference.model_validate_json(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError.from_os(error, f"{file} cannot be read") from error
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        message = f"{file} is no manifest of reference results" + (
            f" (at {place})" if place else ""
        )
        raise InputError(message, "take it from a commit of this version") from error


def references(place: Path) -> list[Path]:
    """Return the folders of reference results at `place`: itself, or those in it."""
    return [
        path.parent
        for path in (place / MANIFEST, *sorted(place.glob(f"*/{MANIFEST}")))
        if path.is_file()
    ]


def reference_of(folder: Path) -> Reference:
    """Read the manifest of a folder of reference results. Raises InputError: it is
    missing or invalid."""
    if (reference := read_reference(folder)) is None:
        raise InputError(
            f"{folder} has no {MANIFEST}", "name a folder of reference results"
        )
    return reference


def unpacked(folder: Path) -> Reference:
    """Unpack the archive of reference results beside it, unless it is, and return the
    manifest.

    Raises:
        InputError: the manifest or the archive is missing, damaged, or of another
            commit; nothing was unpacked.
        DataIOError: the folder cannot be written.
    """
    reference = reference_of(folder)
    try:
        with locked(folder / ".lock"):
            stamp = folder / _UNPACKED
            known = stamp.read_text(encoding="utf-8") if stamp.is_file() else ""
            if (
                known != reference.digest
                or len(results.run_folders(folder)) != reference.runs
            ):
                _unpack(folder, reference)
                stamp.write_text(reference.digest, encoding="utf-8")
    except OSError as error:
        fix = "copy the folder to where it can be written"
        raise DataIOError.of(
            error, f"{folder / ARCHIVE} could not be unpacked", folder, fix
        ) from error
    return reference


def _unpack(folder: Path, reference: Reference) -> None:
    archive = folder / ARCHIVE
    if not archive.is_file():
        raise InputError(f"{folder} has no {ARCHIVE}", _FIX)
    if file_digest(archive) != reference.digest:
        raise InputError(f"{archive} is not the archive that {MANIFEST} names", _FIX)
    with TemporaryFolder(folder, FOLDER) as stage:
        unpack(archive, stage)
        runs = len(results.run_folders(stage))
        studies = len(list((stage / STUDIES).glob("*.json")))
        if (runs, studies) != (reference.runs, reference.studies):
            message = f"{archive} holds {runs} runs and {studies} studies"
            raise InputError(
                f"{message}, not the {reference.runs} and {reference.studies} of "
                f"{MANIFEST}",
                _FIX,
            )
        for part in _PARTS:
            shutil.rmtree(folder / part, ignore_errors=True)
            if (stage / part).is_dir():
                (stage / part).rename(folder / part)
    for age, name in enumerate(reference.experiments):
        os.utime(folder / results.EXPERIMENTS / f"{name}.json", (age, age))

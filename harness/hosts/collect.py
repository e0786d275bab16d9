"""Records of a sweep over hosts in the driver's results root: those that hosts send,
and those of runs that no host completed."""

from __future__ import annotations

import time
from pathlib import Path

from harness.hosts.roster import Label
from harness.records.record import Record
from harness.results import store as results
from harness.results.incoming import merge
from harness.run.orchestrator import new_run_id
from workloads.errors import InputError
from workloads.tempfolder import TemporaryFolder


def collect(archive: bytes, results_root: Path) -> Record:
    """Import the archive of one run, checked as one of unknown origin, and return its
    record.

    Raises:
        InputError: the archive is invalid, or does not hold one run.
        DataIOError: the results root cannot be written.
    """
    results_root.mkdir(parents=True, exist_ok=True)
    read: list[Record] = []
    with TemporaryFolder(results_root, "collect") as folder:
        path = folder / "run.tar.gz"
        path.write_bytes(archive)
        try:
            merge([path], results_root, read)
        except InputError as error:
            message = error.message.replace(str(path), "its archive")
            raise InputError(message, error.fix) from error
    if len(read) != 1:
        raise InputError(
            f"it sent {len(read)} runs where one was ordered",
            "install the same commit there",
        )
    return read[0]


def record_failed(label: Label, number: int, reason: str, results_root: Path) -> Record:
    """Write and return a record without epochs of a label's run, which the next sweep
    repeats. Raises DataIOError: the results root cannot be written."""
    config = label.configs[number]
    environment = label.environment or {"host_label": label.name}
    record = Record(
        run_id=new_run_id(config, str(environment.get("host_fingerprint", ""))),
        config_hash=config.config_hash,
        system=config.system,
        status="failed",
        reason=reason,
        started_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        config=config,
        environment=environment,
    )
    results.write_run(results_root, record, {})
    return record

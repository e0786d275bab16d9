"""Reference results packed from a results root, which holds the whole bench of one
host."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.atomic import whole_file
from harness.compare.evidence import Evidence, load_evidence
from harness.compare.plan import value_at
from harness.figures.base import catalogue
from harness.plan.experiment import PROFILES, parse_experiment
from harness.progress import Notice, silent, tracked
from harness.records.hosts import host_fingerprint
from harness.records.seal import THINNED, file_digest
from harness.records.study import study_path
from harness.results import store as results
from harness.results.archive import pack
from harness.results.reference import ARCHIVE, FOLDER, MANIFEST, SAMPLES, Reference
from harness.results.table import each
from harness.run.sweep import union
from harness.studies.base import resolve_study, union_of
from harness.telemetry.frame import thinned
from workloads.arraytypes import JsonDict
from workloads.errors import DataIOError, InputError
from workloads.tempfolder import TemporaryFolder
from workloads.units import format_bytes

#: Profile whose figures an archive has to have; of other experiments of the results
#: root it has their own runs.
PROFILE = "quick"
#: Bytes of an archive that a repository can hold.
LIMIT = 20_000_000
_TELEMETRY = "telemetry.parquet"
# Properties of the manifest's host, by their place in a record's environment.
_HOST = {
    "cpu": "cpu.model",
    "processors": "cpu.usable",
    "memory_bytes": "memory.total_bytes",
    "disk": "disk.model",
    "file_system": "disk.file_system",
    "kernel": "kernel.release",
}
_CLASS = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")


def write_reference(
    root: Path,
    out: Path,
    *,
    samples: int = SAMPLES,
    partial: bool = False,
    progress: Notice = silent,
) -> Reference:
    """Pack records, stages, telemetry, studies and experiments of a results root into
    `out`, and return its manifest.

    Mini-batch tables and logs are left out. Records are packed as they are, sealed and
    judged; longer telemetry is thinned, which is noted beside it
    (`harness.records.seal.is_sealed`).

    Args:
        root, out: results root, and folder of the reference results, named after the
            class of hosts.
        samples: most samples of telemetry of a run.
        partial: whether planned runs and studies may be missing.

    Raises:
        InputError: the runs are of several hosts or incomplete, or the archive is too
            large; `out` is as before.
        DataIOError: `out` cannot be written.
    """
    if not _CLASS.fullmatch(out.name):
        raise InputError(
            f"{out.name!r} names no class of hosts",
            "use letters, digits and hyphens, like 2-core-vm",
        )
    if samples < 1:
        raise InputError(f"--samples is {samples}", "give at least 1")
    evidence = load_evidence(root, progress)
    if not (
        hosts := Counter(
            host_fingerprint(record["environment"]) for record in evidence.records
        )
    ):
        raise InputError(
            f"there is no run under {root}", "run `outcore bench --figures all`"
        )
    if len(hosts) > 1:
        raise InputError(
            f"the runs under {root} are of {len(hosts)} hosts", "archive those of one"
        )
    plan = _plan(evidence)
    if plan.missing and not partial:
        message = (
            f"{len(plan.missing)} of {plan.runs + plan.studies} planned runs and "
            f"studies have no record under {root}"
        )
        raise InputError(
            f"{message}, the first is {plan.missing[0]}",
            f"finish `{plan.commands[0]}`, or add --partial",
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder(out.parent, FOLDER) as stage:
            return _write(root, out, stage, evidence, plan, samples, progress)
    except OSError as error:
        raise DataIOError.of(
            error, f"{out} could not be written", out, "choose another --out"
        ) from error


@dataclass(frozen=True)
class _Planned:
    """Numbers of planned runs and studies, names of those without a record, and the
    commands that make them."""

    runs: int
    studies: int
    missing: list[str]
    commands: list[str]


def _plan(evidence: Evidence) -> _Planned:
    """Return what the kept experiments plan, with all figures of `PROFILE`."""
    kept = {str(content["name"]): content for content in evidence.experiments}
    figures = catalogue().values()
    planned = [
        parse_experiment({**content, "gallery": {}}) for content in kept.values()
    ]
    planned += [
        experiment
        for figure in figures
        for experiment in figure.experiments(kept[PROFILE])
    ]
    missing = []
    runs = 0
    for cell in union(planned):
        ended = evidence.runs_of(cell)
        found = (
            set(ended.loc[ended["status"] != "failed", "config.round"])
            if len(ended)
            else set()
        )
        runs += cell.rounds
        what = (
            f"{cell.system} on {cell.settings.dataset}, memory {cell.settings.memory}"
        )
        missing += [
            f"run of {what}, round {number}"
            for number in range(cell.rounds)
            if number not in found
        ]
    known = [(record.study, record.params) for record in evidence.studies]
    needs = union_of(
        [need for figure in figures for need in figure.studies(kept[PROFILE])]
    )
    wanted = [
        (need.study, resolve_study(need)[1].model_dump(mode="json")) for need in needs
    ]
    missing += [
        f"study {study}" for study, params in wanted if (study, params) not in known
    ]
    commands = [f"outcore bench --profile {PROFILE} --figures all"]
    for name in kept:
        is_profile = (PROFILES / f"{name}.yaml").is_file()
        if name != PROFILE:
            given = (
                f"--profile {name}"
                if is_profile
                else f"{results.EXPERIMENTS}/{name}.json"
            )
            commands.append(f"outcore bench {given}")
    return _Planned(runs, len(wanted), missing, commands)


def _write(
    root: Path,
    out: Path,
    stage: Path,
    evidence: Evidence,
    plan: _Planned,
    samples: int,
    progress: Notice,
) -> Reference:
    folders = [Path(run.path) for run in each(evidence.runs)]
    short = sum(
        _copy(folder, stage, samples)
        for folder in tracked(progress, folders, "copying runs", "runs")
    )
    studies = [
        study_path(root, record.study, record.key) for record in evidence.studies
    ]
    experiments = sorted(
        (root / results.EXPERIMENTS).glob("*.json"),
        key=lambda path: path.stat().st_mtime_ns,
    )
    others = []
    for path in [*studies, *experiments]:
        (stage / path.parent.name).mkdir(exist_ok=True)
        shutil.copy2(path, stage / path.parent.name)
        others.append(stage / path.parent.name / path.name)
    progress("compressing")
    packed = stage / ARCHIVE
    pack(stage, results.run_folders(stage), others, packed)
    size = packed.stat().st_size
    if size > LIMIT:
        message = (
            f"the archive has {format_bytes(size)}, a repository takes "
            f"{format_bytes(LIMIT)}"
        )
        raise InputError(
            message,
            f"thin its telemetry further than to {samples} samples: --samples "
            f"{samples // 2}",
        )
    left_out = ["tables of mini-batches and logs of workers"]
    if short:
        left_out.append(
            f"after judging, telemetry of {short} runs was thinned to at most "
            f"{samples} samples"
        )
    if older := len(results.run_folders(root)) - len(folders):
        left_out.append(f"{older} runs of older code, or unreadable")
    reference = Reference(
        host_class=out.name,
        **_facts(evidence.records),
        commands=plan.commands,
        runs=len(folders),
        studies=len(studies),
        experiments=[path.stem for path in experiments],
        planned_runs=plan.runs,
        planned_studies=plan.studies,
        missing=plan.missing,
        left_out=left_out,
        digest=file_digest(packed),
        bytes=size,
    )
    out.mkdir(exist_ok=True)
    packed.replace(out / ARCHIVE)
    with whole_file(out / MANIFEST, "the manifest") as file:
        file.write_text(reference.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return reference


def _copy(folder: Path, stage: Path, samples: int) -> bool:
    """Copy a run without its mini-batches and log; return whether its telemetry is
    thinned, now or before."""
    out = stage / results.RUNS / folder.name
    out.mkdir(parents=True)
    for name in (results.RECORD, "stages.parquet", _TELEMETRY, THINNED):
        if (folder / name).is_file():
            shutil.copy2(folder / name, out)
    own = out / _TELEMETRY
    kept = out / THINNED
    known = (
        json.loads(kept.read_text(encoding="utf-8"))[_TELEMETRY]
        if kept.is_file()
        else {}
    )
    if not own.is_file() or len(table := results.table(folder, "telemetry")) <= samples:
        return bool(known)
    time = own.stat()
    sealed = known.get("sealed") or file_digest(own)
    short = thinned(table, samples)
    # Single precision, and no compression of its own: the archive's is better.
    single = {
        name: "float32"
        for name in short.select_dtypes("float64")
        if name not in ("t", "monotonic")
    }
    short.astype(single).to_parquet(own, index=False, compression=None)
    note = {
        "sealed": sealed,
        "digest": file_digest(own),
        "rows": len(short),
        "of": known.get("of") or len(table),
    }
    kept.write_text(json.dumps({_TELEMETRY: note}, indent=1) + "\n", encoding="utf-8")
    for path in (own, kept):
        os.utime(path, ns=(time.st_mtime_ns, time.st_mtime_ns))
    return True


def _facts(records: Sequence[JsonDict]) -> dict[str, Any]:
    """Return host, days, commits and versions of runs, oldest first, by the names of
    the manifest."""
    newest: Mapping[str, Any] = records[-1]["environment"]
    host: JsonDict = {"fingerprint": host_fingerprint(newest)}
    host |= {name: value_at(newest, place) for name, place in _HOST.items()}
    host["gpu"] = [gpu["model"] for gpu in newest.get("gpu") or []]
    commits: Counter[str] = Counter()
    for record in records:
        code = record["environment"].get("code") or {}
        commit = code.get("commit") or "unknown"
        commits[f"{commit}-dirty" if code.get("dirty") else commit] += 1
    days = [record["started_at"][:10] for record in records]
    versions = newest.get("versions") or {}
    return {
        "host": host,
        "first_day": min(days),
        "last_day": max(days),
        "commits": commits,
        "versions": versions,
    }

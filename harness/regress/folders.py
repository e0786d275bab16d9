"""Comparisons of a results root with another root, or with the newest baseline of its machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.records.code import Made, of_one_code
from harness.records.hosts import host_fingerprint
from harness.records.record import Record
from harness.regress.decision import Comparison, Rules
from harness.regress.history import History, baseline
from harness.regress.judge import compare
from harness.regress.samples import cells_of, fingerprints
from harness.results import store as results
from workloads.errors import InputError


def compare_folders(base: Path, head: Path, rules: Rules | None = None) -> Comparison:
    """Compare the runs of two results roots cell by cell, unpaired; raise InputError if a root has no readable run."""
    notes: list[str] = []
    before, after = (_of_one_code(root, read_runs(root, notes), notes) for root in (base, head))
    hosts = [fingerprints(side) for side in (before, after)]
    differ = hosts[0] != hosts[1]
    why = "made on another machine, or on several" if differ or len(hosts[0]) > 1 else ""
    if why:
        notes.append(f"times are not compared: the runs were {why}; exact counters do not depend on the machine")
    found = compare(cells_of(before), cells_of(after), rules, paired=False, exact_only=why)
    return replace(found, base=str(base), head=str(head), notes=notes)


def compare_history(head: Path, history: History, rules: Rules | None = None) -> Comparison:
    """Compare runs with the baselines of their machine, if any; raise InputError for no runs or several machines."""
    notes: list[str] = []
    after = _of_one_code(head, read_runs(head, notes), notes)
    hosts = fingerprints(after)
    if len(hosts) > 1:
        raise InputError(f"the runs under {head} were made on {len(hosts)} machines", "keep one results root a machine")
    commits = {str((record.environment.get("code") or {}).get("commit") or "") for record in after}
    cells = cells_of(after)
    found = baseline(history, hosts.pop(), list(cells), commits.pop() if len(commits) == 1 else "")
    known = {key: cell for key, cell in cells.items() if key in found.cells}
    if found.cells and len(known) < len(cells):
        notes.append(f"{len(cells) - len(known)} of {len(cells)} cells have no baseline yet")
    made = compare(found.cells, known, rules, paired=False, exact_only=found.exact_only)
    return replace(made, base=found.name, head=str(head), notes=[*notes, *found.notes])


def _of_one_code(root: Path, records: list[Record], notes: list[str]) -> list[Record]:
    """Return the runs of the newest code on each machine, so that no comparison spans a change of what measures."""
    made = [
        Made(host_fingerprint(run.environment), run.system, run.code, run.run_id, run.config.sampler) for run in records
    ]
    kept = [run for run, wanted in zip(records, of_one_code(made), strict=True) if wanted]
    if len(kept) < len(records):
        notes.append(f"{root}: {len(records) - len(kept)} runs of older code were left out")
    return kept


def read_runs(root: Path, notes: list[str]) -> list[Record]:
    """Return the readable runs of a results root, with a note on the others; raise InputError if there are none."""
    bad: list[results.BadRecord] = []
    found = list(results.records(root, bad))
    if bad:
        notes.append(f"{root}: {len(bad)} records cannot be read and were left out, like {bad[0].reason}")
    if not found:
        raise InputError(f"there are no runs under {results.runs_folder(root)}", "run `outcore bench` first")
    return found

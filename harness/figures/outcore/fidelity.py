"""outcore-fidelity: each reimplementation beside its public original, where both ran in one setting."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from harness.compare.comparable import side_by_side, side_by_side_of
from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.verdicts import NotDrawn
from harness.figures.base import NOTHING, Sheet, figure, sheet, specs
from harness.records.record import COUNTED
from harness.results.table import measured_epochs
from workloads.units import format_count

SPEC = specs(__file__)


@dataclass(frozen=True)
class Side:
    """Measurements of one program in one setting: seconds of its epochs, and its counts a mini-batch."""

    name: str
    seconds: list[float]
    counts: dict[str, float]
    runs: list[str]


@figure("outcore-fidelity")
def fidelity(evidence: Evidence) -> Sheet:
    """Show one row for each pair in each setting, and `not measured` for reimplementations without one; raise NotDrawn
    without any pair."""
    rows: list[Plain] = []
    runs: list[str] = []
    for system, told in SPEC["systems"].items():
        known = {"system": system, "differs by design": told["differs"]}
        pairs = list(_pairs(evidence, system, told["originals"]))
        for setting, ours, theirs in pairs:
            rows.append({**known, **setting, **_row(ours, theirs)})
            runs += [*ours.runs, *theirs.runs]
        if not pairs:
            rows.append({**known, "original": told["originals"][-1], "its epoch (s)": "not measured"})
    if not runs:
        raise NotDrawn(SPEC["missing"])
    return sheet(rows, SPEC["columns"], SPEC["caption"], runs=list(dict.fromkeys(runs)))


def _pairs(evidence: Evidence, system: str, originals: list[str]) -> Iterator[tuple[Plain, Side, Side]]:
    """Yield the settings in which the system, with its newest options, and one of its originals were measured."""
    ours = dict(_sides(evidence, system))
    theirs = [pair for name in originals for pair in _sides(evidence, name)]
    foreign = [record for record in evidence.foreign if record.system in originals]
    theirs += [
        (
            side_by_side(record.settings),
            Side(
                record.label,
                record.seconds,
                _a_batch([{str(name): count for name, count in record.counters.items()}]),
                [],
            ),
        )
        for record in foreign
    ]
    configs = {side_by_side_of(record): record["config"] for record in evidence.records}
    for key, side in theirs:
        if key in ours:
            config = configs[key]
            yield {"dataset": config["dataset"]["name"], "memory": config["memory"]}, ours[key], side


def _sides(evidence: Evidence, system: str) -> Iterator[tuple[str, Side]]:
    """Yield the counted runs of a system that ended well, by setting and options, those of the newest run last; the
    side's name has the options that vary."""
    found: dict[tuple[str, str], list[Plain]] = {}
    values: dict[str, set[str]] = {}
    for record in evidence.records:
        if record["system"] == system and record["verdict"] in COUNTED and record["status"] == "ok":
            options = record["config"]["options"]
            key = side_by_side_of(record), json.dumps(options, sort_keys=True)
            found[key] = [*found.pop(key, []), record]
            for name, value in options.items():
                values.setdefault(name, set()).add(json.dumps(value))
    for (setting, _), same in found.items():
        options = same[0]["config"]["options"]
        varied = [f"{name}={value}" for name, value in options.items() if len(values[name]) > 1]
        epochs = [epoch for one in same for epoch in measured_epochs(one)]
        if epochs:
            counts = _a_batch([{**epoch["counters"], **epoch} for epoch in epochs])
            seconds = [float(epoch["seconds"]) for epoch in epochs]
            yield setting, Side(" ".join((system, *varied)), seconds, counts, [str(one["run_id"]) for one in same])


def _a_batch(epochs: list[Plain]) -> dict[str, float]:
    """Return the median counts a mini-batch, and the share of hits, of the epochs that have them."""
    found: dict[str, list[float]] = {}
    for epoch in epochs:
        batches = epoch.get("batches")
        for column, names in SPEC["counters"].items():
            told = [epoch[name] for name in names if epoch.get(name) is not None]
            if batches and told:
                found.setdefault(column, []).append(float(told[0]) / float(batches))
        missed = _miss_share(epoch)
        if missed is not None:
            found.setdefault("hits", []).append(1.0 - missed)
    return {column: statistics.median(values) for column, values in found.items()}


def _miss_share(epoch: Plain) -> float | None:
    """Return the misses of an epoch as a share of its rows; None if unknown. Counters of a memory map have no misses:
    there, page faults that read count as misses (`page_cache_miss_ratio`)."""
    if "page_cache" in (epoch.get("hits") or {}):
        faulted = (epoch.get("observed") or {}).get("page_cache_miss_ratio")
        return None if faulted is None else float(faulted)
    rows, misses = epoch.get("rows"), epoch.get("misses")
    return float(misses) / float(rows) if rows and misses is not None else None


def _row(ours: Side, theirs: Side) -> Plain:
    mine, other = statistics.median(ours.seconds), statistics.median(theirs.seconds)
    row: Plain = {"original": theirs.name, "epoch (s)": mine, "its epoch (s)": other, "times as fast": other / mine}
    for column in (*SPEC["counters"], "hits"):
        both = [side.counts.get(column) for side in (ours, theirs)]
        texts = [NOTHING if n is None else f"{100 * n:.1f} %" if column == "hits" else format_count(n) for n in both]
        row[column] = None if both == [None, None] else " / ".join(texts)
    return row

"""Decisions on exact facts by equality, on times and sizes by their ratio's interval, on statuses by their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from harness.regress import samples
from harness.regress.decision import Comparison, Decision, Kind, MetricResult, Rules
from harness.regress.samples import COSTS, IDENTITY, LEAST_PREPARE_S, ConfigSamples, RunSample
from harness.regress.statistics import Ratio, holm, ratio_of_medians

_NOISY: dict[str, tuple[Kind, str]] = {
    "epoch": ("time", "s"),
    "preprocess": ("time", "s"),
    "peak memory": ("memory", "bytes"),
    "device bytes": ("count", "bytes"),
    "device requests": ("count", "requests"),
}
# Compared only if the system's own counters do not repeat.
_KERNEL_COUNTS = ("device bytes", "device requests")


@dataclass(frozen=True)
class Declared:
    """Systems whose changed exact facts commits declare as a new baseline: all systems, or by name."""

    everything: bool = False
    systems: tuple[str, ...] = ()

    def covers(self, system: str) -> bool:
        """Return whether changed facts of `system` are declared."""
        return self.everything or system in self.systems


def compare(
    base: Mapping[str, ConfigSamples],
    head: Mapping[str, ConfigSamples],
    rules: Rules | None = None,
    *,
    paired: bool,
    declared: Declared | None = None,
    exact_only: str = "",
) -> Comparison:
    """Compare head with base, cell by cell.

    Args:
        base, head: cells by key.
        paired: whether the i-th runs of both sides form a pair.
        declared: changed facts that count as a new baseline.
        exact_only: reason why only exact facts are compared (another machine); empty to compare all metrics.
    """
    rules = rules or Rules()
    declared = declared or Declared()
    found: list[MetricResult] = []
    for key in dict.fromkeys([*base, *head]):
        if key in base and key in head:
            found += _cell(base[key], head[key], rules, paired, declared, exact_only)
        else:
            found.append(_one_sided(base.get(key) or head[key], "head" if key in base else "base"))
    return Comparison(_corrected(found, rules))


def _one_sided(cell: ConfigSamples, lacking: str) -> MetricResult:
    note = f"{lacking} has no run of it"
    return MetricResult(cell.label, "status", "status", "", None, None, "undecided", note=note)


def _cell(
    base: ConfigSamples, head: ConfigSamples, rules: Rules, paired: bool, declared: Declared, exact_only: str
) -> list[MetricResult]:
    status = _status(base, head)
    good = [[run for run in cell.runs if run.status == "ok"] for cell in (base, head)]
    if status.base != status.head or not all(good):
        return [status]
    if paired:
        both = [pair for pair in zip(base.runs, head.runs, strict=False) if all(run.status == "ok" for run in pair)]
        good = [[pair[0] for pair in both], [pair[1] for pair in both]] if both else good
    metrics, varying = _exact(base, head, good[0], good[1], declared)
    for name, (kind, unit) in _NOISY.items():
        if name in _KERNEL_COUNTS and not varying and base.deterministic and head.deterministic:
            continue
        result = _noisy(head.label, name, kind, unit, good[0], good[1], rules, paired, exact_only)
        if result is not None:
            metrics.append(_with_stage(result, good[0], good[1]) if name == "epoch" else result)
    return [status, *metrics]


def _status(base: ConfigSamples, head: ConfigSamples) -> MetricResult:
    """Compare the worst statuses: `ok` turned into a failure is regressed, `unsupported` on one side undecided."""
    before, after = _worst(base.runs), _worst(head.runs)
    decision: Decision = "same"
    note = ""
    if "unsupported" in (before.status, after.status):
        decision = "same" if before.status == after.status else "undecided"
        note = before.reason or after.reason
    elif before.status != after.status:
        decision = "regressed" if before.status == "ok" else "improved" if after.status == "ok" else "undecided"
        note = f"one side only: {after.reason or before.reason or 'no reason given'}"
    elif before.status != "ok":
        # Out of memory may be a system's correct result; other failures on both sides allow no comparison.
        decision = "same" if before.status == "oom" else "undecided"
        note = f"both sides: {before.reason}"
    return MetricResult(head.label, "status", "status", "", before.status, after.status, decision, note=note)


def _worst(runs: Sequence[RunSample]) -> RunSample:
    order = ["ok", "unsupported", "oom", "timeout", "failed"]
    return max(runs, key=lambda run: order.index(run.status) if run.status in order else len(order))


def _exact(
    base: ConfigSamples,
    head: ConfigSamples,
    before: Sequence[RunSample],
    after: Sequence[RunSample],
    declared: Declared,
) -> tuple[list[MetricResult], bool]:
    """Compare exact facts by equality; also return whether a fact varied within one side."""
    results, varying = [], False
    counted = base.deterministic and head.deterministic
    for name in (*IDENTITY, *COSTS):
        if name in COSTS and not counted:
            continue
        sides = [[run.exact[name] for run in runs if name in run.exact] for runs in (before, after)]
        if not sides[0] and not sides[1]:
            continue
        unit = "bytes" if name.startswith("bytes") else ""
        if not sides[0] or not sides[1]:
            lacking = "head" if sides[0] else "base"
            if name == "feature_digest" or not any(map(_total, sides[0] or sides[1])):
                continue  # only some runs check features; a counter of 0 on one side tells no difference
            note = f"{lacking} does not say"
        elif any(value != side[0] for side in sides for value in side):
            varying = True
            which = "base" if any(value != sides[0][0] for value in sides[0]) else "head"
            note = f"not the same in all runs of {which}, though the system says that it repeats"
        else:
            results.append(_equality(head, name, unit, sides[0][0], sides[1][0], declared))
            continue
        shown = (_shown(sides[0]), _shown(sides[1]))
        results.append(MetricResult(head.label, name, "exact", unit, *shown, "undecided", note=note))
    return results, varying


def _equality(
    head: ConfigSamples, name: str, unit: str, before: list[Any], after: list[Any], declared: Declared
) -> MetricResult:
    total_before, total_after = _total(before), _total(after)
    ratio = None
    if isinstance(total_before, int) and isinstance(total_after, int) and total_before and total_after:
        ratio = total_after / total_before
    result = MetricResult(
        head.label, name, "exact", unit, _shown([before]), _shown([after]), "same", ratio=ratio, samples=len(before)
    )
    if before == after:
        return result
    first = next((k for k, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), len(before))
    note = f"differs from epoch {first} on"
    if declared.covers(head.system):
        return replace(result, note=f"{note}; declared a new baseline")
    fewer = name in COSTS and total_after < total_before
    return replace(result, decision="improved" if fewer else "regressed", note=note)


def _total(values: list[Any]) -> Any:
    """Return the sum of counts, or the digests as a tuple."""
    known = [value for value in values if value is not None]
    return sum(known) if all(isinstance(value, int) for value in known) else tuple(known)


def _shown(side: Sequence[list[Any]]) -> float | int | str | None:
    if not side:
        return None
    total = _total(side[0])
    return " ".join(str(value).removeprefix("xxh3:")[:8] for value in total) if isinstance(total, tuple) else total


def _noisy(
    label: str,
    name: str,
    kind: Kind,
    unit: str,
    before: Sequence[RunSample],
    after: Sequence[RunSample],
    rules: Rules,
    paired: bool,
    exact_only: str,
) -> MetricResult | None:
    if paired:
        both = samples.paired(before, after, name)
        sides = [[pair[0] for pair in both], [pair[1] for pair in both]]
    each = [[run.noisy[name] for run in runs if name in run.noisy] for runs in (before, after)]
    if not paired or not sides[0]:
        sides, paired = each, False
    if not sides[0] and not sides[1]:
        return None
    medians = [median(side) if side else None for side in each]
    gates = rules.gate_times
    result = MetricResult(label, name, kind, unit, medians[0], medians[1], "undecided", gates=gates)
    if name == "preprocess" and max(value or 0.0 for value in medians) < LEAST_PREPARE_S:
        return None
    if exact_only:
        return replace(result, gates=False, note=exact_only)
    if not sides[0] or not sides[1]:
        return replace(result, note=f"{'head' if sides[0] else 'base'} does not say")
    found = ratio_of_medians(sides[0], sides[1], paired=paired, seed=rules.seed)
    return replace(
        result,
        ratio=found.value,
        interval=(found.low, found.high),
        interval_kind=found.kind,
        p=found.p,
        samples=found.samples,
    )


def _corrected(metrics: list[MetricResult], rules: Rules) -> list[MetricResult]:
    """Decide all noisy metrics, with p-values corrected for their number (Holm)."""
    open_ = [index for index, metric in enumerate(metrics) if metric.p is not None]
    adjusted = dict(zip(open_, holm([metrics[index].p or 0.0 for index in open_]), strict=True))
    return [
        decided(metric, adjusted[index], rules) if index in adjusted else _too_few(metric)
        for index, metric in enumerate(metrics)
    ]


def _too_few(metric: MetricResult) -> MetricResult:
    if metric.interval_kind == "range" and not metric.note:
        count = f"{metric.samples} {'sample' if metric.samples == 1 else 'samples'}"
        return replace(metric, stage="", note=f"{count} a side, too few to decide")
    return metric


def decided(metric: MetricResult, p: float, rules: Rules) -> MetricResult:
    """Decide a noisy metric by its interval and its corrected p-value.

    *regressed* or *improved*: p is below alpha and the ratio moved by the least effect or more. *same*: the whole
    interval lies within the least effect. Else *undecided*.
    """
    assert metric.ratio is not None and metric.interval is not None
    most = 1.0 + rules.min_effect
    decision: Decision = "undecided"
    if p < rules.alpha and metric.ratio >= most:
        decision = "regressed"
    elif p < rules.alpha and metric.ratio <= 1 / most:
        decision = "improved"
    elif metric.interval[0] > 1 / most and metric.interval[1] < most:
        decision = "same"
    return replace(metric, decision=decision, p=p, stage=metric.stage if decision in ("regressed", "improved") else "")


def _with_stage(metric: MetricResult, before: Sequence[RunSample], after: Sequence[RunSample]) -> MetricResult:
    """Add the stage whose seconds changed most in the epoch's direction."""
    if metric.ratio is None:
        return metric
    names = dict.fromkeys(name for run in (*before, *after) for name in run.stages)
    sign = 1.0 if metric.ratio >= 1 else -1.0

    def change(name: str) -> float:
        sides = [[run.stages.get(name, 0.0) for run in runs] for runs in (before, after)]
        return sign * (median(sides[1]) - median(sides[0]))

    # `wait` only reflects the delay of another stage.
    likely = max((name for name in names if name != "wait"), key=change, default="")
    return replace(metric, stage=likely if likely and change(likely) > 0 else "")


def narrow_enough(found: Ratio, rules: Rules) -> bool:
    """Return whether the interval's half width is at most half the least effect, so that no more runs are needed."""
    return found.half_width <= rules.min_effect / 2

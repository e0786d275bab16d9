"""Decisions on exact facts by equality, on times and sizes by their ratio's interval,
on statuses by their order.

Noisy metrics have Student's interval of their mean log-ratio (`ratio.py`), and Holm's
correction over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from harness.judge.registry import worst
from harness.regress import samples
from harness.regress.decision import Comparison, Decision, Kind, MetricResult, Rules
from harness.regress.ratio import holm, ratio_of_means, weights_of
from harness.regress.samples import (
    COSTS,
    IDENTITY,
    LEAST_OFFLINE_S,
    OFFLINE,
    ConfigSamples,
    RunSample,
)

_NOISY: dict[str, tuple[Kind, str]] = {
    "epoch": ("time", "s"),
    "warm-up": ("time", "s"),
    "once": ("time", "s"),
    "each": ("time", "s"),
    "peak memory": ("memory", "bytes"),
    "device bytes": ("count", "bytes"),
    "device requests": ("count", "requests"),
}
# Compared only if the system's own counters do not repeat.
_KERNEL_COUNTS = ("device bytes", "device requests")

# Runs with status `ok` of base and of head.
Sides = Sequence[Sequence[RunSample]]


def compare(
    base: Mapping[str, ConfigSamples],
    head: Mapping[str, ConfigSamples],
    rules: Rules | None = None,
    *,
    paired: bool,
    declared: frozenset[str] = frozenset(),
    exact_only: str = "",
) -> Comparison:
    """Compare head with base, cell by cell.

    Args:
        base, head: cells by key.
        paired: whether the i-th runs of both sides form a pair.
        declared: systems whose changed exact facts count as a new baseline; `all`:
            every system.
        exact_only: reason why only exact facts are compared (another machine); empty to
            compare all metrics.
    """
    rules = rules or Rules()
    found: list[MetricResult] = []
    for key in dict.fromkeys([*base, *head]):
        if key in base and key in head:
            found += _cell(base[key], head[key], rules, paired, declared, exact_only)
        else:
            cell = base.get(key) or head[key]
            lacking = "head" if key in base else "base"
            status = MetricResult(
                cell.label, "status", "status", "", None, None, "undecided"
            )
            found.append(replace(status, note=f"{lacking} has no run of it"))
    return Comparison(_corrected(found, rules))


def _cell(
    base: ConfigSamples,
    head: ConfigSamples,
    rules: Rules,
    paired: bool,
    declared: frozenset[str],
    exact_only: str,
) -> list[MetricResult]:
    status = _status(base, head)
    good = [[run for run in cell.runs if run.status == "ok"] for cell in (base, head)]
    if status.base != status.head or not all(good):
        return [status]
    if paired:
        both = [
            pair
            for pair in zip(base.runs, head.runs, strict=False)
            if all(run.status == "ok" for run in pair)
        ]
        good = [list(side) for side in zip(*both, strict=True)] or good
    counted = base.deterministic and head.deterministic
    metrics, varying = _exact(head, good, counted, declared)
    for name, (kind, unit) in _NOISY.items():
        if name in _KERNEL_COUNTS and not varying and counted:
            continue
        result = MetricResult(
            head.label,
            name,
            kind,
            unit,
            None,
            None,
            "undecided",
            gates=rules.gate_times,
        )
        if (measured := _noisy(result, good, paired, exact_only)) is not None:
            metrics.append(_with_stage(measured, good) if name == "epoch" else measured)
    return [status, *_verdict(head.label, good), *metrics]


def _status(base: ConfigSamples, head: ConfigSamples) -> MetricResult:
    """Compare the worst statuses: `ok` turned into a failure is regressed,
    `unsupported` on one side undecided."""
    before = _worst(base.runs)
    after = _worst(head.runs)
    decision: Decision = "same"
    note = ""
    if "unsupported" in (before.status, after.status):
        decision = "same" if before.status == after.status else "undecided"
        note = before.reason or after.reason
    elif before.status != after.status:
        decision = (
            "regressed"
            if before.status == "ok"
            else "improved"
            if after.status == "ok"
            else "undecided"
        )
        note = f"one side only: {after.reason or before.reason or 'no reason given'}"
    elif before.status != "ok":
        # Out of memory may be a system's correct result; other failures on both sides
        # allow no comparison.
        decision = "same" if before.status == "oom" else "undecided"
        note = f"both sides: {before.reason}"
    return MetricResult(
        head.label,
        "status",
        "status",
        "",
        before.status,
        after.status,
        decision,
        note=note,
    )


def _worst(runs: Sequence[RunSample]) -> RunSample:
    order = ["ok", "unsupported", "oom", "timeout", "failed"]
    return max(
        runs,
        key=lambda run: order.index(run.status) if run.status in order else len(order),
    )


def _verdict(label: str, good: Sides) -> list[MetricResult]:
    """Compare the worst verdicts by the rules that other programs cannot break: a worse
    one than base's is regressed.

    INVALID runs on both sides allow no comparison. Without the rules of a side there is
    no metric.
    """
    if any(run.broken is None for runs in good for run in runs):
        return []
    broken = [
        dict(rule for run in runs for rule in (run.broken or {}).items())
        for runs in good
    ]
    before, after = (worst(rules.values()) for rules in broken)
    decision: Decision = "same"
    named: list[str] = []
    if before != after:
        decision = "regressed" if worst([before, after]) == after else "improved"
        named = [
            name
            for rules in broken
            for name, verdict in rules.items()
            if verdict == worst([before, after])
        ]
    elif before == "INVALID":
        decision = "undecided"
        named = ["both sides", *broken[1]]
    return [
        MetricResult(
            label,
            "verdict",
            "status",
            "",
            before,
            after,
            decision,
            note=", ".join(named).replace("_", " "),
        )
    ]


def _exact(
    head: ConfigSamples, good: Sides, costs: bool, declared: frozenset[str]
) -> tuple[list[MetricResult], bool]:
    """Compare exact facts by equality, also the `costs` if set; also return whether one
    varied on one side."""
    results = []
    varying = False
    salts = {run.salt for runs in good for run in runs}
    for name in (*IDENTITY, *COSTS) if costs else IDENTITY:
        if name == "feature_digest" and len(salts) > 1:
            # generated rows of other salts are other rows of the same workload
            continue
        sides = [
            [run.exact[name] for run in runs if name in run.exact] for runs in good
        ]
        if name == "feature_digest":
            sides = _checked_most(sides)
        if not sides[0] and not sides[1]:
            continue
        unit = "bytes" if name.startswith("bytes") else ""
        if not sides[0] or not sides[1]:
            lacking = "head" if sides[0] else "base"
            if name == "feature_digest" or not any(map(_total, sides[0] or sides[1])):
                # only some runs check features; a counter of 0 on one side is no
                # difference
                continue
            note = f"{lacking} has none"
        elif any(value != side[0] for side in sides for value in side):
            varying = True
            which = (
                "base" if any(value != sides[0][0] for value in sides[0]) else "head"
            )
            note = (
                f"not the same in all runs of {which}, though the system declares that "
                "it repeats"
            )
        else:
            results.append(
                _equality(head, name, unit, sides[0][0], sides[1][0], declared)
            )
            continue
        shown = (_shown(sides[0]), _shown(sides[1]))
        results.append(
            MetricResult(
                head.label, name, "exact", unit, *shown, "undecided", note=note
            )
        )
    return results, varying


def _checked_most(sides: Sequence[list[list[Any]]]) -> list[list[list[Any]]]:
    """Return the feature digests of each side's runs that checked most epochs, of the
    epochs that all of them checked.

    The others of an epoch are None: the first pair checks every epoch, later ones the
    warm-up alone.
    """
    kept = []
    for side in sides:
        most = max(map(_known, side), default=0)
        kept.append([digests for digests in side if _known(digests) == most])
    in_all = [all(values) for values in zip(*kept[0], *kept[1], strict=False)]
    if not all(kept) or not any(in_all):
        return [[], []]
    for side in kept:
        side[:] = [
            [digest if held else None for digest, held in zip(d, in_all, strict=False)]
            for d in side
        ]
    return kept


def _known(values: Sequence[Any]) -> int:
    return sum(value is not None for value in values)


def _equality(
    head: ConfigSamples,
    name: str,
    unit: str,
    before: list[Any],
    after: list[Any],
    declared: frozenset[str],
) -> MetricResult:
    total_before = _total(before)
    total_after = _total(after)
    numbers = (
        isinstance(total_before, int)
        and isinstance(total_after, int)
        and total_before
        and total_after
    )
    ratio = total_after / total_before if numbers else None
    shown = (_shown([before]), _shown([after]))
    result = MetricResult(
        head.label,
        name,
        "exact",
        unit,
        *shown,
        "same",
        ratio=ratio,
        samples=len(before),
    )
    if before == after:
        return result
    first = next(
        (
            k
            for k, pair in enumerate(zip(before, after, strict=False))
            if pair[0] != pair[1]
        ),
        len(before),
    )
    note = f"differs from epoch {first} on"
    if declared & {"all", head.system}:
        return replace(result, note=f"{note}; declared a new baseline")
    fewer = name in COSTS and total_after < total_before
    return replace(result, decision="improved" if fewer else "regressed", note=note)


def _total(values: list[Any]) -> Any:
    """Return the sum of counts, or the digests as a tuple."""
    known = [value for value in values if value is not None]
    return (
        sum(known) if all(isinstance(value, int) for value in known) else tuple(known)
    )


def _shown(side: Sequence[list[Any]]) -> float | int | str | None:
    if not side:
        return None
    total = _total(side[0])
    return (
        " ".join(str(value).removeprefix("xxh3:")[:8] for value in total)
        if isinstance(total, tuple)
        else total
    )


def _noisy(
    result: MetricResult, good: Sides, paired: bool, exact_only: str
) -> MetricResult | None:
    """Return a metric with its medians and the interval of their ratio; None where
    neither side has it."""
    name = result.name
    each = [[run.noisy[name] for run in runs if name in run.noisy] for runs in good]
    if not any(each):
        return None
    both = samples.paired(good[0], good[1], name) if paired else []
    sides = [list(side) for side in zip(*both, strict=True)] or each
    medians = [median(side) if side else None for side in each]
    result = replace(result, base=medians[0], head=medians[1])
    if name in OFFLINE and max(value or 0.0 for value in medians) < LEAST_OFFLINE_S:
        return None
    if exact_only:
        return replace(result, gates=False, note=exact_only)
    if not sides[0] or not sides[1]:
        return replace(result, note=f"{'head' if sides[0] else 'base'} has none")
    found = ratio_of_means(sides[0], sides[1], paired=bool(both))
    result = replace(
        result,
        ratio=found.value,
        interval=(found.low, found.high),
        interval_kind=found.kind,
    )
    return replace(result, p=found.p, samples=found.samples)


def _corrected(metrics: list[MetricResult], rules: Rules) -> list[MetricResult]:
    """Decide all noisy metrics, with p-values corrected for their number (Holm)."""
    import numpy as np

    open_ = [index for index, metric in enumerate(metrics) if metric.p is not None]
    p_values = np.asarray([metrics[index].p for index in open_], dtype=np.float64)
    weights = weights_of([metrics[index].name for index in open_])
    adjusted = dict(zip(open_, holm(p_values, weights).tolist(), strict=True))
    found = []
    for index, metric in enumerate(metrics):
        if index in adjusted:
            metric = decided(metric, adjusted[index], rules)
        elif metric.interval_kind == "range" and not metric.note:
            count = f"{metric.samples} {'sample' if metric.samples == 1 else 'samples'}"
            metric = replace(
                metric, stage="", note=f"{count} a side, too few to decide"
            )
        found.append(metric)
    return found


def decided(metric: MetricResult, p: float, rules: Rules) -> MetricResult:
    """Decide a noisy metric by its interval and its corrected p-value.

    *regressed* or *improved*: p is below alpha and the ratio moved by the least effect
    or more. *same*: the whole interval lies within the least effect. Else *undecided*.
    """
    assert metric.ratio is not None
    assert metric.interval is not None
    most = 1.0 + rules.min_effect
    decision: Decision = "undecided"
    if p < rules.alpha and metric.ratio >= most:
        decision = "regressed"
    elif p < rules.alpha and metric.ratio <= 1 / most:
        decision = "improved"
    elif metric.interval[0] > 1 / most and metric.interval[1] < most:
        decision = "same"
    return replace(
        metric,
        decision=decision,
        p=p,
        stage=metric.stage if decision in ("regressed", "improved") else "",
    )


def _with_stage(metric: MetricResult, good: Sides) -> MetricResult:
    """Add the stage whose seconds changed most in the epoch's direction."""
    if metric.ratio is None:
        return metric
    names = dict.fromkeys(name for runs in good for run in runs for name in run.stages)
    sign = 1.0 if metric.ratio >= 1 else -1.0

    def change(name: str) -> float:
        before, after = (
            median(run.stages.get(name, 0.0) for run in runs) for runs in good
        )
        return sign * (after - before)

    # `wait` only reflects the delay of another stage.
    likely = max((name for name in names if name != "wait"), key=change, default="")
    return replace(metric, stage=likely if likely and change(likely) > 0 else "")

"""Tables of runs: of one run's epochs and stages, and of several runs, fastest
first."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.cli.run_settings import DIGITS, differing, settings_of
from harness.cli.table import print_lines, print_table
from harness.compare.comparable import shared_setting
from harness.compare.epochs import WHOLE, part_of_epoch
from harness.records.cost import TrainingCost, fresh_epochs_s
from harness.records.hosts import host_name
from harness.records.latency import PERCENTILES, merged, no_latencies, rows
from harness.records.record import COUNTED, Record, RunConfig, Spread, spread
from harness.settings import of_role
from workloads.units import format_bytes

if TYPE_CHECKING:
    from harness.judge.metrics import Metric
# Number of columns of measurements that every table of runs has.
_FIRST = 5
#: Mark of a system whose epochs train on samples of an earlier one: another workload,
#: ranked apart.
REUSED = " (samples reused)"


def number(value: float | None, form: str = ".2f") -> str:
    """Format a number; a dash if it is unknown."""
    return "–" if value is None else format(value, form)


def size(value: int | None) -> str:
    """Format bytes with a unit; a dash if they are unknown."""
    return "–" if value is None else format_bytes(value)


def interval(value: Spread | None) -> str:
    """Format the interval of a median, like `[3.10, 3.40]`; a dash if it is unknown."""
    return "–" if value is None else "[{:.3g}, {:.3g}]".format(*value.interval)


def metric_text(metric: Metric, value: float | None) -> str:
    """Format a metric's number by its unit; a dash if it is unknown."""
    if metric.unit == "bytes":
        return size(None if value is None else int(value))
    return number(value, ".3g" if metric.unit == "s" else ".2f")


def _shown() -> list[Metric]:
    from harness.judge.metrics import METRICS

    return [metric for metric in METRICS if metric.shown]


def print_epochs(record: Record, *, wide: bool) -> None:
    """Print the table of a run's epochs (`wide`: with one column per stage), then that
    of its stages."""
    if not record.epochs:
        return
    stages = list(
        dict.fromkeys(stage for epoch in record.epochs for stage in epoch.stages_s)
    )
    rows = []
    for epoch in record.epochs:
        name = f"{epoch.epoch}{' (warm-up)' if epoch.warmup else ''}"
        times = (
            number(value, ".3f")
            for value in (epoch.seconds, *map(epoch.stages_s.get, stages))
        )
        counts = (
            str(epoch.batches),
            size(epoch.device_bytes),
            number(epoch.device_requests, "d"),
            number(epoch.us_per_row("user_s"), ".1f"),
            number(epoch.us_per_row("system_s"), ".1f"),
        )
        learned = (
            number(value, ".4f")
            for value in (epoch.shown_loss, epoch.accuracy, epoch.test_accuracy)
        )
        rows.append((name, *times, *counts, *learned))
    part = part_of_epoch(record.config.model_dump())
    title = f"{record.system} on {record.config.dataset.name} ({record.run_id})"
    title += f", epochs of the {part}" if part else ""
    heads = (
        "epoch",
        "s",
        *stages,
        "batches",
        "device read",
        "requests",
        "user µs/row",
        "system µs/row",
        "loss",
        "accuracy",
        "test accuracy",
    )
    tested = any(epoch.test_accuracy is not None for epoch in record.epochs)
    print_table(
        heads,
        rows,
        title,
        hidden=[*(() if wide else stages), *(() if tested else ("test accuracy",))],
    )
    if record.measured:
        print_lines("")
        _print_stages(record)
        print_lines("")
        _print_latencies(record)


def _print_stages(record: Record) -> None:
    """Print the table of stages: median seconds per measured epoch in which a stage was
    open, and their share of it.

    Stages of different mini-batches overlap, so shares may add up to more than the
    epoch.
    """
    whole = statistics.median(epoch.seconds for epoch in record.measured)
    rows = []
    for stage in dict.fromkeys(
        stage for epoch in record.measured for stage in epoch.stages_s
    ):
        spent = statistics.median(
            epoch.stages_s.get(stage, 0.0) for epoch in record.measured
        )
        share = spent / whole if whole else 0.0
        rows.append(
            (
                stage,
                f"{spent:.3f}",
                f"{100 * share:5.1f} % {'█' * round(20 * min(1.0, share))}",
            )
        )
    title = "where a measured epoch went (stages overlap)"
    print_table(("stage", "s an epoch", "share of the epoch"), rows, title)


def _print_latencies(record: Record) -> None:
    """Print the table of the latencies of the measured epochs' requests, by direction
    and size, or why there is none."""
    found = rows(merged(epoch.latencies for epoch in record.measured))
    if not found:
        counters = (epoch.counters for epoch in record.measured)
        why = no_latencies(record.system, counters)
        print_lines(f"latency of requests: – ({why})")
        return
    cells = []
    for row in found:
        times_us = [*row.percentiles_s.values(), row.longest_s]
        texts = [f"{1e6 * seconds:,.0f}" for seconds in times_us]
        cells.append((row.direction, row.size_text, f"{row.requests:,}", *texts))
    heads = ("direction", "up to", "requests", *PERCENTILES, "longest")
    title = "latency of the measured epochs' requests, submission to completion, in µs"
    print_table(heads, cells, title)


def summary_lines(record: Record) -> list[str]:
    """Return the lines on a run's status, memory, metrics, verdict and broken rules."""
    memory = record.memory
    summary = record.summary
    lines = [f"status {record.status}{f': {record.reason}' if record.reason else ''}"]
    cap = "no cap"
    if memory.cap_bytes is not None:
        parts = (
            f"floor {size(memory.floor_bytes)} + training {size(memory.training_bytes)}"
        )
        cap = (
            f"cap {size(memory.cap_bytes)} = {parts} + budget "
            f"{size(memory.budget_bytes)}"
        )
    lines.append(f"memory: {cap}; peak {size(memory.peak_bytes)}")
    sizes = f"working set {number(summary.working_set_over_budget)} x memory"
    sizes += f", topology {number(summary.topology_over_budget)} x host budget"
    values = [
        f"{metric.label} {metric_text(metric, getattr(summary, metric.name, None))}"
        for metric in _shown()
    ]
    lines += [
        f"class {record.class_label} ({sizes}); {'; '.join(values)}",
        f"verdict {record.verdict}",
    ]
    lines += [
        f"  rule {rule.rule} {rule.name}: {rule.detail}"
        for rule in record.verdict_rules
        if not rule.ok
    ]
    return lines


def print_headline(records: Sequence[Record], title: str, *, wide: bool) -> None:
    """Print the table with one row per configuration, over all rounds and seeds:
    fastest first in each setting."""
    rounds: dict[str, list[Record]] = {}
    for record in records:
        rounds.setdefault(_configuration(record), []).append(record)
    settings: dict[str, list[list[Record]]] = {}
    for group in sorted(rounds.values(), key=_place):
        settings.setdefault(_setting(group), []).append(group)
    ranked = sorted(settings.values(), key=len, reverse=True)
    print_runs([group for groups in ranked for group in groups], title, wide=wide)


def print_runs(
    groups: Sequence[Sequence[Record]],
    title: str,
    *,
    names: Sequence[str] = (),
    wide: bool,
) -> None:
    """Print a table with one row per group of runs of one configuration: medians over
    their measured epochs.

    Args:
        names: run id of each group; without it, the values of an experiment's grid have
            columns.
        wide: whether to print every column.
    """
    if not groups:
        print_lines(f"{title}: no run")
        return
    settings = [_setting(group) for group in groups]
    best: dict[str, Sequence[Record]] = {}
    for setting, group in zip(settings, groups, strict=True):
        best[setting] = min(best.get(setting, group), group, key=_place)
    rows = [
        _row(group, best[setting])
        for setting, group in zip(settings, groups, strict=True)
    ]
    configs = [group[0].config for group in groups]
    axes = (
        []
        if names and not wide
        else [
            axis for config in configs for axis in config.axes if "options." not in axis
        ]
    )
    # Repetitions with other random draws share a row, so that they are no setting of
    # it.
    repeats = () if names else of_role(RunConfig, "repeat")
    axes = [axis for axis in axes if axis not in repeats]
    hosts = [host_name(group[0].environment, DIGITS) for group in groups]
    labelled = any(group[0].environment.get("host_label") for group in groups)
    in_columns = [*axes, *repeats, *(["host"] if labelled else [])]
    settings_shown = differing([settings_of(group[0]) for group in groups], in_columns)
    reported = {
        axis: [str(config.axes.get(axis, "")) for config in configs] for axis in axes
    }
    reported["dataset"] = [config.dataset.name for config in configs]
    reported["memory"] = [config.memory for config in configs]
    if labelled:
        reported["host"] = hosts
    parts = [part_of_epoch(config.model_dump()) for config in configs]
    if any(parts):
        reported["epoch of"] = [f"the {part}" if part else WHOLE for part in parts]
    columns: dict[str, Sequence[str]] = {"run": names} if names else {}
    systems = zip(_with_options(configs), settings_shown.texts, strict=True)
    columns["system"] = ["; ".join(filter(None, parts)) for parts in systems]
    reused = [REUSED if _replays(group) else "" for group in groups]
    columns["system"] = [
        text + mark for text, mark in zip(columns["system"], reused, strict=True)
    ]
    columns |= {
        head: values for head, values in reported.items() if len(set(values)) > 1
    }
    if len(best) > 1:
        title = f"{title} (× fastest: within the setting whose number is in brackets)"
        for setting, row in zip(settings, rows, strict=True):
            place = list(best).index(setting) + 1
            row["× fastest"] += f" ({place})"
    columns |= {head: [row[head] for row in rows] for head in rows[0]}
    seen = zip(
        *(values for head, values in columns.items() if head != "run"), strict=True
    )
    if len(set(seen)) < len(groups):
        columns["started"] = [
            group[0].started_at[:19].replace("T", " ") for group in groups
        ]
    hidden = [] if wide else [*list(rows[0])[_FIRST:], *(["range"] if names else [])]
    shared = [
        f"{head} {values[0]}"
        for head, values in reported.items()
        if len(set(values)) == 1
    ]
    if settings_shown.usual:
        shared.append(f"mostly {settings_shown.mostly}")
    cells = zip(*columns.values(), strict=True)
    print_table(
        list(columns),
        cells,
        ", ".join([title, *shared]),
        prose=("system",),
        hidden=hidden,
    )


def _row(group: Sequence[Record], best: Sequence[Record]) -> dict[str, str]:
    """Return the cells of a group of runs by head; `best` is the fastest group of its
    setting.

    Only runs that count have times: those of an invalid or spoilt one stand in its
    record (`outcore results show`).
    """
    records = [record.to_json() for record in group]
    cost = TrainingCost.of_runs(records)
    found = spread(fresh_epochs_s(records), of="mean") if cost else None
    least = fresh_epoch_s(best) if _replays(best) == _replays(group) else None
    times = cost.fresh_epoch_s / least if cost and least else None
    labels = (
        (one.status, one.verdict, one.class_label if one.class_ else "–")
        for one in group
    )
    status, verdict, storage = (
        "/".join(dict.fromkeys(reported)) for reported in zip(*labels, strict=True)
    )
    if any(epoch.losses_not_finite for record in group for epoch in record.epochs):
        verdict += ", loss nan"
    medians: dict[str, float | None] = {}
    for metric in _shown():
        values = (getattr(record.summary, metric.name, None) for record in group)
        known = [value for value in values if value is not None]
        medians[metric.name] = statistics.median(known) if known else None
    return {
        "epoch s": f"{cost.fresh_epoch_s:.3g}" if cost else without_time(group),
        "range": interval(found),
        "× fastest": number(times),
        "once+first": number(cost.before_s if cost else None, ".3g"),
        "verdict": verdict,
        "status": status,
        "class": storage,
        **{
            metric.heading or metric.label: metric_text(metric, medians[metric.name])
            for metric in _shown()
        },
    }


def _with_options(configs: Sequence[RunConfig]) -> list[str]:
    """Return the system of each configuration, with those options in which
    configurations of one system differ."""
    values: dict[tuple[str, str], set[str]] = {}
    for config in configs:
        for key, value in config.options.items():
            values.setdefault((config.system, key), set()).add(str(value))
    differ = {place for place, found in values.items() if len(found) > 1}
    return [
        " ".join(
            [
                config.system,
                *(
                    f"{k}={v}"
                    for k, v in config.options.items()
                    if (config.system, k) in differ
                ),
            ]
        )
        for config in configs
    ]


def without_time(group: Sequence[Record]) -> str:
    """Return the reason why a group has no time: the status of its newest run, or its
    verdict where it ended well."""
    newest = max(group, key=lambda record: record.run_id)
    return (
        newest.status
        if newest.status != "ok" or newest.verdict in COUNTED
        else newest.verdict.lower()
    )


def _setting(group: Sequence[Record]) -> str:
    """Return a text that is equal for groups whose times may be compared."""
    return json.dumps(shared_setting(group[0].to_json()), sort_keys=True, default=str)


def fresh_epoch_s(group: Sequence[Record]) -> float | None:
    """Return the mean seconds of an epoch with all of its work; None without a run that
    counts."""
    cost = TrainingCost.of_runs([record.to_json() for record in group])
    return cost.fresh_epoch_s if cost else None


def _replays(group: Sequence[Record]) -> bool:
    """Return whether epochs of a group's runs train on samples of an earlier epoch,
    which is another workload."""
    return any(record.facts.samples_reused for record in group)


def _place(group: Sequence[Record]) -> tuple[bool, bool, float]:
    """Return the order of a group in its setting: runs without a time last, before them
    those that reuse samples."""
    seconds = fresh_epoch_s(group)
    return (seconds is None, _replays(group), seconds or 0.0)


def _configuration(record: Record) -> str:
    """Return a text that is equal for rounds of one configuration, whatever their
    random draws, as in the headline."""
    config = record.config.model_dump(mode="json", include={"options"})
    return json.dumps(
        [record.system, config, shared_setting(record.to_json())],
        sort_keys=True,
        default=str,
    )

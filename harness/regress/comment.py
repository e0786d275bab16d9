"""Comment on a pull request: the answer in the first line, then the metrics that
changed, the others folded."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

from harness.regress.decision import Comparison, Decision, MetricResult
from harness.regress.rows import HEADS, MARK, change, row, shown_first

# Lets a bot find and rewrite its own comment; the last line of one.
MARKER = "<!-- outcore-regress -->"
_ANSWERS: dict[Decision, str] = {
    "regressed": "Regressed",
    "improved": "Not regressed, improved",
    "same": "Not regressed, nothing changed",
    "undecided": "Undecided: the noise hides an answer, or something is missing",
}
_HEADER = f"| {' | '.join(HEADS)} |\n| --- | --: | --: | --: | --- | --- |"
_BARS = "▁▂▃▄▅▆▇█"
# Least range that the bars of a sparkline span, as a share of its smallest value: noise
# must not look like steps.
_LEAST_SPAN = 0.1


def markdown(found: Comparison) -> str:
    """Render a comparison in GitHub's (and GitLab's) Markdown."""
    shown = shown_first(found.metrics)
    first = [metric for metric in shown if metric.decision != "same" and metric.gates]
    rest = [metric for metric in shown if metric not in first]
    hidden = len(found.metrics) - len(shown)
    lines = [f"### {answer(found)}", ""]
    lines += _history(found)
    lines += _sides(found)
    if first:
        lines += [_HEADER, *map(_row, first), ""]
    lines += _folded(rest, hidden)
    lines += [*(f"- {escaped(note)}" for note in found.notes), ""]
    lines += _measured(found)
    return "\n".join(lines).rstrip() + f"\n\n{MARKER}\n"


def answer(found: Comparison) -> str:
    """Return whether head regressed, by how much, in which stage and in which commits,
    in one line of Markdown."""
    opening = f"{MARK[found.decision]} {_ANSWERS[found.decision]}"
    worst = headline(found)
    if worst is None:
        return f"{opening}, in {_range(found)}"
    lead = "; like" if found.decision == "undecided" else ":"
    stage = f", most of it in {escaped(worst.stage)}" if worst.stage else ""
    others = len(_deciding(found)) - 1
    more = f" (and {others} more)" if others else ""
    moved = f"{escaped(worst.metric)} {escaped(change(worst))}"
    return f"{opening}{lead} {moved}{stage}{more}, in {_range(found)}"


def headline(found: Comparison) -> MetricResult | None:
    """Return the gating metric that stands for a decision other than *same*: a failed
    run or a broken rule, else the epoch that moved most, else what moved most."""
    if found.decision == "same":
        return None

    def weight(metric: MetricResult) -> tuple[bool, bool, float]:
        moved = abs(math.log(metric.ratio)) if metric.ratio else 0.0
        return metric.kind == "status", metric.name == "epoch", moved

    return max(_deciding(found), key=weight, default=None)


def _deciding(found: Comparison) -> list[MetricResult]:
    """Return the gating metrics whose decision is that of the comparison."""
    return [
        metric
        for metric in found.metrics
        if metric.gates and metric.decision == found.decision
    ]


def _range(found: Comparison) -> str:
    """Return the commits that are compared, in git's notation and with their number;
    the names of the sides where they are no commits."""
    commits = found.details.get("commits")
    if not commits:
        return f"{escaped(found.head)} against {escaped(found.base)}"
    between = found.details.get("range")
    ends = f"{commits['base'][:9]}..{commits['head'][:9]}"
    if between is None:
        return ends
    return f"{ends} ({len(between)} {'commit' if len(between) == 1 else 'commits'})"


def _history(found: Comparison) -> list[str]:
    """Return a line with the last baselines of the headline's cell, or of the longest
    history where no metric changed; none without baselines."""
    baselines: dict[str, list[float]] = found.details.get("baselines") or {}
    worst = headline(found)
    longest = max(baselines, key=lambda name: len(baselines[name]), default="")
    cell = worst.cell if worst is not None else longest
    values = baselines.get(cell, [])
    if len(values) < 2:
        return []
    text = f"{escaped(cell)} epoch in the last {len(values)} baselines"
    ends = f"{min(values):.3g} to {max(values):.3g} s"
    return [f"{text}: {sparkline(values)} ({ends}, newest last)", ""]


def sparkline(values: Sequence[float]) -> str:
    """Return one bar a value, from the smallest to the largest; a range below 10 %
    fills a part of the height only."""
    low = min(values)
    span = max(max(values) - low, _LEAST_SPAN * low)
    if span <= 0.0:
        return _BARS[0] * len(values)
    steps = [round((value - low) / span * (len(_BARS) - 1)) for value in values]
    return "".join(_BARS[step] for step in steps)


def _sides(found: Comparison) -> list[str]:
    links = found.details.get("links") or {}
    lines = []
    for side, name in (("base", found.base), ("head", found.head)):
        text = escaped(name)
        linked = f"[{text}]({links[side]})" if side in links else text
        lines.append(f"{side.capitalize()} {linked}  ")
    return [lines[0], lines[1].rstrip(), ""]


def _folded(rest: Sequence[MetricResult], hidden: int) -> list[str]:
    """Return the metrics that did not change, folded, and the number of equal facts."""
    if not rest:
        return (
            [f"{hidden} exact facts and statuses are the same.", ""] if hidden else []
        )
    same = f", and {hidden} exact facts and statuses that are the same"
    summary = f"{len(rest)} more{same if hidden else ''}"
    return [
        "<details>",
        f"<summary>{summary}</summary>",
        "",
        _HEADER,
        *map(_row, rest),
        "",
        "</details>",
        "",
    ]


def _measured(found: Comparison) -> list[str]:
    """Return a line on the measurement: pairs, seconds, rules and the CI's run."""
    pairs = found.details.get("pairs")
    if not pairs:
        return []
    rules = found.details["rules"]
    run = (found.details.get("links") or {}).get("run")
    seconds = found.details["seconds"]
    counts = f"{min(pairs)} to {max(pairs)} pairs of runs a cell"
    effect = f"least effect {100 * rules['min_effect']:g} %"
    alpha = f"decided at alpha = {rules['alpha']:g} over all metrics together (Holm)"
    text = (
        f"{counts} in {seconds:.0f} s; {effect}, 95 % intervals of the mean log-ratio, "
        f"{alpha}. Exact counters and digests by equality."
    )
    return [f"<sub>{text}{f' [This run]({run}).' if run else ''}</sub>"]


def _row(metric: MetricResult) -> str:
    return "| " + " | ".join(map(escaped, row(metric))) + " |"


def escaped(text: str) -> str:
    """Escape text from commits and records, so that it adds no markup and no table
    row."""
    visible = (letter if letter.isprintable() else " " for letter in text)
    plain = html.escape("".join(visible), quote=False)
    return re.sub(r"[\\`*_\[\]|]", r"\\\g<0>", plain).replace("@", "@\u200b")

"""A comparison as a pull-request comment in GitHub's (and GitLab's) Markdown."""

from __future__ import annotations

import html

from harness.regress.decision import Comparison, MetricResult
from harness.regress.outputs.words import HEADS, MARK, row, shown_first

# Lets a bot find and rewrite its own comment.
MARKER = "<!-- outcore-regress -->"
_SAID = {
    "regressed": "**Regressed.**",
    "improved": "**Improved.**",
    "same": "**Nothing changed.**",
    "undecided": "**Undecided:** the noise hides an answer, or something is missing.",
}
_HEADER = f"| {' | '.join(HEADS)} |\n| --- | --: | --: | --: | --- | --- |"


def render(found: Comparison) -> str:
    """Render the decision, a table of the metrics that changed, the others folded, and the measurement."""
    shown = shown_first(found.metrics)
    first = [metric for metric in shown if metric.decision != "same" and metric.gates]
    rest = [metric for metric in shown if metric not in first]
    hidden = len(found.metrics) - len(shown)
    lines = [MARKER, f"### Outcore: {MARK[found.decision]} {found.decision}", "", _SAID[found.decision], ""]
    lines += [f"Base {_side(found, 'base')}  ", f"Head {_side(found, 'head')}", ""]
    if first:
        lines += [_HEADER, *map(_row, first), ""]
    if rest:
        summary = f"{len(rest)} more" + (f", and {hidden} exact facts and statuses that are the same" if hidden else "")
        lines += ["<details>", f"<summary>{summary}</summary>", "", _HEADER, *map(_row, rest), "", "</details>", ""]
    elif hidden:
        lines += [f"{hidden} exact facts and statuses are the same.", ""]
    lines += [f"- {_text(note)}" for note in found.notes]
    lines += ["", _measured(found)]
    return "\n".join(lines).rstrip() + "\n"


def _side(found: Comparison, side: str) -> str:
    text = _text(found.base if side == "base" else found.head)
    link = (found.details.get("links") or {}).get(side)
    return f"[{text}]({link})" if link else text


def _row(metric: MetricResult) -> str:
    return "| " + " | ".join(map(_text, row(metric))) + " |"


def _text(text: str) -> str:
    """Escape text from commits and records, so that it adds no markup and no table row."""
    plain = html.escape("".join(letter if letter.isprintable() else " " for letter in text), quote=False)
    for letter in "\\`*_[]|@":
        plain = plain.replace(letter, f"\\{letter}" if letter != "@" else "@\u200b")
    return plain


def _measured(found: Comparison) -> str:
    details = found.details
    if "pairs" not in details:
        return ""
    rules = details["rules"]
    pairs = details["pairs"]
    run = (details.get("links") or {}).get("run")
    text = (
        f"{min(pairs)} to {max(pairs)} pairs of runs a cell in {details['seconds']:.0f} s; least effect "
        f"{100 * rules['min_effect']:g} %, 95 % intervals of the ratio of medians, decided at alpha = "
        f"{rules['alpha']:g} over all metrics together (Holm). Exact counters and digests by equality."
    )
    return f"<sub>{text}{f' [This run]({run}).' if run else ''}</sub>"

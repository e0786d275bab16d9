"""Pages of docs: the rules, generated from their docstrings, and the metrics, generated
from their table.

`python -m harness.judge.page > docs/methodology.md` and `python -m harness.judge.page
metrics > docs/metrics.md`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable

from harness.judge.metrics import METRICS
from harness.judge.registry import Rule, rules

_HEAD = """# The rules of the verdict

Every run gets a verdict. `INVALID`: a rule that invalidates is broken; the run is kept
and never drawn. `SPOILT`: other programs took so much of the machine that the run's
times are no result; it is never drawn either, and the bench makes it again. `CAVEATS`:
another rule is broken, or one that applies could not be judged. Else `VALID`. Rules
look at nothing but the run's own record, so a record is judged anew whenever it is
read.

A run is judged by readings from outside its memory cap: counters of the cap and of the
disk at every gate (after the preparation, at both ends of each epoch), the page cache
of its files, its open files (at gates and once a second), the orchestrator's own clock,
and feature rows that are drawn when an epoch begins. [The threat
model](threat-model.md) lists what a worker cannot do, what these rules detect, what
they do not, and what is trusted.

`tests/harness/cheats/` breaks each rule on purpose. This page is made from the rules
(`harness/judge/`): `python -m harness.judge.page > docs/methodology.md`. In a terminal
`outcore rules 9` prints one.
"""

_METRICS = """# The metrics of a run

Numbers that `outcore` derives from a run's readings: keys of `summary` in a record,
columns `summary.<name>` of `outcore results export`. Made from the table in
`harness/judge/metrics.py`, in which a new metric is one entry: `python -m
harness.judge.page metrics > docs/metrics.md`.

| name | shown as | unit | better | what it is |
| --- | --- | --- | --- | --- |
"""


def metrics_page() -> str:
    """Return the page of all metrics as Markdown."""
    rows = (
        (f"`{m.name}`", m.label, m.unit, m.better, linked(m.meaning, _link))
        for m in METRICS
    )
    return _METRICS + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def reason_of(entry: Rule) -> str:
    """Return why a rule is there and how it is judged, as Markdown paragraphs."""
    return inspect.getdoc(entry.check) or ""


def linked(text: str, link: Callable[[str, str], str]) -> str:
    """Replace each mention of a rule's number (`rule 9`, `rules 7 and 11`) by a link to
    its entry.

    Args:
        text: any text.
        link: function from the text of the link and the rule's number to the link.
    """
    known = {entry.number for entry in rules()}

    def mention(found: re.Match[str]) -> str:
        whole = re.sub(
            r"\d+",
            lambda one: link(one[0], one[0]) if one[0] in known else one[0],
            found[0],
        )
        one = re.fullmatch(r"[Rr]ule\s(\d+)", found[0])
        return link(found[0], one[1]) if one and one[1] in known else whole

    return re.sub(r"\b[Rr]ules?\s\d+(?:(?:,\s|\sand\s)\d+)*", mention, text)


def _link(text: str, number: str) -> str:
    return f"[{text}](methodology.md#rule-{number})"


def page() -> str:
    """Return the page as Markdown: the rules by number, each with its name, severity,
    reason and method."""
    parts = [_HEAD]
    number = ""
    for entry in rules():
        if entry.number != number:
            number = entry.number
            parts.append(f"## Rule {number}\n")
        reason = linked(
            reason_of(entry), lambda text, number: f"[{text}](#rule-{number})"
        )
        parts.append(f"### `{entry.name}`\n\n{entry.severity}. {reason}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(metrics_page() if sys.argv[1:] == ["metrics"] else page())

"""Pages of docs: the rules, generated from their docstrings, and the metrics, generated from their table.

`python -m harness.judge.page > docs/methodology.md` and `python -m harness.judge.page metrics > docs/metrics.md`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable

from harness.judge.metrics import METRICS
from harness.judge.registry import Rule, rules

_HEAD = """# The rules of the verdict

Every run gets a verdict. `INVALID`: a rule that invalidates is broken; the run is kept and never drawn. `SPOILT`: other
programs took so much of the machine that the run's times say nothing; it is never drawn either, and the bench makes it
again. `CAVEATS`: another rule is broken, or one that applies could not be judged. Else `VALID`. Rules look at nothing
but the run's own record, so a record is judged anew whenever it is read.

What a run is judged by is read from outside its memory cap: counters of the cap and of the disk at every gate (after
the preparation, at both ends of each epoch), what the page cache holds of its files, which files it has open (at gates
and once a second), the orchestrator's own clock, and rows of features that are drawn when an epoch begins. A system is
code in the worker's own process: one that rewrites the harness there can report anything, and only the readings from
outside contradict it. The worker is in a sandbox: [the threat model](threat-model.md) says what is impossible there,
what is detected and what is trusted. A run without a sandbox has a caveat.

Not detected: a worker that looks up in the harness's objects which mini-batches are checked, and reads other bytes for
the rest; device memory that CUDA gives past torch; memory of an emulated device that is used through the harness's own
mapping; a step on a real device that trains less; and a module that changes the orchestrator, which imports a system
for its description. Read the code of a system from elsewhere before you trust its numbers.

A record is sealed by digests over its parts and tables. A seal is not a signature: it detects a number that was
changed. If the seal is computed again, the parts must still agree (gates, epochs, counters, rows); a change of all of
them alike is not detected. To verify a record, run its configuration again.

`tests/harness/cheats/` holds systems and edits of records that break these rules on purpose; `make test` shows that
each is caught. This page is made from the rules (`harness/judge/`):
`python -m harness.judge.page > docs/methodology.md`. In a terminal `outcore rules 9` prints one.
"""

_METRICS = """# The metrics of a run

Numbers that `outcore` derives from a run's readings: keys of `summary` in a record, columns `summary.<name>` of
`outcore results export`. Made from the table in `harness/judge/metrics.py`, in which a new metric is one entry:
`python -m harness.judge.page metrics > docs/metrics.md`.

| name | shown as | unit | better | what it is |
| --- | --- | --- | --- | --- |
"""


def metrics_page() -> str:
    """Return the page of all metrics as Markdown."""
    rows = ((f"`{m.name}`", m.label, m.unit, m.better, linked(m.meaning, _link)) for m in METRICS)
    return _METRICS + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def reason_of(entry: Rule) -> str:
    """Return why a rule is there and how it is judged, as Markdown paragraphs."""
    return inspect.getdoc(entry.check) or ""


def linked(text: str, link: Callable[[str, str], str]) -> str:
    """Replace each mention of a rule's number (`rule 9`, `rules 7 and 11`) by a link to its entry.

    Args:
        text: any text.
        link: function from the text of the link and the rule's number to the link.
    """
    known = {entry.number for entry in rules()}

    def mention(found: re.Match[str]) -> str:
        whole = re.sub(r"\d+", lambda one: link(one[0], one[0]) if one[0] in known else one[0], found[0])
        one = re.fullmatch(r"[Rr]ule\s(\d+)", found[0])
        return link(found[0], one[1]) if one and one[1] in known else whole

    return re.sub(r"\b[Rr]ules?\s\d+(?:(?:,\s|\sand\s)\d+)*", mention, text)


def _link(text: str, number: str) -> str:
    return f"[{text}](methodology.md#rule-{number})"


def page() -> str:
    """Return the page as Markdown: the rules by number, each with its name, severity, reason and method."""
    parts = [_HEAD]
    number = ""
    for entry in rules():
        if entry.number != number:
            number = entry.number
            parts.append(f"## Rule {number}\n")
        reason = linked(reason_of(entry), lambda text, number: f"[{text}](#rule-{number})")
        parts.append(f"### `{entry.name}`\n\n{entry.severity}. {reason}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(metrics_page() if sys.argv[1:] == ["metrics"] else page())

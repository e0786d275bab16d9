"""Caveats of runs in words: the sentence of a caption for each rule that drawn runs
break."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from harness.figures.draw.words import in_words
from workloads.arraytypes import JsonDict

#: Rules that leave a run drawn, by name, and what breaking them means: `{most}` is the
#: largest number of the runs' findings, `{systems}` the systems whose runs break it.
WORDS = {
    "within_the_class_at_every_moment": (
        "short bursts read at up to {most} times the SSD class's rate"
    ),
    "within_the_shared_budget": (
        "reads and writes together reach {most} times the SSD class's rate"
    ),
    "no_cache_below_the_kernel": (
        "a cache below the kernel serves blocks that were read before"
    ),
    "device_profile_was_quiet": (
        "other programs took up to {most} % of the machine while the disk was profiled"
    ),
    "disk_was_quiet": (
        "the disk was shared with other programs for up to {most} % of the time"
    ),
    "processors_were_quiet": (
        "other programs took up to {most} % of the processors' time"
    ),
    "mini_batches_equal_the_workload": (
        "mini-batches of {systems} are not the workload's"
    ),
    "training_is_the_workloads": (
        "{systems} trained with other code than the workload's"
    ),
    "disk_class_was_enforced": "the SSD class was not enforced",
    "evidence_is_kept": "recorded by an older version and not judged again",
    "warmed_up": "measured without a warm-up epoch",
    "code_is_committed": "run with uncommitted code",
}
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def broken_rules(record: JsonDict) -> list[str]:
    """Return number and name of each rule that a run breaks."""
    return [
        f"rule {outcome['rule']} {outcome['name'].replace('_', ' ')}"
        for outcome in _broken(record)
    ]


def caveats(records: Sequence[JsonDict]) -> str:
    """Return what the rules that runs break mean, in words; empty without any."""
    found: dict[str, list[tuple[JsonDict, JsonDict]]] = {}
    for record in records:
        for outcome in _broken(record):
            found.setdefault(outcome["name"], []).append((record, outcome))
    return ", ".join(_clause(name, broken) for name, broken in found.items())


def _broken(record: JsonDict) -> list[JsonDict]:
    return [one for one in record.get("verdict_rules", []) if not one["ok"]]


def _clause(name: str, broken: Sequence[tuple[JsonDict, JsonDict]]) -> str:
    """Return the words of one rule over the runs that break it."""
    details = [str(outcome.get("detail", "")) for _, outcome in broken]
    unknown = [outcome for _, outcome in broken if not outcome.get("known", True)]
    if unknown or name not in WORDS:
        reason = next(filter(None, details), "not kept")
        return f"“{name.replace('_', ' ')}” {reason}"
    systems = dict.fromkeys(record["system"] for record, _ in broken)
    return WORDS[name].format(most=_most(details), systems=in_words(list(systems)))


def _most(details: Sequence[str]) -> Any:
    """Return the largest number at the beginning of findings as text."""
    numbers = [found.group() for text in details if (found := _NUMBER.search(text))]
    values = [float(number.replace(",", "")) for number in numbers]
    return f"{max(values):.3g}" if values else "some"

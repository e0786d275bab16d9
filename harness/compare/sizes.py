"""Sizes of runs' data beside their memory (rule 7), in words: the one text for captions
and headings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

#: Words for a class of runs: for the only one, for the smallest of several, and for the
#: largest.
SIZES = {
    "fits memory": ("fits memory", "fitting memory", ""),
    "mixed": (
        "is between one and two times the memory",
        "exceeding memory",
        "less than twice it",
    ),
    "storage-bound": ("", "", "at least twice it"),
}


def data_sizes(classes: Collection[str]) -> str:
    """Return a sentence on the sizes of data beside memory, without its end; nothing if
    all runs are storage-bound."""
    found = [words for name, words in SIZES.items() if name in classes]
    if len(found) > 1:
        return f"Across runs, the data ranges from {found[0][1]} to {found[-1][2]}"
    alone = found[0][0] if found else ""
    return f"In every run the data {alone}: not storage-bound" if alone else ""


def sizes_of(records: Sequence[Mapping[str, Any]]) -> str:
    """Return clauses on data and graph beside the memory of runs, for a caption; empty
    without a known class."""
    known = [record for record in records if record.get("class")]
    if not known:
        return ""
    classes = {record["class"] for record in known}
    found = [words for name, words in SIZES.items() if name in classes]
    alone = found[0][0] if found else ""
    data = f"the data {alone or 'is at least twice the memory'}"
    if len(found) > 1:
        data = f"the data ranges from {found[0][1]} to {found[-1][2]}"
    clauses = [data]
    ratios = [
        (record.get("summary") or {}).get("topology_over_budget") or 0.0
        for record in known
    ]
    outside = sum(ratio > 1.0 for ratio in ratios)
    if outside:
        some = f"in {outside} of {len(known)} runs " if outside < len(known) else ""
        clauses.append(f"{some}the graph alone exceeds it")
    return " and ".join(clauses)

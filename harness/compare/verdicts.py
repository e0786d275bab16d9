"""Runs that do not count, in words, and the reason why a figure is not drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

#: End of a text on runs that do not count.
LEFT_OUT = " left out"


def uncounted_text(verdicts: Iterable[str]) -> str:
    """Return the number of runs that do not count, by reason, like `2 invalid runs and
    1 run spoilt by other programs`.

    Args:
        verdicts: verdict of each of these runs.
    """
    counts = Counter(verdicts)
    spoilt = counts.pop("SPOILT", 0)
    invalid = counts.total()
    parts = [f"{invalid} invalid run{'s' * (invalid != 1)}"] if invalid else []
    parts += (
        [f"{spoilt} run{'s' * (spoilt != 1)} spoilt by other programs"]
        if spoilt
        else []
    )
    return " and ".join(parts)


class NotDrawn(Exception):
    """The records do not hold the data of a figure; the text names the missing part."""


def with_uncounted(reason: Exception, verdicts: Iterable[str]) -> str:
    """Return the text of a `NotDrawn` with the number of runs that do not count, unless
    it names them already.

    Args:
        verdicts: verdict of each of these runs.
    """
    text = str(reason)
    uncounted = uncounted_text(verdicts)
    return (
        f"{text} ({uncounted}{LEFT_OUT})"
        if uncounted and LEFT_OUT not in text
        else text
    )

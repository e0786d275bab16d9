"""Progress of long work: a function of the stage and of its done fraction."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]


def no_progress(stage: str, fraction: float) -> None:
    """Report nothing."""

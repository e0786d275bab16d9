"""How much of an epoch a run trains, in words: the one text for axes, titles, sentences
and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: Words of a whole epoch in a column of parts.
WHOLE = "all mini-batches"


def mini_batches(config: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return the mini-batches of a run's epoch on each rank, 0 for all, and those of a
    whole epoch.

    Args:
        config: configuration of a record as plain data, or the parameters of a study
            with their `dataset`.

    Returns:
        The second number is None where the record does not hold it: of an older record
            without the number of training
        nodes, and of training nodes that are partitioned among ranks.
    """
    most = int(config.get("max_batches") or 0)
    train = int((config.get("dataset") or {}).get("train_nodes") or 0)
    ranks = int(config.get("ranks") or 1)
    if not train or config.get("partition", "none") != "none":
        return most, None
    steps, rest = divmod(train, int(config["batch_size"]) * ranks)
    whole = steps + (rest >= ranks)
    return (0 if most >= whole else most), whole


def part_of_epoch(config: Mapping[str, Any]) -> str:
    """Return the part of an epoch that a run trains, like `first 16 of 400
    mini-batches`; empty for a whole one."""
    return _text(*mini_batches(config))


def part_of_epochs(configs: Iterable[Mapping[str, Any]]) -> str:
    """Return the part of an epoch that several runs train: one text for equal parts,
    else the range of their shares."""
    known = [mini_batches(config) for config in configs]
    texts = dict.fromkeys(_text(most, whole) for most, whole in known)
    if len(texts) <= 1:
        return next(iter(texts), "")
    if any(most and whole is None for most, whole in known):
        return "first mini-batches"
    shares = sorted(
        100 * most / whole if most and whole else 100.0 for most, whole in known
    )
    ends = dict.fromkeys(
        f"{share:.2g}" if share < 99.5 else "100" for share in (shares[0], shares[-1])
    )
    return f"first {' to '.join(ends)} % of the mini-batches"


def with_part(text: str, part: str) -> str:
    """Return a text in which `an epoch` is followed by the part that was trained, if
    any; its first mention alone."""
    return text.replace(" an epoch", f" an epoch of the {part}", 1) if part else text


def _text(most: int, whole: int | None) -> str:
    if not most:
        return ""
    return (
        f"first {most:,} mini-batches"
        if whole is None
        else f"first {most:,} of {whole:,} mini-batches"
    )

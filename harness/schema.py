"""Run records that an older Outcore wrote: brought to today's schema, one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.record import SCHEMA
from workloads.errors import InputError

Plain = dict[str, Any]

# Schema n -> the function that makes n + 1 of it. Whoever raises SCHEMA adds the step: old records stay readable.
# 1 -> 2: fingerprints of the code, readings of gates, checked rows and the seal came; an older record has none of them.
UPGRADES: dict[int, Callable[[Plain], Plain]] = {1: lambda content: content}


class SchemaError(InputError):
    """A record of a schema that this version cannot read; the record itself may be whole."""


def upgraded(content: Plain, where: str) -> Plain:
    """`content` in today's schema.

    Args:
        content: what `record.json` holds.
        where: the file, for messages.

    Raises:
        SchemaError: it is newer than this version, or no step leads from it to today's.
    """
    found = content.get("schema")
    if not isinstance(found, int) or isinstance(found, bool):
        raise InputError(f"{where} is not a run record: it has no schema number", "remove the run's folder")
    if found > SCHEMA:
        raise SchemaError(
            f"{where} has schema {found}, this version reads schema {SCHEMA}",
            "read it with the version of Outcore that wrote it, or a later one",
        )
    while found < SCHEMA:
        step = UPGRADES.get(found)
        if step is None:
            raise SchemaError(
                f"{where} has schema {found}, this version reads schema {SCHEMA} and knows no way from the older one",
                "read it with the version of Outcore that wrote it",
            )
        content = {**step(content), "schema": found + 1}
        found += 1
    return content

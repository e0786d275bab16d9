"""Upgrades of run records of an older Outcore to today's schema, one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.records.record import SCHEMA
from workloads.errors import InputError

Plain = dict[str, Any]

# Upgrade from schema n to n + 1, by n. A change that raises SCHEMA adds a step here, so that old records stay readable.
# 1 -> 2 added fingerprints of the code, readings of gates, checked rows and the seal, absent in older records.
UPGRADES: dict[int, Callable[[Plain], Plain]] = {1: lambda content: content}


class SchemaError(InputError):
    """Error for a record of a schema that this version cannot read; the record itself may be whole."""


def upgraded(content: Plain, where: str) -> Plain:
    """Upgrade the `content` of a record to today's schema; `where` names the file in messages.

    Raises:
        InputError: the content has no schema number.
        SchemaError: the schema is newer than this version, or too old for the known steps.
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

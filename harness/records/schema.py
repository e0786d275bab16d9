"""Upgrades of run records of an older Outcore to today's schema, one step after the
other."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.records.record import SCHEMA
from workloads.arraytypes import JsonDict
from workloads.errors import InputError

# Upgrade from schema n to n + 1, by n. A change that raises SCHEMA adds a step here, so
# that old records stay readable. 1 -> 2 added fingerprints of the code, readings of
# gates, checked rows and the seal, absent in older records. 2 -> 3 added facts, which
# older records have as text in their notes. 3 -> 4 renamed the class `cached`, of runs
# that may read all the time. 4 -> 5 added the part of the preparation that serves
# single epochs, which `diskgnn` alone had.
UPGRADES: dict[int, Callable[[JsonDict], JsonDict]] = {
    1: lambda content: content,
    2: lambda content: {**content, "facts": facts_of_notes(content.get("notes") or {})},
    3: lambda content: (
        {**content, "class": "fits memory"}
        if content.get("class") == "cached"
        else content
    ),
    4: lambda content: with_offline_work(content),
}
# Facts of single systems that older records have as notes of the same name.
_COUNTS = ("segment", "threshold", "disk_bytes", "pack_read_bytes")
_REALS = ("read_amplification", "search_s", "pack_s", "reorder_s")


class SchemaError(InputError):
    """Error for a record of a schema that this version cannot read; the record itself
    may be whole."""


def upgraded(content: JsonDict, where: str) -> JsonDict:
    """Upgrade the `content` of a record to today's schema; `where` names the file in
    messages.

    Raises:
        InputError: the content has no schema number.
        SchemaError: the schema is newer than this version, or too old for the known
            steps.
    """
    found = content.get("schema")
    if not isinstance(found, int) or isinstance(found, bool):
        raise InputError(
            f"{where} is not a run record: it has no schema number",
            "remove the run's folder",
        )
    if found > SCHEMA:
        fix = "read it with the version of Outcore that wrote it, or a later one"
        raise SchemaError(
            f"{where} has schema {found}, this version reads schema {SCHEMA}", fix
        )
    while found < SCHEMA:
        step = UPGRADES.get(found)
        if step is None:
            message = (
                f"{where} has schema {found}, this version reads schema {SCHEMA} and "
                "knows no way from the older one"
            )
            raise SchemaError(
                message, "read it with the version of Outcore that wrote it"
            )
        content = {**step(content), "schema": found + 1}
        found += 1
    return content


def with_offline_work(content: JsonDict) -> JsonDict:
    """Return a record of schema 4 with the preparation's part for single epochs.

    The first episode of `diskgnn` was made in its preparation, which had hardly any
    other work after the plan; its note `epochs_prepared` names the sampled epochs.
    Other systems prepared once.
    """
    notes = content.get("notes") or {}
    options = (content.get("config") or {}).get("options") or {}
    spent = content.get("preprocess") or {}
    drawn = notes.get("epochs_prepared")
    if content.get("system") == "outcore" and options.get("replay"):
        return {
            **content,
            "facts": {**(content.get("facts") or {}), "samples_reused": True},
        }
    if content.get("system") != "diskgnn" or not drawn:
        return content
    every = int(options.get("resample_every", 1))
    facts = {**(content.get("facts") or {}), "samples_reused": every != 1}
    if every == 0:
        return {**content, "facts": facts}
    served = every * len(drawn.split(","))
    known = int((content.get("config") or {}).get("epochs") or served)
    moved = (
        "bytes_read",
        "bytes_written",
        "made_s",
        "made_bytes_read",
        "made_bytes_written",
    )
    offline = {name: spent[name] for name in moved if name in spent}
    offline["seconds"] = max(
        0.0, float(spent.get("seconds", 0.0)) - float(spent.get("planning_s", 0.0))
    )
    offline["epochs"] = min(served, known)
    return {**content, "facts": facts, "preprocess": {**spent, "offline": offline}}


def facts_of_notes(notes: dict[str, str]) -> JsonDict:
    """Return the facts that the notes of a record of schema 2 state."""
    found: JsonDict = {name: int(notes[name]) for name in _COUNTS if name in notes}
    found |= {name: float(notes[name]) for name in _REALS if name in notes}
    if "io" in notes:
        found["io"] = notes["io"]
    if "reads_in" in notes:
        found["reads_in"] = notes["reads_in"].split("+")
    if "prepared" in notes:
        found["prepared_reused"] = notes["prepared"] == "reused"
    if "test_extract_wait_s" in notes:
        found["test_clock"] = (
            f"{notes['test_extract_wait_s']} s added to every mini-batch"
        )
    if rows := re.match(
        r"(\d+) of (\d+) rows", notes.get("device_cache", notes.get("hot_rows", ""))
    ):
        found |= {"cached_rows": int(rows[1]), "table_rows": int(rows[2])}
    return found

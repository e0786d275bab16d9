"""Rules 23, 28 and 29: a record suffices to repeat the run, and is unchanged since it was written."""

from __future__ import annotations

from harness.judge.registry import Finding, RunContext, rule, unknown
from harness.records.record import Record

NEEDED = ("code.commit", "versions.python", "versions.torch", "kernel.release", "disk.file_system")


@rule("23", "provenance_is_complete", "CAVEATS")
def provenance_is_complete(record: Record, context: RunContext) -> Finding | None:
    """A number that cannot be reproduced is no evidence.

    Checks that the environment has commit, versions of Python and torch, kernel and file system.
    """
    missing = [name for name in NEEDED if _at(record.environment, name) in (None, "")]
    return Finding(not missing, "missing: " + ", ".join(missing) if missing else "complete")


@rule("23", "code_is_committed", "CAVEATS")
def code_is_committed(record: Record, context: RunContext) -> Finding | None:
    """The commit in a record identifies the code that ran only if there were no uncommitted changes."""
    dirty = _at(record.environment, "code.dirty")
    if dirty is None:
        return unknown("this is no git checkout")
    return Finding(not dirty, "uncommitted changes" if dirty else str(_at(record.environment, "code.commit"))[:12])


@rule("23", "nothing_was_slowed_on_purpose")
def nothing_was_slowed_on_purpose(record: Record, context: RunContext) -> Finding | None:
    """Runs that are slowed on purpose, to test the regression gate, are no measurement of a system.

    Checks for the fact that the run had a stage clock for tests, which may spin in extract.
    """
    clock = record.facts.test_clock
    return Finding(clock is None, f"its stage clock was that of a test: {clock}" if clock else "")


@rule("23", "host_keeps_its_promises", "CAVEATS")
def host_keeps_its_promises(record: Record, context: RunContext) -> Finding | None:
    """Each limitation of the isolation backend on this host weakens a rule, so it is a caveat."""
    return Finding(not record.caveats, "; ".join(record.caveats))


@rule("28", "code_is_known", "CAVEATS")
def code_is_known(record: Record, context: RunContext) -> Finding | None:
    """Runs of different code are never averaged; a run of unknown code is averaged with no other.

    Checks for the fingerprints of the system's sources and of the measuring harness.
    """
    known = bool(record.code.system and record.code.harness)
    return Finding(known, f"system {record.code.system}, harness {record.code.harness}" if known else "no fingerprint")


@rule("29", "evidence_is_kept", "CAVEATS")
def evidence_is_kept(record: Record, context: RunContext) -> Finding | None:
    """A verdict that cannot be derived again from the record's parts cannot be verified.

    Records of older versions hold no readings of gates, no checked rows and no seal.
    """
    return Finding(record.evidence is not None, "" if record.evidence else "made by an older version: not judged anew")


@rule("29", "record_is_sealed", evidence=True)
def record_is_sealed(record: Record, context: RunContext) -> Finding | None:
    """A number that was changed after it was written is no measurement.

    Checks the seal: digests over `record.json` and the run's tables, written last.
    """
    return Finding(not context.unsealed, context.unsealed or "as it was written")


def _at(tree: object, path: str) -> object:
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree

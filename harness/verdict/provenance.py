"""Rule 23: a record holds what is needed to run it again."""

from __future__ import annotations

from harness.context import RunContext
from harness.record import Record
from harness.verdict.registry import Finding, rule

NEEDED = ("git_commit", "python", "kernel", "torch")


@rule("23", "provenance_is_complete", "CAVEATS")
def provenance_is_complete(record: Record, context: RunContext) -> Finding | None:
    """A number nobody can make again is hearsay.

    Looks for commit, Python, kernel and torch versions in the environment.
    """
    missing = [name for name in NEEDED if not _find(record.environment, name)]
    return Finding(not missing, "missing: " + ", ".join(missing) if missing else "complete")


@rule("23", "host_keeps_its_promises", "CAVEATS")
def host_keeps_its_promises(record: Record, context: RunContext) -> Finding | None:
    """What the isolation backend cannot do on this host bends some rule; it is named."""
    caveats = context.isolation_caveats
    return Finding(not caveats, "; ".join(caveats))


def _find(tree: object, name: str) -> bool:
    if isinstance(tree, dict):
        return any((key == name and value not in (None, "")) or _find(value, name) for key, value in tree.items())
    return False

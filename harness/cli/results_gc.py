"""`outcore results gc`: remove runs, figure files and artefacts that no figure needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.common import OnBoth, print_json

if TYPE_CHECKING:
    from harness.results.artefacts import ArtefactInfo


def gc(
    call: OnBoth,
    failed: Annotated[bool, typer.Option("--failed", help="remove failed runs too")] = False,
    damaged: Annotated[bool, typer.Option("--damaged", help="remove runs whose record cannot be read too")] = False,
    artefacts: Annotated[bool, typer.Option("--artefacts", help="remove what systems prepared too, all of it")] = False,
    keep: Annotated[str | None, typer.Option(help="with --artefacts: keep those used last, up to 4GiB")] = None,
    unused_days: Annotated[float | None, typer.Option(help="with --artefacts: only those not used for as long")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
) -> None:
    """Remove half-written and replaced runs and figure files of no figure; failed and damaged runs where asked."""
    from harness.figures.base import catalogue
    from harness.results.gc import doomed, remove
    from workloads.errors import InputError

    if not artefacts and (keep is not None or unused_days is not None):
        raise InputError("--keep and --unused-days are about artefacts", "add --artefacts")
    prepared = _artefacts(call.data_root, keep, unused_days, dry_run=dry_run) if artefacts else []
    found = doomed(call.results_root, catalogue(), failed=failed, damaged=damaged)
    if not dry_run:
        remove(call.results_root, found)
    if call.json:
        removed: list[dict[str, Any]] = [{"name": entry.path.name, "why": entry.why} for entry in found]
        gone = [{"system": info.system, "name": info.key, "bytes": info.bytes} for info in prepared]
        names = [entry["name"] for entry in removed]
        print_json({"removed": names, "why": removed, "artefacts": gone, "dry_run": dry_run})
    elif not call.quiet:
        from workloads.units import format_bytes

        did = "would remove" if dry_run else "removed"
        for entry in found:
            print(f"{did} {_shown(entry.path, call.results_root)}: {entry.why}")
        for info in prepared:
            print(f"{did} artefact {info.system}/{info.key}: {format_bytes(info.bytes)}")


def _artefacts(data_root: Path, keep: str | None, days: float | None, *, dry_run: bool) -> list[ArtefactInfo]:
    """Remove artefacts, except those of running systems, and return them; with `dry_run`, only list them."""
    from harness.results.artefacts import list_artefacts, remove_artefacts, stale
    from workloads.units import parse_bytes

    found = list_artefacts(data_root)
    if keep is not None or days is not None:
        found = stale(
            found,
            keep_bytes=None if keep is None else parse_bytes(keep, "--keep"),
            older_than_s=None if days is None else days * 86_400,
        )
    return found if dry_run else remove_artefacts(found)


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)

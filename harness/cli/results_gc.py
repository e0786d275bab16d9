"""`outcore results gc`: remove what no figure will ever be drawn from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.common import RESULTS, Json, Quiet, ResultsRoot, Verbose, print_json


def gc(
    failed: Annotated[bool, typer.Option("--failed", help="remove failed runs too")] = False,
    damaged: Annotated[bool, typer.Option("--damaged", help="remove runs whose record cannot be read too")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Remove half-written and replaced runs and figure files of no figure; failed and damaged runs where asked."""
    from harness.results_gc import doomed, remove

    found = doomed(results_root, failed=failed, damaged=damaged)
    if not dry_run:
        remove(results_root, found)
    if json_:
        removed: list[dict[str, Any]] = [{"name": entry.path.name, "why": entry.why} for entry in found]
        print_json({"removed": [entry["name"] for entry in removed], "why": removed, "dry_run": dry_run})
    elif not quiet:
        for entry in found:
            print(f"{'would remove' if dry_run else 'removed'} {_shown(entry.path, results_root)}: {entry.why}")


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)

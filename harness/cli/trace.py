"""`outcore trace`: one run as a Chrome/Perfetto trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import OnResults
from harness.cli.results import RUN
from harness.results.store import find


def trace(
    run: Annotated[str, typer.Argument(help=RUN)],
    call: OnResults,
    out: Annotated[
        Path | None,
        typer.Option(
            help="the file; compressed if it ends in .gz (default: "
            "RESULTS/traces/RUN.json.gz)"
        ),
    ] = None,
) -> None:
    """Write one run as a trace for ui.perfetto.dev: stages by thread, each batch's
    path, device lanes, counters.

    Examples:
        outcore trace latest
        outcore trace 41cecc0e-r0 --out run.json.gz
    """
    from harness.results.perfetto import write_trace

    folder = find(call.results_root, run)
    file = out or call.results_root / "traces" / f"{folder.name}.json.gz"
    with call.working("writing the trace"):
        phases = write_trace(folder, file)
    spans = phases.get("X", 0)
    flows = phases.get("s", 0)
    counters = phases.get("C", 0)
    content = {
        "run_id": folder.name,
        "file": str(file),
        "spans": spans,
        "flows": flows,
        "counters": counters,
    }
    line = (
        f"{file}: {spans} spans, {flows} batches followed, {counters} counter values; "
        "open it in ui.perfetto.dev"
    )
    call.emit(content, [] if call.quiet else [line])

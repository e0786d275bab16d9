"""`outcore trace`: one run as a Chrome/Perfetto trace, or its requests as a job of
fio."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cache import Cache
from harness.cli.common import OnBoth
from harness.cli.results import RUN
from harness.results.store import find, read_record
from workloads.units import format_bytes


def trace(
    run: Annotated[str, typer.Argument(help=RUN)],
    call: OnBoth,
    out: Annotated[
        Path | None,
        typer.Option(
            help="the file; compressed if it ends in .gz (default: "
            "RESULTS/traces/RUN.json.gz)"
        ),
    ] = None,
    fio: Annotated[
        bool,
        typer.Option(
            "--fio",
            help="write a job and logs for fio instead, with the requests of the "
            "first measured epoch, which is repeated without training "
            "(default folder: RESULTS/traces/RUN-fio)",
        ),
    ] = False,
) -> None:
    """Write one run as a trace for ui.perfetto.dev: stages by thread, each batch's
    path, device lanes, counters; or, with --fio, its requests for fio.

    Examples:
        outcore trace 41cecc0e-r0 --out run.json.gz
        outcore trace 41cecc0e-r0 --fio --out replay
    """
    from harness.results.perfetto import write_trace

    folder = find(call.results_root, run)
    if fio:
        _write_replay(folder, out, call)
        return
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


def _write_replay(folder: Path, out: Path | None, call: OnBoth) -> None:
    """Write the requests of a run for fio, and print the command that replays them."""
    from harness.drives.requests import requests_of, write_replay

    record = read_record(folder)
    place = out or call.results_root / "traces" / f"{folder.name}-fio"
    with call.working("repeating the epoch's reads"):
        cache = Cache(call.results_root / "cache")
        streams = requests_of(record, call.data_root, cache)
    job = write_replay(streams, place)
    requests = sum(len(stream.requests) for stream in streams)
    nbytes = sum(stream.nbytes for stream in streams)
    content = {
        "run_id": record.run_id,
        "file": str(job),
        "streams": len(streams),
        "requests": requests,
        "bytes": nbytes,
    }
    took_s = record.measured[0].reading_s
    compared = f"; the run read for {took_s:.3g} s" if took_s else ""
    line = (
        f"{job}: {requests:,} requests of {format_bytes(nbytes)} in {len(streams)} "
        f"streams{compared}; replay them: cd {place} && fio {job.name}"
    )
    call.emit(content, [] if call.quiet else [line])

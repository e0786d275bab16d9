"""`outcore results show`: one run in full: epochs, seconds by stage, memory and its plan, verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import OnResults, print_json, print_lines, print_table

if TYPE_CHECKING:
    from harness.records.record import Record


def show(
    run: Annotated[str, typer.Argument(help="a run id, the beginning or end of one, or `latest`")], call: OnResults
) -> None:
    """Show one run: epochs, stages' shares, memory and its plan, verdict and the rules it bends."""
    from harness.results.store import find, read_record

    folder = find(call.results_root, run)
    record = read_record(folder)
    if call.json:
        print_json(record.to_json())
        return
    from harness.cli.table import epoch_table, summary_lines
    from harness.table import console

    if record.epochs:
        console().print(epoch_table(record))
    if record.measured:
        _print_stages(record)
    if record.memory.plan:
        _print_plan(record)
    lines = [*summary_lines(record), *_host_lines(record)]
    lines += [f"caveat: {caveat}" for caveat in record.caveats]
    lines += [f"{name}: {text}" for name, text in record.notes.items()]
    for line in [*lines, f"folder {folder}"]:
        print_lines("".join(letter if letter.isprintable() else "�" for letter in line))


def _print_stages(record: Record) -> None:
    """Print the table of stages: median seconds per measured epoch in which a stage was open, and their share of it.

    Stages of different mini-batches overlap, so shares may add up to more than the epoch.
    """
    import statistics

    whole = statistics.median(epoch.seconds for epoch in record.measured)
    rows = []
    for stage in dict.fromkeys(stage for epoch in record.measured for stage in epoch.stages_s):
        spent = statistics.median(epoch.stages_s.get(stage, 0.0) for epoch in record.measured)
        share = spent / whole if whole else 0.0
        rows.append((stage, f"{spent:.3f}", f"{100 * share:5.1f} % {'█' * round(20 * min(1.0, share))}"))
    title = "where a measured epoch went (stages overlap)"
    print_table(("stage", "s an epoch", "share of the epoch"), rows, title)


def _print_plan(record: Record) -> None:
    """Print the table of planned buffers, largest first in each tier, with their share of the tier."""
    from harness.table import size

    whole = {"host": record.memory.budget_bytes, "device": record.config.device_memory_bytes, "disk": None}
    rows: list[tuple[str, ...]] = []
    for buffer in sorted(record.memory.plan, key=lambda entry: (list(whole).index(entry.tier), -entry.bytes)):
        limit = whole[buffer.tier]
        rows.append((buffer.name, buffer.tier, size(buffer.bytes), _percent(buffer.bytes, limit)))
    for tier, limit in whole.items():
        planned = sum(buffer.bytes for buffer in record.memory.plan if buffer.tier == tier)
        if planned and limit:
            rows.append((f"all of {tier}", tier, f"{size(planned)} of {size(limit)}", _percent(planned, limit)))
    print_table(("buffer", "tier", "planned", "share of the tier"), rows, "plan")


def _percent(part: int, whole: int | None) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _host_lines(record: Record) -> list[str]:
    """Return one line on the host, its disk and the commit; empty if the host is unknown."""
    from harness.records.hosts import host_fingerprint

    found = record.environment
    cpu, disk, code = (found.get(key) or {} for key in ("cpu", "disk", "code"))
    if not cpu:
        return []
    commit = str(code.get("commit") or "unknown")[:12] + (" with uncommitted changes" if code.get("dirty") else "")
    return [
        f"host {host_fingerprint(found)}: {cpu.get('model')} with {cpu.get('usable')} processors, "
        f"disk {disk.get('model') or 'unknown'} ({disk.get('file_system') or 'unknown'}), commit {commit}"
    ]

"""`outcore ssd`: profile a drive, emulate a class of SSD, compare drives, predict
epochs on a drive."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.common import OnResults, Verbs, unwind_on_signals
from harness.cli.run_tables import number
from harness.cli.ssd_endurance import endurance
from harness.cli.table import Wide, print_lines, print_table
from harness.records.hosts import HOST_LABEL, check_label
from harness.ssd.memory_drive import DEFAULT_SIZE, MEMORY
from workloads.errors import HostError, InputError, require
from workloads.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from harness.drives.whatif import Device, EpochForecast
    from harness.ssd.classes import DiskClass
    from harness.ssd.drive import Drive, Point

Also = Annotated[
    list[Path] | None, typer.Option("--from", help="another results root with runs")
]
OnDataset = Annotated[str | None, typer.Option(help="only epochs on this dataset")]

app = Verbs(
    help="Profile SSDs, emulate classes of them, compare drives, predict epochs.",
    no_args_is_help=True,
)


@app.verb
def profile(
    table: Wide,
    call: OnResults,
    path: Annotated[
        Path,
        typer.Argument(
            help="a folder on the drive; a file is made in it, read, removed"
        ),
    ] = Path(),
    full: Annotated[
        bool, typer.Option("--full", help="the whole grid, up to 15 min, resumable")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="name of the profile; default: the model's")
    ] = None,
    disk_class: Annotated[
        str, typer.Option("--class", help="inside the limits of a class: NAME, NAME/k")
    ] = "none",
    file_size: Annotated[
        str | None, typer.Option(help="file size, like 4GiB; 1 GiB, with --full 4 GiB")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.1, help="seconds per point; 0.8, with --full 2.5"),
    ] = None,
    precondition: Annotated[
        bool, typer.Option("--precondition", help="write at random until it is steady")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="do not ask before preconditioning")
    ] = False,
    serial: Annotated[
        bool, typer.Option("--serial", help="keep the serial number too")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="do not resume a stopped profile")
    ] = False,
    host_label: Annotated[
        str,
        typer.Option(envvar=HOST_LABEL, help="label of this host in a sweep over many"),
    ] = "",
) -> None:
    """Measure the drive under a folder with fio: 512 B to 64 KiB, depths, threads,
    buffered, sequential, mixed.

    Examples:
        outcore ssd profile /mnt/nvme
        outcore ssd profile /mnt/nvme --full --name mydrive
    """
    from harness.ssd.classes import parse_disk_class
    from harness.ssd.measure import Wanted, measure

    if host_label:
        check_label("--host-label", host_label)
    wanted = Wanted(
        folder=path,
        mode="full" if full else "quick",
        name=name,
        disk_class=parse_disk_class(disk_class),
        file_bytes=parse_bytes(file_size, "--file-size") if file_size else None,
        seconds=seconds,
        precondition=precondition,
        serial=serial,
        fresh=fresh,
        host_label=host_label,
    )
    if precondition:
        amount = format_bytes(2 * wanted.size)  # two passes over the file at most
        warning = (
            f"--precondition writes up to about {amount} at random to a file in "
            f"{path}, which wears the drive"
        )
        print(f"outcore: warning: {warning}", file=sys.stderr)
        if not yes and sys.stdin.isatty():
            typer.confirm("go on?", abort=True, err=True)
    unwind_on_signals()
    with call.progress() as progress:
        drive, where = measure(wanted, call.results_root, progress)
    call.emit(drive.to_json(), lambda: _print_drive(drive, where, wide=table.wide))


@app.verb
def list_(call: OnResults) -> None:
    """List the classes of SSD that can be emulated, and the saved profiles.

    Examples:
        outcore ssd list
    """
    from harness.ssd.classes import load_classes
    from harness.ssd.drive import saved_drives

    classes = load_classes()
    drives, bad = saved_drives(call.results_root)
    for line in bad:
        print(f"outcore: {line}", file=sys.stderr)
    content = {
        "classes": [
            entry.model_dump(mode="json", exclude={"divided_by"})
            for entry in classes.values()
        ],
        "profiles": [drive.to_json() for drive in drives],
        "unreadable": bad,
    }
    call.emit(content, lambda: _print_list(list(classes.values()), drives))


@app.verb
def emulate(
    disk_class: Annotated[
        str,
        typer.Argument(
            metavar="CLASS",
            help="NAME, NAME/k or NAME/auto; memory: a drive in memory, as fast as any",
        ),
    ],
    call: OnResults,
    command: Annotated[
        list[str] | None, typer.Argument(help="after --: what to run")
    ] = None,
    path: Annotated[
        Path, typer.Option(help="a folder on the device to limit")
    ] = Path(),
    user: Annotated[
        str | None,
        typer.Option(help="who runs the command; by default who called sudo"),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="measure the limits by fio now, run nothing"),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="hold the limits to fio before running"
        ),
    ] = True,
    size: Annotated[str, typer.Option(help="of the drive in memory")] = DEFAULT_SIZE,
) -> None:
    """Run a command with the device's IOPS and bandwidth limited to a class: `emulate
    aws-nvme/16 -- COMMAND`. With `memory` it runs beside a drive in memory (ext4 on a
    loop device, root), on which $OUTCORE_DATA lies for it.

    Examples:
        outcore ssd emulate aws-nvme/16 -- fio job.fio
        outcore ssd emulate memory --size 8GiB -- outcore bench quick
    """
    from harness.ssd import emulate as emulation
    from harness.ssd.measure import limiting
    from harness.ssd.testfile import check_folder, one_at_a_time

    if not command and not verify:
        raise InputError(
            "there is no command to run",
            "write it after --, like `-- fio job.fio`, or give --verify",
        )
    who = emulation.caller(user) if command else None
    unwind_on_signals()
    if disk_class == MEMORY:
        fix = "write a command after --, without --verify"
        require(bool(command) and not verify, "a drive in memory has no limits", fix)
        nbytes = parse_bytes(size)
        raise typer.Exit(emulation.run_in_memory(nbytes, command or [], who))
    device = check_folder(path)
    progress = call.progress()
    if command and user is None and who is None and os.geteuid() == 0:
        progress.keep("the command runs as root: --user NAME gives it another user")
    isolation = limiting()
    chosen = emulation.resolve_class(disk_class, path, progress=progress)
    limits = chosen.limits(device)
    checks: list[emulation.Check] = []
    if verify or check:
        with one_at_a_time(device):
            if verify:
                checks = emulation.verify(isolation, limits, path, progress=progress)
            else:
                cache = call.results_root / "cache"
                checks = emulation.verified(
                    isolation, chosen, device, path, cache, progress=progress
                )
    progress.done()
    if verify:
        found: dict[str, Any] = {
            "class": chosen.name,
            "limits": [asdict(limit) for limit in limits],
        }
        for what in ("measured", "error"):
            found[what] = {entry.name: getattr(entry, what) for entry in checks}
        rows = [
            (
                one.name,
                f"{one.measured:,.0f}",
                f"{one.allowed:,.0f}",
                f"{one.error:+.2%}",
            )
            for one in checks
        ]
        heads = ("by fio inside the limits", "measured", "allowed", "off by")
        call.emit(found, lambda: print_table(heads, rows, chosen.name))
        if message := emulation.problem(checks):
            raise HostError(
                f"{chosen.name} is more than 3 % from its limits: {message}",
                "divide it, like NAME/auto",
            )
    if command:
        raise typer.Exit(emulation.run_limited(isolation, limits, command, who))


@app.verb
def compare(
    drives: Annotated[
        list[str],
        typer.Argument(help="names of profiles, files of profiles, or classes NAME/k"),
    ],
    table: Wide,
    call: OnResults,
    out: Annotated[
        Path | None,
        typer.Option(help="a folder for the page (HTML, PDF), its figures and tables"),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="YAML or CSV of prices; docs/ssd-prices.yaml is one"),
    ] = None,
    dataset: OnDataset = None,
    memory: Annotated[
        str | None, typer.Option(help="only epochs under this memory setting")
    ] = None,
    also: Also = None,
) -> None:
    """Compare drives: fio's figures, epochs measured or predicted, use of the drive,
    latency, price.

    Examples:
        outcore ssd compare mydrive aws-nvme
        outcore ssd compare mydrive aws-gp3 --prices docs/ssd-prices.yaml --out page
    """
    from harness.drives import page
    from harness.drives.compare import as_dict
    from harness.drives.compare import compare as side_by_side
    from harness.drives.prices import load_prices
    from harness.drives.printing import INSTALL
    from harness.drives.whatif import behind, device_of, read_records

    costs = load_prices(prices) if prices else {}
    with call.working("comparing"):
        records = read_records([call.results_root, *(also or [])])
        devices = [
            behind(device_of(name, call.results_root), records) for name in drives
        ]
        found = side_by_side(devices, records, costs, dataset=dataset, memory=memory)
        written = [] if out is None else page.write_page(found, out)

    def shown() -> None:
        if found.workload:
            print_lines(f"workload: {found.workload}")
        for part in page.tables(found):
            print_table(
                part.heads,
                part.rows,
                part.title,
                prose=("model", "how"),
                hidden=() if table.wide else part.more,
            )
        print_lines(*page.sentences(found), *(f"note: {note}" for note in found.notes))
        for path in written:
            if path.stem == "ssd-report" and path.suffix in (".html", ".pdf"):
                print(path)
        if written and not any(path.suffix == ".pdf" for path in written):
            print_lines(f"no PDF: no browser of this host printed the page ({INSTALL})")

    call.emit({**as_dict(found), "files": [str(path) for path in written]}, shown)


@app.verb
def predict(
    drive: Annotated[
        str, typer.Argument(help="name or file of a profile, or a class NAME/k")
    ],
    call: OnResults,
    system: Annotated[list[str] | None, typer.Option(help="only this system")] = None,
    dataset: OnDataset = None,
    also: Also = None,
) -> None:
    """Predict epochs on a drive that is not here, from the counters of runs on other
    drives.

    Examples:
        outcore ssd predict aws-nvme
        outcore ssd predict mydrive --system gnndrive --system ginex
    """
    from harness.drives.whatif import (
        behind,
        device_of,
        forecasts,
        left_out,
        on_each_host,
        read_records,
        usable,
    )

    with call.working("reading records"):
        all_records = read_records([call.results_root, *(also or [])])
    device = behind(device_of(drive, call.results_root), all_records)
    records = [
        record
        for record in all_records
        if (not system or record.system in system)
        and (not dataset or record.config.dataset.name == dataset)
    ]
    if not any(map(usable, records)):
        fix = "make one: `outcore run SYSTEM --memory 0.25x`"
        raise InputError(
            f"{call.results_root} holds no run whose counters could be used", fix
        )
    on_hosts = on_each_host(device, records)
    found = [entry for one in on_hosts for entry in forecasts(records, one)]
    missing = left_out(records, device)
    content = {
        "drive": device.name,
        "known_by": device.source,
        "prediction": True,
        "epochs": [{**vars(entry), "error": entry.error} for entry in found],
        "left_out": missing,
    }

    def shown() -> None:
        for one in on_hosts:
            own = [entry for entry in found if entry.device == one.name]
            _print_forecasts(one, own, missing)

    call.emit(content, shown)


app.verb(endurance)


def _print_drive(drive: Drive, where: Path, *, wide: bool) -> None:
    """Print a profile: identity of the drive, condition, points."""
    who = drive.identity
    condition = drive.condition
    facts = [
        who.model or who.name,
        who.firmware and f"firmware {who.firmware}",
        format_bytes(who.capacity_bytes),
    ]
    facts += [
        who.bus,
        who.link,
        who.file_system,
        who.scheduler and f"scheduler {who.scheduler}",
    ]
    facts.append(f"read-ahead {who.read_ahead_kib} KiB")
    settled = "not looked at"
    if steady := condition.steady:
        did = "steady" if steady.attained else "not steady"
        settled = f"{did} within {steady.within:.0%} ({steady.deviation:.1%})"
    health = ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in condition.health.items()
    )
    written = "preconditioned" if condition.preconditioned else "not preconditioned"
    file = (
        f"file system {condition.fill:.0%} full, file "
        f"{format_bytes(condition.file_bytes)}, {written}"
    )
    print_lines(
        f"{drive.name}: {', '.join(fact for fact in facts if fact)}",
        f"drive {who.drive}, known by {who.drive_known_by}",
        *([f"inside the limits of {drive.disk_class}"] if drive.disk_class else []),
        " > ".join(who.layers),
        f"{file}; 4 KiB reads {settled}",
        f"health by {health}"
        if health
        else f"health not known: {condition.health_missing}",
    )
    heads = (
        "reads",
        "in flight",
        "by",
        "IOPS",
        "MB/s",
        "mean µs",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "CPU µs/IO",
    )
    print_table(
        heads,
        map(_row, drive.points),
        hidden=() if wide else ("mean µs", "p99.9 µs", "CPU µs/IO"),
    )
    print_lines(f"{drive.mode} profile, {drive.seconds:.0f} s: {where}")


def _print_list(classes: Sequence[DiskClass], drives: Sequence[Drive]) -> None:
    """Print a table of the classes, then one of the saved profiles."""
    rows: list[tuple[str, ...]] = []
    for entry in classes:
        reads = (number(entry.read_iops, ",.0f"), _scaled(entry.read_bytes_per_s, 1e-6))
        writes = (
            number(entry.write_iops, ",.0f"),
            _scaled(entry.write_bytes_per_s, 1e-6),
        )
        rows.append(
            (
                entry.name,
                *reads,
                *writes,
                entry.source + (" (assumed)" if entry.assumed else ""),
            )
        )
    print_table(
        ("class", "reads/s", "read MB/s", "writes/s", "write MB/s", "source"),
        rows,
        prose=("source",),
    )
    if not drives:
        print_lines("no profile is saved here: `outcore ssd profile PATH` makes one")
        return
    rows = []
    for drive in drives:
        smallest = drive.best(min((p.block_bytes for p in drive.points), default=512))
        long = drive.best(1 << 20, "sequential")
        counts = [
            number(p.iops if p else None, ",.0f") for p in (smallest, drive.best(4096))
        ]
        rate = _scaled(long.bytes_per_s if long else None, 1e-6)
        identity = (drive.identity.model, drive.identity.drive or "not recorded")
        rows.append(
            (drive.name, *identity, drive.mode, drive.measured_at[:16], *counts, rate)
        )
    heads = (
        "profile",
        "model",
        "drive",
        "mode",
        "measured",
        "512 B reads/s",
        "4 KiB reads/s",
        "1 MiB MB/s",
    )
    print_table(heads, rows, prose=("model", "measured"))


def _row(point: Point) -> list[str]:
    size = (
        f"{point.block_bytes} B"
        if point.block_bytes < 1024
        else f"{point.block_bytes // 1024} KiB"
    )
    mixed = f", {point.write_percent} % writes" if point.write_percent else ""
    how = "threads" if point.engine == "sync" else "queue"
    late = [point.latency_s.get(name) for name in ("50", "99", "99.9")]
    how += ", direct" if point.direct else ", buffered"
    rates = (f"{point.iops:,.0f}", f"{point.bytes_per_s / 1e6:,.1f}")
    latencies = (_scaled(value, 1e6) for value in (point.mean_latency_s or None, *late))
    reads = f"{size} {point.pattern}{mixed}"
    cpu = f"{point.cpu_s_per_request * 1e6:.1f}"
    return [reads, str(point.in_flight), how, *rates, *latencies, cpu]


def _scaled(value: float | None, factor: float) -> str:
    return number(None if value is None else value * factor, ",.0f")


def _print_forecasts(
    device: Device, found: Sequence[EpochForecast], left_out: Sequence[str] = ()
) -> None:
    """Print the predictions by workload, and the systems without one."""
    known = {
        "profile": "its profile",
        "limits": "its class's limits alone, so without latency",
        "limits, runs": "its class's limits; few reads in flight are as slow as on "
        "the device "
        "that runs were made on",
    }[device.source]
    print_lines(
        f"PREDICTED for {device.name}, known by {known}; nothing of this was measured"
    )
    heads = (
        "system",
        "epoch s",
        "device s",
        "training s",
        "waits for",
        "counted on",
        "measured s",
        "off",
    )
    for workload, entries in itertools.groupby(found, key=lambda entry: entry.workload):
        rows = []
        for entry in entries:
            times = [
                f"{value:.3g}"
                for value in (entry.seconds, entry.device_s, entry.train_s)
            ]
            off = number(None if entry.error is None else 100 * entry.error, "+.1f") + (
                " %" if entry.error else ""
            )
            counted = ", ".join(entry.counted_on)
            rows.append(
                (
                    entry.system,
                    *times,
                    entry.bound,
                    counted,
                    number(entry.measured_s, ".3g"),
                    off,
                )
            )
        print_table(heads, rows, workload, prose=("counted on",))
    if left_out:
        why = "whose reads depend on the device; `outcore advise` simulates them on it"
        print_lines(f"left out: {', '.join(left_out)}, {why}")

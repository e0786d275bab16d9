"""`outcore ssd`: profile a drive, emulate a class of SSD, compare drives, predict epochs on a drive."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.common import OnResults, Verbs, unwind_on_signals
from harness.cli.ssd_view import print_checks, print_comparison, print_drive, print_forecasts, print_list
from workloads.errors import HostError, InputError
from workloads.units import format_bytes, parse_bytes

Also = Annotated[list[Path] | None, typer.Option("--from", help="another results root with runs")]
OnDataset = Annotated[str | None, typer.Option(help="only epochs on this dataset")]

app = Verbs(help="Profile SSDs, emulate classes of them, compare drives, predict epochs.", no_args_is_help=True)


@app.verb
def profile(
    call: OnResults,
    path: Annotated[Path, typer.Argument(help="a folder on the drive; a file is made in it, read, removed")] = Path(),
    full: Annotated[bool, typer.Option("--full", help="the whole grid, up to 15 min, resumable")] = False,
    name: Annotated[str | None, typer.Option(help="to save it under; by default the model's")] = None,
    disk_class: Annotated[str, typer.Option("--class", help="inside the limits of a class: NAME, NAME/k")] = "none",
    file_size: Annotated[str | None, typer.Option(help="of the file, like 4GiB; 1 GiB, with --full 4 GiB")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="of a point; 0.8, with --full 2.5")] = None,
    precondition: Annotated[bool, typer.Option("--precondition", help="write at random until it settles")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before preconditioning")] = False,
    serial: Annotated[bool, typer.Option("--serial", help="keep the serial number too")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="do not go on with a stopped profile")] = False,
) -> None:
    """Measure the drive under a folder with fio: 512 B to 64 KiB, depths, threads, buffered, sequential, mixed."""
    from harness.ssd.classes import parse_disk_class
    from harness.ssd.measure import Wanted, measure, precondition_bytes

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
    )
    if precondition:
        amount = format_bytes(precondition_bytes(wanted))
        warning = f"--precondition writes up to about {amount} at random to a file in {path}, which wears the drive"
        print(f"outcore: warning: {warning}", file=sys.stderr)
        if not yes and sys.stdin.isatty():
            typer.confirm("go on?", abort=True, err=True)
    unwind_on_signals()
    with call.progress() as progress:
        drive, where = measure(wanted, call.results_root, progress)
    call.tell(drive.to_json(), lambda: print_drive(drive, where))


@app.verb
def list_(call: OnResults) -> None:
    """Every class of SSD that can be emulated, and every saved profile."""
    from harness.ssd.classes import load_classes
    from harness.ssd.drive import saved_drives

    classes = load_classes()
    drives, bad = saved_drives(call.results_root)
    for line in bad:
        print(f"outcore: {line}", file=sys.stderr)
    content = {
        "classes": [entry.model_dump(mode="json", exclude={"divided_by"}) for entry in classes.values()],
        "profiles": [drive.to_json() for drive in drives],
        "unreadable": bad,
    }
    call.tell(content, lambda: print_list(list(classes.values()), drives))


@app.verb
def emulate(
    disk_class: Annotated[str, typer.Argument(metavar="CLASS", help="NAME, NAME/k or NAME/auto")],
    call: OnResults,
    command: Annotated[list[str] | None, typer.Argument(help="after --: what to run")] = None,
    path: Annotated[Path, typer.Option(help="a folder on the device to limit")] = Path(),
    user: Annotated[str | None, typer.Option(help="who runs the command; by default who called sudo")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="measure the limits by fio now, run nothing")] = False,
    check: Annotated[bool, typer.Option("--check/--no-check", help="hold the limits to fio before running")] = True,
) -> None:
    """Run a command with the device's IOPS and bandwidth limited to a class: `emulate aws-nvme/16 -- COMMAND`."""
    from harness.ssd import emulate as emulation
    from harness.ssd.measure import limiting
    from harness.ssd.testfile import check_folder, one_at_a_time

    if not command and not verify:
        raise InputError("there is no command to run", "write it after --, like `-- fio job.fio`, or give --verify")
    device = check_folder(path)
    who = emulation.caller(user) if command else None
    unwind_on_signals()
    progress = call.progress()
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
                checks = emulation.verified(isolation, chosen, device, path, cache, progress=progress)
    progress.done()
    if verify:
        found: dict[str, Any] = {
            "class": chosen.name,
            "limits": [asdict(limit) for limit in limits],
            "measured": {entry.name: entry.measured for entry in checks},
            "error": {entry.name: entry.error for entry in checks},
        }
        call.tell(found, lambda: print_checks(chosen, checks))
        if said := emulation.problem(checks):
            raise HostError(f"{chosen.name} is more than 3 % from its limits: {said}", "divide it, like NAME/auto")
    if command:
        raise typer.Exit(emulation.run_limited(isolation, limits, command, who))


@app.verb
def compare(
    drives: Annotated[list[str], typer.Argument(help="names of profiles, files of profiles, or classes NAME/k")],
    call: OnResults,
    out: Annotated[Path | None, typer.Option(help="a folder for the page (HTML, PDF), its figures and tables")] = None,
    prices: Annotated[Path | None, typer.Option(help="YAML or CSV of prices; docs/ssd-prices.yaml is one")] = None,
    dataset: OnDataset = None,
    memory: Annotated[str | None, typer.Option(help="only epochs under this memory setting")] = None,
    also: Also = None,
) -> None:
    """Drives side by side: fio's figures, epochs measured or predicted, use of the drive, latency, price."""
    from harness.drives.compare import compare as side_by_side
    from harness.drives.prices import load_prices
    from harness.drives.sides import as_dict
    from harness.drives.whatif import behind, device_of, read_records

    costs = load_prices(prices) if prices else {}
    records = read_records([call.results_root, *(also or [])])
    devices = [behind(device_of(name, call.results_root), records) for name in drives]
    found = side_by_side(devices, records, costs, dataset=dataset, memory=memory)
    written: list[Path] = []
    if out is not None:
        from harness.drives.page import write_page

        written = write_page(found, out)

    def shown() -> None:
        print_comparison(found)
        for path in written:
            if path.stem == "ssd-report" and path.suffix in (".html", ".pdf"):
                print(path)

    call.tell({**as_dict(found), "files": [str(path) for path in written]}, shown)


@app.verb
def predict(
    drive: Annotated[str, typer.Argument(help="name or file of a profile, or a class NAME/k")],
    call: OnResults,
    system: Annotated[list[str] | None, typer.Option(help="only this system")] = None,
    dataset: OnDataset = None,
    also: Also = None,
) -> None:
    """Epochs on a drive that one does not have, from the counters of runs made elsewhere: a prediction."""
    from harness.drives.whatif import behind, device_of, forecasts, left_out, read_records, usable

    all_records = read_records([call.results_root, *(also or [])])
    device = behind(device_of(drive, call.results_root), all_records)
    records = [
        record
        for record in all_records
        if (not system or record.system in system) and (not dataset or record.config.dataset.name == dataset)
    ]
    if not any(usable(record) for record in records):
        raise InputError(
            f"{call.results_root} holds no run whose counters could be used",
            "make one: `outcore run SYSTEM --memory 0.25x`",
        )
    found = forecasts(records, device)
    content = {
        "drive": device.name,
        "known_by": device.source,
        "prediction": True,
        "epochs": [{**vars(entry), "error": entry.error} for entry in found],
        "left_out": left_out(records, device),
    }
    call.tell(content, lambda: print_forecasts(device, found, left_out(records, device)))

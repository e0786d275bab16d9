"""Source files of a user's own systems and samplers, which hosts get with the sweep's
content: read in the driver's current folder, written to a folder of the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.plan.experiment import PlannedRun
from harness.records.code import own_sources
from workloads.errors import InputError
from workloads.units import format_bytes

MAX_BYTES = 4 << 20


def read_modules(planned: Iterable[PlannedRun]) -> dict[str, str]:
    """Return the text of each Python file below the current folder that belongs to a
    planned system or sampler, by its path relative to this folder. Code from elsewhere
    has to be installed on the hosts.

    Raises:
        InputError: the files have more than 4 MiB.
    """
    here = Path.cwd().resolve()
    pairs = {(run.system, run.settings.sampler) for run in planned}
    found = {
        str(file.relative_to(here)): file.read_text(encoding="utf-8")
        for system, sampler in sorted(pairs)
        for file in own_sources(system, sampler)
        if file.is_relative_to(here) and file.suffix == ".py"
    }
    size = sum(map(len, found.values()))
    if size > MAX_BYTES:
        raise InputError(
            f"the systems of {here} have {format_bytes(size)} of sources, "
            f"{format_bytes(MAX_BYTES)} can be sent to the hosts",
            "install their package on every host",
        )
    return found


def write_modules(modules: Mapping[str, str], folder: Path) -> None:
    """Write the files of `read_modules` below a folder. Raises InputError: a path leads
    out of it."""
    for name, text in modules.items():
        path = Path(name)
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"the module {name!r} leads out of its folder")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

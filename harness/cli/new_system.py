"""`outcore new-system`: a package for a system of one's own, to begin with."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import Call
from workloads.errors import InputError, require
from workloads.tempfolder import TemporaryFolder


def new_system(
    name: Annotated[
        str,
        typer.Argument(
            help="its name in `outcore run NAME`: lower-case letters, digits, - and +"
        ),
    ],
    call: Call,
    folder: Annotated[
        Path | None, typer.Option(help="folder to write; default: ./NAME")
    ] = None,
    foreign: Annotated[
        bool,
        typer.Option(
            "--foreign", help="a worker of its own, for code that samples itself"
        ),
    ] = False,
) -> None:
    """Write a package with a system that reads rows from disk, its test and an
    experiment, to change as you like.

    With `--foreign`, write a folder with a worker and its manifest instead
    (docs/foreign.md).

    Examples:
        outcore new-system hot-rows
        outcore new-system my-paper --foreign
    """
    from systems.registry import installed, module_name

    require(
        re.fullmatch(r"[a-z][a-z0-9]*([+-][a-z0-9]+)*\+?", name),
        f"{name!r} is no name of a system",
        "use lower-case letters and digits, with - or + between",
    )
    module = module_name(name)
    known = name in installed() or find_spec(f"systems.{module}") is not None
    require(not known, f"there is a system {name!r} already", "choose another name")
    taken = not foreign and (keyword.iskeyword(module) or find_spec(module) is not None)
    require(
        not taken, f"there is a Python module {module!r} already", "choose another name"
    )
    target = folder or Path(name)
    require(not target.exists(), f"{target} exists already", "choose another --folder")
    words = {"new-system": name, "new_system": module}
    words["NewSystem"] = "".join(part.capitalize() for part in module.split("_"))
    places = {
        "system.py": f"{module}/__init__.py",
        "test_system.py": f"tests/test_{module}.py",
        "pyproject.toml": "pyproject.toml",
        "experiment.yaml": "experiment.yaml",
    }
    if foreign:
        places = {f"foreign/{file}": file for file in ("system.json", "worker.py")}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder(target.parent, target.name) as made:
            for source, place in places.items():
                text = (files("outcore") / "template" / source).read_text(
                    encoding="utf-8"
                )
                (made / place).parent.mkdir(exist_ok=True)
                (made / place).write_text(
                    re.sub("|".join(words), lambda found: words[found[0]], text),
                    "utf-8",
                )
            made.chmod(0o755)
            made.rename(target)
    except OSError as error:
        raise InputError.from_os(
            error, f"{target} cannot be written", "choose another --folder"
        ) from error
    written = [str(target / place) for place in places.values()]
    then = [
        f"cd {target}",
        f"outcore check {name} --quick",
        "outcore bench experiment.yaml",
        "outcore report",
    ]
    if foreign:
        then = [
            f"outcore check env:{target}",
            f"outcore run env:{target} --dataset DATASET",
        ]
    call.emit(
        {"system": name, "files": written, "next": then},
        [*written, "", "next:", *(f"  {line}" for line in then)],
    )

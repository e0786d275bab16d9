"""Foreign systems that are folders, named `env:NAME`: where they lie, how their worker
starts, and their environments.

A folder is found by path, in the checkout's `foreign/`, or as the package that an entry
point of the group `outcore.foreign` names. An environment's place is a digest of
everything that decides its packages, so that folders with the same lock share one, and
a changed lock makes a new one."""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from harness.foreign import ENV
from harness.foreign.manifest import MANIFEST, Manifest, read_manifest
from workloads.errors import HostError, InputError
from workloads.tempfolder import TemporaryFolder, free_bytes

ENTRY_POINTS = "outcore.foreign"
_ROOT = Path(__file__).resolve().parents[2]
_SHIPPED = _ROOT / "foreign"
#: Folder of the module `outcore_worker`, which every worker may import.
HELPER = _ROOT / "outcore" / "foreign"
#: Environment variable with the folder of all environments; by default the user's
#: cache.
PLACE_VARIABLE = "OUTCORE_ENVIRONMENTS"
_TAIL = 30  # lines of a failed installation that are searched for its reason
_CODE_BYTES = 16 << 20  # larger files beside a worker are data, not code


@dataclass(frozen=True)
class Folder:
    """A foreign system's folder with its manifest. `name`: its name without `env:`."""

    name: str
    path: Path
    manifest: Manifest

    @cached_property
    def environment(self) -> Path | None:
        """Folder of its environment, made or not; None for a system that runs with
        Outcore's own packages."""
        if not self.manifest.install:
            return None
        digest = hashlib.sha256(
            f"{self._python[0]} {list(map(len, self.manifest.install))}".encode()
        )
        for word in (word for step in self.manifest.install for word in step):
            file = self.path / word
            digest.update(
                (file.read_bytes() if file.is_file() else word.encode()) + b"\0"
            )
        return _place() / digest.hexdigest()[:16]

    @property
    def missing(self) -> str:
        """Reason why the system cannot run here yet; empty if it can."""
        if self.environment is None or (self.environment / "bin" / "python").exists():
            return ""
        return (
            f"{ENV}{self.name} has no environment here: `outcore systems setup "
            f"{self.name}` makes it"
        )

    @property
    def compiled(self) -> list[str]:
        """Return the packages that `setup` compiles, those of steps without build
        isolation; none if it is made."""
        steps = [
            step for step in self.manifest.install if "--no-build-isolation" in step
        ]
        files = [
            self.path / word
            for step in steps
            for word in step
            if (self.path / word).is_file()
        ]
        lines = [
            line
            for file in files
            for line in file.read_text(encoding="utf-8").splitlines()
        ]
        named = [line for line in lines if line.strip() and line[0] not in "#-"]
        return (
            [line.partition("==")[0].strip() for line in named] if self.missing else []
        )

    def command(self) -> list[str]:
        """Return the command that starts the worker. It may import `outcore_worker`;
        with an environment of its own, no other module of Outcore's."""
        python = (
            sys.executable
            if self.environment is None
            else str(self.environment / "bin" / "python")
        )
        words = [
            python if word == "python" else self._located(word)
            for word in self.manifest.command
        ]
        paths = [str(HELPER)] if self.environment else [str(HELPER), str(_ROOT)]
        return [
            "/usr/bin/env",
            f"PYTHONPATH={os.pathsep.join(paths)}",
            "PYTHONNOUSERSITE=1",
            *words,
        ]

    def sources(self) -> list[Path]:
        """Return the folders whose files decide what the worker does: its own, those of
        its command, the helper's."""
        named = [
            self.path / word
            for word in self.manifest.command
            if not Path(word).is_absolute()
        ]
        return list(
            dict.fromkeys(
                [
                    self.path,
                    *(file.resolve().parent for file in named if file.is_file()),
                    HELPER,
                ]
            )
        )

    def needed(self) -> tuple[Path, ...]:
        """Return the folders that the worker reads its code from."""
        return (*self.sources(), *([self.environment] if self.environment else []))

    def identity(self) -> str:
        """Return a digest of the worker's files and of its environment's packages, 64
        hex digits."""
        digest = hashlib.sha256(
            str(self.environment and self.environment.name).encode()
        )
        for folder in self.sources():
            for file in sorted(_own_files(folder)):
                digest.update(
                    f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0"
                )
        return digest.hexdigest()

    def setup(self, progress: Callable[[str], None] = lambda text: None) -> Path:
        """Make the environment if it is not there, and return its folder.

        Packages are installed into a temporary folder, which is renamed when all are
        there. `progress` is called with each line of the installer.

        Raises:
            InputError: the system needs no environment.
            HostError: no Python of its versions is here, or a package cannot be
                installed.
        """
        target, (version, python) = self.environment, self._python
        if target is None:
            raise InputError(
                f"{ENV}{self.name} runs with Outcore's own packages", "run it as it is"
            )
        if not self.missing:
            return target
        if python is None:
            raise HostError(
                f"{ENV}{self.name} needs Python {version}, which is not here",
                "install it",
            )
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fix = f"set {PLACE_VARIABLE} to a folder that you may write to"
            raise HostError.from_os(
                error, f"{target.parent} cannot be made", fix
            ) from error
        with TemporaryFolder(target.parent, target.name) as made:
            self._call([python, "-m", "venv", str(made)], "python -m venv", progress)
            pip = [
                str(made / "bin" / "python"),
                *"-m pip install --disable-pip-version-check --no-input".split(),
            ]
            for step in self.manifest.install:
                self._call(
                    [*pip, "--progress-bar=off", *step],
                    f"pip install {' '.join(step)}",
                    progress,
                )
            made.chmod(0o755)
            if self.missing:  # else another process was faster
                made.rename(target)
        return target

    def _call(
        self, argv: list[str], shown: str, progress: Callable[[str], None]
    ) -> None:
        """Run a step of the installation. Raises HostError: it fails."""
        process = subprocess.Popen(
            argv,
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines: list[str] = []
        try:
            assert process.stdout is not None
            for line in map(str.strip, process.stdout):
                if line:
                    lines = [*lines[1 - _TAIL :], line]
                    progress(line)
            code = process.wait()
        finally:
            process.kill()
            process.wait()
        if code:
            # The installer's own sentence; a compiler's is the last line.
            message = next(
                (line for line in lines if line.startswith("ERROR: ")),
                lines[-1] if lines else "no output",
            )
            raise HostError(
                f"`{shown}` failed for {ENV}{self.name}: "
                f"{message.removeprefix('ERROR: ')}",
                self._fix(lines),
            )

    def _fix(self, lines: list[str]) -> str:
        text = "\n".join(lines)
        if "No space left" in text:
            left = free_bytes(_place()) >> 20
            return (
                f"free some space ({left} MiB are left), or set {PLACE_VARIABLE} to a "
                "folder on another disk"
            )
        if "No matching distribution" in text or "Could not find a version" in text:
            return (
                "your package index has no such release for this Python: name one that "
                "has it in PIP_INDEX_URL"
            )
        return f"fix that, or the manifest in {self.path}, and set it up again"

    @cached_property
    def _python(self) -> tuple[str, str | None]:
        """Version of Python to use, and its interpreter: the first that is here;
        without one, all versions and None."""
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        wanted = self.manifest.python or [own]
        here = (
            (
                version,
                sys.executable if version == own else shutil.which(f"python{version}"),
            )
            for version in wanted
        )
        return next((pair for pair in here if pair[1]), (" or ".join(wanted), None))

    def _located(self, word: str) -> str:
        path = os.path.normpath(
            self.path / word
        )  # links stay: an environment's interpreter is one
        return path if word and Path(path).is_file() else word


def find(name: str) -> Folder:
    """Return the folder of the system `NAME` of `env:NAME`; raise InputError if there
    is none, or its manifest is invalid."""
    folder = next(
        (path for path in _candidates(name) if (path / MANIFEST).is_file()), None
    )
    if folder is None:
        near = difflib.get_close_matches(name, shipped(), n=1)
        hint = (
            f"did you mean {ENV}{near[0]}?"
            if near
            else "give a folder's path, or see `outcore systems`"
        )
        raise InputError(
            f"there is no foreign system {name!r}: no folder of it has a {MANIFEST}",
            hint,
        )
    return Folder(name, folder.resolve(), read_manifest(folder))


def shipped() -> list[str]:
    """List the names of foreign systems in the checkout and in installed packages,
    sorted."""
    here = {path.parent.name for path in _SHIPPED.glob(f"*/{MANIFEST}")}
    return sorted(here | {entry.name for entry in entry_points(group=ENTRY_POINTS)})


def _candidates(name: str) -> Iterator[Path]:
    if os.sep in name or name in (".", ".."):
        yield Path(name)
        return
    yield Path(name)
    yield _SHIPPED / name
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        spec = find_spec(entry.value.partition(":")[0])
        yield from map(Path, (spec.submodule_search_locations or ()) if spec else ())


def _own_files(folder: Path) -> Iterator[Path]:
    for inner, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name != "__pycache__"
        ]
        found = (Path(inner, name) for name in files if not name.endswith(".pyc"))
        yield from (
            file
            for file in found
            if file.is_file() and file.stat().st_size <= _CODE_BYTES
        )


def _place() -> Path:
    if place := os.environ.get(PLACE_VARIABLE):
        return Path(place)
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "outcore"
        / "environments"
    )

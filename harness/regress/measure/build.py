"""Builds of one commit beside others: a git worktree, its own native modules, an
environment by its own lock file.

The cache holds packages by the lock file's content and native modules by their sources:
a commit that changes neither is ready in a second. The running installation stays
unchanged.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.atomic import locked
from harness.regress.git import Repository
from workloads.errors import HostError

Progress = Callable[[str], None]

LOCK_FILE = "requirements.lock"
LAYERS = ("workloads", "systems")
# Paths whose git objects identify a native module.
SOURCES = ("workloads/native", "systems/native", "CMakeLists.txt", LOCK_FILE)
_RUNNING = Path(__file__).resolve().parents[3]
#: Git objects of `SOURCES`, one per line, from which `scripts/setup` built the
#: installed modules.
INSTALLED_SOURCES = Path(sys.prefix) / "native-sources"
_CHECK = (
    "import harness.cli, workloads._native, systems._native; print(harness.__file__)"
)


class BuildError(HostError):
    """A commit cannot be built here."""


@dataclass(frozen=True)
class Built:
    """A runnable commit. `python` imports the commit's own tree alone; `native`
    identifies its native modules."""

    commit: str
    tree: Path
    python: Path
    native: str


def build(
    repository: Repository,
    commit: str,
    cache: Path,
    side: str,
    progress: Progress = lambda text: None,
) -> Built:
    """Build a commit, unless the cache holds it.

    Args:
        cache: folder for worktrees, packages and modules; made on demand.
        side: `base` or `head`, for messages.

    Raises:
        BuildError: a build step failed (exit 3); the message has its first error line
            and the path of the log.
    """
    cache = cache.resolve()
    folder = cache / "commits" / commit[:16]
    tree = folder / "tree"
    python = folder / "env" / "bin" / "python"
    built = folder / "built"
    with locked(cache / "build.lock"):
        if not built.is_file():
            if tree.exists():
                repository.remove_worktree(tree)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            maker = _Maker(
                cache,
                tree,
                folder / f"build-{side}.log",
                f"{side} {commit[:12]}",
                progress,
            )
            maker.report("worktree")
            repository.add_worktree(tree, commit)
            objects = (
                repository.maybe("rev-parse", "--verify", f"{commit}:{path}")
                for path in SOURCES
            )
            key = _native_key([found or "-" for found in objects])
            packages = maker.packages()
            maker.modules(key, packages)
            maker.environment(python, packages)
            built.write_text(key + "\n", encoding="utf-8")
    return Built(commit, tree, python, built.read_text(encoding="utf-8").strip())


def remove(repository: Repository, cache: Path) -> None:
    """Remove every worktree of the cache from git, then the cache folder."""
    for tree in sorted((cache.resolve() / "commits").glob("*/tree")):
        repository.remove_worktree(tree)
    shutil.rmtree(cache, ignore_errors=True)


@dataclass(frozen=True)
class _Maker:
    """Build steps of one commit, logged in one file."""

    _cache: Path
    _tree: Path
    _log: Path
    _name: str
    _progress: Progress

    def report(self, step: str) -> None:
        """Report the step that begins."""
        self._progress(f"{self._name}: {step}")

    def packages(self) -> Path:
        """Return a python with the packages of the commit's lock file: the running one
        if its lock file is equal."""
        wanted = self._tree / LOCK_FILE
        if not wanted.is_file():
            raise self._failed(f"it has no {LOCK_FILE}")
        content = wanted.read_bytes()
        own = _RUNNING / LOCK_FILE
        if own.is_file() and own.read_bytes() == content:
            return Path(sys.executable)
        name = hashlib.sha256(content + sys.version.encode()).hexdigest()[:16]
        folder = self._cache / "packages" / name
        python = folder / "bin" / "python"
        if not (folder / "installed").is_file():
            self.report(f"packages of its {LOCK_FILE} (minutes, the first time)")
            shutil.rmtree(folder, ignore_errors=True)
            self._run(
                [_base_python(), "-m", "venv", str(folder)],
                "its environment cannot be made",
            )
            install = [
                str(python),
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                "-r",
                str(wanted),
            ]
            self._run(install, "its packages do not install")
            (folder / "installed").touch()
        return python

    def modules(self, key: str, packages: Path) -> None:
        """Copy the native modules into the tree; equal sources, which have equal keys,
        are compiled once."""
        kept = self._cache / "native" / key
        noted = (
            INSTALLED_SOURCES.read_text("utf-8").splitlines()
            if INSTALLED_SOURCES.is_file()
            else []
        )
        if not (kept / "built").is_file() and noted and _native_key(noted) == key:
            # `scripts/setup` built the installed modules from equal sources.
            installed = Path(sysconfig.get_path("platlib"))
            _keep({layer: installed / layer for layer in LAYERS}, kept)
        if not (kept / "built").is_file():
            self.report("native modules (a minute or two)")
            shutil.rmtree(kept, ignore_errors=True)
            work = self._cache / "native" / f"{key}.work"
            shutil.rmtree(work, ignore_errors=True)
            tools = f"{packages.parent}{os.pathsep}{os.environ.get('PATH', '')}"
            cmake = shutil.which("cmake", path=tools)
            if cmake is None:
                raise self._failed("there is no cmake among its packages")
            where = ["-S", str(self._tree), "-B", str(work)]
            configure = [
                cmake,
                "-G",
                "Ninja",
                *where,
                f"-DPython_EXECUTABLE={packages}",
            ]
            if ccache := shutil.which("ccache"):
                configure.append(f"-DCMAKE_CXX_COMPILER_LAUNCHER={ccache}")
            try:
                self._run(
                    configure, "its native modules cannot be configured", path=tools
                )
                self._run(
                    [cmake, "--build", str(work)],
                    "its native modules do not compile",
                    path=tools,
                )
                if lacking := _keep(
                    {layer: work / layer / "native" for layer in LAYERS}, kept
                ):
                    raise self._failed(f"its build makes no native module of {lacking}")
            finally:
                shutil.rmtree(work, ignore_errors=True)
        for layer in LAYERS:
            for module in sorted((kept / layer).glob("_native*.so")):
                shutil.copy2(module, self._tree / layer)

    def environment(self, python: Path, packages: Path) -> None:
        """Make an environment that imports the tree, then the packages, without import
        hooks of other installations; raise BuildError unless its `python` imports
        Outcore from the tree."""
        folder = python.parents[1]
        self._run(
            [_base_python(), "-m", "venv", "--without-pip", str(folder)],
            "its environment cannot be made",
        )
        found = self._run([str(packages), "-c", _PURE], "its packages cannot be found")
        own = self._run([str(python), "-c", _PURE], "its environment cannot be used")
        lines = [str(self._tree), *dict.fromkeys(found.splitlines())]
        (Path(own.splitlines()[0]) / "outcore.pth").write_text(
            "\n".join(lines) + "\n", encoding="utf-8"
        )
        where = self._run(
            [str(python), "-c", _CHECK], "it does not import", cwd=self._tree.parent
        ).strip()
        if not Path(where).is_relative_to(self._tree):
            raise self._failed(f"its python imports {where} instead of its own tree")

    def _run(
        self,
        command: Sequence[str],
        what: str,
        *,
        path: str | None = None,
        cwd: Path | None = None,
    ) -> str:
        environment = clean_environment() | ({"PATH": path} if path else {})
        done = subprocess.run(
            list(command),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            cwd=cwd,
            env=environment,
        )
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(map(str, command))}\n{done.stdout}{done.stderr}\n")
        if done.returncode:
            message = [
                line.strip()
                for line in (done.stdout + done.stderr).splitlines()
                if line.strip()
            ]
            wrong = (
                [line for line in message if "error" in line.lower()]
                or message
                or [f"exit code {done.returncode}"]
            )
            raise self._failed(f"{what}: {wrong[0]}"[:300])
        return done.stdout

    def _failed(self, why: str) -> BuildError:
        fix = f"see {self._log}" if self._log.exists() else "choose another commit"
        return BuildError(f"{self._name} cannot be built: {why}", fix)


def _keep(folders: Mapping[str, Path], kept: Path) -> str:
    """Copy each layer's native module from its folder to `kept`; without one, copy none
    and return its layer."""
    found = {
        layer: sorted(folder.glob("_native*.so")) for layer, folder in folders.items()
    }
    lacking = next((layer for layer, modules in found.items() if not modules), "")
    if not lacking:
        for layer, modules in found.items():
            (kept / layer).mkdir(parents=True, exist_ok=True)
            shutil.copy2(modules[0], kept / layer)
        (kept / "built").touch()
    return lacking


def _native_key(objects: Sequence[str]) -> str:
    return hashlib.sha256("\n".join([*objects, sys.version]).encode()).hexdigest()[:16]


_PURE = (
    "import sysconfig; p = sysconfig.get_paths(); print(p['purelib']); "
    "print(p['platlib'])"
)


def _base_python() -> str:
    """Return the base interpreter, which is outside every virtual environment."""
    names = (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3")
    folder = Path(sys.base_prefix) / "bin"
    found = [folder / name for name in names if (folder / name).is_file()]
    return str(found[0]) if found else sysconfig.get_config_var("BINDIR") + "/python3"


def clean_environment() -> dict[str, str]:
    """Return the environment variables without variables that make one commit import or
    read another's files."""
    leave_out = (
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "OUTCORE_DATA",
        "OUTCORE_RESULTS",
        "OUTCORE_SCRATCH",
        "OUTCORE_ARTEFACTS",
    )
    return {key: value for key, value in os.environ.items() if key not in leave_out}

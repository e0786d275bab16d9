"""One side of a check: runs cells of an experiment with its own commit's command, and
reads their records."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.atomic import whole_file
from harness.plan.experiment import PlannedRun
from harness.regress.measure.build import Built, clean_environment
from harness.regress.samples import RunSample, sample_of
from harness.results.store import read_record, run_folders
from harness.run.turns import VARIABLE
from workloads.errors import OutcoreError

_MAIN = "import sys; from harness.cli import main; main(sys.argv[1:])"


class Side:
    """A commit with its own folders for artefacts and records.

    Args:
        name: `base` or `head`.
        built: the commit's tree and python.
        work: the check's folder; `<work>/<name>` holds this side's records.
        data: folder for its artefacts, on the disk of the datasets.
    """

    def __init__(self, name: str, built: Built, work: Path, data: Path) -> None:
        self.built = built
        self.results = work / name
        self._data = data / name
        self._log = work / f"{name}.log"
        self._process: subprocess.Popen[str] | None = None
        for folder in (self.results, self._data):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def takes_turns(self) -> bool:
        """Whether this commit's sweeps can alternate epochs with other sweeps."""
        # Of whatever folder: it has moved since the first commit that has it.
        return any((self.built.tree / "harness").rglob("turns.py"))

    def use(self, tables: Path) -> None:
        """Let later runs find the datasets of folder `tables` by name."""
        for dataset in tables.iterdir():
            link = self._data / dataset.name
            link.unlink(missing_ok=True)
            link.symlink_to(dataset.resolve())

    def run(
        self,
        cells: Sequence[PlannedRun],
        profiles: Path,
        turns: str | None = None,
        *,
        verify: bool = False,
    ) -> list[RunSample]:
        """Run each cell once, without earlier artefacts; return one sample each, in
        order (`failed` without a record).

        Args:
            cells: cells of different systems; datasets are absolute paths, or names in
                the folder given to `use`.
            profiles: folder with the device's profile, which both sides share: systems
                may plan by it.
            turns: address of the `Turns` by which epochs alternate with the other
                side's; None: they do not.
            verify: whether to take the digest of all features in every epoch, not in
                the warm-up alone.
        """
        cache = self.results / "cache"
        shutil.rmtree(self._data / ".outcore" / "artefacts", ignore_errors=True)
        copy_profiles(profiles, cache)
        experiment = self.results / "experiment.yaml"
        systems = []
        for cell in cells:
            # Non-default settings only, which any version of the command can read.
            run = cell.settings.model_dump(
                mode="json", exclude_defaults=True, exclude={"options"}
            )
            if verify:
                run["verify"] = True
            systems.append(
                {
                    "name": cell.system,
                    "run": run,
                    "options": dict(cell.settings.options),
                }
            )
        with whole_file(experiment, "the experiment") as partial:
            # JSON is YAML.
            partial.write_text(
                json.dumps({"name": "regress", "systems": systems, "rounds": 1}),
                encoding="utf-8",
            )
        before = {path.name for path in run_folders(self.results)}
        roots = ["--data-root", str(self._data), "--results-root", str(self.results)]
        message = self._call(
            [
                "bench",
                str(experiment),
                "--fresh",
                "--figures",
                "none",
                "--json",
                *roots,
            ],
            turns,
        )
        copy_profiles(cache, profiles)
        by_system = {}
        for path in run_folders(self.results):
            with suppress(OutcoreError):
                if path.name not in before:
                    record = read_record(path)
                    by_system[record.system] = record
        return [
            sample_of(by_system[cell.system], in_turns=turns is not None)
            if cell.system in by_system
            else RunSample("", "failed", reason=message or "it left no record")
            for cell in cells
        ]

    def stop(self) -> None:
        """Terminate the command that another thread runs."""
        if (process := self._process) is not None:
            _end(process)

    def _call(self, arguments: Sequence[str], turns: str | None) -> str:
        """Run the commit's `outcore`; return its error in one sentence, empty on
        success."""
        environment = clean_environment() | ({VARIABLE: turns} if turns else {})
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"$ outcore {' '.join(arguments)}\n")
            log.flush()
            process = subprocess.Popen(
                [str(self.built.python), "-c", _MAIN, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                errors="replace",
                cwd=self.results,
                env=environment,
                start_new_session=True,
            )
            self._process = process
            try:
                out, _ = process.communicate()
            except BaseException:
                _end(process)
                raise
            finally:
                self._process = None
        return _error_in(out) if process.returncode else ""


def _end(process: subprocess.Popen[str]) -> None:
    """Terminate a command, which then removes its caps and workers; kill its process
    group after 20 s."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def copy_profiles(of: Path, to: Path) -> None:
    """Copy the device profiles of one cache folder to another."""
    to.mkdir(parents=True, exist_ok=True)
    for file in of.glob("profile-*.json"):
        shutil.copy2(file, to)


def _error_in(out: str) -> str:
    """Return the message of `{"error": …}`; empty if the command finished (a failed run
    is in its record)."""
    try:
        content = json.loads(out)
        return str(content["error"]["message"]) if "error" in content else ""
    except (ValueError, TypeError, KeyError):
        return (
            "its outcore ended without a word; see the side's .log in the work folder"
        )

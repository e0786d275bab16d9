"""Two drives of one model on one disk are two drives: for profiles, for runs, for what
is measured or predicted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.results.store import run_folders
from harness.ssd.fio import fio_path
from tests.harness.cap_tools import CAPPING, MIB, on_disk
from tests.harness.run_tools import outcore_here, profile_briefly
from tests.harness.ssd.loops import loop, mounted
from tests.support import make_tiny

pytestmark = pytest.mark.alone

EXPERIMENT: dict[str, Any] = {
    "name": "drives",
    "systems": ["gnndrive"],
    "run": {
        "dataset": "tiny",
        "memory": "+64MiB",
        "fanout": [3, 3],
        "batch_size": 40,
        "max_batches": 4,
        "epochs": 2,
        "warmup": 1,
        "hidden": 16,
        "device": "emulated:null",
        "device_memory": "1MiB",
        "disk_class": "none",
        "verify": False,
    },
}


@dataclass
class Drives:
    """Two mounted loop devices on one disk, each with the same dataset, and one results
    root."""

    first: Path
    second: Path
    results: Path
    experiment: Path

    def cli(self, *arguments: str) -> Any:
        """Run a command; return what it prints as JSON."""
        done = outcore_here(*arguments, "--json", data=self.first, results=self.results)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def bench(self, data: Path, *more: str) -> Any:
        """Run the experiment on the drive of a data root."""
        arguments = (
            "bench",
            str(self.experiment),
            "--figures",
            "none",
            "--no-retry",
            *more,
        )
        return self.cli(*arguments, "--data-root", str(data))


@pytest.fixture(scope="module")
def drives() -> Iterator[Drives]:
    if fio_path() is None or not CAPPING:
        pytest.skip("needs fio and memory cgroups")
    with contextmanager(on_disk)() as folder, ExitStack() as stack:
        points = []
        for name in ("one", "two"):
            image = folder / f"{name}.img"
            with image.open("wb") as file:
                file.truncate(160 * MIB)
            device = stack.enter_context(loop(image, direct=True))
            points.append(stack.enter_context(mounted(device, folder / name)))
            dataset = make_tiny(
                points[-1] / "tiny", nodes=20_000, edges=100_000, dim=64
            )
            profile_briefly(dataset.file("features"), folder / "results" / "cache")
        experiment = folder / "drives.yaml"
        experiment.write_text(json.dumps(EXPERIMENT))
        yield Drives(*points, folder / "results", experiment)


@pytest.mark.slow(
    "harness/ssd",
    "harness/drives",
    "harness/run/sweep.py",
    "harness/records/hosts.py",
    seconds=60,
)
def test_two_loop_devices_on_one_disk_are_two_drives(drives: Drives) -> None:
    profiles = []
    for point in (drives.first, drives.second):
        found = drives.cli(
            "ssd", "profile", str(point), "--file-size", "16MiB", "--seconds", "0.1"
        )
        profiles.append(found)
    one, two = profiles
    assert one["identity"]["model"] == two["identity"]["model"]
    assert one["identity"]["drive"] != two["identity"]["drive"]
    assert "backing file" in one["identity"]["drive_known_by"]
    saved = sorted(path.name for path in (drives.results / "ssd").glob("*.json"))
    assert len(saved) == 2
    assert two["name"] == f"{one['name']}-{two['identity']['drive'][:6]}"

    first = drives.bench(drives.first)
    assert first["skipped"] == 0
    assert first["records"][0]["status"] == "ok"
    assert (
        first["records"][0]["environment"]["disk"]["drive"] == one["identity"]["drive"]
    )
    compared = drives.cli("ssd", "compare", one["name"], two["name"])
    assert {cell["device"]: cell["predicted"] for cell in compared["epochs"]} == {
        one["name"]: False,
        two["name"]: True,
    }

    second = drives.bench(drives.second)
    assert (second["skipped"], second["made_elsewhere"]) == (0, 1)
    assert len(run_folders(drives.results)) == 2
    assert [record["environment"]["disk"]["drive"] for record in second["records"]] == [
        two["identity"]["drive"]
    ]
    compared = drives.cli("ssd", "compare", one["name"], two["name"])
    assert not any(cell["predicted"] for cell in compared["epochs"])
    runs = {cell["device"]: cell["runs"] for cell in compared["epochs"]}
    assert runs[one["name"]] != runs[two["name"]]

    for point, record in (
        (drives.first, first["records"][0]),
        (drives.second, second["records"][0]),
    ):
        again = drives.bench(point)
        assert (again["skipped"], again["made_elsewhere"]) == (1, 0)
        assert [one["run_id"] for one in again["records"]] == [record["run_id"]]
    listed = drives.cli("results", "list")
    assert {run["drive"] for run in listed["runs"]} == {
        one["identity"]["drive"],
        two["identity"]["drive"],
    }


@pytest.mark.slow("harness/ssd", "harness/run/sweep.py", seconds=10)
def test_datasets_on_two_drives_are_no_one_bench(drives: Drives) -> None:
    data = drives.results.parent / "both"
    data.mkdir()
    for name, point in (("tiny", drives.first), ("other", drives.second)):
        (data / name).symlink_to(point / "tiny")
    wanted = {**EXPERIMENT, "grid": {"dataset": ["tiny", "other"]}}
    drives.experiment.with_name("both.yaml").write_text(json.dumps(wanted))
    arguments = (
        "bench",
        str(drives.experiment.with_name("both.yaml")),
        "--figures",
        "none",
        "--fresh",
    )
    done = outcore_here(
        *arguments, data=data, results=drives.results.with_name("results-of-both")
    )
    assert done.returncode == 2
    assert "the datasets lie on 2 drives" in done.stderr
    shutil.rmtree(data)

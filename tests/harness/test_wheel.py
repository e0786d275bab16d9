"""A wheel holds what the package reads from its own folder: published values, profiles, templates."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
KINDS = (".csv", ".yaml", ".toml", ".html", ".css", ".js")


def test_a_wheel_holds_published_values_and_all_other_data_of_the_package(tmp_path: Path) -> None:
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            str(CHECKOUT),
            "-q",
            "--no-build-isolation",
            "--no-deps",
            "-C",
            "wheel.cmake=false",
            "-w",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    packages = ("harness", "systems", "workloads")
    files = [path.relative_to(CHECKOUT) for package in packages for path in (CHECKOUT / package).rglob("*")]
    wanted = {path.as_posix() for path in files if path.suffix in KINDS}
    assert {"harness/published/claims.csv", "harness/published/ginex-fig14.csv"} <= wanted
    assert wanted - held == set()

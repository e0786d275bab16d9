"""A wheel works without a checkout, and the loader without any of the harness's
packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from systems import _native as systems_native
from tests.harness.run_tools import environment, share_cache
from tests.support import make_tiny
from workloads import _native as workloads_native

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("harness", "outcore", "systems", "workloads")
KINDS = (".csv", ".yaml", ".toml", ".html", ".css", ".js", ".json")
#: Hides packages, as if they were not installed.
HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
"""
HARNESS = (
    "docker jinja2 matplotlib pynvml pandas PIL plotly psutil pyarrow ruamel rich "
    "ruptures scipy typer"
).split()
TRAIN = """
import outcore
for system in ("gnndrive", "outcore"):
    with outcore.loader({data!r}, system=system, memory="64MiB", fanout=[3, 3], batch_size=100, form="plain") as loader:
        print(sum(len(batch.y) for batch in loader))
"""


def elsewhere(data: Path, results: Path) -> dict[str, str]:
    """Return the environment of a command, without the checkout on the path."""
    return {
        name: value
        for name, value in environment(data, results).items()
        if name != "PYTHONPATH"
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout without the native modules, which take minutes
    to compile."""
    folder = tmp_path_factory.mktemp("wheel")
    arguments = [
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-C",
        "wheel.cmake=false",
        "-w",
        str(folder),
    ]
    command = [sys.executable, "-m", "pip", "wheel", str(CHECKOUT), *arguments]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a fresh environment with the wheel, the native modules
    and the dependencies."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True)
    site = (
        folder
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages"
    )
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for module in (systems_native, workloads_native):
        shutil.copy(str(module.__file__), site / module.__name__.partition(".")[0])
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"


def test_a_wheel_holds_published_values_and_all_other_data_of_the_package(
    wheel: Path,
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    files = [
        path.relative_to(CHECKOUT)
        for package in PACKAGES
        for path in (CHECKOUT / package).rglob("*")
    ]
    wanted = {path.as_posix() for path in files if path.suffix in KINDS}
    assert {
        "harness/published/claims.csv",
        "harness/published/ginex-fig14.csv",
    } <= wanted
    assert wanted - held == set()


@pytest.mark.slow("outcore", "pyproject.toml", "harness/cli", seconds=260)
def test_the_command_works_without_a_checkout(
    python: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Go from a dataset to a report, in another folder."""
    data = tmp_path / "data"
    results = tmp_path / "results"
    share_cache(results, tmp_path_factory)

    def outcore(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [python, "-c", "from outcore.command import main; main()", *arguments],
            env=elsewhere(data, results),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert str(CHECKOUT) not in done.stderr
        return done.stdout

    assert "diskgnn" in outcore("systems")
    outcore(
        "data",
        "make",
        "small",
        "--kind",
        "kronecker",
        "--nodes",
        "3000",
        "--edges",
        "20000",
        "--dim",
        "16",
        "--seed",
        "1",
    )
    settings = [
        "--fanout",
        "3,3",
        "--batch-size",
        "50",
        "--max-batches",
        "5",
        "--epochs",
        "2",
        "--hidden",
        "8",
    ]
    for system in ("pyg+", "gnndrive"):
        assert "status ok" in outcore(
            "run", system, "--dataset", "small", "--isolation", "none", *settings
        )
    assert "gnndrive-tab2" in outcore("figures", "--list")
    outcore("figures", "outcore-roofline")
    assert "gd-01" in outcore("claims")
    outcore("report")
    assert next(results.rglob("*.html")).stat().st_size > 10_000


def test_the_loader_needs_none_of_the_harness(python: Path, tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiny")
    script = HIDE.format(hidden=[*HARNESS, "harness"]) + TRAIN.format(
        data=str(tmp_path / "tiny")
    )
    done = subprocess.run(
        [python, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [int(labels) > 0 for labels in done.stdout.split()] == [True, True]


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [("typer", ["--help"]), ("matplotlib", ["figures", "outcore-roofline"])],
)
def test_a_missing_package_is_named_with_its_extra(
    python: Path, tmp_path: Path, missing: str, arguments: list[str]
) -> None:
    script = HIDE.format(hidden=[missing]) + "from outcore.command import main\nmain()"
    done = subprocess.run(
        [python, "-c", script, *arguments],
        cwd=tmp_path,
        env=elsewhere(tmp_path / "data", tmp_path / "results"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3, done.stderr
    assert f"{missing} is not installed; pip install 'outcore[harness]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow("outcore", "pyproject.toml", seconds=15)
def test_every_public_name_is_there_and_the_import_is_cheap(
    python: Path, tmp_path: Path
) -> None:
    script = (
        "import sys, outcore\n"
        "assert not {'torch', 'numpy', 'harness'} & set(sys.modules)\n"
        "for name in outcore.__all__: assert getattr(outcore, name) is not None, name\n"
        "assert set(outcore.__all__) == set(outcore._PLACES)\n"
    )
    done = subprocess.run(
        [python, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr

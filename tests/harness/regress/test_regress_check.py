"""The whole check: two commits of a clone of this repository are built, run in turns
and compared."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.cli import main
from harness.plan.experiment import cells, load_experiment
from harness.regress.check import _changed
from harness.regress.git import Repository
from harness.regress.measure.build import SOURCES, BuildError, Built, build
from harness.regress.measure.side import Side
from tests.harness.regress.git_made import commit, git

HERE = Path(__file__).resolve().parents[3]
PROFILE = """
name: tiny
datasets: {tiny: {kind: kronecker, nodes: 4k, edges: 30k, dim: 16, classes: 4}}
run: {dataset: tiny, model: sage, hidden: 8, fanout: [3, 3], batch_size: 50, max_batches: 4, epochs: 2, warmup: 1,
      device: emulated:null, device_memory: 1MiB, memory: none, isolation: none}
systems: [gnndrive, in-memory]
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clone this repository, with a commit of this tree as it stands and one that adds
    a comment."""
    folder = tmp_path_factory.mktemp("clone") / "r"
    subprocess.run(
        [
            "git",
            "clone",
            "-q",
            "--no-hardlinks",
            "--depth",
            "1",
            HERE.as_uri(),
            str(folder),
        ],
        check=True,
    )
    wanted = (
        "harness",
        "outcore",
        "systems",
        "workloads",
        "CMakeLists.txt",
        "requirements.lock",
    )
    # A file that has moved since the last commit must not be found at its old place.
    git(folder, "rm", "-rqf", *wanted)
    listed = git(
        HERE, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *wanted
    )
    files = [name for name in listed.split("\0") if name and (HERE / name).is_file()]
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(HERE / name, folder / name)
    commit(folder, "as it stands")
    seeds = folder / "workloads" / "workload.py"
    seeds.write_text(seeds.read_text() + "\n# a comment changes nothing\n")
    commit(folder, "a comment")
    return folder


@pytest.fixture
def cache(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a build cache that takes the installed modules for the clone's, so that
    nothing is compiled."""
    sources = tmp_path / "native-sources"
    sources.write_text(
        git(clone, "rev-parse", *(f"HEAD:{path}" for path in SOURCES)) + "\n"
    )
    monkeypatch.setattr("harness.regress.measure.build.INSTALLED_SOURCES", sources)
    return tmp_path / "cache"


@pytest.mark.parametrize("place", ["turns.py", "run/turns.py"])
def test_old_and_new_commits_take_turns_and_those_before_them_do_not(
    tmp_path: Path, place: str
):
    """The file was in `harness/` before it moved to `harness/run/`."""
    tree = tmp_path / "tree"
    side = Side(
        "base",
        Built("a" * 40, tree, Path("python"), ""),
        tmp_path / "work",
        tmp_path / "data",
    )
    (tree / "harness").mkdir(parents=True)
    assert not side.takes_turns
    (tree / "harness" / place).parent.mkdir(exist_ok=True)
    (tree / "harness" / place).touch()
    assert side.takes_turns


@pytest.mark.slow("harness/regress", "scripts/build-native", seconds=320)
def test_two_commits_are_built_run_in_turns_and_held_exactly(
    clone: Path, cache: Path, tmp_path: Path, capsys
):
    profile = tmp_path / "tiny.yaml"
    profile.write_text(PROFILE)
    with pytest.raises(SystemExit) as left:
        main(
            [
                "regress",
                "check",
                "--base",
                "HEAD~1",
                "--repository",
                str(clone),
                "--cache",
                str(cache),
                "--pairs",
                "2",
                "--gate",
                "exact",
                "--profile",
                str(profile),
                "--data-root",
                str(tmp_path / "data"),
                "--json",
                "--work",
                str(tmp_path / "work"),
                "-o",
                f"junit={tmp_path / 'out.xml'}",
            ]
        )
    found = json.loads(capsys.readouterr().out)
    assert (left.value.code or 0, found["decision"]) == (0, "same"), [
        *(metric["note"] for metric in found["metrics"]),
        *(log.read_text()[-2000:] for log in (tmp_path / "work").glob("*.log")),
    ]
    decided = {
        metric["metric"]: metric["decision"]
        for metric in found["metrics"]
        if metric["gates"]
    }
    assert (
        decided["in-memory no cap / digest"]
        == decided["gnndrive no cap / rows"]
        == "same"
    )
    assert found["pairs"] == [2, 2]
    assert len(found["runs"]["head"]) == 4
    # From the second pair on, epochs alternate, each side on its own copy of the
    # dataset.
    assert found["pairs_in_turns"] == [1, 1]
    assert (tmp_path / "out.xml").is_file()
    assert (tmp_path / "work" / "check.json").is_file()
    # Nothing is left beside the datasets, and each side ran its own tree.
    assert not (tmp_path / "data" / ".outcore" / "regress").exists()
    for side, ref in (("base", "HEAD~1"), ("head", "HEAD")):
        (record, *_) = (tmp_path / "work" / side / "runs").glob("*/record.json")
        assert json.loads(record.read_text())["environment"]["code"]["commit"] == git(
            clone, "rev-parse", ref
        )


def _checked(clone: Path, cache: Path, tmp_path: Path, capsys, *more: str):
    profile = tmp_path / "tiny.yaml"
    profile.write_text(PROFILE)
    options = [
        *("--repository", clone, "--cache", cache, "--profile", profile),
        *("--data-root", tmp_path / "data", "--work", tmp_path / "work"),
    ]
    words = ["regress", "check", *map(str, options), "--json", *more]
    with pytest.raises(SystemExit) as left:
        main(words)
    return left.value.code or 0, json.loads(capsys.readouterr().out)


@pytest.mark.slow("harness/regress", seconds=20)
def test_systems_of_equal_code_are_not_run_on_request(
    clone: Path, cache: Path, tmp_path: Path, capsys
):
    """A comment changes no system; a statement of one changes that one alone."""
    more = ("--base", "HEAD~1", "--changed")
    code, found = _checked(clone, cache, tmp_path, capsys, *more)
    assert (code, found["decision"], found["pairs"]) == (0, "same", [])
    names = [metric["metric"] for metric in found["metrics"]]
    assert names == ["gnndrive no cap / code", "in-memory no cap / code"]
    repository = Repository(clone)
    git(clone, "checkout", "-q", "-b", "one-system")
    try:
        place = "systems/gnndrive/__init__.py"
        text = (clone / place).read_text()
        commit(clone, "one system", {place: f"{text}\nCHANGED = 1\n"})
        commits = {"base": "HEAD~1", "head": "HEAD"}
        built = {
            side: build(repository, repository.commit(ref), cache, side)
            for side, ref in commits.items()
        }
        tiny = tmp_path / "tiny.yaml"
        planned = list(cells(load_experiment(str(tiny))))
        differing, same = _changed(planned, built)
    finally:
        git(clone, "checkout", "-q", "-")
    assert [cell.system for cell in differing] == ["gnndrive"]
    assert [metric.cell for metric in same] == ["in-memory no cap"]


@pytest.mark.slow("harness/regress", "scripts/build-native", seconds=60)
def test_a_commit_that_slows_a_system_is_found_among_others(
    clone: Path, cache: Path, tmp_path: Path, capsys
):
    """The slow commit makes the gate's own delay (`slowdown.py`) the default, which
    makes its runs INVALID: one pair of exact facts decides."""
    profile = tmp_path / "tiny.yaml"
    profile.write_text(PROFILE)
    good = git(clone, "rev-parse", "HEAD")
    git(clone, "checkout", "-q", "-b", "slower")
    try:
        files = {name: clone / name for name in ("harness/run/spec.py", "README.md")}
        commit(clone, "a page", {"README.md": "1"})
        delay = 'os.environ.get(TEST_CLOCK_VARIABLE, "harness.regress.slowdown:0.05")'
        code = files["harness/run/spec.py"].read_text()
        slowed = code.replace('os.environ.get(TEST_CLOCK_VARIABLE, "")', delay)
        assert slowed != code
        slow = commit(clone, "slower", {"harness/run/spec.py": slowed})
        commit(clone, "the page again", {"README.md": "2"})
        options = [
            *("--repository", clone, "--cache", cache, "--profile", profile),
            *("--data-root", tmp_path / "data", "--work", tmp_path / "work"),
            *("--systems", "in-memory", "--pairs", "1", "--gate", "exact", "--json"),
        ]
        with pytest.raises(SystemExit) as left:
            main(["regress", "bisect", good, "slower", *map(str, options)])
    finally:
        git(clone, "checkout", "-q", "-")
    found = json.loads(capsys.readouterr().out)
    assert (left.value.code or 0) == 0, found
    assert found["first_bad"].split()[1:] == ["slower"], found
    assert found["first_bad"].startswith(slow[:7])
    assert found["regressed"] == ["in-memory no cap / verdict"]
    assert (tmp_path / "work" / "bisect" / slow[:12] / "check.json").is_file()
    assert not (cache / "bisect").exists()


def test_a_commit_is_built_once(clone: Path, cache: Path):
    found = Repository(clone)
    message: list[str] = []
    for _ in range(2):
        built = build(found, found.commit("HEAD"), cache, "head", message.append)
    assert [line.split(": ")[1] for line in message] == ["worktree"]
    code = "import harness, systems._native; print(harness.__file__)"
    where = subprocess.run(
        [built.python, "-c", code], capture_output=True, text=True, cwd="/", check=True
    ).stdout
    assert where.startswith(str(built.tree))


def test_installed_modules_of_other_sources_are_not_taken(
    clone: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    noted = cache.parent / "native-sources"
    noted.write_text(noted.read_text().replace("\n", "0\n", 1))
    monkeypatch.setattr(
        "harness.regress.measure.build.shutil.which", lambda name, path: None
    )
    found = Repository(clone)
    with pytest.raises(BuildError, match="no cmake"):
        build(found, found.commit("HEAD"), cache, "head")

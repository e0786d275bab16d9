from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.cli import main
from harness.judge.compute import code_is_committed
from harness.judge.registry import RunContext
from harness.records.environment import code, git_refusal
from harness.regress.git import Repository
from harness.regress.measure.build import BuildError, build, remove
from harness.results.store import read_record
from tests.harness.regress.git_made import commit, git, repository
from tests.harness.test_golden_records import GOLDEN
from workloads.errors import HostError, InputError


def _run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    fault = capsys.readouterr()
    return int(left.value.code or 0), fault.out, fault.err


def test_a_folder_outside_git_is_reported(tmp_path: Path):
    with pytest.raises(InputError, match="not inside a git checkout"):
        Repository(tmp_path)


@pytest.mark.skipif(
    os.getuid() != 0, reason="needs root, to give a checkout to another user"
)
def test_a_checkout_of_another_owner_has_gits_own_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = repository(tmp_path / "other")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    fix = f"git config --global --add safe.directory {folder}"
    with pytest.raises(HostError, match="which another user owns") as refused:
        Repository(folder)
    assert refused.value.fix == fix == git_refusal(folder)
    code_, _, fault = _run(
        capsys, "regress", "check", "--base", "HEAD", "--repository", folder
    )
    assert code_ == 3
    assert fix in fault
    found = code.__wrapped__(folder)
    assert found == {"commit": None, "dirty": None, "refused": True}
    record = read_record(next((GOLDEN / "runs").iterdir()))
    record.environment["code"] = found
    finding = code_is_committed(record, RunContext())
    assert finding is not None
    assert "safe.directory" in finding.detail
    assert "no git checkout" not in finding.detail
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(folder))
    assert Repository(folder).path == folder
    assert git_refusal(folder) == ""


def test_an_unknown_commit_is_reported_and_a_shallow_clone_is_named_as_the_reason(
    tmp_path: Path,
):
    origin = repository(tmp_path / "origin")
    first = git(origin, "rev-parse", "HEAD")
    commit(origin, "second", {"a.txt": "2\n"})
    git(tmp_path, "clone", "-q", "--depth", "1", origin.as_uri(), "shallow")
    with pytest.raises(InputError, match="shallow clone") as error:
        Repository(tmp_path / "shallow").commit(first)
    assert "--unshallow" in error.value.fix
    with pytest.raises(InputError, match="no commit 'nothing'"):
        Repository(origin).commit("nothing")
    with pytest.raises(InputError, match="not a commit"):
        Repository(origin).commit("--output=/tmp/x")


def test_a_dirty_tree_is_refused_with_its_file_named(tmp_path: Path, capsys):
    folder = repository(tmp_path / "r")
    (folder / "a.txt").write_text("changed\n")
    code, out, err = _run(
        capsys,
        "regress",
        "check",
        "--base",
        "HEAD",
        "--repository",
        folder,
        "--data-root",
        tmp_path / "d",
        "--results-root",
        tmp_path / "res",
        "--json",
    )
    assert code == 2
    assert "a.txt" in json.loads(out)["error"]["message"]
    assert "commit" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("message", "declared"),
    [
        ("x\n\nOutcore-Baseline: all", {"all"}),
        ("x\n\nOutcore-Baseline: ginex, pyg+ (new order)", {"ginex", "pyg+"}),
        ("x\n\nSays Outcore-Baseline: all in its text", set()),
    ],
)
def test_a_new_baseline_is_declared_by_a_trailer_after_the_base(
    tmp_path: Path, message, declared
):
    folder = repository(tmp_path / "r")
    base = git(folder, "rev-parse", "HEAD")
    head = commit(folder, message)
    assert Repository(folder).declared(base, head) == declared
    assert Repository(folder).declared(head, head) == set()


def test_a_commit_that_does_not_compile_is_exit_3_with_the_compilers_word_and_the_log(
    tmp_path: Path,
):
    lock = (Path(__file__).parents[3] / "requirements.lock").read_text()
    folder = repository(
        tmp_path / "r",
        {
            "requirements.lock": lock,
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.20)\n"
            'message(FATAL_ERROR "x")',
        },
    )
    found = Repository(folder)
    with pytest.raises(
        BuildError,
        match=r"base .* cannot be built: its native modules cannot be configured",
    ) as error:
        build(found, found.commit("HEAD"), tmp_path / "cache", "base")
    assert error.value.exit_code == 3
    assert isinstance(error.value, HostError)
    log = Path(error.value.fix.removeprefix("see "))
    assert "CMake Error" in log.read_text()
    remove(found, tmp_path / "cache")
    assert git(folder, "worktree", "list").count("\n") == 0
    assert not (tmp_path / "cache").exists()


def test_a_base_that_cannot_be_built_is_exit_3_of_the_command(tmp_path: Path, capsys):
    folder = repository(tmp_path / "r")
    profile = tmp_path / "none.yaml"
    profile.write_text(
        "name: n\nsystems: [in-memory]\nrun: {dataset: kron}\n"
        "datasets: {kron: {kind: kronecker, nodes: 2k, edges: 8k, dim: 4}}\n"
    )
    code, _, err = _run(
        capsys,
        "regress",
        "check",
        "--base",
        "HEAD",
        "--repository",
        folder,
        "--data-root",
        tmp_path / "d",
        "--results-root",
        tmp_path / "res",
        "--profile",
        profile,
    )
    assert code == 3
    assert "base" in err
    assert "cannot be built: it has no requirements.lock" in err
    assert "Traceback" not in err


def test_links_lead_to_the_commits_only_where_the_origin_is_public(
    tmp_path: Path, monkeypatch
):
    from harness.regress.check import links

    for name in (
        "GITHUB_SERVER_URL",
        "GITHUB_REPOSITORY",
        "GITHUB_RUN_ID",
        "CI_PROJECT_URL",
        "CI_JOB_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    folder = repository(tmp_path / "r")
    assert links(Repository(folder), {"base": "a" * 40}) == {}
    git(folder, "remote", "add", "origin", "git@github.com:someone/graphs.git")
    assert links(Repository(folder), {"base": "a" * 40}) == {
        "base": f"https://github.com/someone/graphs/commit/{'a' * 40}"
    }
    git(folder, "remote", "set-url", "origin", "/srv/git/graphs.git")
    assert links(Repository(folder), {"base": "a" * 40}) == {}
    monkeypatch.setenv("CI_PROJECT_URL", "https://gitlab.example/g/p")
    assert (
        links(Repository(folder), {"head": "b"})["head"]
        == "https://gitlab.example/g/p/-/commit/b"
    )

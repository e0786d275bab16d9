"""Console blocks of README and docs run as written, and the tutorial leads to a report
with a system of one's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from harness.check.case import Case
from harness.check.drive import drive
from harness.check.rules import judge
from systems.registry import load
from tests.harness.run_tools import REPOSITORY, share_cache

#: The graph of engineer.md is used by other pages.
PAGES = [
    "engineer.md",
    *sorted(
        page.name
        for page in (REPOSITORY / "docs").glob("*.md")
        if page.name != "engineer.md"
    ),
]
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_REASON = re.compile(r"<!-- not run: (.+?) -->\s*\Z")


# Some thirty commands, each of which starts Python and most of them a run; five minutes
# on a machine at work.
pytestmark = pytest.mark.timeout(1800)


class Block(NamedTuple):
    """A fenced block of a page; `reason`: why a console block is not run."""

    language: str
    text: str
    reason: str


def blocks(page: str, *languages: str) -> list[Block]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        if match[2] in languages:
            reason = _REASON.search(text[: match.start()])
            found.append(
                Block(match[2], textwrap.dedent(match[3]), reason[1] if reason else "")
            )
    return found


def console(page: str) -> list[Block]:
    return blocks(page, "sh", "console", "bash")


@pytest.fixture
def clone(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the clone's scripts, a graph to import, and the `outcore` command
    of this checkout."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    rng = np.random.default_rng(0)
    indptr = np.arange(0, 5 * 2001, 5)
    indices = rng.integers(0, 2000, indptr[-1])
    np.savez(
        folder / "graph.npz",
        adj_data=np.ones(len(indices)),
        adj_indices=indices,
        adj_indptr=indptr,
        adj_shape=(2000, 2000),
        labels=rng.integers(0, 4, 2000),
    )
    command = folder / "bin" / "outcore"
    command.parent.mkdir()
    command.write_text(
        f"#!{sys.executable}\nfrom outcore.command import main\nmain()\n"
    )
    command.chmod(0o755)
    share_cache(folder / "results", tmp_path_factory)
    return folder


def tutorial_systems() -> dict[str, str]:
    """Return the tutorial's systems by the module that its text names."""
    found = {}
    for block in blocks("docs/tutorial.md", "python"):
        (name,) = re.findall(r'info = .*?name="([\w-]+)"', block.text, re.DOTALL)
        found[name.replace("-", "_")] = block.text
    return found


def run(script: str, clone: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run commands as a reader would, one after the other; the first that fails ends
    it."""
    return subprocess.run(
        ["bash", "-eux", "-o", "pipefail", "-c", script],
        env={
            **os.environ,
            "PATH": os.pathsep.join(
                [
                    str(clone / "bin"),
                    str(Path(sys.executable).parent),
                    os.environ["PATH"],
                ]
            ),
            "PYTHONPATH": str(REPOSITORY),
            "OUTCORE_DATA": str(clone / "data"),
            "OUTCORE_RESULTS": str(clone / "results"),
        },
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


def test_a_block_that_is_not_run_states_why() -> None:
    found = [
        block
        for page in ("README.md", *(f"docs/{name}" for name in PAGES))
        for block in console(page)
    ]
    assert len([block for block in found if not block.reason]) >= 10
    assert all(len(block.reason.split()) >= 3 for block in found if block.reason)


@pytest.mark.slow("docs", "README.md", "harness/cli", "outcore/template")
def test_every_console_block_of_readme_and_docs_runs_as_written(clone: Path) -> None:
    failed = []
    for page in (
        *(f"docs/{name}" for name in PAGES if name != "tutorial.md"),
        "README.md",
    ):
        script = "\n".join(block.text for block in console(page) if not block.reason)
        if script and (done := run(script, clone, clone)).returncode:
            failed.append(f"{page}: {done.stderr[-2000:]}")
    assert failed == []


@pytest.mark.slow(
    "docs/tutorial.md",
    "outcore",
    "harness/cli",
    "harness/check",
    "systems/interface.py",
)
def test_the_tutorial_leads_to_a_report_with_a_system_of_ones_own(clone: Path) -> None:
    page = "docs/tutorial.md"
    own = tutorial_systems()
    lines = [
        line for text in own.values() for line in text.splitlines() if line.strip()
    ]
    commands = [
        line
        for block in console(page)
        for line in block.text.splitlines()
        if line.strip()
    ]
    assert len(commands) <= 30
    text = (REPOSITORY / page).read_text(encoding="utf-8").replace("\n", " ")
    assert f"{len(commands)} commands and {len(lines)} lines of your own" in text

    script = "\n".join(block.text for block in console(page) if not block.reason)
    begin, rest = script.split("outcore check cached-rows", 1)
    write = "".join(
        f"cat > {module}.py <<'END'\n{text}END\n" for module, text in own.items()
    )
    done = run(f"{begin}\n{write}\noutcore check cached-rows{rest}", clone, clone)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = (clone / "results" / "report.html").read_text(encoding="utf-8")
    assert all(module.replace("_", "-") in report for module in own)
    assert "hot-rows" in report


def test_the_shortest_system_of_the_docs_keeps_its_promises_and_imports_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = [
        block.text
        for block in blocks("docs/researcher.md", "python")
        if "(outcore.System)" in block.text
    ]
    assert re.findall(r"^(?:import|from) (\S+)", text, re.MULTILINE) == [
        "typing",
        "torch",
        "outcore",
    ]
    (tmp_path / "shortest.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    chosen = (
        Case("base"),
        Case("smallest", kind="smallest"),
        Case("close", kind="close"),
        Case("loss", kind="loss"),
    )
    found = judge(
        [drive(tmp_path, case, load("shortest")) for case in chosen], faithful=True
    )
    assert [one for one in found if not one.ok] == []


@pytest.mark.parametrize(
    ("module", "most_lines"),
    [("cached_rows", 25), ("two_tiers", 25), ("page_window", 40)],
)
def test_a_system_of_the_tutorial_is_short_and_keeps_its_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, most_lines: int
) -> None:
    text = tutorial_systems()[module]
    assert len([line for line in text.splitlines() if line.strip()]) <= most_lines
    imported = re.findall(r"^(?:import|from) (\S+)", text, re.MULTILINE)
    assert set(imported) <= {"outcore", "numpy"}
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    system = load(module.replace("_", "-"))
    chosen = (
        Case("base"),
        Case("device", device="emulated:late"),
        Case("smallest", kind="smallest"),
        Case("abandoned", kind="abandon"),
        Case("close", kind="close"),
        Case("loss", kind="loss"),
    )
    found = judge([drive(tmp_path, case, system) for case in chosen], faithful=True)
    assert [one for one in found if not one.ok] == []

"""Fixtures shared by all test folders, and the choice of the slow tests that run."""

from __future__ import annotations

import atexit
import gc
import hashlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest

from tests.support import make_tiny, session_lock
from workloads.dataset import Dataset

ROOT = Path(__file__).parent.parent

# No test asserts a time: a machine that runs other work beside the tests may be slow.
hypothesis.settings.register_profile("outcore", deadline=None)
hypothesis.settings.load_profile("outcore")
# until all tests are collected: it takes a fifth of the imports' time and finds nothing
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--slow` and `--slow-budget`."""
    text = (
        "tests marked slow: none, those whose sources were touched (scripts/touched), "
        "or all"
    )
    parser.addoption(
        "--slow", choices=("none", "touched", "all"), default="none", help=text
    )
    text = (
        "minutes of touched slow tests, added up by their marks; a fourth of it for "
        "those that run alone"
    )
    parser.addoption(
        "--slow-budget", type=float, default=float("inf"), metavar="MINUTES", help=text
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without a test marked `alone` where `scripts/test` runs all of
    these."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if (
        whole
        and config.getoption("-m") == "alone"
        and collection_path.name.startswith("test_")
    ):
        return "pytest.mark.alone" not in collection_path.read_text() or None
    return None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Deselect slow tests that were not requested; mark those above the budget of this
    half as skipped, by name."""
    wanted = config.getoption("--slow")
    if wanted == "all":
        return
    files = touched() if wanted == "touched" else []
    slow = {
        item: concerns(mark.args, item, files)
        for item in items
        if (mark := item.get_closest_marker("slow"))
    }
    config.hook.pytest_deselected(
        items=[item for item, depth in slow.items() if not depth]
    )
    items[:] = [item for item in items if slow.get(item, 1)]
    if (minutes := config.getoption("--slow-budget")) == float("inf"):
        return
    half = {"alone": True, "not alone": False}.get(config.getoption("-m"))
    chosen = {
        item: depth
        for item, depth in slow.items()
        if half in (None, bool(item.get_closest_marker("alone")))
    }
    costs = {
        item.nodeid: (depth, seconds_of(item))
        for item, depth in chosen.items()
        if depth
    }
    left_out = set(above_budget(costs, 60 * minutes / (4 if half else 1), tree()))
    for item in items:
        if item.nodeid in left_out:
            reported = (
                f"not within {minutes:g} min of slow tests; run it: scripts/test "
                f"--slow all '{item.nodeid}'"
            )
            item.add_marker(pytest.mark.skip(reason=reported))
    # Their files come first, so that none is left to one process at the end.
    first = {
        item.path
        for item in chosen
        if item.nodeid in costs and item.nodeid not in left_out
    }
    items.sort(key=lambda item: item.path not in first)


def touched() -> list[str]:
    """Return the files that the change set touches, relative to the repository."""
    done = subprocess.run(
        [ROOT / "scripts" / "touched"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def tree() -> str:
    """Return the id of the checked-out files, equal in each commit of the same; nothing
    without a repository."""
    words = ["git", "rev-parse", "HEAD^{tree}"]
    return subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout


def concerns(places: Sequence[str], item: pytest.Item, files: Sequence[str]) -> int:
    """Return how closely one of `files` concerns a test: 0 not at all, else the depth
    of the deepest of `places` (files and folders) at which one lies; the test's own
    file is deeper than all."""
    own = item.path.relative_to(ROOT).as_posix()
    depths = {own: 99, **{place: 1 + place.count("/") for place in places}}
    return max(
        (
            depth
            for at, depth in depths.items()
            for file in files
            if f"{file}/".startswith(f"{at}/")
        ),
        default=0,
    )


def seconds_of(item: pytest.Item) -> float:
    """Return the seconds that a slow test takes by its mark; 15 if it names none."""
    mark = item.get_closest_marker("slow")
    return float(mark.kwargs.get("seconds", 15)) if mark else 0.0


def above_budget(
    costs: dict[str, tuple[int, float]], budget_s: float, turn: str
) -> list[str]:
    """Return the tests of `costs` (depth and seconds by name) that do not fit into
    `budget_s`.

    Tests of the deepest places come first, and those of equal depth in an order that
    `turn` decides, an id of all files, so that each gets its turn; one that is longer
    than the whole budget takes all of it.
    """
    left_out = []
    whole = budget_s
    for name in sorted(
        costs,
        key=lambda name: (
            -costs[name][0],
            hashlib.sha256((turn + name).encode()).digest(),
        ),
    ):
        if 0 < (cost := min(costs[name][1], whole)) <= budget_s:
            budget_s -= cost
        else:
            left_out.append(name)
    return left_out


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Make a dataset of 2,000 nodes, 20,000 edges and 16 float32 columns; read-only,
    shared by the session."""
    return make_tiny(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="module")
def engine_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lock the container engine: tests count its containers, and make and remove images
    under fixed names."""
    with session_lock(tmp_path_factory, "engine"):
        yield


def pytest_collection_finish() -> None:
    """Exclude the thousands of collected tests from garbage collections until the
    interpreter ends, which collects all again: nanobind counts what is left then."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)

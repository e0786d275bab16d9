"""`outcore check` passes our systems, and fails each broken one for exactly what it
breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.check.case import Case, cases
from harness.check.drive import drive
from harness.check.rules import RULES, judge
from systems.in_memory import InMemory
from systems.interface import Options
from systems.registry import load, names
from tests.systems import broken_systems as broken
from workloads.errors import InputError

pytestmark = pytest.mark.timeout(300)

BASE = Case("base")
#: Systems that are checked in every run of the tests: of each kind that reads from disk
#: one.
QUICK = ("pyg+", "gnndrive", "outcore")
SLOW = pytest.mark.slow("systems", "workloads", "harness/check")
CASES = {
    "run": BASE,
    "dim": Case("dim 127", dim=127),
    "order": Case("in order", keep_order=True),
    "loss": Case("loss curve", kind="loss", keep_order=True, batch_size=25),
    "smallest": Case("smallest budget", kind="smallest"),
    "cut": Case("features truncated", kind="cut"),
    "gone": Case("features gone", kind="gone"),
    "close": Case("closed", kind="close"),
    "artefacts": Case("artefacts", kind="artefacts"),
    "lengths": Case("trainings of 1 and 4 epochs", kind="lengths"),
}


def broken_rules(folder: Path, system: type, *chosen: str) -> set[str]:
    seen = [drive(folder, CASES[name], system) for name in chosen]
    return {
        result.name for result in judge(seen, system.info.faithful) if not result.ok
    }


@pytest.mark.parametrize(
    ("system", "chosen", "rules"),
    [
        (broken.WrongRows, ("run",), set()),
        (broken.WrongRows, ("run", "dim"), {"features equal the oracle's"}),
        (broken.OtherSample, ("run",), {"structure equals the oracle's"}),
        (broken.LostBatch, ("run",), {"every batch once an epoch"}),
        (broken.RepeatedBatch, ("run",), {"every batch once an epoch"}),
        (broken.LeakedThread, ("run",), {"threads and files closed"}),
        (broken.LeakedFile, ("run",), {"threads and files closed"}),
        (broken.LeakedMap, ("run",), {"threads and files closed"}),
        (broken.CountersOff, ("run",), {"counters consistent"}),
        (broken.MissesWithoutRequests, ("run",), {"counters consistent"}),
        (broken.RowsForgotten, ("run",), {"counters consistent"}),
        (broken.UselessBytes, ("run",), {"counters consistent"}),
        (broken.OverwritesRows, ("run",), {"rows stay until released"}),
        (broken.PlansTooMuch, ("smallest",), {"plan within budget"}),
        (broken.OutOfOrder, ("order",), {"order kept when asked"}),
        (broken.OutOfOrder, ("loss",), {"order kept when asked"}),
        (broken.WrongLoss, ("loss",), {"loss curve equals the oracle's"}),
        (broken.IgnoresTruncation, ("cut",), {"damaged feature file is reported"}),
        (broken.IgnoresTruncation, ("gone",), {"damaged feature file is reported"}),
        (broken.VagueAboutTruncation, ("cut",), {"damaged feature file is reported"}),
        (broken.SlowToClose, ("close",), {"close() at any moment"}),
        (broken.ClosesOnce, ("run", "close", "cut"), {"close() at any moment"}),
        (broken.ReusesAnything, ("artefacts",), {"prepared artefacts are reused"}),
        (
            broken.PreparesEpochsOnce,
            ("lengths",),
            {"what is prepared once does not grow with the epochs"},
        ),
        (broken.PreparesEpochs, ("run", "lengths"), set()),
        (broken.Raises, ("run", "cut"), {"runs"}),
        (broken.UnfaithfulRows, ("run",), {"rows are those of its nodes"}),
        (broken.UnfaithfulEdges, ("run",), {"edges are the graph's"}),
    ],
)
def test_a_broken_system_fails_for_what_it_breaks_and_nothing_else(
    tmp_path: Path, system: type, chosen: tuple[str, ...], rules: set[str]
) -> None:
    assert broken_rules(tmp_path, system, *chosen) == rules


def test_a_system_that_samples_otherwise_by_design_is_not_compared(
    tmp_path: Path,
) -> None:
    assert broken_rules(tmp_path, broken.Unfaithful, "run") == set()


def test_a_finding_states_what_to_do(tmp_path: Path) -> None:
    found = judge(
        [drive(tmp_path, CASES["smallest"], broken.PlansTooMuch)], faithful=True
    )
    assert [one.fix for one in found if not one.ok] == [
        one.fix for one in RULES if one.name == "plan within budget"
    ]
    assert all(not one.fix for one in found if one.ok)
    assert all(rule.fix for rule in RULES)


def _sets_files() -> None:
    class SetsFiles(InMemory):
        def prepare(self) -> None:
            super().prepare()
            self.files = [self.workload.dataset.file("features")]  # type: ignore[assignment, method-assign]


def _has_files() -> None:
    class HasFiles(InMemory):
        files = ()  # type: ignore[assignment]


def _loads_by_instance() -> None:
    class LoadsByInstance(InMemory):
        def loads_everything(self, options: Options) -> bool:  # type: ignore[override]
            return False


def _own_clock() -> None:
    class OwnClock(InMemory):
        def clock(self) -> None: ...  # type: ignore[override]


def _own_fit() -> None:
    class OwnFit(InMemory):
        def fit(self) -> None: ...  # type: ignore[override, misc]


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (
            _sets_files,
            "SetsFiles.prepare sets self.files, which hides the method System.files; "
            "rename the attribute",
        ),
        (
            _has_files,
            "HasFiles.files hides System.files, a method; make it a method, or rename "
            "it",
        ),
        (
            _loads_by_instance,
            "LoadsByInstance.loads_everything hides System.loads_everything, a "
            "classmethod",
        ),
        (_own_clock, "OwnClock.clock hides System.clock; rename it, say _clock"),
        (_own_fit, "OwnFit.fit hides System.fit; rename it, say _fit"),
    ],
)
def test_a_class_that_hides_a_name_of_system_is_refused_when_it_is_defined(
    define: Callable[[], None], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        define()


def test_every_rule_is_broken_by_some_system_here() -> None:
    """A rule that no system here breaks may be a rule that cannot fail."""
    marks = test_a_broken_system_fails_for_what_it_breaks_and_nothing_else.pytestmark  # type: ignore[attr-defined]
    tried = {name for row in marks[0].args[1] for name in row[2]}
    assert {rule.name for rule in RULES} == tried


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else SLOW) for name in names()],
)
def test_our_systems_keep_every_promise(tmp_path: Path, name: str) -> None:
    system = load(name)
    seen = [
        drive(tmp_path, case, system)
        for case in cases(system.info.devices, True, system.info.faithful)
    ]
    assert [
        result for result in judge(seen, system.info.faithful) if not result.ok
    ] == []

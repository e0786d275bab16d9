"""`outcore check` passes our systems, and fails each broken one for exactly what it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.check.case import Case, cases
from harness.check.drive import drive
from harness.check.rules import RULES, judge
from systems.registry import load, names
from tests.systems import broken_systems as broken

pytestmark = pytest.mark.timeout(120)

BASE = Case("base")
#: Systems that are checked in every run of the tests: of each kind one.
QUICK = ("in-memory", "pyg+", "gnndrive", "outcore")
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
}


def broken_rules(folder: Path, system: type, *chosen: str) -> set[str]:
    seen = [drive(folder, CASES[name], system) for name in chosen]
    return {result.name for result in judge(seen, system.info.faithful) if not result.ok}


@pytest.mark.parametrize(
    ("system", "chosen", "rules"),
    [
        (broken.WrongRows, ("run",), set()),
        (broken.WrongRows, ("run", "dim"), {"features equal the oracle's"}),
        (broken.OtherSample, ("run",), {"structure equals the oracle's", "features equal the oracle's"}),
        (
            broken.LostBatch,
            ("run",),
            {
                "every batch once an epoch",
                "structure equals the oracle's",
                "features equal the oracle's",
                "counters consistent",
            },
        ),
        (
            broken.RepeatedBatch,
            ("run",),
            {"every batch once an epoch", "structure equals the oracle's", "features equal the oracle's"},
        ),
        (broken.LeakedThread, ("run",), {"threads and files closed"}),
        (broken.LeakedFile, ("run",), {"threads and files closed"}),
        (broken.LeakedMap, ("run",), {"threads and files closed"}),
        (broken.CountersOff, ("run",), {"counters consistent"}),
        (broken.RowsForgotten, ("run",), {"counters consistent"}),
        (broken.UselessBytes, ("run",), {"counters consistent"}),
        (broken.OverwritesRows, ("run",), {"rows stay until released"}),
        (broken.PlansTooMuch, ("smallest",), {"plan within budget"}),
        (broken.OutOfOrder, ("order",), {"order kept when asked"}),
        (broken.OutOfOrder, ("loss",), {"order kept when asked", "loss curve equals the oracle's"}),
        (broken.WrongLoss, ("loss",), {"features equal the oracle's", "loss curve equals the oracle's"}),
        (broken.IgnoresTruncation, ("cut",), {"damaged feature file is told"}),
        (broken.IgnoresTruncation, ("gone",), {"damaged feature file is told"}),
        (broken.VagueAboutTruncation, ("cut",), {"damaged feature file is told"}),
        (broken.SlowToClose, ("close",), {"close() at any moment"}),
        (broken.ReusesAnything, ("artefacts",), {"prepared artefacts are reused"}),
        (broken.Raises, ("run",), {"runs"}),
        (broken.UnfaithfulRows, ("run",), {"rows are those of its nodes"}),
        (broken.UnfaithfulEdges, ("run",), {"edges are the graph's"}),
    ],
)
def test_a_broken_system_fails_for_what_it_breaks_and_nothing_else(
    tmp_path: Path, system: type, chosen: tuple[str, ...], rules: set[str]
) -> None:
    assert broken_rules(tmp_path, system, *chosen) == rules


def test_a_system_that_samples_otherwise_by_design_is_not_compared(tmp_path: Path) -> None:
    assert broken_rules(tmp_path, broken.Unfaithful, "run") == set()


def test_every_rule_is_broken_by_some_system_here() -> None:
    """A rule that no system here breaks may be a rule that cannot fail."""
    marks = test_a_broken_system_fails_for_what_it_breaks_and_nothing_else.pytestmark  # type: ignore[attr-defined]
    tried = {name for row in marks[0].args[1] for name in row[2]}
    assert {rule.name for rule in RULES} == tried


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else SLOW) for name in names()])
def test_our_systems_keep_every_promise(tmp_path: Path, name: str) -> None:
    system = load(name)
    seen = [drive(tmp_path, case, system) for case in cases(system.info.devices, True, system.info.faithful)]
    assert [result for result in judge(seen, system.info.faithful) if not result.ok] == []

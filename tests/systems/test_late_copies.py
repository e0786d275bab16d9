"""Every system waits for its copies: right rows on a device whose copies arrive late,
wrong ones without the waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.check.case import Case
from harness.check.drive import drive
from harness.check.rules import judge
from systems.registry import load, names
from workloads.accelerators.late import LateAccelerator, LateEvent

pytestmark = pytest.mark.timeout(120)

#: Systems whose device may read all rows in host memory, in place.
COPY_NOTHING = {"dgl", "uva", "data-tiering"}
CASE = Case("late", nodes=600, edges=6000, train=60, device="emulated:late")
ROWS = {"features equal the oracle's", "rows are those of its nodes"}


def broken_rules(folder: Path, name: str) -> set[str]:
    system = load(name)
    seen = drive(folder, CASE, system)
    return {
        result.name for result in judge([seen], system.info.faithful) if not result.ok
    }


def counting(call: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        return call(*arguments, **named)

    return counted


@pytest.mark.parametrize("name", names())
def test_rows_are_right_with_the_waits_and_wrong_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    copies = [0]
    for call in ("copy", "gather_ahead"):
        monkeypatch.setattr(
            LateAccelerator, call, counting(getattr(LateAccelerator, call), copies)
        )
    assert broken_rules(tmp_path, name) == set()
    assert copies[0] or name in COPY_NOTHING
    if copies[0]:
        monkeypatch.setattr(LateEvent, "wait", lambda _: None)
        assert broken_rules(tmp_path, name) & ROWS

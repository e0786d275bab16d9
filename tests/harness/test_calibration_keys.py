"""What is kept of a calibration belongs to the code that was calibrated, wherever that
code lies."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cache import Cache
from harness.judge.trace import TraceFacts
from harness.records import code
from harness.run import calibrate
from tests.harness.records import make_record
from workloads.dataset import Dataset
from workloads.workload import ModelSpec, SamplerSpec, Workload

_SYSTEM = """
from beside import EXTRA
from tests.harness.misbehaving import Misbehaving
class Mine(Misbehaving):
    pass
"""


@pytest.fixture()
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that writes the module beside a system, as an edit between two
    runs does."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "somebodys.py").write_text(_SYSTEM)

    def write(text: str) -> None:
        (tmp_path / "beside.py").write_text(text)
        for cached in (code.system_fingerprint, code.code_of, code._facts):
            cached.cache_clear()
        for name in ("somebodys", "beside"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()

    return write


def _series(tmp_path: Path) -> Any:
    return SimpleNamespace(
        cache=Cache(tmp_path / "cache"), isolation=SimpleNamespace(describe=dict)
    )


def test_the_floor_of_a_system_from_elsewhere_is_measured_again_after_an_edit_of_what_it_imports(
    tmp_path: Path, edit: Callable[[str], None]
) -> None:
    config = make_record("somebodys:Mine", []).config
    keys = []
    for text in (
        "EXTRA = 1\n",
        "EXTRA = 1  # a comment\n",
        "import tkinter\nEXTRA = 1\n",
    ):
        edit(text)
        keys.append(calibrate.memory_key(_series(tmp_path), config))
    assert keys[0] == keys[1] != keys[2]


def test_mini_batches_of_a_sampler_from_elsewhere_are_drawn_again_after_an_edit(
    tmp_path: Path, edit: Callable[[str], None], tiny_dataset: Dataset
) -> None:
    config = make_record("gnndrive", [], sampler="beside:SAMPLER").config
    workload = Workload(
        tiny_dataset, SamplerSpec(fanout=(3, 3), batch_size=40), ModelSpec(layers=2)
    )
    cache = Cache(tmp_path / "cache")
    found = []
    for number in (1, 2):
        edit(f"EXTRA = {number}\n")
        calibrate.batch_bounds(config, workload, cache)
        found.append(
            (
                TraceFacts(workload, config, cache)._own,
                len(list(cache.folder.glob("bounds-*"))),
            )
        )
    assert found[0][0] != found[1][0]
    assert [count for _, count in found] == [1, 2]

"""The disk benchmarks compare our reader with fio's best settings and with the fastest other reader."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from harness.ssd.fio import fio_path

pytestmark = pytest.mark.alone

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture()
def cold_extract(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("cold_extract")


def test_the_strongest_control_is_the_judge(cold_extract: ModuleType) -> None:
    medians = {"RowReader": 1.0, "torch.index_select": 9.0, "gather with 32 threads, MADV_RANDOM": 1.5}
    assert cold_extract.strongest(medians) == ("gather with 32 threads, MADV_RANDOM", 1.5)
    assert cold_extract.strongest({"RowReader": 2.0, "DGL": 4.0}) == ("DGL", 2.0)


def test_there_is_one_fio() -> None:
    """A second call of fio once lacked the alignment of the first, which made fio a weaker opponent."""
    own = [path for folder in ("benchmarks", "harness", "systems") for path in (ROOT / folder).rglob("*.py")]
    starts = [path.relative_to(ROOT) for path in own if re.search(r"[\[(]\s*\"fio\",", path.read_text())]
    # environment.py asks for its version.
    assert sorted(map(str, starts)) == ["harness/records/environment.py", "harness/ssd/fio.py"]


@pytest.mark.skipif(fio_path() is None, reason="fio is not installed")
def test_fio_writes_every_byte_once_and_is_timed(cold_extract: ModuleType, tmp_path: Path) -> None:
    disk = importlib.import_module("_disk")
    assert disk.fio_write(tmp_path, 8 << 20, depth=4, sync=True) > 0
    assert list(tmp_path.iterdir()) == []

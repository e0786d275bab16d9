"""Files that a run has open: its data is seen wherever it lies, libraries are not taken for data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.run import cold


def test_data_beside_a_linked_package_is_seen_and_the_package_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, work = tmp_path / "site-packages", tmp_path / "work"
    (work / "package").mkdir(parents=True)
    packages.mkdir()
    (packages / "package").symlink_to(work / "package")
    library, data = work / "package" / "library.so", work / "features.bin"
    for file in (library, data):
        file.write_bytes(bytes(1 << 20))
    monkeypatch.setattr(cold, "_LIBRARIES", cold._libraries(packages))
    with library.open("rb"), data.open("rb"):
        found = cold.open_files([os.getpid()])
    assert data in found and library not in found

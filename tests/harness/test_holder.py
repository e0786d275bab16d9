"""The holder reads libraries and modules outside the cap, by importing them once and by
their names from then on."""

from __future__ import annotations

import compileall
import importlib.util
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from harness.cache import Cache
from harness.run.holder import Holder, mapped_libraries, read_modules
from systems.engine.io.memory import evict, resident_bytes
from tests.harness.cap_tools import on_disk

POPULATE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
from harness.run.holder import mapped_libraries, populate_libraries
populate_libraries(mapped_libraries())
"""


def test_the_holder_reads_libraries_whole() -> None:
    """Pages that are not in memory would be charged to the first run that touches
    them."""
    from systems import _native

    for folder in on_disk():
        library = folder / Path(_native.__file__).name
        library.write_bytes(Path(_native.__file__).read_bytes())
        evict(library)
        assert resident_bytes(library) == 0
        subprocess.run(
            [sys.executable, "-c", POPULATE, str(library)], check=True, timeout=60
        )
        assert resident_bytes(library) >= library.stat().st_size


def test_the_bytecode_of_modules_is_read() -> None:
    for folder in on_disk():
        source = folder / "some_module.py"
        source.write_text("VALUES = " + repr(list(range(10_000))))
        compileall.compile_file(source, quiet=1)
        compiled = Path(importlib.util.cache_from_source(str(source)))
        evict(compiled)
        assert resident_bytes(compiled) == 0
        read_modules([str(source), str(folder / "gone.py")])
        assert resident_bytes(compiled) >= compiled.stat().st_size


@pytest.mark.slow(
    "harness/run/holder.py", "harness/run/series.py", "harness/cache.py", seconds=10
)
def test_a_later_holder_holds_the_files_of_an_earlier_one_without_its_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = "harness.run.holder"

    def held() -> tuple[set[str], int]:
        """Start a holder; return its mapped libraries and the KiB that its imports
        took."""
        with closing(Holder(["gnndrive"], Cache(tmp_path))) as holder:
            assert holder.wait_ready()
            # An ended process of another test, not yet waited for, has no command line.
            processes = [
                one.info for one in psutil.process_iter(["pid", "ppid", "cmdline"])
            ]
            (pid,) = [
                one["pid"]
                for one in processes
                if one["ppid"] == os.getpid() and word in (one["cmdline"] or [])
            ]
            status = Path(f"/proc/{pid}/status").read_text()
            return mapped_libraries(pid), int(status.split("RssAnon:")[1].split()[0])

    first, imported = held()
    later, named = held()
    assert any("libtorch" in name for name in first)
    assert first <= later
    assert named < imported / 4
    # An installed package may bring other libraries.
    monkeypatch.setattr(
        "harness.run.holder.sysconfig.get_path", lambda name: str(tmp_path)
    )
    assert held()[1] > 4 * named

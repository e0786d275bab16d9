"""Tables on terminals of 80 and 120 columns, from real records: nothing is cut, and
every run id can be copied."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from rich.cells import cell_len

from harness import cli
from harness.cli.regress import print_comparison, print_trend
from harness.cli.run_tables import print_headline
from harness.cli.ssd import _print_drive
from harness.regress.judge import compare
from harness.regress.trend import Point, Series, Step
from harness.results import store
from harness.ssd.drive import save_drive
from systems.registry import names
from tests.harness.records import make_record, save
from tests.harness.regress.samples_made import cells, session
from tests.harness.run_tools import command, environment
from tests.harness.ssd.drives import make_drive
from tests.harness.test_golden_records import GOLDEN, RUNS
from tests.support import make_tiny

WIDTHS = (80, 120)
Show = Callable[[], object]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Data root with a dataset, results root with the golden records and a drive
    profile."""
    root = tmp_path_factory.mktemp("terminal")
    make_tiny(root / "data" / "tiny")
    shutil.copytree(GOLDEN, root / "results")
    save_drive(root / "results", make_drive())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTCORE_DATA", str(root / "data"))
        patch.setenv("OUTCORE_RESULTS", str(root / "results"))
        patch.chdir(root)
        yield root / "data", root / "results"


def run(*arguments: str) -> None:
    """Run the command in this process."""
    with suppress(SystemExit):
        cli.main(arguments)


def printed(show: Show, width: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Return standard output on a terminal of so many columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        show()
    return capsys.readouterr().out


def trend() -> None:
    """Print two steps of one series."""
    points = [Point(f"{number:x}" * 40, number, 1.0, 3) for number in range(10)]
    steps = [
        Step(4, "a" * 40, "b" * 40, 1.0, 1.25),
        Step(7, "c" * 40, "d" * 40, 1.25, 12345.678),
    ]
    one = Series(
        "0123456789ab",
        "gnndrive kron-2m +64MiB",
        "gnndrive",
        "median epoch time",
        points,
        steps,
    )
    print_trend([one], ["a note"])


COMMANDS = [
    *(
        "results list",
        "results show latest",
        "results show ginex",
        "results compare latest ginex pyg+ in-memory",
    ),
    *("systems", *(f"systems {name}" for name in names())),
    *(
        "claims",
        "device list",
        "data list",
        "data trace tiny --batch-size 50 --threads 1",
    ),
    *("ssd list", "ssd predict aws-nvme", "ssd compare fast aws-nvme aws-nvme/16"),
    "regress compare --base results",
]
CASES: dict[str, Show] = {
    **{text: partial(run, *text.split()) for text in COMMANDS},
    "bench's table": lambda: print_headline(
        [store.read_record(folder) for folder in RUNS], "golden", wide=False
    ),
    "ssd profile's table": lambda: _print_drive(
        make_drive(), Path("fast.json"), wide=False
    ),
    "regress trend's table": trend,
    "regress check's table": lambda: print_comparison(
        compare(
            cells(session(10, seed=1)),
            cells(session(10, epoch=1.1, seed=2, requests=5001)),
            paired=True,
        )
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_table_fits_and_nothing_in_it_is_cut(
    case: str, roots: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = printed(CASES[case], 1000, capsys)
    assert re.search(r"\S {2,}\S", whole), "prints a table"
    for width in WIDTHS:
        text = printed(CASES[case], width, capsys)
        assert "…" not in text
        # Cells are folded between words: each number, name and id is there as a whole.
        assert sorted(text.split()) == sorted(whole.split())
        rows = [
            line.rstrip()
            for line in text.splitlines()
            if re.search(r"\S {2,}\S", line.strip())
        ]
        assert [row for row in rows if cell_len(row) > width] == []


@pytest.mark.parametrize(
    "text",
    [
        "results list --wide",
        "results show ginex --wide",
        pytest.param(
            "claims --wide",
            marks=pytest.mark.slow("harness/cli", "harness/claims", seconds=10),
        ),
        "systems --wide",
    ],
)
def test_wide_has_every_column_whole(
    text: str, roots: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    few, whole = (
        printed(partial(run, *words), 1000, capsys)
        for words in (text.split()[:-1], text.split())
    )
    assert len(whole) > len(few)
    for width in WIDTHS:
        shown = printed(partial(run, *text.split()), width, capsys)
        assert "…" not in shown
        assert sorted(shown.split()) == sorted(whole.split())


def test_doctor_and_a_datasets_facts_are_whole(
    roots: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for width in WIDTHS:
        text = printed(partial(run, "doctor"), width, capsys)
        assert "…" not in text
        assert "io_uring" in text
        assert all(cell_len(line) <= width for line in text.splitlines())
        assert (
            str(roots[0] / "tiny")
            in printed(partial(run, "data", "info", "tiny"), width, capsys).split()
        )


@pytest.mark.slow("harness/cli")
@pytest.mark.parametrize(
    "text",
    [
        "figures --list",
        "check in-memory --quick",
        "advise friendster --published --drive aws-nvme --memory +8GiB --batches 1 "
        "--system gnndrive",
    ],
)
def test_a_table_that_takes_a_while_fits(
    text: str, roots: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = printed(partial(run, *text.split()), 80, capsys)
    rows = [
        line.rstrip()
        for line in shown.splitlines()
        if re.search(r"\S {2,}\S", line.strip())
    ]
    assert len(rows) > 1
    assert "…" not in shown
    assert all(cell_len(row) <= 80 for row in rows)


def test_the_list_of_runs_on_a_terminal_of_80_columns(roots: tuple[Path, Path]) -> None:
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    around = {
        key: value for key, value in environment(*roots).items() if key != "COLUMNS"
    } | {"TERM": "xterm"}
    subprocess.run(command("results", "list"), stdout=secondary, env=around, check=True)
    os.close(secondary)
    found = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(primary, 1 << 16):
            found += part
    os.close(primary)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", found.decode()).splitlines()
    assert [line.rstrip() for line in lines] == [
        f"runs in {roots[1]} (× fastest: within the setting whose number is in "
        "brackets), dataset golden-20k, epoch of the first 4 of 20 mini-batches, "
        "mostly epochs 3, device emulated:a10g, device_memory 2.0 MiB, timeout 60s",
        "run          system              memory  epoch s  × fastest  once+first  "
        "verdict",
        "56011e98-r0  pyg+                +8MiB   0.0235   1.00 (1)   0.134       "
        "CAVEATS",
        "1e0c5b47-r0  ginex               +8MiB   0.0922   3.92 (1)   0.319       "
        "CAVEATS",
        "c5d96b20-r0  mariusgnn           +1MiB   oom      – (2)      –           "
        "CAVEATS",
        "41cecc0e-r0  gnndrive            +8MiB   0.0283   1.20 (1)   0.244       "
        "CAVEATS",
        "             extractors=1",
        "d70efb5f-r0  in-memory; device   none    spoilt   – (3)      –           "
        "SPOILT",
        "             cpu, device_memory",
        "             none",
        "a956b513-r0  gnndrive            +8MiB   invalid  – (4)      –           "
        "INVALID",
        "             extractors=0;",
        "             epochs 2, timeout",
        "             3600s",
    ]


def test_runs_that_are_equal_in_all_columns_show_when_they_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = ("2026-01-01T10:00:00+00:00", "2026-01-01T11:00:00+00:00")
    save(
        tmp_path,
        *(
            make_record("ginex", [], status="oom").model_copy(update={"started_at": at})
            for at in begun
        ),
    )
    listed = printed(
        partial(run, "results", "list", "--results-root", str(tmp_path)), 160, capsys
    )
    assert "2026-01-01 10:00:00" in listed
    assert "2026-01-01 11:00:00" in listed
    assert "(1)" not in listed, "a single setting needs no number"


def test_short_run_ids_name_their_run_in_every_command(
    roots: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    short = store.short_ids(roots[1])
    listed = printed(partial(run, "results", "list"), 80, capsys)
    assert list(short) == [folder.name for folder in RUNS]
    assert all(form in listed.split() for form in short.values())
    for whole, form in short.items():
        beginning = whole[: len("20261125-051314")]
        for given in (form, form[:8], beginning, whole):
            run("results", "show", given, "--json")
            assert json.loads(capsys.readouterr().out)["run_id"] == whole
            run("results", "compare", given, "--json")
            assert json.loads(capsys.readouterr().out)["runs"][0]["run_id"] == whole
    run("trace", "1e0c5b47", "--out", str(tmp_path / "trace.json"), "--json")
    assert (
        json.loads(capsys.readouterr().out)["run_id"]
        == "20261125-051335-481-ginex-1e0c5b47-r0"
    )


@pytest.mark.parametrize(
    "verb", [("results", "show"), ("results", "compare"), ("trace",)], ids=" ".join
)
def test_an_ambiguous_run_id_is_reported_in_one_sentence(
    verb: tuple[str, ...], roots: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([*verb, "gnndrive"])
    message = capsys.readouterr()
    assert end.value.code == 2
    assert message.out == ""
    assert message.err.count("\n") == 1
    assert "2 runs match 'gnndrive'" in message.err
    assert "20261125-051405-413-gnndrive-41cecc0e-r0" in message.err


def test_a_run_made_twice_is_named_by_its_time(tmp_path: Path) -> None:
    runs = (
        "20261125-051314-446-pyg+-56011e98-r0",
        "20261125-061315-447-pyg+-56011e98-r0",
        "20261125-051316-446-a-b",
    )
    for name in runs:
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / store.RECORD).touch()
    short = store.short_ids(tmp_path)
    assert sorted(short) == sorted(runs)
    assert all(store.find(tmp_path, form).name == name for name, form in short.items())
    assert short[runs[1]] == "061315-447"
    assert short[runs[2]] == runs[2]

"""Fingerprints change with code that runs, not with its comments, and runs of different
code stay apart."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.compare.evidence import load_evidence
from harness.records import code
from harness.records.code import Made, code_of, from_same_code
from harness.records.edition import EDITION, EDITIONS
from harness.records.record import Code
from tests.harness.records import make_record, save


def made(
    run_id: str, system: str = "a", own: str = "1", harness: str = "1", host: str = "h"
) -> Made:
    return Made(host, system, Code(system=own, harness=harness), run_id)


def test_a_system_has_its_own_fingerprint_and_all_share_the_harness() -> None:
    one = code_of("gnndrive")
    other = code_of("pyg+")
    assert one.harness == other.harness
    assert one.system != other.system
    assert len(one.system) == len(one.harness) == 16


def test_words_change_nothing_and_code_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for helper, words in (
        ("1 + 1", "One."),
        ("1 + 1", "Other words."),
        ("1 + 2", "One."),
    ):
        package = tmp_path / str(len(found)) / "somebodys"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "helper.py").write_text(
            f"# {words}\ndef number():\n    return {helper}\n"
        )
        (package / "sampler.py").write_text(
            f'"""{words}"""\ndef make():\n    """{words}"""\n    from .helper '
            "import number\n    return number()\n"
        )
        monkeypatch.syspath_prepend(package.parent)
        found.append(code_of("gnndrive", "somebodys.sampler:SAMPLER").sampler)
        code_of.cache_clear()
        for name in [name for name in sys.modules if name.startswith("somebodys")]:
            del sys.modules[name]
    assert found[0] == found[1] != found[2], "imports inside a function count"


def test_a_module_beside_a_systems_own_is_part_of_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number, merge in enumerate((1, 0)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "beside_rows.py").write_text(
            f"import numpy\nMERGE = {merge}\nraise SystemExit('nothing runs it')\n"
        )
        (folder / "beside_system.py").write_text(
            "def make():\n    from beside_rows import MERGE\n    return MERGE\n"
        )
        (folder / "unnamed.py").write_text("")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            closure = code._closure(["beside_system"])
            found.append(code._digest(closure))
            assert "beside_rows" in closure
            assert not {"numpy", "sys"} & set(closure)
            patch.setattr(code, "_begins", lambda system: ["beside_system"])
            files = [
                str(folder / name) for name in ("beside_rows.py", "unnamed.py")
            ] + [code.__file__]
            assert code.unknown_of(files, "beside") == [str(folder / "unnamed.py")]
    assert found[0] != found[1]


def test_a_process_reports_the_code_that_it_loaded_from_no_library() -> None:
    pytest.importorskip("numpy")
    files = code.loaded()
    assert {code.__file__, __file__} <= set(files)
    assert not [
        file for file in files if "site-packages" in file or file.startswith("/usr/lib")
    ]


def test_what_measures_is_in_the_harness_fingerprint_and_what_draws_is_not() -> None:
    modules = code._closure(code._MEASURES)
    assert {
        "harness.worker.main",
        "harness.run.orchestrator",
        "harness.telemetry.recorder",
        "systems.interface",
    } <= set(modules)
    measuring = (
        "harness.worker",
        "harness.wire",
        "harness.telemetry",
        "harness.isolation",
        "harness.run",
    )
    assert all(
        name.startswith(measuring) for name in modules if name.startswith("harness.")
    )


LOCALS = """
def mean(values, start=0):
    {total} = start
    for {value} in values:
        {total} += {value}
    def scaled(factor):
        return {total} * factor
    return scaled(1 / len(values))
"""


def test_names_of_locals_change_nothing_and_everything_else_does(
    tmp_path: Path,
) -> None:
    def digest(text: str) -> bytes:
        code._facts.cache_clear()
        (tmp_path / "one.py").write_text(text)
        return code._facts("one", tmp_path / "one.py")[0]

    plain = digest(LOCALS.format(total="total", value="value"))
    assert digest(LOCALS.format(total="summed", value="each")) == plain
    changes = [
        ("start=0", "begin=0"),
        ("def mean", "def average"),
        ("1 / len", "2 / len"),
        ("* factor", "+ factor"),
    ]
    for before, after in changes:
        changed = LOCALS.replace(before, after).replace(
            "= start", "= begin" if "begin" in after else "= start"
        )
        assert digest(changed.format(total="total", value="value")) != plain
    # Two variables are not one: the order of use is part of the digest.
    assert digest("def f(a):\n    x = a\n    y = a\n    return x\n") == digest(
        "def f(a):\n    y = a\n    x = a\n    return y\n"
    )
    assert digest("def f(a):\n    x = a\n    y = a\n    return x\n") != digest(
        "def f(a):\n    x = a\n    y = a\n    return y\n"
    )
    assert digest("A = 1\ndef f():\n    global A\n    A = 2\n") != digest(
        "B = 1\ndef f():\n    global B\n    B = 2\n"
    )


def test_runs_of_another_edition_of_the_rules_are_left_out() -> None:
    runs = [
        Made("h", "a", Code(system="1", harness="1", edition=edition), str(edition))
        for edition in (1, 2)
    ]
    assert from_same_code(runs) == [False, True]
    assert code_of("pyg+").edition == EDITION == len(EDITIONS)
    assert all(
        text.startswith(f"{number}: ") for number, text in enumerate(EDITIONS, start=1)
    )


def test_runs_stand_beside_each_other_within_the_newest_code_of_each_host() -> None:
    runs = [
        made("1", harness="old"),
        made("2", "a", "old"),
        made("3", "a", "new"),
        made("4", "b"),
        made("1", host="elsewhere", harness="old"),
    ]
    assert from_same_code(runs) == [False, False, True, True, True]


def test_figures_and_claims_see_runs_of_one_code(tmp_path: Path) -> None:
    for seconds, harness in ((1.0, "old"), (2.0, "new")):
        save(
            tmp_path,
            make_record("gnndrive", [seconds]).model_copy(
                update={"code": Code(system="s", harness=harness)}
            ),
        )
    frame = load_evidence(tmp_path).runs
    assert [record["code"]["harness"] for record in frame["record"]] == ["new"]


def test_a_sampler_from_elsewhere_is_part_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for number, text in enumerate(("EXTRA = 1", "EXTRA = 2")):
        (tmp_path / f"elsewhere{number}.py").write_text(f"{text}\n")
        found.append(code_of("gnndrive", f"elsewhere{number}:SAMPLER"))
    assert len({one.sampler for one in found}) == 2
    assert len({one.system for one in found}) == 1
    assert code_of("gnndrive", "layerwise").sampler == "" == code_of("gnndrive").sampler
    assert code.is_current(found[0], "gnndrive", "elsewhere0:SAMPLER")
    assert not code.is_current(found[0], "gnndrive", "elsewhere1:SAMPLER")


def test_runs_of_a_changed_sampler_are_left_out_and_other_samplers_stay() -> None:
    def run(run_id: str, sampler: str, own: str = "") -> Made:
        return Made(
            "h", "a", Code(system="1", harness="1", sampler=own), run_id, sampler
        )

    runs = [
        run("1", "mine:S", "old"),
        run("2", "mine:S", "new"),
        run("1", "neighbor"),
        run("3", "layerwise"),
    ]
    assert from_same_code(runs) == [False, True, True, True]

"""A caption is at most three sentences, states caveats in words, and names an interval
only where one is drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

from harness.compare.evidence import load_evidence
from harness.figures.base import Drawing, catalogue
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import describe_memory
from harness.figures.draw.caveats import WORDS, caveats
from harness.figures.draw.panels import has_intervals
from harness.figures.draw.words import in_words, sentences
from harness.judge.registry import rules
from tests.harness.figure_profile import keep_profile
from tests.harness.records import make_record, save
from tests.harness.test_figures import at

BURSTS = "within_the_class_at_every_moment"


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    yield
    plt.close("all")


def run(system: str, name: str, detail: str, **outcome: Any) -> dict[str, Any]:
    broken = {"rule": "9", "name": name, "ok": False, "detail": detail, **outcome}
    kept = {"rule": "1", "name": "peak_within_cap", "ok": True, "detail": ""}
    return {"system": system, "verdict_rules": [kept, broken]}


def test_words_are_of_rules_that_exist() -> None:
    assert set(WORDS) <= {rule.name for rule in rules()}


def test_a_caveat_is_a_clause_with_the_largest_number_of_the_runs() -> None:
    details = ["1.2 x the class", "9.21 x the class", "3 x the class"]
    records = [run("ginex", BURSTS, detail) for detail in details]
    assert caveats(records) == (
        "short bursts read at up to 9.21 times the SSD class's rate"
    )
    assert caveats([{"system": "ginex"}]) == ""


def test_a_caveat_names_the_systems_that_it_concerns() -> None:
    name = "mini_batches_equal_the_workload"
    records = [run(system, name, "compared by numbers") for system in ("b", "a", "b")]
    assert caveats(records) == "mini-batches of b and a are not the workload's"


def test_a_rule_that_could_not_be_judged_is_a_caveat_with_its_reason() -> None:
    detail = "could not be judged: no request was counted"
    record = run("ginex", "no_faster_than_the_device", detail, known=False)
    assert caveats([record]) == f"“no faster than the device” {detail}"


def drawn(root: Path, samples: list[float]) -> Drawing:
    keep_profile(root)
    for dim in (64, 128):
        for system, factor in (("ginex", 1.0), ("gnndrive", 2.0)):
            times = [factor * value for value in samples]
            save(root, make_record(system, times, **at(dim)))
    found = catalogue()["gnndrive-fig8"].draw(load_evidence(root))
    assert isinstance(found, Drawing)
    return found


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([1.0, 2.0], "median and range of 2 epochs"),
        ([1.0], "one measured epoch a value"),
    ],
)
def test_a_caption_names_the_interval_that_is_drawn(
    tmp_path: Path, samples: list[float], text: str
) -> None:
    drawing = drawn(tmp_path, samples)
    assert text in drawing.caption
    assert "of 1 epoch" not in drawing.caption
    assert ("range" in drawing.caption) == (len(samples) > 1)


def test_bars_without_length_are_no_interval() -> None:
    rows = pd.DataFrame({"group": "a", "series": ["ginex", "pyg+"], "value": [1.0, 2]})
    canvas, _ = draw_bars(rows.assign(low=[1.0, 2], high=[1.0, 2]), title="", ylabel="")
    assert not has_intervals(canvas)
    canvas, _ = draw_bars(rows.assign(low=[1.0, 1], high=[1.0, 3]), title="", ylabel="")
    assert has_intervals(canvas)
    canvas, _ = draw_bars(rows, title="", ylabel="")
    assert not has_intervals(canvas)


def test_sentences_open_large_unless_a_system_opens_them() -> None:
    assert sentences("trains", "", "pyg+ reads.", "two; three") == (
        "Trains. pyg+ reads. Two; three."
    )
    assert in_words(["a"]) == "a"
    assert in_words(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        ("+64MiB", "64.0 MiB beyond interpreter and training"),
        ("0.25x", "of 25 % of the features beyond interpreter and training"),
        ("2GiB", "cap 2GiB"),
    ],
)
def test_memory_needs_no_word_of_the_harness(memory: str, text: str) -> None:
    assert describe_memory(memory) == text


#: Words of the harness that a stranger does not know.
HOUSE = re.compile(r"\b(rule \d|floor|SPOILT|told|distance|gate)\b|CAVEATS|of 1 epoch")


def check(caption: str) -> None:
    """Check what every caption promises."""
    assert len(re.findall(r"\.(?=\s|$)", caption)) <= 3, caption
    assert not HOUSE.search(caption), caption

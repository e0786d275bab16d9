"""Published values are found in the text of their paper, or marked as read off a
plot."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

import pytest

from harness.claims.published import FILE, Claim, claims, verdict_of

# Tables beside figures are named after them: a paper, then the figure or table.
FIGURES = sorted(FILE.parent.glob("*-*.csv"))
# Units of numbers in tables of the papers.
UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "GB": 1e9}
# Largest distance between words of a claim and its number, in characters.
NEAR = 400


@cache
def paper(name: str) -> str:
    """Return the text of a paper; skip where the folder of papers is not there."""
    beside = (
        parent / "shared" / "papers" for parent in Path(__file__).resolve().parents[3:]
    )
    folder = next((folder for folder in beside if folder.is_dir()), None)
    if folder is None:
        pytest.skip(
            "SKIPPED ALOUD: the papers' texts are not beside this checkout, no "
            "published value was checked"
        )
    return (folder / f"{name}.txt").read_text(encoding="utf-8")


@cache
def spelling(value: str) -> re.Pattern[str]:
    """Return a pattern of a number as papers print it: with commas, decimals, in
    thousands, millions or billions."""
    number = float(value)
    found = {}
    for unit, size in UNITS.items():
        for decimals in range(4):
            text = f"{number / size:.{decimals}f}"
            if float(text) * size != pytest.approx(number, rel=1e-9):
                continue
            for digits in (text, f"{number / size:,.{decimals}f}"):
                # In the text of tables, a line may break within a number.
                loose = (
                    r"\s?".join(map(re.escape, digits))
                    if len(digits) > 4
                    else re.escape(digits)
                )
                found[
                    loose + (rf"\s?{unit}\b" if unit else r"(?![\d]|\.\d|,\d{3})")
                ] = None
    return re.compile(rf"(?<![\d.,])(?:{'|'.join(found)})")


@cache
def places(value: str, text: str) -> list[int]:
    """Return the positions of a number in a text."""
    return [match.start() for match in spelling(value).finditer(text)]


def stands_near(value: str, words: str, text: str) -> bool:
    """Return whether a number stands near some words."""
    at = [match.start() for match in re.finditer(re.escape(words), text)]
    return any(
        abs(place - word) <= NEAR for place in places(value, text) for word in at
    )


def test_a_number_is_found_as_printed_and_a_wrong_one_is_not() -> None:
    text = (
        "It is 16.9x faster than PyG+ on 111.06M nodes in 4,115.73 s, at 87–95% and "
        "\\$1\n7.94."
    )
    for value in ("16.9", "111060000", "4115.73", "87", "95", "17.94"):
        assert places(value, text), value
    for value in ("6.9", "16", "19.6", "4115.7", "111000000", "5"):
        assert not places(value, text), value
    assert stands_near("16.9", "PyG+", text)
    assert not stands_near("16.9", "Ginex", text)


@pytest.mark.parametrize("claim", claims().values(), ids=lambda claim: claim.id)
def test_every_claim_is_in_its_paper(claim: Claim) -> None:
    text = paper(claim.paper)
    assert claim.near in text, "the words beside the value"
    if claim.read == "text":
        for value in claim.value.split("–"):
            assert stands_near(value, claim.near, text), f"{value} near {claim.near!r}"
    if claim.computed:
        numbers = re.findall(r"\d+(?:\.\d+)?", claim.computed)
        assert computed(claim.computed) == pytest.approx(
            float(claim.value), abs=0.6 * 10 ** -_decimals(claim.value)
        )
        if claim.read == "computed":
            for number in (
                numbers if not claim.computed.startswith("100 *") else numbers[1:]
            ):
                assert places(number, text), number
    if claim.read == "plot":
        rows = csv.DictReader((FILE.parent / f"{claim.figure}.csv").open())
        known = {row["value"]: row["read"] for row in rows}
        numbers = re.findall(r"\d+(?:\.\d+)?", claim.computed or claim.value)
        assert {known[number] for number in numbers} >= {"plot"}, (
            "read off the plot of its figure"
        )


def computed(text: str) -> float:
    """Evaluate a quotient, a difference, or a hundred times a quotient."""
    percent, rest = (100.0, text[6:]) if text.startswith("100 * ") else (1.0, text)
    first, sign, second = rest.split()
    return percent * (
        float(first) / float(second) if sign == "/" else float(first) - float(second)
    )


def _decimals(value: str) -> int:
    return len(value.partition(".")[2])


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_every_value_beside_a_figure_is_in_its_paper(path: Path) -> None:
    name = {"tiering": "data-tiering"}.get(
        path.stem.split("-")[0], path.stem.split("-")[0]
    )
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert rows
    text = paper(name)
    for row in rows:
        assert row["read"] in ("text", "plot"), row
        if row["read"] == "text":
            assert places(row["value"], text), row
        else:
            assert re.search(r"fig\d+", row["source"]), row


def test_a_saving_is_not_reproduced_by_a_loss() -> None:
    savings = [
        claim
        for claim in claims().values()
        if claim.unit == "%" and " save" in claim.claim
    ]
    assert "gx-12" in {claim.id for claim in savings}
    assert {claim.id: verdict_of(claim, -0.1) for claim in savings} == dict.fromkeys(
        (claim.id for claim in savings), "not reproduced"
    )

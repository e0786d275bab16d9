"""The catalogue holds every figure and table that the design lists; figures and claims name each other."""

from __future__ import annotations

from harness.claims.published import claims
from harness.figures.base import catalogue


def expected() -> set[str]:
    """Return the design's list of figures, except those of later parts (trend, ablation)."""
    numbers = {
        "gnndrive": ["fig2", "fig3", *(f"fig{n}" for n in range(8, 15)), "figB1", "tab1", "tab2"],
        "diskgnn": ["fig5", *(f"fig{n}" for n in range(8, 20)), *(f"tab{n}" for n in range(1, 9))],
        "ginex": ["fig4", "fig5", "fig6", *(f"fig{n}" for n in range(14, 20)), "tab2", "tab4"],
        "tiering": [*(f"fig{n}" for n in range(7, 12)), "tab1"],
        "pagraph": ["fig4", "fig5", *(f"fig{n}" for n in range(11, 22)), "tab1", "tab2", "tab4", "tab5"],
        "outcore": ["roofline", "frontier", "ssd", "pipeline"],
    }
    return {f"{paper}-{number}" for paper, found in numbers.items() for number in found}


def test_every_figure_and_table_of_the_design_is_in_the_catalogue() -> None:
    assert expected() - set(catalogue()) == set()


def test_a_figure_and_its_claims_name_each_other() -> None:
    known = claims()
    for figure in catalogue().values():
        assert set(figure.claims) <= set(known), figure.id
    lonely = [claim.id for claim in known.values() if claim.id not in catalogue()[claim.figure].claims]
    assert lonely == []

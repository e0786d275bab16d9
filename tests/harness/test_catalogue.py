"""Figures and claims name each other."""

from __future__ import annotations

from harness.claims.published import claims
from harness.figures.base import catalogue


def test_a_figure_and_its_claims_name_each_other() -> None:
    known = claims()
    for figure in catalogue().values():
        assert set(figure.claims) <= set(known), figure.id
    lonely = [
        claim.id
        for claim in known.values()
        if claim.id not in catalogue()[claim.figure].claims
    ]
    assert lonely == []

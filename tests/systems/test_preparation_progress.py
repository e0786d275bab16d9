"""Systems with a long preparation report its progress, and the reported shares only
rise."""

from __future__ import annotations

import itertools
import math

import pytest

from systems.interface import MemoryBudget
from tests.systems.support_systems import running, workload_of
from workloads.dataset import Dataset


@pytest.mark.parametrize(
    ("name", "options", "parts"),
    [
        (
            "diskgnn",
            {},
            ["sampling", "searching a layout", "laying out chunks", "packing"],
        ),
        (
            "diskgnn",
            {"packing": "individual"},
            ["sampling", "searching a layout", "laying out chunks", "packing"],
        ),
        ("data-tiering", {}, [f"PageRank, pass {number}" for number in range(1, 6)]),
        ("pagraph", {}, ["counting out-degrees"]),
        ("pagraph+pp", {}, ["counting out-degrees", "aggregating"]),
    ],
)
def test_preparation_reports_its_parts_in_order_and_their_shares(
    tiny_dataset: Dataset, name: str, options: dict[str, str], parts: list[str]
) -> None:
    reported: list[tuple[str, float]] = []
    budget = MemoryBudget(12_000_000)
    with running(
        name,
        workload_of(tiny_dataset),
        device="emulated:instant",
        device_bytes=64 << 10,
        budget=budget,
        progress=lambda what, share: reported.append((what, share)),
        **options,
    ):
        pass
    groups = [
        (what, [share for _, share in group])
        for what, group in itertools.groupby(reported, lambda entry: entry[0])
    ]
    assert [what for what, _ in groups] == parts
    for _, shares in groups:
        known = [share for share in shares if not math.isnan(share)]
        assert all(0 <= share <= 1 for share in known)
        assert known == sorted(known)

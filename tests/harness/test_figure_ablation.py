"""An ablation draws each variant's measured time beside the whole system's, and needs
runs that are valid."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from harness.compare.evidence import load_evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import catalogue
from harness.figures.outcore.ablation import AGNES, OUTCORE
from harness.plan.experiment import PROFILES
from harness.run.sweep import union
from harness.settings import check_options
from tests.harness.figure_profile import keep_profile
from tests.harness.records import make_record, save
from workloads.parsing import parse_yaml

ABLATIONS = {
    "outcore-ablation": ("outcore", OUTCORE),
    "agnes-ablation": ("agnes", AGNES),
}


def keep(
    root: Path, seconds: dict[str, float], figure: str = "outcore-ablation"
) -> pd.DataFrame:
    keep_profile(root)
    system, variants = ABLATIONS[figure]
    for name, value in seconds.items():
        options = check_options(system, variants[name])
        save(root, make_record(system, [value], options=options))
    try:
        return catalogue()[figure].draw(load_evidence(root)).data.set_index("group")
    finally:
        plt.close("all")


def test_each_variant_has_its_own_time_and_what_was_not_run_is_stated(
    tmp_path: Path,
) -> None:
    data = keep(tmp_path, {"whole": 2.0, "no Belady": 3.0, "single reads": 12.0})
    assert data["value"].dropna().to_dict() == {
        "whole": 2.0,
        "no Belady": 3.0,
        "single reads": 12.0,
    }
    assert data["times"]["single reads"] == 6.0
    assert data["status"]["replayed"] == "not run"


def test_agnes_without_hyperbatches_or_tiers_is_drawn_beside_the_whole(
    tmp_path: Path,
) -> None:
    data = keep(
        tmp_path,
        {"whole": 2.0, "no hyperbatch": 40.0, "no tiers": 3.0},
        "agnes-ablation",
    )
    assert data["times"].dropna().to_dict() == {
        "whole": 1.0,
        "no hyperbatch": 20.0,
        "no tiers": 1.5,
    }


def test_without_the_whole_nothing_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(NotDrawn, match="outcore-ablation"):
        keep(tmp_path, {"no Belady": 3.0, "single reads": 12.0})


def test_two_parts_off_are_no_variant(tmp_path: Path) -> None:
    both = {**OUTCORE["no Belady"], **OUTCORE["single reads"]}
    save(
        tmp_path, make_record("outcore", [1.0], options=check_options("outcore", both))
    )
    data = keep(tmp_path, {"whole": 2.0, "no Belady": 3.0})
    assert 1.0 not in data["value"].tolist()


@pytest.mark.parametrize("figure", ABLATIONS)
def test_its_runs_differ_in_one_part_each(figure: str) -> None:
    profile = parse_yaml((PROFILES / "quick.yaml").read_text())
    (experiment,) = catalogue()[figure].experiments(profile)
    system, variants = ABLATIONS[figure]
    assert len(union([experiment])) == len(variants)
    for options in variants.values():
        assert len(options) <= 1
        assert check_options(system, options)

"""Two settings of a report are described by two texts, and runs without a time are
named beside those with one."""

from __future__ import annotations

from typing import Any

import pytest

from harness.compare.comparable import SAME_EXPERIMENT, shared_setting
from harness.report.headline import headline
from harness.report.setting_words import in_words
from harness.report.standings import settings_of
from tests.harness.records import make_record

# Another value of every setting in which the runs of one experiment are equal.
OTHER: dict[str, Any] = {
    "memory": "+1048576",
    "model": "gat",
    "hidden": 64,
    "heads": 2,
    "learning_rate": 0.01,
    "dropout": 0.5,
    "sampler": "layerwise",
    "fanout": [5, 5],
    "replace": True,
    "shuffle": False,
    "batch_size": 99,
    "max_batches": 7,
    "epochs": 9,
    "warmup": 2,
    "device": "cpu",
    "disk_class": "none",
    "stages": "sample",
    "cores": 1,
    "ranks": 2,
    "partition": "self-reliant",
    "keep_order": True,
    "test_nodes": 10,
    "layers": 5,
    "device_memory_bytes": 1 << 30,
}


def test_every_setting_of_an_experiment_has_another_value_here() -> None:
    assert set(OTHER) == set(SAME_EXPERIMENT) - {"dataset", "isolation"}


@pytest.mark.parametrize("name", sorted(OTHER))
def test_settings_that_differ_are_described_by_texts_that_differ(name: str) -> None:
    usual, other = (
        shared_setting(make_record("ginex", [1.0], **changed).to_json())
        for changed in ({}, {name: OTHER[name]})
    )
    assert in_words(usual) != in_words(other)


def test_timeouts_beside_one_lucky_run_are_named() -> None:
    runs = [
        make_record("ginex", [1.0, 1.1]),
        make_record("gnndrive", [2.0, 2.1], round=0),
    ]
    runs += [
        make_record("ginex", [], status="timeout", round=number) for number in (1, 2)
    ]
    records = [run.to_json() for run in runs]
    reported = headline(settings_of(records), records).first
    assert reported is not None
    assert any(
        "2 of 3 runs of ginex ran out of time" in note for note in reported.notes
    )
    assert "every measured epoch of ginex" in reported.sure

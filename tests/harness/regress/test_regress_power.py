"""The gate's judgement on simulated checks and histories whose answer is known."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from harness.regress.ratio import ratio_of_means
from harness.regress.samples import RunSample

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def _benchmark() -> ModuleType:
    """Return the benchmark, which imports its neighbours as a program does."""
    before = [*sys.path]
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("gate_power")
    finally:
        sys.path[:] = before


gate_power = _benchmark()


def _shares(noise: str, pairs: int) -> list[float]:
    names = list(gate_power.METRICS) * gate_power.SYSTEMS
    rng = np.random.default_rng(pairs)
    logs = gate_power.PAIR_NOISE[noise](rng, (1000, len(names), pairs))
    return gate_power.power(gate_power.mean(logs), names, gate_power.SYSTEMS)


def test_the_simulated_judgement_is_the_gates_own():
    logs = np.random.default_rng(1).normal(0.02, 0.05, 7)
    estimate, error, freedom = gate_power.mean(logs)
    found = ratio_of_means([1.0] * 7, np.exp(logs), paired=True)
    assert np.log(found.value) == pytest.approx(estimate)
    reach = gate_power.stats.t.ppf(0.975, freedom) * error
    assert np.log(found.high / found.value) == pytest.approx(reach)


def test_seven_pairs_of_two_percent_noise_find_slowdowns_without_false_alarms():
    false, _, _, five, five_of_one, ten, ten_of_one = _shares("normal", 7)
    assert false <= 0.01
    assert min(five, five_of_one) >= 0.80
    assert min(ten, ten_of_one) >= 0.99


@pytest.mark.parametrize("noise", ["heavy tails", "spikes"])
def test_odd_noise_raises_no_false_alarm_and_hides_no_slowdown_of_all_systems(noise):
    shares = _shares(noise, 7)
    assert shares[0] <= 0.01
    assert shares[3] >= 0.80


@pytest.mark.parametrize("length", gate_power.LENGTHS)
@pytest.mark.parametrize("noise", gate_power.SERIES_NOISE)
def test_a_history_without_a_step_shows_none_in_19_of_20(noise, length):
    assert gate_power.false_steps(noise, length, count=300) <= 0.05


@pytest.mark.parametrize(("level", "least"), [(0.05, 0.7), (0.10, 0.95)])
def test_a_step_amid_noise_is_found_where_it_was_made(level, least):
    assert gate_power.found_steps(level, 30, count=200) >= least


def test_kept_pairs_are_judged_in_every_way(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(gate_power, "CHECKS", 40)
    rng = np.random.default_rng(1)
    with (tmp_path / "blocks.jsonl").open("w") as out:
        for _ in range(12):
            runs = [
                {"system": "ginex", "level": level, "run": asdict(_run(rng))}
                for level in ("0", "0b")
            ]
            out.write(json.dumps({"seconds": 1.0, "runs": runs}) + "\n")
    assert len(gate_power.read(tmp_path)[0]) == 12
    gate_power.judge_kept(tmp_path)
    printed = capsys.readouterr().out
    assert "12 kept pairs" in printed
    assert all(printed.count(name) == 2 for name in gate_power.ESTIMATORS)


def _run(rng: np.random.Generator) -> RunSample:
    return RunSample("", "ok", noisy={"epoch": float(np.exp(rng.normal(0, 0.02)))})

"""The gate proof's own judgement, on made-up blocks whose answer is known."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gate_proof
from harness.compare.evidence import load_evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import catalogue
from harness.regress.samples import RunSample
from harness.regress.studies import PROOF as STUDY


def _blocks(
    root: Path, noise: float, *, false_effect: float = 0.0, count: int = 30
) -> Path:
    """Write blocks of one system; `false_effect` slows the second of the two runs that
    are not slowed."""
    rng = np.random.default_rng(1)
    root.mkdir()
    with (root / "blocks.jsonl").open("w") as out:
        for _ in range(count):
            runs = []
            for level in (
                "0",
                "0b",
                *(f"{level:g}" for level in gate_proof.LEVELS[1:]),
            ):
                slowed = false_effect if level == "0b" else float(level)
                run = RunSample(
                    "",
                    "ok",
                    exact={
                        "digest": ["d", "d"],
                        "rows": [9, 9],
                        "io_requests": [70, 70],
                    },
                    noisy={"epoch": float((1 + slowed) * np.exp(rng.normal(0, noise)))},
                )
                runs.append({"system": "diskgnn", "level": level, "run": asdict(run)})
            out.write(json.dumps({"block": 0, "seconds": 25.0, "runs": runs}) + "\n")
    return root


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_proof, "TRIALS", 40)
    monkeypatch.setattr(gate_proof, "LEAST_LIVE", 6)


@pytest.mark.slow("harness/regress", "benchmarks/gate_proof.py")
def test_a_quiet_machine_keeps_every_promise_and_the_power_curve_is_drawn(
    tmp_path: Path, capsys
):
    root = _blocks(tmp_path / "quiet", 0.004)
    assert gate_proof.judge(root, tmp_path / "results", 600.0, 8) == 0
    assert "BROKEN" not in capsys.readouterr().out
    assert (tmp_path / "results" / "figures" / "outcore-gate.png").stat().st_size > 5000
    record = load_evidence(tmp_path / "results").study(STUDY)
    assert [promise["kept"] for promise in record.result["promises"]] == [True] * 5
    altered = catalogue()["outcore-gate"].draw(load_evidence(tmp_path / "results"))
    assert sorted(set(altered.data["slowed"])) == [0.0, 0.03, 0.05, 0.1]
    assert "30 blocks" in altered.caption
    assert (root / "gate-proof.csv").read_text().count("\n") > 8


@pytest.mark.slow("harness/regress", seconds=5)
def test_noise_that_hides_a_slowdown_is_reported_as_a_broken_promise(
    tmp_path: Path, capsys
):
    assert (
        gate_proof.judge(
            _blocks(tmp_path / "noisy", 0.1), tmp_path / "results", 600.0, 6
        )
        == 1
    )
    assert "BROKEN slowed by 5 %" in capsys.readouterr().out


@pytest.mark.slow("harness/regress", seconds=6)
def test_a_gate_that_cries_wolf_is_reported(tmp_path: Path, capsys):
    assert (
        gate_proof.judge(
            _blocks(tmp_path / "wolf", 0.002, false_effect=0.08),
            tmp_path / "results",
            600.0,
            6,
        )
        == 1
    )
    assert "BROKEN A/A" in capsys.readouterr().out


def test_too_few_blocks_are_refused(tmp_path: Path):
    with pytest.raises(SystemExit, match="collect more"):
        gate_proof.judge(
            _blocks(tmp_path / "few", 0.01, count=3), tmp_path / "results", 600.0, 6
        )


def test_without_a_proof_the_figure_states_how_to_make_one(tmp_path: Path):
    with pytest.raises(NotDrawn, match="gate_proof collect"):
        catalogue()["outcore-gate"].draw(load_evidence(tmp_path))


@pytest.mark.slow("benchmarks/gate_proof.py", "harness/run", seconds=70)
def test_a_block_holds_real_runs_that_ended_well(tmp_path: Path):
    gate_proof.collect(
        tmp_path / "proof",
        tmp_path / "data",
        300.0,
        ["gnndrive"],
        2,
        ["0", "0b", "0.1"],
        1,
    )
    (block,), _ = gate_proof.read(tmp_path / "proof")
    assert {(name, level, run.status) for (name, level), run in block.items()} == {
        ("gnndrive", level, "ok") for level in ("0", "0b", "0.1")
    }
    assert all(run.noisy["epoch"] > 0 for run in block.values())

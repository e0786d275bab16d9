"""Training alone, the numerator of AU, is the cost of the same steps with the rows that
systems hand over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from harness.cache import Cache
from harness.run import calibrate
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.wire.protocol import Calibrated
from harness.worker import calibrate as timing
from harness.worker.calibrate import PAUSES_S, quietly, training_times
from tests.harness.cap_tools import needs_cap
from tests.harness.run_tools import config
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.sampling.bounds import largest_batch
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.training import Trainer
from workloads.workload import ModelSpec, SamplerSpec, Workload


@pytest.fixture()
def series(tiny_dataset: Dataset, tmp_path: Path) -> Iterator[Series]:
    with Series(tmp_path / "results", tiny_dataset.path.parent) as opened:
        yield opened


def test_an_emulated_epoch_counts_the_gather_of_every_step(
    tiny_dataset: Dataset,
) -> None:
    workload = Workload(
        tiny_dataset,
        SamplerSpec(fanout=(5, 5), batch_size=20),
        ModelSpec(layers=2, hidden=16),
    )
    device = make_accelerator("emulated:a10g", memory_bytes=8 << 20)
    trainer = Trainer(
        workload.model, tiny_dataset.dim, tiny_dataset.num_classes, device
    )
    sampler = make_sampler(workload)
    plan = make_seed_plan(workload)
    table = device.allocate(
        largest_batch(workload).max_nodes, tiny_dataset.dim, torch.float32
    )
    expected = 0.0
    without = 0.0
    for index, seeds in enumerate(plan.batches(0)):
        sampled = sampler.sample(0, index, seeds)
        expected += (
            trainer.modelled_seconds(sampled, table, torch.arange(sampled.num_nodes))
            or 0.0
        )
        without += trainer.modelled_seconds(sampled) or 0.0
    found = training_times(1, sampler, plan, trainer, table)
    assert found.train_s[0] == pytest.approx(expected, rel=1e-6)
    assert expected > 1.001 * without
    device.close()


class _BesideASlowRank:
    """Channel of rank 0 of two; the other rank sees a busy machine, and takes two
    seconds for each step."""

    def gather(self, value: float) -> list[float]:
        return [value, 2.0]


def test_ranks_that_train_together_take_as_many_steps(
    tiny_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Workload(
        tiny_dataset,
        SamplerSpec(fanout=(5, 5), batch_size=20),
        ModelSpec(layers=2, hidden=16),
    )
    device = make_accelerator("cpu")
    trainer = Trainer(
        workload.model, tiny_dataset.dim, tiny_dataset.num_classes, device
    )
    sampler = make_sampler(workload)
    plan = make_seed_plan(workload)
    table = device.allocate(
        largest_batch(workload).max_nodes, tiny_dataset.dim, torch.float32
    )
    steps = []
    step = trainer.step
    monkeypatch.setattr(
        trainer, "step", lambda *given: (steps.append(1), step(*given))[1]
    )
    monkeypatch.setattr(timing, "PAUSES_S", (0.0, 0.0))
    found = training_times(1, sampler, plan, trainer, table, _BesideASlowRank())  # type: ignore[arg-type]
    # Three measurements, as the other rank sees other programs, of one step a
    # mini-batch, as its steps are slow.
    assert len(steps) == 3 * min(timing.TIMED_BATCHES, len(plan.batches(0)))
    assert not found.quiet
    device.close()


def _others(*shares: float) -> Callable[[Callable[[], float]], tuple[float, float]]:
    """Return a measurement beside other programs that take these shares of the
    processors, one after the other."""
    left = list(shares)
    return lambda measure: (measure(), left.pop(0))


def test_training_is_timed_again_while_other_programs_are_busy_and_the_least_time_counts() -> (
    None
):
    seconds = [3.0, 0.5, 0.4]
    pauses = []
    found = quietly(lambda: seconds.pop(0), _others(0.8, 0.5, 0.01), pauses.append)
    assert found == (0.4, True)
    assert pauses == list(PAUSES_S)
    assert quietly(lambda: 3.0, _others(0.01), pauses.append) == (3.0, True)
    assert len(pauses) == len(PAUSES_S)
    assert quietly(lambda: 3.0, _others(0.8, 0.8, 0.8), pauses.append) == (3.0, False)


def test_a_busy_machine_is_seen_by_the_kernels_own_counters() -> None:
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(4 * (os.cpu_count() or 1))
    ]
    try:
        pauses: list[float] = []

        def measure() -> float:
            time.sleep(0.5)
            return 1.0

        assert quietly(measure, pause=pauses.append) == (1.0, False)
        assert pauses == list(PAUSES_S)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_times_are_kept_for_a_day_and_those_of_a_busy_machine_for_minutes(
    tmp_path: Path,
) -> None:
    cache = Cache(tmp_path)

    def kept(quiet: bool, age_s: float) -> bool:
        times = calibrate.keep_times(
            cache,
            "key",
            Calibrated(train_s={1: 1.0}, null_s={1: 1.0}, how="", quiet=quiet),
        )
        cache.put(
            "training", "key", times | {"measured_at": times["measured_at"] - age_s}
        )
        return calibrate.kept_times(cache, "key") is not None

    assert [kept(True, age) for age in (0.0, 3600.0, 100_000.0)] == [True, True, False]
    assert [kept(False, age) for age in (0.0, 3600.0)] == [True, False]


def test_epochs_shorter_than_their_training_alone_contradict_it() -> None:
    assert calibrate.contradicted({1: 0.67, 2: 0.66}, {0: 3.0, 1: 2.99, 2: 2.99})
    assert not calibrate.contradicted({1: 0.67, 2: 0.66}, {1: 0.65, 2: 0.7})
    assert not calibrate.contradicted({1: 0.67}, {})


@needs_cap
def test_a_wrong_time_of_training_is_measured_again_when_an_epoch_contradicts_it(
    series: Series, tiny_dataset: Dataset
) -> None:
    """Of a real run on `cpu` whose kept time was measured in a far too slow moment."""
    wanted = config(
        series, "in-memory", device="cpu", device_memory=None, memory="none"
    )
    first = execute(series, wanted, tiny_dataset, refuse=True)
    assert first.status == "ok", first.reason
    key = calibrate.training_key(wanted)
    (kept := dict(series.cache.get("training", key) or {}))["train_s"] = {
        "0": 99.0,
        "1": 99.0,
    }
    series.cache.put(
        "training", key, kept | {"measured_at": time.time(), "quiet": True}
    )
    again = execute(series, wanted, tiny_dataset, refuse=True)
    assert max(again.compute["train_s"].values()) < 50.0
    times = series.cache.get("training", key)
    assert times is None or max(times["train_s"].values()) < 50.0

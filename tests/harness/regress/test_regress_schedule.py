from __future__ import annotations

from itertools import pairwise

import numpy as np

from harness.regress.decision import Rules
from harness.regress.measure.schedule import Budget, interleave
from harness.regress.samples import RunSample


class _Clock:
    """Monotonic clock that only runs advance."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class _Host:
    """Host that runs cells by advancing a clock, and logs their order."""

    def __init__(
        self, cells: list[str], noise: float, *, took: float = 5.0, fails: str = ""
    ) -> None:
        self.clock = _Clock()
        self.noise = noise
        self.took = took
        self.fails = fails
        self.cells = cells
        self.log = []
        self._rng = np.random.default_rng(0)

    def run(self, side: str, part, pair: int) -> list[RunSample]:
        self.clock.seconds += self.took * len(part)
        self.log += [(side, index) for index in part]
        return [
            RunSample(
                "",
                "failed" if self.fails == side else "ok",
                noisy={"epoch": float(np.exp(self._rng.normal(0, self.noise)))},
            )
            for _ in part
        ]

    def go(self, seconds: float, **more):
        return interleave(
            self.cells, self.run, Rules(), Budget(seconds, self.clock), **more
        )


def test_sides_alternate_which_goes_first():
    host = _Host(["diskgnn"], 0.2)
    host.go(45.0)
    assert "".join(side[0] for side, _ in host.log) == "bhhbbhhb"


def test_a_quiet_machine_stops_as_soon_as_the_interval_is_narrow():
    host = _Host(["diskgnn"], 0.001)
    (pairs,) = host.go(10_000.0)
    assert len(pairs.base) == len(pairs.head) == 5


def test_a_noisy_machine_goes_on_until_the_budget_and_never_beyond():
    host = _Host(["diskgnn"], 0.3)
    (pairs,) = host.go(203.0)
    assert len(pairs.base) == 20
    assert host.clock.seconds - 100.0 <= 203.0


def test_every_cell_gets_its_first_pair_whatever_the_budget():
    host = _Host(["diskgnn", "ginex", "pyg+"], 0.3)
    assert [len(pair.base) for pair in host.go(1.0)] == [1, 1, 1]


def test_time_goes_to_cells_that_are_still_open():
    host = _Host(["quiet", "noisy"], 0.0)
    plain = host.run

    def run(side, part, pair):
        host.noise = 0.3 if host.cells[part[0]] == "noisy" else 0.001
        return plain(side, part, pair)

    quiet, noisy = interleave(
        host.cells, run, Rules(), Budget(400.0, host.clock), chunk=1
    )
    assert len(quiet.base) < len(noisy.base)


def test_a_side_that_fails_is_not_run_again_and_again():
    host = _Host(["diskgnn"], 0.3, fails="head")
    (pairs,) = host.go(10_000.0)
    assert len(pairs.head) == 1


def test_a_chunk_never_holds_one_system_twice():
    host = _Host(["in-memory", "in-memory", "diskgnn"], 0.3)
    host.go(1.0)
    chunks = []
    for side, index in host.log:
        if (
            not chunks
            or chunks[-1][0] != side
            or host.cells[index] in {host.cells[other] for other in chunks[-1][1]}
        ):
            chunks.append((side, []))
        chunks[-1][1].append(index)
    assert all(
        len({host.cells[index] for index in part}) == len(part) for _, part in chunks
    )
    assert any(first[0] != second[0] for first, second in pairwise(chunks))


def test_the_order_of_cells_is_shuffled_by_seed_alone():
    def order(seed: int) -> list[int]:
        host = _Host([f"s{k}" for k in range(8)], 0.3)
        interleave(
            host.cells, host.run, Rules(seed=seed), Budget(1.0, host.clock), chunk=1
        )
        return [index for _, index in host.log]

    assert order(1) == order(1) != order(2)

"""Systems whose offline work serves single epochs get it before each of them, in the
loader too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from systems.in_memory import SYSTEM as InMemory
from systems.interface import Batch
from systems.loading import Loader
from tests.support import make_tiny


class Daily(InMemory):
    """A system that trains only an epoch whose own work was done, by one call for two
    epochs."""

    ready: range = range(0)

    def prepare_epochs(self, first: int) -> int:
        self.ready = range(first, first + 2)
        return 2

    def epoch(self, k: int) -> Iterator[Batch]:
        assert k in self.ready, f"epoch {k} was not prepared"
        return super().epoch(k)


def test_the_loader_prepares_each_epoch_that_no_earlier_work_serves(
    tmp_path: Path,
) -> None:
    name = "tests.systems.test_epoch_work:Daily"
    with Loader(
        make_tiny(tmp_path / "graph"), system=name, batch_size=50, num_neighbors=[3, 3]
    ) as loader:
        for _ in range(5):
            assert sum(1 for _ in loader) == len(loader)
        loader.set_epoch(0)
        assert sum(1 for _ in loader) == len(loader)

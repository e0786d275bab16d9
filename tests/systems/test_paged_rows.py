"""Pages of rows in host memory: the tutorial's page cache with a window reads the pages
that its model reads, and every row is right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import outcore
from systems.interface import DiskProfile, MemoryBudget, Runtime, StageClock
from tests.harness.run_tools import REPOSITORY
from tests.systems.support_systems import reference, run, workload_of
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import InputError
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

Batches = Sequence[Sequence[int]]


@pytest.fixture
def page_window(monkeypatch: pytest.MonkeyPatch) -> type[outcore.System]:
    """The system as the tutorial prints it."""
    text = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (source,) = [program for program in programs if "PagedRows" in program]
    names: dict[str, Any] = {"__name__": "page_window"}
    exec(compile(source, "page_window.py", "exec"), names)
    found: type[outcore.System] = names["SYSTEM"]
    return found


def made(
    kind: type[outcore.System],
    workload: Workload,
    folder: Path,
    host: int | None,
    **options: int,
) -> outcore.System:
    runtime = Runtime(
        make_accelerator("cpu"),
        DiskProfile(),
        folder / "artefacts",
        folder / "scratch",
        2,
    )
    own = kind.info.options(**options)
    return kind(workload, runtime, MemoryBudget(host), own, StageClock())


def drawn(workload: Workload, epoch: int) -> Batches:
    sampler = make_sampler(workload)
    seeds = make_seed_plan(workload).batches(epoch)
    return [sampler.sample(epoch, *one).nodes.tolist() for one in enumerate(seeds)]


def model_misses(
    batches: Batches, page_in: list[int], rows_per_page: int, window: int
) -> int:
    """Return the rows whose page is missing; `page_in`: page of each slot."""
    misses = 0
    for index, batch in enumerate(batches):
        near = batches[index : index + window + 1]
        coming = {row // rows_per_page for each in near for row in each}
        missing = {row // rows_per_page for row in batch} - set(page_in)
        misses += sum(row // rows_per_page in missing for row in batch)
        free = [slot for slot, page in enumerate(page_in) if page not in coming]
        for slot, page in zip(free, sorted(missing), strict=False):
            page_in[slot] = page
    return misses


@pytest.mark.parametrize(
    ("slots", "rows_per_page", "window"),
    [(1, 8, 4), (60, 8, 2), (90, 3, 6), (250, 8, 4)],
)
def test_it_reads_the_pages_of_its_model_and_returns_the_rows(
    tiny_dataset: Dataset,
    tmp_path: Path,
    page_window: type[outcore.System],
    slots: int,
    rows_per_page: int,
    window: int,
) -> None:
    workload = workload_of(tiny_dataset)
    options = {"rows_per_page": rows_per_page, "window": window}
    page_bytes = rows_per_page * tiny_dataset.row_bytes
    whole = made(page_window, workload, tmp_path, None, **options).plan()
    host = whole.total("host") - whole.bytes_of("cached pages") + slots * page_bytes
    system = made(page_window, workload, tmp_path, host, **options)
    assert system.plan().bytes_of("cached pages") == slots * page_bytes
    system.prepare()
    page_in = [-1] * slots
    for epoch in range(3):
        *digests, _ = run(system, epoch)
        assert tuple(digests) == reference(workload, epoch)
        counters = system.counters()
        batches = drawn(workload, epoch)
        assert counters.misses == model_misses(batches, page_in, rows_per_page, window)
        assert counters.hits == {"host": counters.rows - counters.misses}
        assert counters.bytes_useful == counters.misses * tiny_dataset.row_bytes
    assert slots < 250 or counters.misses == 0
    system.close()


def test_a_window_needs_mini_batches_that_are_sampled_ahead(
    tiny_dataset: Dataset, tmp_path: Path, page_window: type[outcore.System]
) -> None:
    class Inline(outcore.Neighbours):
        inline = True

    class NotAhead(page_window):  # type: ignore[misc, valid-type]
        def path(self) -> outcore.Path:
            path: outcore.Path = super().path()
            sample = Inline(path.sample.topology, 1, 1)
            return outcore.Path(sample, path.rows, path.copy, window=2)

    workload = workload_of(tiny_dataset)
    with pytest.raises(InputError, match="a window needs mini-batches sampled ahead"):
        made(NotAhead, workload, tmp_path, None).plan()

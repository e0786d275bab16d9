"""A workload determines its batches and the exact bounds of a run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from workloads.dataset import Dataset
from workloads.errors import InputError
from workloads.sampling.bounds import largest_batch
from workloads.sampling.digest import structure_digest
from workloads.sampling.make import advise_random, make_sampler, make_seed_plan
from workloads.workload import ModelSpec, SamplerSpec, Workload


def make_workload(dataset: Dataset, **sampler: object) -> Workload:
    spec = SamplerSpec(fanout=(4, 4), batch_size=30, **sampler)  # type: ignore[arg-type]
    return Workload(dataset=dataset, sampler=spec, model=ModelSpec(layers=2), seed=5)


def test_a_workload_fixes_its_batches(tiny_dataset: Dataset) -> None:
    workload = make_workload(tiny_dataset)
    seeds = make_seed_plan(workload).batches(1)[2]
    batch = make_sampler(workload).sample(1, 2, seeds)
    assert np.array_equal(batch.labels, tiny_dataset.load("labels")[seeds])
    assert np.isin(seeds, tiny_dataset.load("train")).all()
    loaded = make_sampler(workload, indices=tiny_dataset.load("indices"), threads=2)
    assert structure_digest(loaded.sample(1, 2, seeds)) == structure_digest(batch)


def test_bounds_are_the_largest_of_all_batches(tiny_dataset: Dataset) -> None:
    workload = make_workload(tiny_dataset)
    bounds = largest_batch(workload, epochs=3)
    plan = make_seed_plan(workload)
    sampler = make_sampler(workload)
    batches = {
        (epoch, index): sampler.sample(epoch, index, seeds)
        for epoch in range(3)
        for index, seeds in enumerate(plan.batches(epoch))
    }
    assert (
        bounds.nodes_by_batch.shape
        == bounds.edges_by_batch.shape
        == (3, plan.num_batches)
    )
    assert bounds.max_nodes == max(batch.num_nodes for batch in batches.values())
    assert bounds.max_edges == max(batch.num_edges for batch in batches.values())
    assert bounds.max_nbytes == max(batch.nbytes for batch in batches.values())
    assert batches[bounds.largest].num_nodes == bounds.max_nodes
    assert all(
        bounds.nodes_by_batch[name] == batch.num_nodes
        for name, batch in batches.items()
    )
    assert bounds.scratch_bytes > 0


def test_max_batches_bounds_the_run(tiny_dataset: Dataset) -> None:
    assert largest_batch(
        make_workload(tiny_dataset, max_batches=2), epochs=2
    ).nodes_by_batch.shape == (2, 2)


def test_no_epochs_are_refused(tiny_dataset: Dataset) -> None:
    with pytest.raises(InputError, match="epochs"):
        largest_batch(make_workload(tiny_dataset), epochs=0)


def test_memory_mapped_neighbours_are_read_without_read_ahead(
    tiny_dataset: Dataset,
) -> None:
    indices = tiny_dataset.memmap("indices")
    advise_random(indices)
    address = indices.__array_interface__["data"][0]
    flags = ""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif inside and line.startswith("VmFlags"):
            flags = line
    assert " rr" in flags, "the kernel was not advised of random reads"

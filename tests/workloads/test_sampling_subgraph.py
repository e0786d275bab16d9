"""Layer-wise and ShaDow sampling: canonical batches, drawn with the documented
probabilities."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads import sampling_reference as reference
from tests.workloads.test_sampling import GRAPH, SEEDS, as_bytes, make_graph
from tests.workloads.test_sampling_overlay import cache_of, renumber
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError
from workloads.sampling.bounds import largest_batch
from workloads.sampling.digest import structure_digest
from workloads.sampling.layerwise import LayerwiseSampler
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler
from workloads.sampling.shadow import ShadowSampler
from workloads.training import Trainer
from workloads.workload import ModelSpec, SamplerSpec, Workload

Ints = npt.NDArray[Any]
LAYERS = 3


def make(
    kind: str, indptr: Ints, indices: Ints, fanout: Any = (40, 30), **others: Any
) -> NeighborSampler:
    if kind == "layerwise":
        return LayerwiseSampler(indptr, indices, fanout, **{"seed": 4, **others})
    return ShadowSampler(
        indptr, indices, fanout, layers=LAYERS, **{"seed": 4, **others}
    )


@settings(max_examples=100, deadline=None)
@given(
    num_nodes=st.integers(1, 80),
    mean=st.floats(0.0, 12.0),
    graph_seed=st.integers(0, 1 << 20),
    fanout=st.lists(st.sampled_from([-1, 0, 1, 2, 7, 20]), min_size=1, max_size=3),
    seed=st.integers(0, (1 << 64) - 1),
    epoch=st.integers(0, 65535),
    threads=st.sampled_from([1, 3]),
    kind=st.sampled_from(["layerwise", "shadow"]),
    data=st.data(),
)
def test_batches_are_those_of_the_plain_reference(
    num_nodes: int,
    mean: float,
    graph_seed: int,
    fanout: list[int],
    seed: int,
    epoch: int,
    threads: int,
    kind: str,
    data: st.DataObject,
) -> None:
    graph = make_graph(num_nodes, graph_seed, mean)
    seeds = data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=20))
    names: dict[str, Any] = {"seed": seed, "epoch": epoch, "batch": 5}
    sampled = make(kind, *graph, fanout, seed=seed, threads=threads).sample(
        epoch, 5, np.array(seeds, dtype=np.int64)
    )
    blocks = [(b.indptr.tolist(), b.indices.tolist()) for b in sampled.blocks]
    if kind == "layerwise":
        assert (sampled.nodes.tolist(), blocks) == reference.layerwise(
            graph, fanout, seeds, **names
        )
        assert [b.num_src for b in sampled.blocks] == [
            sampled.num_nodes,
            *(b.num_dst for b in sampled.blocks[:-1]),
        ]
        return
    nodes, _ = reference.sample(*graph, fanout, seeds, **names)
    assert sampled.nodes.tolist() == nodes
    assert blocks == [reference.induced(graph, nodes, nodes)] * LAYERS
    assert all(
        (b.num_src, b.num_dst) == (len(nodes), len(nodes)) for b in sampled.blocks
    )


@pytest.mark.parametrize("kind", ["layerwise", "shadow"])
def test_threads_dtypes_caches_and_numbering_do_not_change_a_batch(kind: str) -> None:
    indptr, indices = GRAPH
    labels = np.arange(len(indptr) - 1)
    expected = make(kind, indptr, indices, labels=labels).sample(1, 2, SEEDS)
    order = np.random.default_rng(5).permutation(len(indptr) - 1)
    local = np.argsort(order)[SEEDS]
    for threads in (1, 2, 5):
        other = make(
            kind, indptr, indices.astype(np.int32), threads=threads, labels=labels
        )
        assert as_bytes(other.sample(1, 2, SEEDS)) == as_bytes(expected)
        cached = make(
            kind,
            indptr,
            indices,
            threads=threads,
            cached=cache_of(indptr, indices, np.arange(9000)),
        )
        got = cached.sample(1, 2, SEEDS)
        assert structure_digest(
            replace(got, labels=expected.labels)
        ) == structure_digest(expected)
        assert 0 < got.list_hits < got.list_reads == expected.list_reads
        moved = make(
            kind,
            *renumber(indptr, indices, order),
            threads=threads,
            names=order,
            labels=labels[order],
        )
        assert as_bytes(moved.sample(1, 2, SEEDS, local_seeds=local)) == as_bytes(
            expected
        )
    sampler = make(kind, indptr, indices, labels=labels)
    with ThreadPoolExecutor(4) as pool:
        assert {
            structure_digest(batch)
            for batch in pool.map(lambda _: sampler.sample(1, 2, SEEDS), range(8))
        } == {structure_digest(expected)}


@pytest.mark.parametrize("kind", ["layerwise", "shadow"])
def test_seed_epoch_and_batch_each_change_the_draws(kind: str) -> None:
    batches = [
        make(kind, *GRAPH).sample(0, 0, SEEDS),
        make(kind, *GRAPH).sample(1, 0, SEEDS),
        make(kind, *GRAPH).sample(0, 1, SEEDS),
        make(kind, *GRAPH, seed=5).sample(0, 0, SEEDS),
    ]
    assert len({batch.nodes.tobytes() for batch in batches}) == 4


def test_a_layer_adds_as_many_nodes_as_asked_and_keeps_its_destinations() -> None:
    sampled = make("layerwise", *GRAPH, (100, 50, 25)).sample(0, 0, SEEDS)
    assert [(b.num_dst, b.num_src) for b in sampled.blocks[::-1]] == [
        (500, 600),
        (600, 650),
        (650, 675),
    ]
    everything = make("layerwise", *GRAPH, (-1,)).sample(0, 0, SEEDS)
    whole = NeighborSampler(*GRAPH, (-1,), seed=0).sample(0, 0, SEEDS)
    assert structure_digest(everything) == structure_digest(whole)
    assert everything.edge_reads == whole.edge_reads


def graph_of(lists: list[list[int]]) -> tuple[Ints, Ints]:
    indptr = np.concatenate(
        [[0], np.cumsum([len(sources) for sources in lists])]
    ).astype(np.int64)
    return indptr, np.array(
        [source for sources in lists for source in sources], dtype=np.int64
    )


# Destinations 0, 1 and 2 with lists of different lengths over candidates 3..8.
SMALL = graph_of([[3, 4], [3, 4, 5, 6], [5, 6, 6, 7, 8, 3, 3, 4], *[[]] * 6])


def drawn(fanout: int, times: int) -> Ints:
    """Sample repeatedly; return bool [times, 6], whether a draw took each of nodes 3 to
    8."""
    sampler = make("layerwise", *SMALL, (fanout,))
    taken = np.zeros((times, 9), dtype=bool)
    for number in range(times):
        taken[
            number, sampler.sample(number % 60000, number // 60000, np.arange(3)).nodes
        ] = True
    return taken[:, 3:]


def test_one_node_is_drawn_with_the_probability_of_its_weight() -> None:
    """P(j) is the integral over u of P(every other weight / u_k is below weight_j /
    u)."""
    from scipy import stats  # it takes seconds to import

    weight = reference.weights(SMALL, [0, 1, 2])
    assert weight[3] == pytest.approx(1 / 4 + 1 / 16 + 2 / 64)
    w = np.array([weight[node] for node in range(3, 9)])
    u = (np.arange(400_000) + 0.5) / 400_000
    exact = np.array(
        [
            np.prod(
                [1 - np.minimum(1, u * w[k] / w[j]) for k in range(6) if k != j], axis=0
            ).mean()
            for j in range(6)
        ]
    )
    assert exact.sum() == pytest.approx(1, abs=1e-4)
    assert exact[0] > 5 * exact[4]  # a uniform draw would fail
    counts = drawn(1, 20_000).sum(0)
    assert stats.chisquare(counts, exact / exact.sum() * counts.sum()).pvalue > 1e-3


def test_inclusions_are_unbiased_by_their_thresholds() -> None:
    """Over many draws the sum of taken / min(1, weight / threshold) is the number of
    draws, for every candidate."""
    times = 6000
    fanout = 3
    weight = reference.weights(SMALL, [0, 1, 2])
    taken = drawn(fanout, times)
    estimates = np.zeros((times, 6))
    for number in range(times):
        priority = {
            node: w
            / reference.uniform(
                reference.stream(4, number % 60000, number // 60000, 0, node)
            )
            for node, w in weight.items()
        }
        threshold = sorted(priority.values(), reverse=True)[fanout]
        for place, node in enumerate(range(3, 9)):
            assert taken[number, place] == (priority[node] > threshold)
            estimates[number, place] = taken[number, place] / min(
                1.0, weight[node] / threshold
            )
    error = (estimates.mean(0) - 1) / (estimates.std(0) / np.sqrt(times))
    assert np.abs(error).max() < 4


def test_equal_weights_make_every_subset_equally_likely() -> None:
    from scipy import stats  # it takes seconds to import

    sampler = make("layerwise", *graph_of([[1, 2, 3, 4, 5, 6], *[[]] * 6]), (3,))
    subsets = dict.fromkeys(combinations(range(1, 7), 3), 0)
    for number in range(10_000):
        subsets[tuple(sampler.sample(number, 0, np.array([0])).nodes[1:].tolist())] += 1
    assert stats.chisquare(list(subsets.values())).pvalue > 1e-3


@pytest.mark.parametrize("kind", ["layerwise", "shadow"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_corrupted_graph_is_named_and_not_followed(kind: str, threads: int) -> None:
    indptr = GRAPH[0].copy()
    indices = GRAPH[1].copy()
    indices[indptr[SEEDS[3]]] = len(indptr)
    sampler = make(kind, indptr, indices, (-1,), threads=threads)
    with pytest.raises(DatasetError, match=f"comes from node {len(indptr)}"):
        sampler.sample(0, 0, SEEDS)
    for seeds in ([1, 2, 1], [len(indptr)]):
        with pytest.raises(InputError, match="seed node"):
            make(kind, *GRAPH).sample(0, 0, np.array(seeds))


def test_impossible_settings_are_refused(tiny_dataset: Dataset) -> None:
    with pytest.raises(InputError, match="without replacement"):
        make("layerwise", *GRAPH, replace=True)
    with pytest.raises(InputError, match="layers is 0"):
        ShadowSampler(*GRAPH, (3,), seed=0, layers=0)
    workload = Workload(
        tiny_dataset, SamplerSpec(name="shadow", fanout=(4, 3)), ModelSpec(layers=3)
    )
    with pytest.raises(InputError, match="no first hops"):
        make_sampler(workload, hops=1)


@pytest.mark.parametrize("name", ["layerwise", "shadow"])
def test_a_workload_makes_samples_bounds_and_trains(
    tiny_dataset: Dataset, name: Any
) -> None:
    layers = 2 if name == "layerwise" else 3
    spec = SamplerSpec(
        name=name,
        fanout=(20, 10) if name == "layerwise" else (4, 3),
        batch_size=16,
        max_batches=4,
    )
    workload = Workload(tiny_dataset, spec, ModelSpec(layers=layers, hidden=8))
    sampler = make_sampler(workload)
    plan = make_seed_plan(workload)
    bounds = largest_batch(workload, epochs=2)
    batches = [
        sampler.sample(e, i, seeds)
        for e in range(2)
        for i, seeds in enumerate(plan.batches(e))
    ]
    assert bounds.max_nodes == max(batch.num_nodes for batch in batches)
    assert bounds.max_edges == max(batch.num_edges for batch in batches)
    assert bounds.scratch_bytes > 0
    features = torch.from_numpy(
        np.asarray(tiny_dataset.load("features"), dtype=np.float32)
    )
    for model in ("sage", "gcn", "gat"):
        chosen = replace(workload.model, name=model)
        trainer = Trainer(
            chosen, tiny_dataset.dim, tiny_dataset.num_classes, make_accelerator("cpu")
        )
        losses = [
            trainer.step(batch, features, torch.from_numpy(batch.nodes))
            for batch in batches
        ]
        assert all(np.isfinite(result.loss) and result.seen == 16 for result in losses)


def test_shadows_scores_are_those_of_the_seed_nodes_on_the_induced_subgraph() -> None:
    """The scores equal those of GCN over the subgraph as a separate graph, at the seed
    nodes."""
    indptr, indices = make_graph(60, 1, mean=4.0)
    labels = np.arange(60) % 3
    sampled = ShadowSampler(
        indptr, indices, (3, 3), seed=1, layers=3, labels=labels
    ).sample(0, 0, np.arange(7))
    spec = ModelSpec(name="gcn", layers=3, hidden=5)
    features = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    trainer = Trainer(spec, 4, 3, make_accelerator("cpu"))
    model: Any = trainer.model
    dense = torch.zeros(sampled.num_nodes, sampled.num_nodes)
    block = sampled.blocks[0]
    for node in range(block.num_dst):
        for source in block.indices[block.indptr[node] : block.indptr[node + 1]]:
            dense[node, int(source)] += float(int(source) != node)
    dense += torch.eye(sampled.num_nodes)
    scale = dense.sum(1).rsqrt()
    x = features[sampled.nodes]
    for number, layer in enumerate(model.layers):
        x = (
            scale[:, None] * (dense @ (scale[:, None] * x)) @ layer.weight.t()
            + layer.bias
        )
        x = torch.relu(x) if number < 2 else x
    held = [(sampled, features, torch.from_numpy(sampled.nodes))]
    right = float((x[:7].argmax(1) == torch.from_numpy(labels[:7])).float().mean())
    assert trainer.evaluate(held) == pytest.approx(right)
    expected = torch.nn.functional.cross_entropy(
        x[:7], torch.from_numpy(sampled.labels)
    )
    loss = trainer.step(sampled, features, torch.from_numpy(sampled.nodes)).loss
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)

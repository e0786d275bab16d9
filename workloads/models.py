"""GraphSAGE, GCN and GAT on blocks, with the semantics of PyG's layers, over fused
products (`workloads.sparse`).

No layer makes a tensor of edges x features or imports torch_geometric. Initial weights
are drawn on the processor from a separate generator, so they depend on the seed alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads.arraytypes import ArrayShape, Float32Array, Int64Array, IntegerArray
from workloads.errors import InputError, require
from workloads.sampling.batch import Block
from workloads.sparse import Graph, attend, neighbour_sum, neighbourhood, relu_
from workloads.workload import ModelSpec


class Layer(nn.Module):
    """One convolution over a block.

    `forward(x, block, rows)` takes `x` float32 [num_src, in_dim], or a table with
    source i in row `rows[i]` (int64 [num_src]), and returns [num_dst, out_dim].
    `from_aggregated(x)`, where the layer has it, computes nodes' new rows from
    aggregates made beforehand, float32 [n, width of `aggregated_width`]. `self_loops`:
    as for `Graph.arrays`.
    """

    self_loops = False

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.in_dim = in_dim
        self.out_dim = out_dim


class SageLayer(Layer):
    """PyG's `SAGEConv` (mean): `W_agg mean(neighbours) + b + W_root own`. A destination
    without edges has mean 0."""

    def __init__(self, in_dim: int, out_dim: int, generator: torch.Generator) -> None:
        super().__init__(in_dim, out_dim)
        bound = 1 / math.sqrt(in_dim)
        self.neighbour_weight = _uniform((out_dim, in_dim), bound, generator)
        self.root_weight = _uniform((out_dim, in_dim), bound, generator)
        self.bias = _uniform((out_dim,), bound, generator)

    def forward(
        self, x: Tensor, block: Block | Graph, rows: Tensor | None = None
    ) -> Tensor:
        """Compute the destinations' new rows."""
        graph = Graph.from_block(block, x.device)
        degrees = graph.degrees.clamp(min=1)
        scale = 1.0 / degrees.to(torch.float32)
        if _aggregate_first(graph, self.in_dim, self.out_dim):
            return self._products(*neighbourhood(x, graph, rows, scale=scale))
        x = x if rows is None else torch.index_select(x, 0, rows)
        mean = neighbour_sum(x @ self.neighbour_weight.t(), graph, scale=scale)
        return torch.addmm(mean + self.bias, x[: graph.num_dst], self.root_weight.t())

    def from_aggregated(self, x: Tensor) -> Tensor:
        """Compute nodes' new rows from [own row, mean over the neighbours]."""
        return self._products(x[:, self.in_dim :], x[:, : self.in_dim])

    def _products(self, mean: Tensor, own: Tensor) -> Tensor:
        return torch.addmm(
            torch.addmm(self.bias, mean, self.neighbour_weight.t()),
            own,
            self.root_weight.t(),
        )


class GcnLayer(Layer):
    """PyG's `GCNConv` on a block, as PyG's own users run it on a sampled subgraph.

    The block is read as a square graph over its sources: degrees are in-degrees inside
    the block plus one self-loop (an edge of a node to itself counts as that loop), so a
    source that is no destination has degree 1. Each edge weighs
    `1 / sqrt(degree of source x degree of destination)`. Where the block is the whole
    graph this is `GCNConv`.
    """

    self_loops = True

    def __init__(self, in_dim: int, out_dim: int, generator: torch.Generator) -> None:
        super().__init__(in_dim, out_dim)
        self.weight = _glorot((out_dim, in_dim), generator)
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def forward(
        self, x: Tensor, block: Block | Graph, rows: Tensor | None = None
    ) -> Tensor:
        """Compute the destinations' new rows."""
        graph = Graph.from_block(block, x.device, self_loops=self.self_loops)
        inverse_root = torch.ones(graph.num_src, device=x.device)
        inverse_root[: graph.num_dst] = graph.degrees.to(torch.float32).rsqrt()
        weights = torch.index_select(inverse_root, 0, graph.indices)
        scale = inverse_root[: graph.num_dst]
        if _aggregate_first(graph, self.in_dim, self.out_dim):
            return self.from_aggregated(
                neighbour_sum(x, graph, rows, weights=weights, scale=scale)
            )
        x = x if rows is None else torch.index_select(x, 0, rows)
        return (
            neighbour_sum(x @ self.weight.t(), graph, weights=weights, scale=scale)
            + self.bias
        )

    def from_aggregated(self, x: Tensor) -> Tensor:
        """Compute nodes' new rows from the normalised sum over the neighbours and the
        node itself."""
        return torch.addmm(self.bias, x, self.weight.t())


class GatLayer(Layer):
    """PyG's `GATConv`: self-loops, LeakyReLU(0.2) scores, softmax over in-edges; heads
    concatenated or averaged.

    `out_dim` is the output width: `heads x width` for concatenated heads, `width` for
    averaged heads.
    """

    self_loops = True

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        heads: int,
        concat: bool,
        generator: torch.Generator,
    ) -> None:
        super().__init__(in_dim, out_dim)
        if concat and out_dim % heads:
            fault = f"hidden is {out_dim}, not a multiple of {heads} heads"
            raise InputError(fault, "choose hidden or heads so")
        self.heads = heads
        self.concat = concat
        self.width = out_dim // heads if concat else out_dim
        self.weight = _glorot((heads * self.width, in_dim), generator)
        self.source_attention = _glorot((heads, self.width), generator)
        self.destination_attention = _glorot((heads, self.width), generator)
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def forward(
        self, x: Tensor, block: Block | Graph, rows: Tensor | None = None
    ) -> Tensor:
        """Compute the destinations' new rows."""
        graph = Graph.from_block(block, x.device, self_loops=self.self_loops)
        x = x if rows is None else torch.index_select(x, 0, rows)
        h = (x @ self.weight.t()).view(graph.num_src, self.heads, self.width)
        # a . (W x) = (W' a) . x: the scores come from one narrow product, not from a
        # pass over every head's rows.
        vectors = torch.stack([self.source_attention, self.destination_attention])
        by_head = self.weight.view(self.heads, self.width, self.in_dim)
        narrow = (by_head * vectors[..., None]).sum(2)
        ends = x @ narrow.view(2 * self.heads, self.in_dim).t()
        out = attend(h, ends, graph)
        out = out.reshape(graph.num_dst, -1) if self.concat else out.mean(1)
        return out + self.bias


class Model(nn.Module):
    """Layers over the blocks of a mini-batch, input layer first; ReLU (GAT: ELU) and
    dropout between them."""

    def __init__(self, layers: Sequence[Layer], elu: bool, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.elu = elu
        self.dropout = dropout

    def forward(
        self,
        table: Tensor,
        blocks: Sequence[Block | Graph],
        rows: Tensor | None = None,
        generator: torch.Generator | None = None,
        first_layer_aggregated: bool = False,
    ) -> Tensor:
        """Compute the scores of the seed nodes, float32 [num_seeds, num_classes].

        Args:
            table, rows, first_layer_aggregated: as for `Trainer.step`; float16 rows are
                converted to float32 first.
            blocks: one block a layer, or its graph, input layer first; from the second
                layer on where the first is aggregated.
            generator: generator of the dropout; None: no dropout (evaluation).

        Raises:
            InputError: the number of blocks is another one.
        """
        check_hops(len(self.layers), blocks, first_layer_aggregated)
        x = table
        if rows is not None and (
            first_layer_aggregated or table.dtype != torch.float32
        ):
            x = torch.index_select(table, 0, rows)
            rows = None
        if rows is None:
            if blocks:
                x = x[: blocks[0].num_src]
            x = x.float()
        layers = list(self.layers)
        if first_layer_aggregated:
            first = layers.pop(0)
            assert isinstance(first, SageLayer | GcnLayer)
            x = first.from_aggregated(x)
        for number, (layer, block) in enumerate(zip(layers, blocks, strict=True)):
            if number or first_layer_aggregated:
                x = self._activate(x, generator)
            x = layer(x, block, rows)
            rows = None
        return x

    def looping(self, first_layer_aggregated: bool = False) -> list[bool]:
        """Return whether each layer that reads a block adds self-loops to it, input
        layer first."""
        layers = list(self.layers)[int(first_layer_aggregated) :]
        return [bool(layer.self_loops) for layer in layers]

    def _activate(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        x = functional.elu_(x) if self.elu else relu_(x)
        if self.dropout and generator is not None:
            keep = 1.0 - self.dropout
            mask = torch.empty_like(x).bernoulli_(keep, generator=generator)
            x = x * mask.div_(keep)
        return x


def check_hops(
    layers: int, blocks: Sequence[Block | Graph], first_layer_aggregated: bool
) -> None:
    """Check that a batch has a hop for every layer but an aggregated one; raises
    InputError where it has not."""
    beside = " beside the aggregated one" if first_layer_aggregated else ""
    fault = f"the model has {layers} layers and the batch {len(blocks)} hops{beside}"
    valid = len(blocks) + first_layer_aggregated == layers
    require(valid, fault, "give as many fan-outs as layers")


def layer_widths(spec: ModelSpec, in_dim: int, num_classes: int) -> list[int]:
    """Return the widths between layers: `[in_dim, hidden, …, num_classes]`."""
    return [in_dim] + [spec.hidden] * (spec.layers - 1) + [num_classes]


def aggregated_width(spec: ModelSpec, dim: int) -> int:
    """Return the width of a node's row with the first layer aggregated beforehand
    (`+pp`; PaGraph, section 4.4).

    GraphSAGE: `2 dim`, the own row and the mean over all in-neighbours. GCN: `dim`, the
    normalised sum. Raises InputError for a model without such a form: attention weighs
    neighbours by parameters that training changes.
    """
    if spec.name == "sage":
        return 2 * dim
    if spec.name == "gcn":
        return dim
    raise InputError(
        f"{spec.name}'s first layer cannot be aggregated beforehand: its weights of "
        "the neighbours are learned",
        "use sage or gcn, or a system without first-layer preprocessing",
    )


def first_layer_rows(
    spec: ModelSpec,
    indptr: Int64Array,
    indices: IntegerArray,
    features: npt.NDArray[np.floating[Any]],
    nodes: Int64Array,
) -> Float32Array:
    """Compute the first layer's aggregate of `nodes` over all their in-neighbours, in
    plain code as an oracle: float32 [n, aggregated_width], summed in float64.

    GraphSAGE: [own row, mean over the neighbour list]; a repeated edge counts twice, an
    empty list gives 0. The first layer computes the same from a block with fan-out -1,
    so a `+pp` model equals the original model wherever its first layer sees whole
    lists. GCN: the sum over the list and the node itself, weighted as in `GcnLayer`
    with degrees of the whole graph; equal to a block's where the block is the whole
    graph, else the block approximates `+pp`.

    Args:
        spec: model; raises InputError where its first layer cannot be aggregated
            beforehand.
        indptr, indices, features: the graph, [N + 1], [E] and [N, dim].
        nodes: int64 [n].
    """
    width = aggregated_width(spec, features.shape[1])
    rows = np.zeros((len(nodes), width), dtype=np.float64)
    for place, node in enumerate(nodes):
        neighbours = indices[indptr[node] : indptr[node + 1]]
        own = features[node].astype(np.float64)
        if spec.name == "sage":
            total = features[neighbours].astype(np.float64).sum(0)
            mean = total / max(1, len(neighbours))
            rows[place] = np.concatenate([own, mean])
            continue
        neighbours = neighbours[neighbours != node]
        lists = (indices[indptr[source] : indptr[source + 1]] for source in neighbours)
        counts = [
            int((ids != source).sum()) + 1
            for ids, source in zip(lists, neighbours, strict=True)
        ]
        degrees = np.array(counts)
        degree = len(neighbours) + 1
        scale = np.sqrt(degrees.reshape(-1, 1) * degree)
        weighed = features[neighbours].astype(np.float64) / scale
        rows[place] = weighed.sum(0) + own / degree
    return rows.astype(np.float32)


def make_model(spec: ModelSpec, in_dim: int, num_classes: int, seed: int = 0) -> Model:
    """Make the model of `spec` on the processor.

    Args:
        spec: name, layers, hidden width, heads and dropout.
        in_dim, num_classes: width of a feature row and of the output.
        seed: seed of the weights, on which alone they depend.

    Raises:
        InputError: the model is unknown, has no layer, or its heads do not divide its
            hidden width.
    """
    fault = f"layers is {spec.layers}"
    require(spec.layers >= 1, fault, "a model needs at least one")
    generator = torch.Generator().manual_seed(seed)
    widths = layer_widths(spec, in_dim, num_classes)
    layers: list[Layer] = []
    fault = f"model is {spec.name!r}, which is not known"
    require(spec.name in ("sage", "gcn", "gat"), fault, "use sage, gcn or gat")
    for number, (width, out) in enumerate(itertools.pairwise(widths)):
        if spec.name == "gat":
            layers.append(
                GatLayer(width, out, spec.heads, number + 1 < spec.layers, generator)
            )
        elif spec.name == "gcn":
            layers.append(GcnLayer(width, out, generator))
        else:
            layers.append(SageLayer(width, out, generator))
    return Model(layers, elu=spec.name == "gat", dropout=spec.dropout)


def _aggregate_first(graph: Graph, in_dim: int, out_dim: int) -> bool:
    """Return whether to sum rows before the product: less work than the product of
    every source."""
    product_work = in_dim * out_dim
    sums_first = graph.num_dst * product_work + graph.drawn_edges * in_dim
    products_first = graph.num_src * product_work + graph.drawn_edges * out_dim
    return sums_first <= products_first


def _uniform(
    shape: ArrayShape, bound: float, generator: torch.Generator
) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


def _glorot(shape: tuple[int, int], generator: torch.Generator) -> nn.Parameter:
    return _uniform(shape, math.sqrt(6.0 / sum(shape)), generator)

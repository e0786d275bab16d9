"""Sparse products over one block: neighbourhood sums, their gradients and edge dot
products.

No tensor of edges x features is ever made: sums run row by row of the block
(`torch.embedding_bag`, which on the processor is FBGEMM's prefetching kernel, on CUDA
one thread block a row), and edge dot products run in chunks of edges.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from workloads import _native
from workloads.arraytypes import Int32Array
from workloads.sampling.batch import Block

_SUM = 0
SLOPE = 0.2  # of the LeakyReLU over attention scores, below zero
# Edges whose two rows are gathered at once for a dot product: 4,096 x 256 floats are 4
# MiB, which stay in the L2/L3.
CHUNK_EDGES = 4096
# Bytes of rows gathered at once on a device, where each chunk takes three launches.
_DEVICE_CHUNK_BYTES = 64 << 20


class Graph:
    """A block as tensors on one device: CSR by destination (int32 `indptr` [num_dst +
    1], `indices` [num_edges] among the sources), and by source once a gradient needs
    it. `drawn_edges`: edges of the block, without added self-loops.
    """

    def __init__(self, block: Block, indptr: Tensor, indices: Tensor) -> None:
        self.indptr = indptr
        self.indices = indices
        self.num_src = block.num_src
        self.num_dst = block.num_dst
        self.num_edges = int(indices.shape[0])
        self.drawn_edges = block.num_edges

    @staticmethod
    def arrays(
        block: Block, *, self_loops: bool = False
    ) -> tuple[Int32Array, Int32Array]:
        """Return `indptr` and `indices` of a block's graph on the host; with
        `self_loops`, each destination's last edge is its only one from itself."""
        if self_loops:
            return _native.with_self_loops(block.indptr, block.indices)
        return block.indptr.astype(np.int32), np.ascontiguousarray(block.indices)

    @classmethod
    def from_block(
        cls, block: Block | Graph, device: torch.device, *, self_loops: bool = False
    ) -> Graph:
        """Copy a block to `device`, as `arrays`; a graph is returned as it is."""
        if isinstance(block, Graph):
            return block
        indptr, indices = cls.arrays(block, self_loops=self_loops)
        return cls(
            block,
            torch.from_numpy(indptr).to(device),
            torch.from_numpy(indices).to(device),
        )

    @cached_property
    def degrees(self) -> Tensor:
        """Number of edges of each destination, int32 [num_dst]."""
        return self.indptr[1:] - self.indptr[:-1]

    @cached_property
    def destinations(self) -> Tensor:
        """Destination of each edge, int32 [num_edges]."""
        numbers = torch.arange(
            self.num_dst, dtype=torch.int32, device=self.indptr.device
        )
        return torch.repeat_interleave(
            numbers, self.degrees, output_size=self.num_edges
        )

    @cached_property
    def by_source(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transpose: int32 (indptr [num_src + 1], destinations [num_edges], edge of
        each entry [num_edges])."""
        sources, order = torch.sort(self.indices, stable=True)
        order = order.to(torch.int32)
        # Of sorted numbers, without waiting for the device: `bincount` asks it for the
        # largest.
        indptr = torch._convert_indices_from_coo_to_csr(
            sources, self.num_src, out_int32=True
        )
        return indptr, torch.index_select(self.destinations, 0, order), order


def row_sums(
    x: Tensor, indptr: Tensor, indices: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Sum for each row i of the result, float [n, dim], the rows
    `indices[indptr[i]:indptr[i + 1]]` of `x`, with weights if given; a row without
    entries is zero.

    Args:
        x: float [rows, dim], contiguous.
        indptr, indices: int32 or int64 [n + 1], and [edges] of the same type.
        weights: [edges] of x's type; None: 1 each.
    """
    if indices.shape[0] == 0:
        return x.new_zeros(indptr.shape[0] - 1, x.shape[1])
    return torch.embedding_bag(x, indices, indptr, False, _SUM, False, weights, True)[0]


class _Neighbourhood(torch.autograd.Function):
    """(weighted neighbour sum, own row) of every destination; one gradient for both,
    added in place."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        graph: Graph,
        rows: Tensor | None,
        weights: Tensor | None,
        scale: Tensor | None,
        with_own: bool,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.graph = graph
        ctx.weights = weights
        ctx.scale = scale
        ctx.set_materialize_grads(False)
        if rows is None:
            indices = graph.indices
        else:
            indices = torch.index_select(rows, 0, graph.indices)
        total = row_sums(x, graph.indptr.to(indices.dtype), indices, weights)
        if scale is not None:
            total.mul_(scale[:, None])
        if not with_own:
            return total, None
        if rows is None:
            return total, x[: graph.num_dst]
        return total, torch.index_select(x, 0, rows[: graph.num_dst])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, grad_own: Tensor | None) -> Any:
        graph: Graph = ctx.graph
        grad = None
        if ctx.needs_input_grad[0]:
            if ctx.scale is not None:
                grad_total = grad_total * ctx.scale[:, None]
            indptr, destinations, order = graph.by_source
            weights = (
                None
                if ctx.weights is None
                else torch.index_select(ctx.weights, 0, order)
            )
            grad = row_sums(grad_total.contiguous(), indptr, destinations, weights)
            if grad_own is not None:
                grad[: graph.num_dst].add_(grad_own)
        return grad, None, None, None, None, None


def neighbourhood(
    x: Tensor,
    graph: Graph,
    rows: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the neighbour sum and the own row of every destination, [num_dst, dim]
    each; arguments as for `neighbour_sum`."""
    total, own = _Neighbourhood.apply(x, graph, rows, weights, scale, True)  # type: ignore[no-untyped-call]
    return total, own


def neighbour_sum(
    x: Tensor,
    graph: Graph,
    rows: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Compute the neighbour sum of every destination, [num_dst, dim].

    Args:
        x: float [num_src, dim]; with `rows`, a table whose row `rows[i]` is source i
            (then without gradient): the sum reads the table itself, so the sources'
            rows are never gathered into a tensor of their own.
        graph: the block.
        rows: int64 [num_src], the node alias list.
        weights: [num_edges], weight of each edge, constant.
        scale: [num_dst], factor of each sum (one over the degree gives the mean),
            constant.
    """
    total, _ = _Neighbourhood.apply(x, graph, rows, weights, scale, False)  # type: ignore[no-untyped-call]
    return total  # type: ignore[no-any-return]


class _Relu(torch.autograd.Function):
    """ReLU in place, and in the backward pass of the incoming gradient: saves `hidden`
    floats an input destination.

    Valid between the layers here only: the next operation must neither keep nor share
    its gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.relu_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        result: Tensor = torch.ops.aten.threshold_backward.grad_input(
            grad, out, 0, grad_input=grad
        )
        return result


relu_: Callable[[Tensor], Tensor] = _Relu.apply


class _Attention(torch.autograd.Function):
    """Sum of the sources' rows, weighted by the softmax of LeakyReLU scores over the
    edges of each destination."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, ends: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        heads = h.shape[1]
        scores = torch.index_select(ends[:, :heads].contiguous(), 0, graph.indices)
        scores.add_(_of_edges(ends[: graph.num_dst, heads:].contiguous(), graph))
        rising = scores > 0
        alpha = functional.leaky_relu_(scores, SLOPE)
        alpha.sub_(_of_edges(_segments(alpha, graph, "max"), graph)).exp_()
        alpha.div_(_of_edges(_segments(alpha, graph, "sum"), graph))
        ctx.save_for_backward(h, alpha, rising)
        return _per_head(h, alpha, graph.indptr, graph.indices)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        h, alpha, rising = ctx.saved_tensors
        graph = ctx.graph
        heads = h.shape[1]
        grad = grad.contiguous()
        indptr, destinations, order = graph.by_source
        grad_h = _per_head(
            grad, torch.index_select(alpha, 0, order), indptr, destinations
        )
        scores = edge_dots(grad, h, graph).mul_(alpha)
        scores.sub_(_of_edges(_segments(scores, graph, "sum"), graph).mul_(alpha))
        scores = torch.where(rising, scores, SLOPE * scores)
        grad_ends = h.new_zeros(graph.num_src, 2 * heads)
        grad_ends[:, :heads] = row_sums(scores, indptr, order)
        grad_ends[: graph.num_dst, heads:] = _segments(scores, graph, "sum")
        return grad_h, grad_ends, None


def attend(h: Tensor, ends: Tensor, graph: Graph) -> Tensor:
    """Sum the sources' rows with attention: [num_dst, heads, width].

    Args:
        h: float [num_src, heads, width].
        ends: [num_src, 2 heads], a node's part in the score of an edge by head: as its
            source, then as its destination.
        graph: the block, with an edge to each destination at least.
    """
    return _Attention.apply(h, ends, graph)  # type: ignore[no-any-return, no-untyped-call]


def _segments(values: Tensor, graph: Graph, how: str) -> Tensor:
    """Reduce values of edges, [num_edges, heads], to their destinations: [num_dst,
    heads]."""
    return torch.segment_reduce(values, how, offsets=graph.indptr, axis=0, unsafe=True)


def _of_edges(values: Tensor, graph: Graph) -> Tensor:
    """Return the value of each edge's destination: [num_edges, heads]."""
    return torch.index_select(values, 0, graph.destinations)


def _per_head(x: Tensor, alpha: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    """Sum the rows of `x`, [rows, heads, width], for each head with its own weights,
    [edges, heads]."""
    rows, heads, width = x.shape
    flat = x.reshape(rows * heads, width)
    out = x.new_empty(indptr.shape[0] - 1, heads, width)
    for head in range(heads):
        weights = alpha[:, head].contiguous()
        out[:, head] = row_sums(flat, indptr, indices * heads + head, weights)
    return out


def edge_dots(dst_rows: Tensor, src_rows: Tensor, graph: Graph) -> Tensor:
    """Compute the dot product of both ends' rows for each edge and head: [num_edges,
    heads], in chunks of edges."""
    out = dst_rows.new_empty(graph.num_edges, dst_rows.shape[1])
    step = CHUNK_EDGES
    if dst_rows.device.type != "cpu":
        step = max(
            step,
            _DEVICE_CHUNK_BYTES
            // max(1, dst_rows.shape[1:].numel() * dst_rows.element_size()),
        )
    for first in range(0, graph.num_edges, step):
        chunk = slice(first, first + step)
        left = torch.index_select(dst_rows, 0, graph.destinations[chunk])
        right = torch.index_select(src_rows, 0, graph.indices[chunk])
        torch.sum(left.mul_(right), -1, out=out[chunk])
    return out

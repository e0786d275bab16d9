"""Mini-batches for a user's own loop: PyG's `Data`, a plain object of the same
attributes, or DGL's blocks.

`edges="hops"` is the form of PyG's `NeighborLoader`: each node's neighbours as drawn in
the hop that found the node, so edges and nodes are ordered by hop and `trim_to_layer`
can cut them. `edges="layers"` is the whole mini-batch, one bipartite graph a layer: a
node that several layers aggregate into has neighbours drawn anew for each, as in
GraphSAGE (Hamilton, Ying and Leskovec 2017, Algorithm 2) and DGL's blocks.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from systems.interface import PlanItem
from systems.loading.weights import LOOKUP_BYTES, EdgeWeights
from workloads.errors import HostError, InputError, require
from workloads.sampling.batch import Block, SampledBatch
from workloads.sampling.bounds import Bounds
from workloads.sampling.listing import find

Form = Literal["auto", "pyg", "plain", "dgl"]
Edges = Literal["hops", "layers"]


class LayerEdges(NamedTuple):
    """One layer's edges, from its input rows (the first `size[0]`) to its output rows
    (the first `size[1]`).

    Attributes:
        edge_index: int64 [2, num_edges], sources above destinations, ordered by
            destination.
        size: (sources, destinations); destinations are the first sources.
    """

    edge_index: torch.Tensor
    size: tuple[int, int]


@dataclass
class MiniBatch:
    """Mini-batch with the attributes of PyG's `Data`, without torch_geometric.

    Attributes:
        y: int64 [batch_size], labels of the seed nodes, which are the first nodes; -1
            for a missing label.
        n_id: int64 [num_nodes], ids of the nodes in the dataset (`Loader.original_ids`
            has those before the import).
        batch_size: seed nodes.
        epoch, step: epoch, and number within the epoch's seed plan.
        num_sampled_nodes: seed nodes, then new nodes of each hop; None for a `shadow`
            subgraph.
        edge_index: int64 [2, num_edges], sources above destinations, hop by hop
            (`edges="hops"`).
        num_sampled_edges: edges of each hop (`edges="hops"`).
        layers: edges of each layer, input layer first (`edges="layers"`).
        edge_weight: float32 [num_edges], weights of the edges of `edge_index`, or a
            list of those of each of `layers`; None unless asked for.
    """

    y: torch.Tensor
    n_id: torch.Tensor
    batch_size: int
    epoch: int
    step: int
    num_sampled_nodes: list[int] | None = None
    edge_index: torch.Tensor | None = None
    num_sampled_edges: list[int] | None = None
    layers: list[LayerEdges] | None = None
    edge_weight: torch.Tensor | list[torch.Tensor] | None = None
    rows: torch.Tensor | None = field(default=None, repr=False)

    @property
    def x(self) -> torch.Tensor:
        """Feature rows [num_nodes, dim] in the dataset's dtype; valid until the next
        mini-batch, unless copied.

        Raises:
            InputError: the next mini-batch was requested.
        """
        if self.rows is None:
            raise late_access(self.step)
        return self.rows

    @property
    def num_nodes(self) -> int:
        """Number of nodes; seed nodes come first."""
        return int(self.n_id.shape[0])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> MiniBatch:
        """Return the mini-batch on another device; the mini-batch itself if it is
        there."""

        def moved(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return value.to(device, non_blocking=non_blocking)
            if isinstance(value, LayerEdges):
                return LayerEdges(moved(value.edge_index), value.size)
            return [moved(one) for one in value] if isinstance(value, list) else value

        x = self.x
        if moved(x) is x and moved(self.y) is self.y:
            return self
        return MiniBatch(
            **{one.name: moved(getattr(self, one.name)) for one in fields(self)}
        )


def late_access(step: int) -> InputError:
    """Return the error of an access to rows whose memory the next mini-batch uses."""
    fault = (
        f"x of mini-batch {step} is asked for after the next mini-batch was requested, "
        "which uses its memory"
    )
    return InputError(
        fault,
        "load with copy=True, or copy what you keep within the loop (batch.x.clone())",
    )


def resolve_form(form: str, edges: str, sampler: str) -> Form:
    """Return the form to use; `auto` becomes PyG's if torch_geometric is installed,
    else `plain`.

    Raises:
        InputError: the form or edges are unknown, or the sampler has no such edges.
        HostError: `pyg` without torch_geometric, `dgl` without DGL.
    """
    require(edges in ("hops", "layers"), f"edges is {edges!r}", "use hops or layers")
    require(
        form in ("auto", "pyg", "plain", "dgl"),
        f"form is {form!r}",
        "use auto, pyg, plain or dgl",
    )
    if edges == "hops" and form != "dgl" and find(sampler).by_layer:
        raise InputError(
            f"a {sampler} sample is drawn layer by layer, not hop by hop",
            "use edges='layers'",
        )
    installed = importlib.util.find_spec("torch_geometric") is not None
    if form == "pyg" and not installed:
        raise HostError(
            "form is pyg, and torch_geometric is not installed",
            "pip install torch_geometric",
        )
    if form == "dgl":
        from systems.engine.dgl import require_dgl

        require_dgl("form dgl")
    if form == "auto":
        return "pyg" if installed else "plain"
    return form  # type: ignore[return-value]


def handed_out_items(
    bounds: Bounds, row_bytes: int, on_device: bool, weighted: bool
) -> tuple[PlanItem, ...]:
    """Plan the largest mini-batch that the loop holds, beside the system's own buffers.

    The structure counts twice: the loop still holds the previous mini-batch while the
    next is made.
    """
    rows = PlanItem(
        "rows handed out",
        bounds.max_nodes * row_bytes,
        "device" if on_device else "host",
    )
    structure = 2 * (
        (20 if weighted else 16) * bounds.max_edges + 16 * bounds.max_nodes
    )
    search = (
        (PlanItem("search for edge weights", LOOKUP_BYTES * bounds.max_edges),)
        if weighted
        else ()
    )
    found = (rows, PlanItem("edges handed out", structure), *search)
    return (
        (*found, PlanItem("edges handed out", structure, "device"))
        if on_device
        else found
    )


@dataclass(frozen=True)
class HandOut:
    """How mini-batches are handed out to a loop.

    Attributes:
        shadow: whether the layers share one subgraph.
        device: place of rows and edges.
        weights: weights of edges, to hand out; None: none.
    """

    form: Form
    edges: Edges
    shadow: bool
    device: torch.device
    weights: EdgeWeights | None = None

    def convert(self, sampled: SampledBatch, x: torch.Tensor) -> Any:
        """Convert a mini-batch with rows `x` [num_nodes, dim] on the device; shares no
        memory with `sampled`."""
        if self.form == "dgl":
            return _dgl(sampled, x, self.device, self._of_layers(sampled))
        found = MiniBatch(
            torch.tensor(sampled.labels),
            torch.tensor(sampled.nodes),
            sampled.num_seeds,
            sampled.epoch,
            sampled.index,
        )
        if not self.shadow:
            new = (block.num_src - block.num_dst for block in reversed(sampled.blocks))
            found.num_sampled_nodes = [sampled.num_seeds, *new]
        if self.edges == "layers":
            found.layers = [layer_edges(block) for block in sampled.blocks]
            found.edge_weight = self._of_layers(sampled)
        elif self.shadow:
            found.edge_index = layer_edges(sampled.blocks[0]).edge_index
        else:
            found.edge_index, found.num_sampled_edges = hop_edges(sampled)
        if found.edge_index is not None and self.weights is not None:
            found.edge_weight = _weights_of(self.weights, sampled, found.edge_index)
        found.rows = x
        if self.device.type != "cpu":
            found = found.to(self.device, non_blocking=True)
        return found if self.form == "plain" else _pyg(found)

    def _of_layers(self, sampled: SampledBatch) -> list[torch.Tensor] | None:
        """Return the weights of each layer's edges; None if there are none to hand
        out."""
        if self.weights is None:
            return None
        return [
            _weights_of(self.weights, sampled, layer_edges(block).edge_index)
            for block in sampled.blocks
        ]


def layer_edges(block: Block) -> LayerEdges:
    """Convert a block to PyG's bipartite `edge_index`."""
    result = np.empty((2, block.num_edges), dtype=np.int64)
    result[0] = block.indices
    result[1] = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    return LayerEdges(torch.from_numpy(result), (block.num_src, block.num_dst))


def hop_edges(sampled: SampledBatch) -> tuple[torch.Tensor, list[int]]:
    """Return each node's neighbours as drawn in the hop that found it: int64 [2,
    num_edges], and edges of each hop."""
    parts = []
    begin = 0
    for block in reversed(sampled.blocks):  # nearest the seed nodes first
        parts.append((block, begin, block.num_dst))
        begin = block.num_dst
    counts = [
        int(block.indptr[last] - block.indptr[first]) for block, first, last in parts
    ]
    result = np.empty((2, sum(counts)), dtype=np.int64)
    place = 0
    for (block, first, last), count in zip(parts, counts, strict=True):
        result[0, place : place + count] = block.indices[
            block.indptr[first] : block.indptr[last]
        ]
        result[1, place : place + count] = np.repeat(
            np.arange(first, last), np.diff(block.indptr[first : last + 1])
        )
        place += count
    return torch.from_numpy(result), counts


def _weights_of(
    weights: EdgeWeights, sampled: SampledBatch, edge_index: torch.Tensor
) -> torch.Tensor:
    """Return the weights of edges [2, num_edges] between positions of the
    mini-batch."""
    sources, targets = sampled.nodes[edge_index.numpy()]
    return torch.from_numpy(weights.of(sources, targets))


def _pyg(found: MiniBatch) -> Any:
    from torch_geometric.data import Data

    content = {
        one.name: getattr(found, one.name)
        for one in fields(found)
        if one.name != "rows"
    }
    return Data(
        x=found.rows,
        **{name: value for name, value in content.items() if value is not None},
    )


def _dgl(
    sampled: SampledBatch,
    x: torch.Tensor,
    device: torch.device,
    weights: list[torch.Tensor] | None,
) -> tuple[Any, Any, list[Any]]:
    """Return input nodes, output nodes and blocks with `feat`, `label` and
    `edge_weight`, like DGL's `DataLoader`."""
    from systems.engine.dgl import import_dgl, to_dgl_blocks

    # Copied because the system reuses the arrays.
    own = replace(
        sampled,
        blocks=tuple(
            replace(block, indptr=block.indptr.copy()) for block in sampled.blocks
        ),
    )
    blocks = [block.to(device) for block in to_dgl_blocks(import_dgl(), own)]
    for block, weight in zip(blocks, weights or (), strict=False):
        block.edata["edge_weight"] = weight.to(device)
    nodes = torch.tensor(sampled.nodes).to(device)
    blocks[0].srcdata["feat"] = x
    labels = torch.tensor(sampled.labels).to(device)
    # A shadow subgraph's last layer outputs a row for every node; the seed nodes come
    # first.
    rest = torch.full(
        (blocks[-1].num_dst_nodes() - len(labels),),
        -1,
        dtype=torch.int64,
        device=device,
    )
    blocks[-1].dstdata["label"] = torch.cat([labels, rest])
    return nodes, nodes[: sampled.num_seeds], blocks

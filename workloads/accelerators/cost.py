"""Cost of one training step on an accelerator, term by term, from the shape of its mini-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.accelerators.profile import Profile
from workloads.workload import ModelSpec


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer's block and its widths; `aggregated`: its neighbour sums were made beforehand."""

    num_src: int
    num_dst: int
    num_edges: int
    in_dim: int
    out_dim: int
    aggregated: bool = False


@dataclass(frozen=True)
class StepCost:
    """Seconds of one training step by term."""

    launch: float
    edges: float
    dense: float

    @property
    def total(self) -> float:
        """Seconds of the whole step: on one stream kernels run one after the other."""
        return self.launch + self.edges + self.dense


# Kernels a layer launches, forward and backward together (products, sums, activation, their gradients).
_KERNELS = {"sage": 16, "gcn": 12, "gat": 40}
# Kernels of a first layer with sums made beforehand: products, activation and their gradients.
_KERNELS_AGGREGATED = {"sage": 7, "gcn": 5}
# Kernels outside the layers: loss, its gradient, accuracy, and a fused optimiser step.
_KERNELS_BESIDE = 12


def step_cost(profile: Profile, spec: ModelSpec, layers: Sequence[LayerShape]) -> StepCost:
    """Compute the seconds of a forward and a backward pass over `layers`, input layer first, and of the optimiser.

    The input layer needs no gradient of its input, which saves one pass over its edges and one product.
    """
    passes_over_edges = flops = 0.0
    for number, layer in enumerate(layers):
        back = int(number > 0)
        weights = layer.in_dim * layer.out_dim
        if layer.aggregated:
            products = 2 if spec.name == "sage" else 1
            flops += products * 2 * layer.num_dst * weights * 2
            continue
        if spec.name == "sage":
            passes_over_edges += layer.num_edges * layer.in_dim * (1 + back)
            flops += 2 * 2 * layer.num_dst * weights * (2 + back)
        elif spec.name == "gcn":
            passes_over_edges += (layer.num_edges + layer.num_dst) * layer.in_dim * (1 + back)
            flops += 2 * layer.num_dst * weights * (2 + back)
        else:
            # Rows are multiplied first; sums, their transpose and the edges' dot products each pass over the edges.
            width = layer.out_dim if number + 1 < len(layers) else layer.out_dim * spec.heads
            passes_over_edges += (layer.num_edges + layer.num_dst) * width * 3
            flops += 2 * layer.num_src * layer.in_dim * width * (2 + back)
    by_layer = (_KERNELS_AGGREGATED[spec.name] if layer.aggregated else _KERNELS[spec.name] for layer in layers)
    kernels = sum(by_layer) + _KERNELS_BESIDE
    return StepCost(
        launch=profile.step_s.value + kernels * profile.kernel_s.value,
        edges=passes_over_edges * profile.edge_s.value,
        dense=flops / profile.flops.value if profile.flops.value else 0.0,
    )

"""The training step that every system shares: same model, same initial weights, same optimiser (rule 18)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from workloads.accelerator import Accelerator
from workloads.accelerators.cost import LayerShape, StepCost, step_cost
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.errors import InputError
from workloads.models import Model, layer_widths, make_model
from workloads.sampling.batch import SampledBatch
from workloads.workload import ModelSpec


@dataclass(frozen=True)
class StepResult:
    """What one step saw: mean loss over its seed nodes (nan where nothing is computed), how many were right, of all."""

    loss: float
    correct: int
    seen: int


class Adam:
    """Adam with torch's defaults. torch's own class pulls in its compiler: a second and 100 MB before any data."""

    def __init__(self, parameters: Sequence[torch.Tensor], learning_rate: float) -> None:
        self._parameters = list(parameters)
        self._learning_rate = learning_rate
        self._mean = [torch.zeros_like(p) for p in self._parameters]
        self._square = [torch.zeros_like(p) for p in self._parameters]
        self._steps = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[torch.Tensor]) -> None:
        """Move every parameter against its gradient."""
        beta1, beta2, epsilon = 0.9, 0.999, 1e-8
        self._steps += 1
        size = self._learning_rate / (1 - beta1**self._steps)
        root = (1 - beta2**self._steps) ** 0.5
        for parameter, gradient, mean, square in zip(
            self._parameters, gradients, self._mean, self._square, strict=True
        ):
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            parameter.addcdiv_(mean, (square.sqrt().div_(root)).add_(epsilon), value=-size)


class Trainer:
    """Trains one model on one accelerator.

    On `cpu` and `cuda` it really trains: with the same batches in the same order the loss curve is the same whatever
    system brought the rows. On an emulated accelerator a step holds the compute lane for the modelled time.

    Args:
        spec: the model.
        in_dim: width of a feature row.
        num_classes: width of the output.
        accelerator: where.
        seed: the run's seed; initial weights and dropout are functions of it alone.
    """

    def __init__(self, spec: ModelSpec, in_dim: int, num_classes: int, accelerator: Accelerator, seed: int = 0) -> None:
        self.spec = spec
        self.accelerator = accelerator
        self._widths = layer_widths(spec, in_dim, num_classes)
        self._seed = seed
        self.model: Model | None = None
        if not isinstance(accelerator, EmulatedAccelerator):
            self.model = make_model(spec, in_dim, num_classes, seed).to(accelerator.torch_device)
            self._parameters = list(self.model.parameters())
            self._adam = Adam(self._parameters, spec.learning_rate)

    def step(self, sampled: SampledBatch, table: torch.Tensor | None, rows: torch.Tensor | None = None) -> StepResult:
        """Train on one mini-batch; on return the device has done with `table`.

        Args:
            sampled: structure and labels.
            table: [slots, in_dim] float32 or float16 on the accelerator's device; None only where nothing is computed.
            rows: int64 [num_nodes], the row of each node in the table; None: node i is row i.

        Raises:
            InputError: the batch has another number of hops than the model layers, or there is no table to train on.
        """
        if isinstance(self.accelerator, EmulatedAccelerator):
            seconds = self._modelled(self.accelerator, sampled, table, rows)
            self.accelerator.compute(seconds, batch=sampled.index)
            return StepResult(float("nan"), 0, sampled.num_seeds)
        generator = self._dropout(sampled) if self.spec.dropout else None
        scores, labels = self._scores(sampled, table, rows, generator)
        loss = functional.cross_entropy(scores, labels)
        self._adam.step(torch.autograd.grad(loss, self._parameters))
        correct = (scores.detach().argmax(1) == labels).sum()
        # One fetch for both; it waits for the compute stream, so the table's slots may be reused afterwards.
        values = torch.stack([loss.detach().double(), correct.double()]).tolist()
        return StepResult(values[0], int(values[1]), sampled.num_seeds)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[tuple[SampledBatch, torch.Tensor, torch.Tensor | None]]) -> float:
        """Share of the seed nodes of (sampled, table, rows) batches whose class is found; nan without batches.

        Raises:
            InputError: on an emulated accelerator, which computes nothing.
        """
        if self.model is None:
            raise InputError(
                f"{self.accelerator.name} computes nothing, so it has no accuracy", "use device cpu or cuda"
            )
        correct = seen = 0
        for sampled, table, rows in batches:
            scores, labels = self._scores(sampled, table, rows, None)
            correct += int((scores.argmax(1) == labels).sum())
            seen += sampled.num_seeds
        return correct / seen if seen else float("nan")

    def modelled_seconds(
        self, sampled: SampledBatch, table: torch.Tensor | None = None, rows: torch.Tensor | None = None
    ) -> float | None:
        """Seconds the emulated accelerator takes for this step with nothing else on its lanes; None on real devices."""
        if not isinstance(self.accelerator, EmulatedAccelerator):
            return None
        return self._modelled(self.accelerator, sampled, table, rows)

    def layer_shapes(self, sampled: SampledBatch) -> list[LayerShape]:
        """Sizes of every layer of the model on this batch, input layer first."""
        if len(sampled.blocks) != self.spec.layers:
            raise InputError(
                f"the model has {self.spec.layers} layers and the batch {len(sampled.blocks)} hops",
                "give as many fan-outs as layers",
            )
        widths = itertools.pairwise(self._widths)
        return [
            LayerShape(block.num_src, block.num_dst, block.num_edges, in_dim, out_dim)
            for block, (in_dim, out_dim) in zip(sampled.blocks, widths, strict=True)
        ]

    def _modelled(
        self,
        accelerator: EmulatedAccelerator,
        sampled: SampledBatch,
        table: torch.Tensor | None,
        rows: torch.Tensor | None,
    ) -> float:
        cost: StepCost = step_cost(accelerator.profile, self.spec, self.layer_shapes(sampled))
        # Rows that stand in order in device memory are used where they are; others are gathered first.
        in_place = table is None or (rows is None and accelerator.holds(table))
        return cost.total + (0.0 if in_place or table is None else accelerator.read_seconds(table, sampled.num_nodes))

    def _scores(
        self,
        sampled: SampledBatch,
        table: torch.Tensor | None,
        rows: torch.Tensor | None,
        generator: torch.Generator | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if table is None or self.model is None:
            raise InputError("a batch without features cannot be trained on", "run with --stages all")
        device = self.accelerator.torch_device
        if rows is not None:
            rows = rows.to(device, non_blocking=True)
        labels = torch.from_numpy(sampled.labels).to(device, non_blocking=True)
        return self.model(table, sampled.blocks, rows, generator), labels

    def _dropout(self, sampled: SampledBatch) -> torch.Generator:
        # Keyed by the batch, not by the order of training, which some systems change.
        key = (self._seed * 1_000_003 + sampled.epoch) * 1_000_003 + sampled.index
        return torch.Generator(self.accelerator.torch_device).manual_seed(key & (2**63 - 1))

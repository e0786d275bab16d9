"""The training step that every system shares: same model, same initial weights, same
optimiser (rule 18)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from workloads.accelerator import Accelerator
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.accelerators.profile import LayerShape, step_cost
from workloads.errors import InputError, require
from workloads.feature_table import SplitTable, Table
from workloads.models import (
    Model,
    aggregated_width,
    check_hops,
    layer_widths,
    make_model,
)
from workloads.ranks import RankGroup
from workloads.sampling.batch import SampledBatch
from workloads.sparse import Graph
from workloads.workload import ModelSpec


@dataclass(frozen=True)
class StepResult:
    """Result of one step: mean loss over its seed nodes (nan where not computed),
    correct and seen seed nodes."""

    loss: float
    correct: int
    seen: int


class Adam:
    """Adam with torch's defaults; torch's own class imports its compiler, a second and
    100 MB before any data.

    The parameters become views of one tensor, so that a step takes eight operations in
    total, not eight for each parameter.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        self._learning_rate = learning_rate
        self._values = torch.cat([p.detach().reshape(-1) for p in parameters])
        self._mean = torch.zeros_like(self._values)
        self._square = torch.zeros_like(self._values)
        self._steps = 0
        parts = self._values.split_with_sizes([p.numel() for p in parameters])
        for parameter, own in zip(parameters, parts, strict=True):
            parameter.data = own.view(parameter.shape)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update every parameter with its gradient."""
        beta1 = 0.9
        beta2 = 0.999
        epsilon = 1e-8
        self._steps += 1
        size = self._learning_rate / (1 - beta1**self._steps)
        root = (1 - beta2**self._steps) ** 0.5
        gradient = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._mean.lerp_(gradient, 1 - beta1)
        self._square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        self._values.addcdiv_(
            self._mean, (self._square.sqrt().div_(root)).add_(epsilon), value=-size
        )


class Trainer:
    """Trainer of one model on one accelerator.

    On `cpu` and `cuda` it really trains: equal batches in equal order give the same
    loss curve, whatever system brought the rows. On an emulated accelerator a step
    holds the compute lane for the modelled time.

    Args:
        spec: model to train.
        in_dim, num_classes: width of a feature row and of the output.
        accelerator: device of the training.
        seed: seed of the run, on which alone initial weights and dropout depend.
        group: ranks of the run, which take each step together with the mean of their
            gradients; None: one process.
    """

    def __init__(
        self,
        spec: ModelSpec,
        in_dim: int,
        num_classes: int,
        accelerator: Accelerator,
        seed: int = 0,
        group: RankGroup | None = None,
    ) -> None:
        self.spec = spec
        self.accelerator = accelerator
        self._widths = layer_widths(spec, in_dim, num_classes)
        self._seed = seed
        self._group = group
        self.model: Model | None = None
        if not isinstance(accelerator, EmulatedAccelerator):
            self.model = make_model(spec, in_dim, num_classes, seed).to(
                accelerator.torch_device
            )
            self._parameters = list(self.model.parameters())
            self._adam = Adam(self._parameters, spec.learning_rate)

    def step(
        self,
        batch: SampledBatch,
        table: Table | None,
        rows: Tensor | None = None,
        first_layer_aggregated: bool = False,
    ) -> StepResult:
        """Train on one mini-batch; `table` may be overwritten on return.

        Args:
            batch: structure and labels of the mini-batch.
            table: [slots, in_dim] float32 or float16 on the accelerator's device, or
                split between device and host (its rows are then gathered, [num_nodes,
                in_dim], before the first layer); None where nothing is computed.
            rows: int64 [num_nodes], table row of each node; None: node i is row i.
            first_layer_aggregated: whether the rows are `aggregated_width` wide and
                hold the first layer's aggregates; `batch` then has blocks for the later
                layers only.

        Raises:
            InputError: the batch has another number of hops than the model layers,
                there is no table to train on, or arithmetic of less than float32's
                precision is switched on.
        """
        if isinstance(self.accelerator, EmulatedAccelerator):
            seconds, bus = self._modelled(
                self.accelerator, batch, table, rows, first_layer_aggregated
            )
            asked_at = time.monotonic()
            self.accelerator.fault_in(table, rows, batch.num_nodes)
            self.accelerator.compute(
                seconds, batch=batch.index, bus_seconds=bus, asked_at=asked_at
            )
            if self._group is not None:
                self._group.barrier()
            return StepResult(float("nan"), 0, batch.num_seeds)
        reduced = torch.is_autocast_enabled(self.accelerator.torch_device.type)
        reduced = reduced or torch.get_float32_matmul_precision() != "highest"
        valid = not reduced
        require(
            valid,
            "autocast or a lower matmul precision is on",
            "train in float32, as all systems do",
        )
        generator = self._dropout(batch) if self.spec.dropout else None
        with self.accelerator.span("compute", batch.index):
            scores, labels = self._scores(
                batch, table, rows, generator, first_layer_aggregated
            )
            loss = functional.cross_entropy(scores, labels)
            gradients: Sequence[Tensor] = torch.autograd.grad(loss, self._parameters)
            if self._group is not None:
                gradients = self._group.average(gradients, batch.num_seeds)
            self._adam.step(gradients)
            correct = (scores.detach().argmax(1) == labels).sum()
            both = torch.stack([loss.detach().double(), correct.double()])
        # One fetch for both; it waits for the compute stream, so the table's slots may
        # be reused afterwards.
        values = self.accelerator.fetch(both)
        return StepResult(values[0], int(values[1]), batch.num_seeds)

    @torch.no_grad()
    def evaluate(
        self, batches: Iterable[tuple[SampledBatch, Table, Tensor | None]]
    ) -> float:
        """Return the accuracy over the seed nodes of (batch, table, rows) batches, nan
        without batches; raises InputError on an emulated accelerator, which computes
        nothing."""
        computes = self.model is not None
        fault = f"{self.accelerator.name} computes nothing, so it has no accuracy"
        require(computes, fault, "use device cpu or cuda")
        correct = seen = 0
        for batch, table, rows in batches:
            scores, labels = self._scores(batch, table, rows, None)
            correct += int((scores.argmax(1) == labels).sum())
            seen += batch.num_seeds
        return correct / seen if seen else float("nan")

    def modelled_seconds(
        self,
        batch: SampledBatch,
        table: Table | None = None,
        rows: Tensor | None = None,
        first_layer_aggregated: bool = False,
    ) -> float | None:
        """Return the emulated seconds of this `step` with nothing else on the lanes;
        None on real devices."""
        if not isinstance(self.accelerator, EmulatedAccelerator):
            return None
        return self._modelled(
            self.accelerator, batch, table, rows, first_layer_aggregated
        )[0]

    def layer_shapes(
        self, batch: SampledBatch, first_layer_aggregated: bool = False
    ) -> list[LayerShape]:
        """Return the sizes of every layer of the model on this batch, input layer
        first; raises InputError where the batch has another number of hops than the
        model layers."""
        check_hops(self.spec.layers, batch.blocks, first_layer_aggregated)
        sizes = [
            (block.num_src, block.num_dst, block.num_edges) for block in batch.blocks
        ]
        if first_layer_aggregated:
            # rejects models that cannot aggregate beforehand
            aggregated_width(self.spec, self._widths[0])
            sizes.insert(0, (batch.num_nodes, batch.num_nodes, 0))
        shapes: list[LayerShape] = []
        for size, widths in zip(sizes, itertools.pairwise(self._widths), strict=True):
            aggregated = first_layer_aggregated and not shapes
            shapes.append(LayerShape(*size, *widths, aggregated=aggregated))
        return shapes

    def _modelled(
        self,
        accelerator: EmulatedAccelerator,
        batch: SampledBatch,
        table: Table | None,
        rows: Tensor | None,
        first_layer_aggregated: bool,
    ) -> tuple[float, float]:
        """Return the modelled seconds of the step, and the part of them in which it
        reads host memory over the bus."""
        layers = self.layer_shapes(batch, first_layer_aggregated)
        seconds = step_cost(accelerator.profile, self.spec, layers).total
        if table is None:
            return seconds, 0.0
        count = batch.num_nodes
        if isinstance(table, SplitTable):
            cut = table.device.shape[0]
            if rows is None:
                on_device = min(count, cut)
                by_zero_copy = count - on_device
            else:
                on_device, by_zero_copy = table.split(rows)
        elif accelerator.holds(table):
            # Rows in order in device memory are used in place; others are gathered
            # first.
            on_device = 0 if rows is None else count
            by_zero_copy = 0
        else:
            on_device = 0
            by_zero_copy = count
        own, bus = accelerator.read_seconds(
            on_device, by_zero_copy, table.shape[1] * table.dtype.itemsize
        )
        return seconds + own + bus, bus

    def _scores(
        self,
        batch: SampledBatch,
        table: Table | None,
        rows: Tensor | None,
        generator: torch.Generator | None,
        first_layer_aggregated: bool = False,
    ) -> tuple[Tensor, Tensor]:
        if table is None or self.model is None:
            raise InputError(
                "a batch without features cannot be trained on", "run with --stages all"
            )
        check_hops(self.spec.layers, batch.blocks, first_layer_aggregated)
        if isinstance(table, SplitTable):
            chosen = torch.arange(batch.num_nodes) if rows is None else rows
            table = self.accelerator.gather(table, chosen)
            rows = None
        if first_layer_aggregated:
            width = aggregated_width(self.spec, self._widths[0])
            fault = (
                f"aggregated rows are {table.shape[1]} wide, and {self.spec.name} "
                f"needs {width}"
            )
            valid = table.shape[1] == width
            require(valid, fault, "make them as `first_layer_rows` does")
            if rows is None:
                table = table[: batch.num_nodes]
        loops = self.model.looping(first_layer_aggregated)
        pairs = [
            Graph.arrays(block, self_loops=more)
            for block, more in zip(batch.blocks, loops, strict=True)
        ]
        alias = [] if rows is None else [rows.numpy()]
        # The whole structure in a single copy.
        arrays = [batch.labels, *alias, *itertools.chain(*pairs)]
        labels, *there = self.accelerator.upload(arrays)
        if rows is not None:
            rows = there.pop(0)
        graphs = []
        for hop, block in enumerate(batch.blocks):
            graphs.append(Graph(block, *there[2 * hop : 2 * hop + 2]))
        scores = self.model(table, graphs, rows, generator, first_layer_aggregated)
        return scores[: batch.num_seeds], labels

    def _dropout(self, batch: SampledBatch) -> torch.Generator:
        # Keyed by the batch, not by the order of training, which some systems change.
        key = (self._seed * 1_000_003 + batch.epoch) * 1_000_003 + batch.index
        return torch.Generator(self.accelerator.torch_device).manual_seed(
            key & (2**63 - 1)
        )

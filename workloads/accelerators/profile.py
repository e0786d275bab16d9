"""Profiles of emulated accelerators (named coefficients, each with its source, in one
TOML file a device), and the cost of a training step by them, from the shape of its
mini-batch."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from workloads.arraytypes import ArrayShape, JsonDict
from workloads.errors import InputError, require
from workloads.workload import ModelSpec

_FOLDER = Path(__file__).parent


class Coefficient(BaseModel, extra="forbid", frozen=True):
    """One number of the model: its value, where it comes from, and whether it is an
    assumption."""

    value: float = Field(ge=0)
    source: str = Field(min_length=1)
    assumed: bool


class Shape(BaseModel, extra="forbid", frozen=True):
    """Mini-batch of GraphSAGE from which a profile was derived: sizes, and measured
    seconds of an epoch."""

    batches: int  # an epoch
    nodes: ArrayShape  # seed nodes, then nodes after each hop
    edges: ArrayShape  # of each hop, outermost last
    in_dim: int
    hidden: int
    classes: int
    layers: int
    train_s: float
    assemble_s: float  # of feature assembly
    bus_share: float  # of the feature rows that crossed the bus
    source: str
    assumed: bool  # whether any of the sizes is an assumption


class Profile(BaseModel, extra="forbid", frozen=True):
    """Time model of an accelerator. A rate of 0 takes no time."""

    name: str  # as in `emulated:<name>`
    summary: str
    # Whether feature rows may stay in device memory after their mini-batch. False where
    # copies take no time: the device would be host memory outside the cap, of use to
    # caches alone.
    keeps_rows: bool = True
    # whether a copy's bytes arrive only when it is waited for (`LateAccelerator`)
    late: bool = False
    step_s: Coefficient  # fixed seconds of a training step (framework, optimiser)
    kernel_s: Coefficient  # seconds to launch one kernel
    copy_s: Coefficient  # seconds to launch one copy over the bus
    # seconds per edge and float of the summed rows, for each pass over the edges
    edge_s: Coefficient
    # dense floating-point operations a second that a training step reaches
    flops: Coefficient
    memory_bytes_per_s: Coefficient  # of device memory in a gather of random rows
    bus_bytes_per_s: Coefficient  # of staged copies from host memory to the device
    # of host memory read row by row by the device's own loads
    zero_copy_bytes_per_s: Coefficient
    derived_from: Shape | None = None

    @property
    def memory_is_free(self) -> bool:
        """Whether rows may stay in device memory although copies to it take no time."""
        return self.keeps_rows and not self.bus_bytes_per_s.value

    def coefficients(self) -> dict[str, Coefficient]:
        """Return all coefficients by name, in the order of the fields."""
        values = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: value for name, value in values if isinstance(value, Coefficient)}

    def copy_seconds(self, nbytes: int) -> float:
        """Return the copy lane's seconds for one staged copy of `nbytes`."""
        return self.copy_s.value + _seconds(nbytes, self.bus_bytes_per_s)

    def gather_seconds(self, nbytes: int) -> float:
        """Return the compute lane's seconds to gather rows of `nbytes` from device
        memory (read, then written)."""
        return self.kernel_s.value + _seconds(2 * nbytes, self.memory_bytes_per_s)

    def zero_copy_seconds(self, nbytes: int) -> float:
        """Return the compute lane's seconds to read rows of `nbytes` from host memory
        without a copy."""
        return self.kernel_s.value + _seconds(nbytes, self.zero_copy_bytes_per_s)


def _seconds(amount: float, rate: Coefficient) -> float:
    return amount / rate.value if rate.value else 0.0


def profile_names() -> list[str]:
    """List the profiles that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def profile_of(device: str) -> Profile | None:
    """Load the profile of the emulated device called `device`; None for other
    devices."""
    kind, _, name = device.partition(":")
    return load_profile(name) if kind == "emulated" else None


@cache
def load_profile(name: str) -> Profile:
    """Load the profile called `name`, or the file `name` if that ends in `.toml`;
    raises InputError for an unknown profile or a file that breaks the format."""
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    fault = f"no accelerator profile {name!r}"
    fix = f"use one of {', '.join(profile_names())}"
    require(path.is_file(), fault, fix)
    try:
        data: JsonDict = tomllib.loads(path.read_text())
        return Profile.model_validate(data)
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        first = str(error).replace("\n", " ")
        fault = f"{path} is no accelerator profile: {first}"
        raise InputError(fault, "compare it with a10g.toml") from error


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer's block and its widths; `aggregated`: its neighbour sums were
    made beforehand."""

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


# Kernels a layer launches, forward and backward together (products, sums, activation,
# their gradients).
_KERNELS = {"sage": 16, "gcn": 12, "gat": 40}
# Kernels of a first layer with sums made beforehand: products, activation and their
# gradients.
_KERNELS_AGGREGATED = {"sage": 7, "gcn": 5}
# Kernels outside the layers: loss, its gradient, accuracy, and a fused optimiser step.
_KERNELS_BESIDE = 12


def step_cost(
    profile: Profile, spec: ModelSpec, layers: Sequence[LayerShape]
) -> StepCost:
    """Compute the seconds of a forward and a backward pass over `layers`, input layer
    first, and of the optimiser.

    The input layer needs no gradient of its input, which saves one pass over its edges
    and one product.
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
            passes_over_edges += (
                (layer.num_edges + layer.num_dst) * layer.in_dim * (1 + back)
            )
            flops += 2 * layer.num_dst * weights * (2 + back)
        else:
            # Rows are multiplied first; sums, their transpose and the edges' dot
            # products each pass over the edges.
            if number + 1 < len(layers):
                width = layer.out_dim
            else:
                width = layer.out_dim * spec.heads
            passes_over_edges += (layer.num_edges + layer.num_dst) * width * 3
            flops += 2 * layer.num_src * layer.in_dim * width * (2 + back)
    by_layer = (
        _KERNELS_AGGREGATED[spec.name] if layer.aggregated else _KERNELS[spec.name]
        for layer in layers
    )
    kernels = sum(by_layer) + _KERNELS_BESIDE
    dense = flops / profile.flops.value if profile.flops.value else 0.0
    return StepCost(
        launch=profile.step_s.value + kernels * profile.kernel_s.value,
        edges=passes_over_edges * profile.edge_s.value,
        dense=dense,
    )

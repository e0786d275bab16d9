"""Profiles of emulated accelerators: named coefficients, each with its source, in one TOML file a device."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workloads.errors import InputError

_FOLDER = Path(__file__).parent


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Coefficient(_Strict):
    """One number of the model: its value, where it comes from, and whether it is an assumption."""

    value: float = Field(ge=0)
    source: str = Field(min_length=1)
    assumed: bool


class Shape(_Strict):
    """The mini-batch a profile was derived from, outermost hop last: sizes and what was measured for an epoch of it.

    Attributes:
        batches: batches an epoch.
        nodes: seed nodes, then the nodes after each hop.
        edges: edges of each hop.
        in_dim, hidden, classes, layers: of the GraphSAGE trained.
        train_s: seconds of training in an epoch, as measured.
        assemble_s: seconds of feature assembly in an epoch, as measured.
        bus_share: share of the rows that crossed the bus.
        source: where the numbers come from; assumed: whether any of the sizes is an assumption.
    """

    batches: int
    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    in_dim: int
    hidden: int
    classes: int
    layers: int
    train_s: float
    assemble_s: float
    bus_share: float
    source: str
    assumed: bool


class Profile(_Strict):
    """What an accelerator's time is made of. Rates of 0 mean: takes no time.

    Attributes:
        name: as in `emulated:<name>`.
        summary: one line.
        step_s: fixed seconds of a training step (framework, optimiser).
        kernel_s: seconds to launch one kernel.
        copy_s: seconds to launch one copy over the bus.
        edge_s: seconds per edge and float of the layer's summed width, each pass.
        flops: dense floating-point operations a second that a training step reaches.
        memory_bytes_per_s: device memory, random rows read.
        bus_bytes_per_s: host memory to device, staged copies.
        zero_copy_bytes_per_s: host memory read row by row by the device's own loads.
        derived_from: the measurement it was derived from, if one.
        keeps_rows: whether rows may stay on it beyond the mini-batch that they were brought for. Where a copy takes no
            time they may not: its memory would be as good as the host's, outside the cap, and of use to caches alone.
    """

    name: str
    summary: str
    keeps_rows: bool = True
    step_s: Coefficient
    kernel_s: Coefficient
    copy_s: Coefficient
    edge_s: Coefficient
    flops: Coefficient
    memory_bytes_per_s: Coefficient
    bus_bytes_per_s: Coefficient
    zero_copy_bytes_per_s: Coefficient
    derived_from: Shape | None = None

    @property
    def memory_is_free(self) -> bool:
        """Whether rows may stay on it although nothing is paid for bringing them there."""
        return self.keeps_rows and not self.bus_bytes_per_s.value

    def coefficients(self) -> dict[str, Coefficient]:
        """All of them by name, in the order above."""
        values = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: value for name, value in values if isinstance(value, Coefficient)}

    def copy_seconds(self, nbytes: int) -> float:
        """Seconds the copy lane needs for one staged copy of `nbytes`."""
        return self.copy_s.value + _seconds(nbytes, self.bus_bytes_per_s)

    def gather_seconds(self, nbytes: int) -> float:
        """Seconds the compute lane needs to gather rows of `nbytes` from device memory (read, then written)."""
        return self.kernel_s.value + _seconds(2 * nbytes, self.memory_bytes_per_s)

    def zero_copy_seconds(self, nbytes: int) -> float:
        """Seconds the compute lane needs to read rows of `nbytes` from host memory without a copy."""
        return self.kernel_s.value + _seconds(nbytes, self.zero_copy_bytes_per_s)


def _seconds(amount: float, rate: Coefficient) -> float:
    return amount / rate.value if rate.value else 0.0


def profile_names() -> list[str]:
    """Names of the profiles that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def profile_of(device: str) -> Profile | None:
    """The profile of the emulated device called `device`; None where it is another."""
    kind, _, name = device.partition(":")
    return load_profile(name) if kind == "emulated" else None


@cache
def load_profile(name: str) -> Profile:
    """The profile called `name`, or the one in the file `name` if that ends in `.toml`.

    Raises:
        InputError: no such profile, or its file breaks the format.
    """
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if not path.is_file():
        raise InputError(f"no accelerator profile {name!r}", f"use one of {', '.join(profile_names())}")
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text())
        return Profile.model_validate(data)
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        first = str(error).replace("\n", " ")
        raise InputError(f"{path} is no accelerator profile: {first}", "compare it with a10g.toml") from error

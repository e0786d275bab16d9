"""Profiles of emulated accelerators: named coefficients, each with its source, in one TOML file a device."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workloads.errors import InputError, require

_FOLDER = Path(__file__).parent


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Coefficient(_Strict):
    """One number of the model: its value, where it comes from, and whether it is an assumption."""

    value: float = Field(ge=0)
    source: str = Field(min_length=1)
    assumed: bool


class Shape(_Strict):
    """Mini-batch from which a profile was derived, outermost hop last: sizes and measured seconds of an epoch.

    Attributes:
        batches: number of mini-batches an epoch.
        nodes: number of seed nodes, then of nodes after each hop.
        edges: number of edges of each hop.
        in_dim, hidden, classes, layers: shape of the trained GraphSAGE model.
        train_s, assemble_s: measured seconds of training and of feature assembly in an epoch.
        bus_share: share of the feature rows that crossed the bus.
        source, assumed: origin of the numbers, and whether any of the sizes is an assumption.
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
    """Time model of an accelerator. A rate of 0 takes no time.

    Attributes:
        name: name in `emulated:<name>`.
        summary: description in one line.
        step_s: fixed seconds of a training step (framework, optimiser).
        kernel_s: seconds to launch one kernel.
        copy_s: seconds to launch one copy over the bus.
        edge_s: seconds per edge and float of the summed rows, for each pass over the edges.
        flops: dense floating-point operations a second that a training step reaches.
        memory_bytes_per_s: bytes a second of device memory in a gather of random rows.
        bus_bytes_per_s: bytes a second of staged copies from host memory to the device.
        zero_copy_bytes_per_s: bytes a second of host memory read row by row by the device's own loads.
        derived_from: measurement from which the profile was derived, if any.
        keeps_rows: whether feature rows may stay in device memory after their mini-batch. False where copies take no
            time: the device would be host memory outside the cap, of use to caches alone.
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
        """Return the compute lane's seconds to gather rows of `nbytes` from device memory (read, then written)."""
        return self.kernel_s.value + _seconds(2 * nbytes, self.memory_bytes_per_s)

    def zero_copy_seconds(self, nbytes: int) -> float:
        """Return the compute lane's seconds to read rows of `nbytes` from host memory without a copy."""
        return self.kernel_s.value + _seconds(nbytes, self.zero_copy_bytes_per_s)


def _seconds(amount: float, rate: Coefficient) -> float:
    return amount / rate.value if rate.value else 0.0


def profile_names() -> list[str]:
    """List the profiles that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def profile_of(device: str) -> Profile | None:
    """Load the profile of the emulated device called `device`; None for other devices."""
    kind, _, name = device.partition(":")
    return load_profile(name) if kind == "emulated" else None


@cache
def load_profile(name: str) -> Profile:
    """Load the profile called `name`, or the file `name` if that ends in `.toml`.

    Raises:
        InputError: the profile is unknown, or its file breaks the format.
    """
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    require(path.is_file(), f"no accelerator profile {name!r}", f"use one of {', '.join(profile_names())}")
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text())
        return Profile.model_validate(data)
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        first = str(error).replace("\n", " ")
        raise InputError(f"{path} is no accelerator profile: {first}", "compare it with a10g.toml") from error

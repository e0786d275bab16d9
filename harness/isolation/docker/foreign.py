"""Foreign systems: container images instead of Python classes, named `image:NAME` (docs/containers.md). An image's
label `org.outcore.system` describes its system, `org.outcore.worker` holds its worker's command. Events of an image's
worker are bounded and checked like any worker's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from harness.isolation.docker.engine import connect
from harness.isolation.docker.image import find
from workloads.errors import InputError

if TYPE_CHECKING:
    from systems.interface import SystemInfo

_PREFIX = "image:"


class _Label(BaseModel):
    """Content of the label `org.outcore.system`. `options`: defaults by name; a default's type is the option's type."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=64)
    summary: str = Field(default="", max_length=200)
    paper: str = Field(default="–", max_length=64)
    devices: list[str] = Field(default_factory=lambda: ["cpu"], min_length=1, max_length=3)
    faithful: bool = False
    deterministic_counters: bool = True
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)


def image_of(system: str) -> str | None:
    """Return the image of a foreign system; None for a Python class."""
    return system.removeprefix(_PREFIX) if system.startswith(_PREFIX) else None


def identity(system: str) -> str:
    """Return the content hash of a system's image; empty for a Python class."""
    image = image_of(system)
    return "" if image is None else find(connect(), image).identity


def system_info(system: str) -> SystemInfo:
    """Return the description of a system, a Python class or an image. Raises InputError: the system does not exist, or
    its image's label is invalid. Raises HostError: the system is an image and no container engine is available."""
    image = image_of(system)
    if image is not None:
        return _of_image(image)
    from systems.registry import load

    return load(system).info


def is_faithful(system: str, options: dict[str, Any]) -> bool:
    """Return whether the system's mini-batches have to equal the workload's under `options`."""
    if image_of(system) is not None:
        return system_info(system).faithful
    from systems.registry import load

    found = load(system)
    return found.is_faithful(found.info.options.model_validate(options))


@functools.cache
def _of_image(image: str) -> SystemInfo:
    from systems.interface import Options, SystemInfo

    found = find(connect(), image)
    if not found.worker or found.system is None:
        said = f"image {image} has no labels org.outcore.worker and org.outcore.system, so it is no system"
        raise InputError(said, "see docs/containers.md, or containers/example")
    try:
        label = _Label.model_validate(found.system)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"image {image}: label org.outcore.system: {where}: {first['msg']}", "mend it") from error
    fields: dict[str, Any] = {
        name: (type(default), Field(default, description="the image's own")) for name, default in label.options.items()
    }
    return SystemInfo(
        **label.model_dump(exclude={"devices", "options"}),
        devices=tuple(label.devices),
        options=create_model("ImageOptions", __base__=Options, **fields),
    )

"""Facts of a system by its name, whether it is a Python class, an image (`image:NAME`)
or a folder (`env:NAME`)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from harness.foreign import ENV, IMAGE, environment, is_foreign
from harness.foreign.manifest import Description, described
from harness.isolation.docker.engine import connect
from harness.isolation.docker.image import find
from workloads.errors import InputError

if TYPE_CHECKING:
    from systems.interface import SystemInfo
    from workloads.sampling.once import Expands


def image_of(system: str) -> str | None:
    """Return the image of a foreign system; None for any other."""
    return system.removeprefix(IMAGE) if system.startswith(IMAGE) else None


def folder_of(system: str) -> environment.Folder | None:
    """Return the folder of a foreign system; None for any other. Raises InputError:
    there is no such folder, or its manifest is invalid."""
    name = system.removeprefix(ENV)
    return environment.find(name) if name != system else None


def identity(system: str) -> str:
    """Return the content hash of a foreign system; empty for a Python class."""
    if (folder := folder_of(system)) is not None:
        return folder.identity()
    image = image_of(system)
    return "" if image is None else find(connect(), image).identity


def description(system: str) -> Description:
    """Return the description of a foreign system. Raises InputError: it does not exist,
    or its description is invalid. Raises HostError: the system is an image and no
    container engine is available."""
    folder = folder_of(system)
    return _of_image(system.removeprefix(IMAGE)) if folder is None else folder.manifest


def system_info(system: str) -> SystemInfo:
    """Return the description of any system; raises what `description` raises, and
    InputError for an unknown class."""
    if is_foreign(system):
        return description(system).info()
    from systems.registry import load

    return load(system).info


def is_faithful(system: str, options: dict[str, Any]) -> bool:
    """Return whether the system's mini-batches have to equal the workload's under
    `options`."""
    if is_foreign(system):
        return description(system).faithful
    from systems.registry import load

    found = load(system)
    return found.is_faithful(found.info.options.model_validate(options))


def expands_of(system: str) -> Expands:
    """Return the nodes whose neighbours a hop of the system draws: all so far, unless a
    foreign system says else."""
    return description(system).expands if is_foreign(system) else "all"


def answers_challenge(system: str) -> bool:
    """Return whether the worker reads the number behind an epoch's `go`, which decides
    the rows to be checked."""
    return not is_foreign(system) or description(system).checks


@functools.cache
def _of_image(image: str) -> Description:
    found = find(connect(), image)
    if not found.worker or found.system is None:
        message = (
            f"image {image} has no labels org.outcore.worker and org.outcore.system, "
            "so it is no system"
        )
        raise InputError(message, "see docs/foreign.md, or containers/example")
    return described(found.system, f"image {image}: label org.outcore.system")

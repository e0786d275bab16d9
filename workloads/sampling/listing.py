"""Listing of samplers: modules of this folder that declare `SAMPLER`, and others by
name (`package.module:NAME`).

Nothing lists them by hand: settings, experiments, the conformance check and the loader
read this listing. Listing names imports no sampler.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.arraytypes import ArrayShape
from workloads.errors import InputError, require

DEFAULT = "neighbor"
_DECLARES = re.compile(r"^SAMPLER\b.* = ", re.MULTILINE)


@dataclass(frozen=True)
class SamplerKind:
    """A sampler, by the facts that the rest of the code asks for."""

    title: str  # name in the middle of a sentence, such as `layer-wise`
    # makes a `NeighborSampler` from the workload and that class's keyword arguments
    make: Callable[..., Any]
    example: ArrayShape  # fan-outs of the conformance check's case
    replacement: bool = True  # whether it can draw with replacement
    # whether nodes are drawn for a whole layer, so that edges belong to layers instead
    # of hops
    by_layer: bool = False
    # whether all layers run on one subgraph; a model may then have any number of layers
    one_subgraph: bool = False
    # whether sampling by passes over the graph file supports it
    out_of_core: bool = False


@functools.cache
def names() -> tuple[str, ...]:
    """List the samplers of this folder, the default first."""
    files = Path(__file__).parent.glob("*.py")
    found = {
        file.stem
        for file in files
        if _DECLARES.search(file.read_text(encoding="utf-8"))
    }
    return (DEFAULT, *sorted(found - {DEFAULT}))


def choices() -> str:
    """Return the names as a list in words, for messages and help."""
    *others, last = names()
    return f"{', '.join(others)} or {last}"


def find(name: str) -> SamplerKind:
    """Return the sampler called `name`: one of `names()`, or `package.module:NAME` of a
    sampler outside this folder; raises InputError where there is none."""
    if ":" not in name:
        fault = f"there is no sampler {name!r}"
        fix = f"use {choices()}, or package.module:NAME"
        require(name in names(), fault, fix)
        name = f"{__package__}.{name}:SAMPLER"
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not (
            module == error.name or module.startswith(f"{error.name}.")
        ):
            raise
        fault = f"there is no module {module!r} for sampler {name!r}"
        raise InputError(fault, "check PYTHONPATH") from error
    if not isinstance(kind, SamplerKind):
        fault = f"module {module!r} declares no sampler {attribute!r}"
        raise InputError(fault, "make it a SamplerKind")
    return kind

"""`dgl+pp`: `dgl` over first-layer aggregates.

DGL with the first layer aggregated beforehand (PaGraph, Section 5.1).
"""

from __future__ import annotations

from typing import ClassVar

from systems.engine.dgl import DglSystem
from systems.engine.loading.cached_system import LoaderOptions
from systems.engine.loading.first_layer import FirstLayerSystem
from systems.interface import SystemInfo


class DglPPOptions(LoaderOptions):
    """Options of `dgl+pp`; its oracle uses our sampler's draws."""


class DglPP(FirstLayerSystem, DglSystem):
    """DGL whose rows are first-layer aggregates."""

    info: ClassVar[SystemInfo] = SystemInfo(
        name="dgl+pp",
        paper="pagraph",
        summary="DGL's loader with the first layer aggregated beforehand over all neighbours",
        devices=("cpu", "emulated"),
        faithful=False,
        options=DglPPOptions,
        artefact_share=1.0,
    )


SYSTEM = DglPP

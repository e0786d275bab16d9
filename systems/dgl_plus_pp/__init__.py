"""`dgl+pp`: `dgl` over rows that are first-layer aggregates (PaGraph, Section 5.1)."""

from systems.engine.dgl import DglSystem
from systems.engine.loading.cached_system import LoaderOptions
from systems.engine.loading.first_layer import FirstLayerSystem
from systems.interface import SystemInfo


class DglPP(FirstLayerSystem, DglSystem):
    """DGL over first-layer aggregates; without the choice of DGL's sampler, since the oracle uses ours."""

    info = SystemInfo(
        name="dgl+pp",
        paper="pagraph",
        summary="DGL's loader with the first layer aggregated beforehand over all neighbours",
        devices=("cpu", "emulated"),
        faithful=False,
        options=LoaderOptions,
        artefact_share=1.0,
    )


SYSTEM = DglPP

"""`pagraph+pp`: `pagraph` over first-layer aggregates (PaGraph, Section 5.1): wider rows, one hop less."""

from systems.engine.loading.first_layer import FirstLayerSystem
from systems.interface import SystemInfo
from systems.pagraph import PaGraph, PaGraphOptions


class PaGraphPP(FirstLayerSystem, PaGraph):
    """PaGraph whose rows are first-layer aggregates."""

    info = SystemInfo(
        name="pagraph+pp",
        paper="pagraph",
        summary="pagraph with the first layer aggregated beforehand over all neighbours",
        faithful=False,
        options=PaGraphOptions,
        artefact_share=1.0,
    )


SYSTEM = PaGraphPP

"""`dgl`: DGL's loader over graph and features in memory; the baseline of PaGraph's paper.

DGL as its users run it: mini-batches are sampled ahead; DGL's DataLoader gathers and copies while training waits.
"""

from systems.engine.dgl import DglSystem, SamplerOption
from systems.engine.loading.cached_system import LoaderOptions
from systems.interface import SystemInfo


class DglOptions(LoaderOptions, SamplerOption):
    """Options of `dgl`."""


class Dgl(DglSystem):
    """DGL, which gathers all rows on the host and copies them to the device (PaGraph, Sections 2.3 and 5)."""

    info = SystemInfo(
        name="dgl",
        paper="pagraph",
        summary="DGL's loader over graph and features in memory",
        devices=("cpu", "emulated"),
        options=DglOptions,
    )


SYSTEM = Dgl

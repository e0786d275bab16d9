"""`dgl+pp`: `dgl` over first-layer aggregates."""

from systems.dgl_plus_pp.system import DglPP as SYSTEM

__all__ = ["SYSTEM"]

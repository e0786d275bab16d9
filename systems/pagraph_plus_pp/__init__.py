"""`pagraph+pp`: `pagraph` over first-layer aggregates."""

from systems.pagraph_plus_pp.system import PaGraphPP as SYSTEM

__all__ = ["SYSTEM"]

"""`pagraph`: a static cache of out-degree in device memory, pipelined loading (Bai et al., TPDS 2021)."""

from systems.pagraph.system import PaGraph as SYSTEM

__all__ = ["SYSTEM"]

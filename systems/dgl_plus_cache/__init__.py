"""`dgl+cache`: DGL's loader with PaGraph's static cache in device memory."""

from systems.dgl_plus_cache.system import DglCache as SYSTEM

__all__ = ["SYSTEM"]

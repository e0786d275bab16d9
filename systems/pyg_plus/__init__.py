"""`pyg+`: PyG over memory-mapped `indices` and `features`, the page cache being its only cache."""

from systems.pyg_plus.system import PygPlus as SYSTEM

__all__ = ["SYSTEM"]

"""`in-memory`: everything in RAM; the oracle of correctness and the upper bound of speed."""

from systems.in_memory.system import InMemory as SYSTEM

__all__ = ["SYSTEM"]

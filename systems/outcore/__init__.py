"""`outcore`: whole epochs sampled and extracted as external-memory permutations: sort,
scan, distribute."""

from systems.outcore.system import Outcore as SYSTEM

__all__ = ["SYSTEM"]

"""`ali+pg`: PyG+ with AliGraph's neighbour cache and PaGraph's feature cache (baseline of the Ginex paper)."""

from systems.ali_plus_pg.system import AliPlusPg as SYSTEM

__all__ = ["SYSTEM"]

"""`ginex-pg`: Ginex with PaGraph's static feature cache in place of Belady's."""

from systems.ginex_pg.system import GinexPg as SYSTEM

__all__ = ["SYSTEM"]

"""`diskgnn`: offline sampling, a four-level feature store and packed chunks (Liu et
al., SIGMOD 2025)."""

from systems.diskgnn.system import DiskGnn as SYSTEM

__all__ = ["SYSTEM"]

"""`data-tiering`: rows of high score in device memory, the others read by zero-copy (Min et al., 2021)."""

from systems.data_tiering.system import DataTiering as SYSTEM

__all__ = ["SYSTEM"]

"""`uva`: features in host memory that the device reads by zero-copy; nothing of them on the device."""

from systems.uva.system import Uva as SYSTEM

__all__ = ["SYSTEM"]

"""`uva`: features in host memory, which the device reads by zero-copy; no feature row in device memory."""

from systems.uva.system import Uva as SYSTEM

__all__ = ["SYSTEM"]

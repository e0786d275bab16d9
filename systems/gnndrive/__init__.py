"""`gnndrive`: asynchronous direct-I/O extraction into a shared feature buffer (Jiang,
Jia and Wang, ICPP 2024)."""

from systems.gnndrive.system import GnnDrive as SYSTEM

__all__ = ["SYSTEM"]

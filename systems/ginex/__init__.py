"""`ginex`: superbatches sampled ahead, then a feature cache that follows Belady's rule."""

from systems.ginex.system import Ginex as SYSTEM

__all__ = ["SYSTEM"]

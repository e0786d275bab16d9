"""The choice of a system for a graph, a memory and a disk: every system's reads simulated on a share of an epoch.

`share` samples some mini-batches; `planned` asks each system for its division of the memory; `forecasts` turns both
into reads; `advice` applies a device profile and ranks the systems by the time of a whole training.
"""

from __future__ import annotations

from harness.advise.advice import Advice, Setting, advise

__all__ = ["Advice", "Setting", "advise"]

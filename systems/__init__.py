"""How data moves: one system is one folder; the I/O and caching engine is under them. Imports only workloads.

`systems.loader(dataset, system=…, memory=…)` gives any system's mini-batches to a training loop of one's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from systems.loading import Loader as loader

__all__ = ["loader"]


def __getattr__(name: str) -> Any:
    # Only where it is asked for: it needs torch, and `outcore --help` does not.
    if name == "loader":
        from systems.loading import Loader

        return Loader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

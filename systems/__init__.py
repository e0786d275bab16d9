"""Training systems, one folder each, over a shared I/O and caching engine. Imports only workloads.

`systems.loader(dataset, system=…, memory=…)` yields any system's mini-batches to a user's own training loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from systems.loading import Loader as loader

__all__ = ["loader"]


def __getattr__(name: str) -> Any:
    # Imported lazily: the loader needs torch, `outcore --help` does not.
    if name == "loader":
        from systems.loading import Loader

        return Loader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

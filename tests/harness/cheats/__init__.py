"""Systems that cheat on purpose, at least one for each rule; `make test` shows which rule catches each.

`act.py` has the honest system that each cheat changes in one respect; the other modules group cheats by kind.
"""

from tests.harness.cheats import batches, clocks, elsewhere, escapes, features, hidden, reads, walls  # noqa: F401  registers all
from tests.harness.cheats.act import CHEATS

__all__ = ["CHEATS"]

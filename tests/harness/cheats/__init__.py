"""Systems that cheat on purpose, at least one for each rule; `make test` shows which
rule catches each.

`act.py` has the honest system that each cheat changes in one respect; the other modules
group cheats by kind.
"""

# Importing a module registers its cheats.
from tests.harness.cheats import (  # noqa: F401
    batches,
    clocks,
    elsewhere,
    escapes,
    features,
    hidden,
    reads,
    walls,
)
from tests.harness.cheats.act import CHEATS

__all__ = ["CHEATS"]

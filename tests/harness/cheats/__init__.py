"""Systems that are wrong on purpose, at least one for each rule: `make test` shows that each is caught, and by what.

`act.py` is the honest system that they all are but for one thing; the other modules hold the cheats by what they do.
"""

from tests.harness.cheats import batches, clocks, escapes, features, reads  # noqa: F401  registers them
from tests.harness.cheats.act import CHEATS

__all__ = ["CHEATS"]

"""`ginex-pg`: Ginex with PaGraph's static feature cache in place of Belady's.

Ginex with the rows of highest out-degree cached, which isolates the gain of its optimal cache (Section 5.3).
"""

from pydantic import Field

from systems.ginex.planner import GinexOptions, Policy
from systems.ginex.system import Ginex
from systems.interface import SystemInfo


class GinexPgOptions(GinexOptions):
    """Options of `ginex-pg`: those of `ginex`."""

    policy: Policy = Field("static", description="what the feature cache holds: the rows of highest out-degree")


class GinexPg(Ginex):
    """Ginex-PG of the Ginex paper."""

    info = SystemInfo(
        name="ginex-pg",
        paper="ginex",
        summary="ginex with a static cache by out-degree, which isolates its optimal one",
        options=GinexPgOptions,
    )


SYSTEM = GinexPg

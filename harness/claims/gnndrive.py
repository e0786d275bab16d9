"""Claims of GNNDrive, measured by runs of their declared setting, or by the study of
the disk."""

from __future__ import annotations

import pandas as pd

from harness.claims.comparison import Runs, ratio, settings
from harness.claims.measured import Measured, NotRun, Number, Studies, studied
from harness.claims.registry import claim
from harness.results.table import each


@claim("gd-19")
def catching_up(runs: Runs) -> Measured:
    """Divide gnndrive's epoch by pyg+'s where the budget holds all features."""
    both = settings(runs, "pyg+", "gnndrive")
    setting = max(both, key=lambda one: one.budget_share)
    if setting.budget_share < 1:
        held = 100 * setting.budget_share
        raise NotRun(
            f"no cap holds the features; the largest budget holds {held:.0f} % of them"
        )
    return ratio(setting)


@claim("gd-27", study="fio-grid")
def asynchronous_over_synchronous(studies: Studies) -> Measured:
    """Divide one thread's best asynchronous bandwidth by the best of synchronous
    threads, 512 B direct reads."""
    points = _small_reads(studies)
    direct = points[points["direct"]]
    best = direct.sort_values("bytes_per_s").groupby(direct["engine"] == "sync").tail(1)
    if len(best) < 2:
        raise NotRun("the study fio-grid lacks synchronous or asynchronous points")
    deep, wide = each(best.sort_values("engine", key=lambda engine: engine == "sync"))
    number = Number.median([deep.bytes_per_s], [wide.bytes_per_s])
    rates = [f"{point.bytes_per_s / 1e6:.1f} MB/s" for point in (deep, wide)]
    return studied(
        studies,
        number,
        f"depth {deep.depth}: {rates[0]}",
        f"{wide.threads} threads: {rates[1]}",
    )


@claim("gd-28", study="fio-grid")
def buffered_over_direct(studies: Studies) -> Measured:
    """Return the per cent by which buffered 512 B reads exceed direct ones (or fall
    short) at the deepest queue."""
    points = _small_reads(studies)
    deep = points[points["engine"] != "sync"]
    depth = deep["depth"].max()
    rates = deep[deep["depth"] == depth].set_index("direct")["bytes_per_s"]
    if len(rates) < 2:
        raise NotRun("the study fio-grid lacks buffered or direct points")
    return studied(studies, 100 * (rates[False] / rates[True] - 1), f"at depth {depth}")


def _small_reads(studies: Studies) -> pd.DataFrame:
    points = pd.DataFrame(studies[0].result["points"])
    return points[points["block_bytes"] == 512]

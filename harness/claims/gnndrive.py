"""Claims of GNNDrive, measured by runs of their declared setting, or by the study of the disk."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.claims.comparison import (
    Runs,
    accuracy_gap,
    least_memory,
    of,
    one_setting,
    ratio,
    settings,
    share,
    tested,
    time_to_accuracy,
)
from harness.claims.measured import Measured, NotRun, Number, studied
from harness.claims.registry import claim
from harness.records.study import StudyRecord
from harness.results.table import each

Studies = Sequence[StudyRecord]
#: Difference of claims on mariusgnn.
IN_MEMORY = "mariusgnn draws among the partitions in memory alone: at the least memory that it fits, small mini-batches"


@claim("gd-01", "gd-05", baseline="pyg+")
@claim("gd-02", "gd-06", baseline="ginex")
def speedup(runs: Runs, baseline: str) -> Measured:
    """Divide a baseline's epoch by gnndrive's."""
    return ratio(one_setting(runs, "gnndrive", baseline))


@claim("gd-03", differs=IN_MEMORY)
def speedup_over_mariusgnn(runs: Runs) -> Measured:
    """Divide mariusgnn's epoch, its data preparation included, by gnndrive's."""
    return ratio(least_memory(runs, "gnndrive", "mariusgnn"))


@claim("gd-04", differs=IN_MEMORY)
def speedup_of_training(runs: Runs) -> Measured:
    """Divide mariusgnn's epoch without its data preparation by gnndrive's."""
    return ratio(least_memory(runs, "gnndrive", "mariusgnn"), "trained_s")


@claim("gd-07", system="pyg+")
@claim("gd-09", system="ginex")
def sampling_beside_all_stages(runs: Runs, system: str) -> Measured:
    """Divide a system's sampling beside all stages by its sampling alone."""
    alone = of(system, stages="sample")
    beside = of(system, stages="all")
    both = one_setting(runs, alone, beside, free=["stages"])
    return ratio(both, "stages_s.sample")


@claim("gd-08", system="pyg+", column="stages_s.sample")
@claim("gd-16", system="gnndrive")
@claim("gd-17", system="pyg+")
def wide_rows(runs: Runs, system: str, column: str = "seconds") -> Measured:
    """Divide a system's time at dimension 512 by that at dimension 64; device memory grows with the dimension."""
    narrow = of(system, accelerated=True, dim=64)
    wide = of(system, accelerated=True, dim=512)
    both = one_setting(runs, narrow, wide, free=["dataset", "device_memory_bytes"])
    return ratio(both, column)


@claim("gd-10", "gd-11")
def speedup_of_sampling(runs: Runs) -> Measured:
    """Divide pyg+'s sampling by gnndrive's."""
    return ratio(one_setting(runs, "gnndrive", "pyg+"), "stages_s.sample")


@claim("gd-12", differs="extract of the wall time; sampling of later mini-batches runs beside it")
def extraction(runs: Runs) -> Measured:
    """Return the share of pyg+'s epochs in which it extracts."""
    return share(one_setting(runs, "pyg+"), "stages_s.extract")


@claim("gd-13")
def data_preparation(runs: Runs) -> Measured:
    """Return the share of mariusgnn's epochs in which it prepares data."""
    return share(least_memory(runs, "mariusgnn"), "stages_s.data_prep")


@claim("gd-14", "gd-15", differs="the processor's run has the device's memory in its host budget")
def accelerator(runs: Runs) -> Measured:
    """Divide gnndrive's epoch on the processor by that on the accelerator."""
    fast = of("gnndrive", accelerated=True)
    slow = of("gnndrive", accelerated=False)
    both = one_setting(runs, fast, slow, free=["device", "device_memory_bytes", "memory"])
    return ratio(both)


@claim("gd-18")
def speedup_at_least_memory(runs: Runs) -> Measured:
    """Divide pyg+'s epoch by gnndrive's at the least memory."""
    return ratio(least_memory(runs, "gnndrive", "pyg+"))


@claim("gd-19", differs="a smaller graph than in the other claims, all of it in memory")
def catching_up(runs: Runs) -> Measured:
    """Divide gnndrive's epoch by pyg+'s where the budget holds all features."""
    both = settings(runs, "pyg+", "gnndrive")
    setting = max(both, key=lambda one: one.budget_share)
    if setting.budget_share < 1:
        held = 100 * setting.budget_share
        raise NotRun(f"no cap holds the features; the largest budget holds {held:.0f} % of them")
    return ratio(setting)


@claim("gd-20", accelerated=True)
@claim("gd-21", accelerated=False)
def feature_buffer(runs: Runs, accelerated: bool) -> Measured:
    """Divide gnndrive's epoch by that with twice the feature buffer."""
    twice = of("gnndrive", accelerated=accelerated, feature_buffer_scale=2.0)
    own = of("gnndrive", accelerated=accelerated, feature_buffer_scale=1.0)
    return ratio(one_setting(runs, twice, own))


@claim("gd-22", accelerated=True)
@claim("gd-23", accelerated=False)
def processes(runs: Runs, accelerated: bool) -> Measured:
    """Divide gnndrive's epoch in one process by that in two."""
    two = of("gnndrive", accelerated=accelerated, ranks=2)
    one = of("gnndrive", accelerated=accelerated, ranks=1)
    free = ["ranks", "memory", "device_memory_bytes", "batch_size", "max_batches"]
    return ratio(one_setting(runs, two, one, free=free))


@claim("gd-24", baseline="pyg+")
@claim("gd-25", baseline="ginex")
def accuracy_first(runs: Runs, baseline: str) -> Measured:
    """Divide a baseline's time to an accuracy by gnndrive's."""
    return time_to_accuracy(one_setting(tested(runs), "gnndrive", baseline))


@claim("gd-26")
def accuracy_out_of_order(runs: Runs) -> Measured:
    """Subtract the accuracy of training in memory, without a cap or a limited disk, from gnndrive's."""
    setting = one_setting(tested(runs), "gnndrive", "in-memory", free=["memory", "disk_class"])
    return accuracy_gap(setting)


@claim("gd-27", study="fio-grid")
def asynchronous_over_synchronous(studies: Studies) -> Measured:
    """Divide one thread's best asynchronous bandwidth by the best of synchronous threads, 512 B direct reads."""
    points = _small_reads(studies)
    direct = points[points["direct"]]
    best = direct.sort_values("bytes_per_s").groupby(direct["engine"] == "sync").tail(1)
    if len(best) < 2:
        raise NotRun("the study fio-grid lacks synchronous or asynchronous points")
    deep, wide = each(best.sort_values("engine", key=lambda engine: engine == "sync"))
    number = Number.median([deep.bytes_per_s], [wide.bytes_per_s])
    rates = [f"{point.bytes_per_s / 1e6:.1f} MB/s" for point in (deep, wide)]
    return studied(studies, number, f"depth {deep.depth}: {rates[0]}", f"{wide.threads} threads: {rates[1]}")


@claim("gd-28", study="fio-grid")
def buffered_over_direct(studies: Studies) -> Measured:
    """Return the per cent by which buffered 512 B reads exceed direct ones (or fall short) at the deepest queue."""
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

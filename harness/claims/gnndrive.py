"""GNNDrive's claims."""

from __future__ import annotations

from typing import Any

from harness.claims.accuracy import AccuracyGap, TimeToAccuracy
from harness.claims.measured import Measured, NotRun, Number, ratio
from harness.claims.pairs import Plain, Records, Side, budget_share, epoch_s, stage_s
from harness.claims.query import Ratio, Share, answers, of_dim, one_setting, register
from harness.compare.evidence import Where

SAMPLE = stage_s("sample")
OURS, PYG, GINEX, MARIUS = (Side(name) for name in ("gnndrive", "pyg+", "ginex", "mariusgnn"))


def trained_s(record: Plain) -> list[float]:
    """Return the seconds of the measured epochs, each without its data preparation."""
    measured = [epoch for epoch in record["epochs"] if not epoch["warmup"]]
    return [float(epoch["seconds"]) - float(epoch["stages_s"].get("data_prep") or 0.0) for epoch in measured]


register("gd-01", Ratio(OURS, PYG))
register("gd-02", Ratio(OURS, GINEX))
register("gd-03", Ratio(OURS, MARIUS))
register("gd-04", Ratio(OURS, MARIUS, trained_s))
register("gd-05", Ratio(OURS, PYG))
register("gd-06", Ratio(OURS, GINEX))
register("gd-10", Ratio(OURS, PYG, SAMPLE))
register("gd-11", Ratio(OURS, PYG, SAMPLE))


def _sampling_alone(system: str) -> Ratio:
    """Return the query that divides sampling seconds beside all stages by sampling seconds alone."""
    alone = Side(system, where=lambda config: config["stages"] == "sample", name=f"{system}, sampling alone")
    every = Side(system, where=lambda config: config["stages"] == "all", name=f"{system}, all stages")
    return Ratio(alone, every, SAMPLE, free=("stages",))


register("gd-07", _sampling_alone("pyg+"))
register("gd-09", _sampling_alone("ginex"))


def _on_device(where: Where) -> Where:
    return lambda config: config["device"] != "cpu" and where(config)


def _over_dims(system: str, value: Any = epoch_s) -> Ratio:
    """Return the query for the ratio of dimension 512 to dimension 64; device memory grows with the dimension."""
    small = Side(system, where=_on_device(of_dim(64)), name=f"{system} at dimension 64")
    large = Side(system, where=_on_device(of_dim(512)), name=f"{system} at dimension 512")
    return Ratio(small, large, value, free=("dataset", "device_memory_bytes"))


register("gd-08", _over_dims("pyg+", SAMPLE))
register("gd-16", _over_dims("gnndrive"))
register("gd-17", _over_dims("pyg+"))
_BESIDE = "extract of the wall time; sampling of later mini-batches runs beside it"
register("gd-12", Share(PYG, ("extract",), detail=(_BESIDE,)))
register("gd-13", Share(MARIUS, ("data_prep",), pick="least memory"))


def _variants() -> Ratio:
    """Return the query for how many times as fast the accelerator's variant is as the processor's."""
    gpu = Side("gnndrive", where=lambda config: config["device"] != "cpu", name="gnndrive on the accelerator")
    cpu = Side("gnndrive", where=lambda config: config["device"] == "cpu", name="gnndrive on the processor")
    moved = "the processor's run has the device's memory in its host budget"
    return Ratio(gpu, cpu, free=("device", "device_memory_bytes", "memory"), differs=(moved,))


def _of_variants(records: Records) -> Measured:
    compared = _variants()
    setting = one_setting(records, [compared.better, compared.baseline], free=compared.free)
    found = compared.of(setting)
    # The two sides differ in the device: the accelerator's shows whether the number is an emulator's.
    device = setting.cells[0].newest["config"]["device"]
    return Measured(
        found.number,
        found.runs,
        setting={**found.setting, "device": device},
        detail=found.detail,
        differs=found.differs,
    )


@answers("gd-14")
def _sage_variants(records: Records) -> Measured:
    """Return how many times as fast the accelerator is as the processor with GraphSAGE."""
    return _of_variants(records)


@answers("gd-15")
def _gcn_variants(records: Records) -> Measured:
    """Return how many times as fast the accelerator is as the processor with GCN."""
    return _of_variants(records)


register("gd-18", Ratio(OURS, PYG, pick="least memory"))


@answers("gd-19")
def _much_memory(records: Records) -> Measured:
    """Return how many times as fast pyg+ is as gnndrive where the budget holds the features."""
    compared = Ratio(PYG, OURS, differs=("a smaller graph than in the other claims, all of it in memory",))
    setting = one_setting(records, [PYG, OURS], pick="most memory")
    share = budget_share(setting)
    if share < 1:
        raise NotRun(f"no cap holds the features; the largest budget holds {100 * share:.0f} % of them")
    return compared.of(setting)


def _buffer(*, cpu: bool) -> Ratio:
    """Return the query that divides the epoch with the default feature buffer by the epoch with twice the buffer."""

    def of(scale: float, name: str) -> Side:
        return Side(
            "gnndrive", {"feature_buffer_scale": scale}, lambda config: (config["device"] == "cpu") == cpu, name
        )

    twice = of(2.0, "gnndrive with twice the feature buffer")
    return Ratio(twice, of(1.0, "gnndrive with its own feature buffer"))


register("gd-20", _buffer(cpu=False))
register("gd-21", _buffer(cpu=True))


def _processes(*, cpu: bool) -> Ratio:
    """Return the query that divides the epoch of one process by that of two processes."""

    def of(ranks: int, name: str) -> Side:
        return Side(
            "gnndrive", where=lambda config: config["ranks"] == ranks and (config["device"] == "cpu") == cpu, name=name
        )

    free = ("ranks", "memory", "device_memory_bytes", "batch_size", "max_batches")
    return Ratio(of(2, "gnndrive in 2 processes"), of(1, "gnndrive in 1 process"), free=free)


register("gd-22", _processes(cpu=False))
register("gd-23", _processes(cpu=True))
register("gd-24", TimeToAccuracy("gnndrive", "pyg+"))
register("gd-25", TimeToAccuracy("gnndrive", "ginex"))
register("gd-26", AccuracyGap("gnndrive", "in-memory"))


def _fio(records: Records) -> tuple[list[Plain], list[str]]:
    """Return the 512 B points of the study `fio-grid`, and the study's name with its key."""
    (study,) = records.studies("fio-grid")
    return [point for point in study.result["points"] if point["block_bytes"] == 512], [f"fio-grid {study.key}"]


@answers("gd-27")
def _async_over_sync(records: Records) -> Measured:
    """Divide one thread's best asynchronous bandwidth by the best of synchronous threads, 512 B direct reads."""
    every, studies = _fio(records)
    points = [p for p in every if p["direct"]]
    deep = max((p for p in points if p["engine"] != "sync"), key=lambda p: p["bytes_per_s"], default=None)
    wide = max((p for p in points if p["engine"] == "sync"), key=lambda p: p["bytes_per_s"], default=None)
    if deep is None or wide is None:
        raise NotRun("the study fio-grid lacks synchronous or asynchronous points")
    lines = [
        f"depth {deep['depth']}: {deep['bytes_per_s'] / 1e6:.1f} MB/s",
        f"{wide['threads']} threads: {wide['bytes_per_s'] / 1e6:.1f} MB/s",
    ]
    return Measured(ratio([deep["bytes_per_s"]], [wide["bytes_per_s"]]), studies=studies, detail=lines)


@answers("gd-28")
def _buffered_over_direct(records: Records) -> Measured:
    """Return the per cent by which buffered 512 B reads exceed direct ones (or fall short) at the deepest queue."""
    every, studies = _fio(records)
    points = [p for p in every if p["engine"] != "sync"]
    depth = max((p["depth"] for p in points), default=0)
    rates = {p["direct"]: p["bytes_per_s"] for p in points if p["depth"] == depth}
    if set(rates) != {True, False}:
        raise NotRun("the study fio-grid lacks buffered or direct points")
    number = Number.exact(100 * (rates[False] / rates[True] - 1))
    return Measured(number, studies=studies, detail=[f"at depth {depth}"])

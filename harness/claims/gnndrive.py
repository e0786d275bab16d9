"""GNNDrive's claims."""

from __future__ import annotations

from typing import Any

from harness.claims.measured import Measured, NotRun, Number, median, ratio
from harness.claims.pairs import Plain, Records, Side, budget_share, compare, describe, epoch_s, stage_s, usual_config
from harness.claims.query import answers, register, times_faster, usual_settings

SAMPLE = stage_s("sample")
PREPARATION = stage_s("data_prep")


def trained_s(record: Plain) -> list[float]:
    """Epochs without the data preparation that stands on their way."""
    measured = [epoch for epoch in record["epochs"] if not epoch["warmup"]]
    return [float(epoch["seconds"]) - float(epoch["stages_s"].get("data_prep") or 0.0) for epoch in measured]


register("gd-01", "gnndrive-fig8", times_faster("gnndrive", "pyg+", model="sage"))
register("gd-02", "gnndrive-fig8", times_faster("gnndrive", "ginex", model="sage"))
register("gd-03", "gnndrive-tab2", times_faster("gnndrive", "mariusgnn", model="sage", memory=None))
register("gd-04", "gnndrive-tab2", times_faster("gnndrive", "mariusgnn", model="sage", memory=None, value=trained_s))
register("gd-05", "gnndrive-fig8", times_faster("gnndrive", "pyg+", model="gat"))
register("gd-06", "gnndrive-fig8", times_faster("gnndrive", "ginex", model="gat"))
register("gd-10", "gnndrive-fig2", times_faster("gnndrive", "pyg+", value=SAMPLE, model="sage"))


def _sampling_alone(system: str, claim: str) -> None:
    """How many times as long sampling takes with all stages as alone."""

    def run(records: Records) -> Measured:
        alone = Side(system, where=lambda config: config["stages"] == "sample", name=f"{system}, sampling alone")
        every = Side(system, where=lambda config: config["stages"] == "all", name=f"{system}, all stages")
        wide: dict[str, Any] = {"memory": None, "dim": None, "batch_size": None}
        found = usual_settings(records, [alone, every], free=["stages"], model="sage", **wide)
        nearest = min(found, key=lambda setting: abs(setting.shared["dataset"]["dim"] - usual_config(records)["dim"]))
        return compare(nearest, SAMPLE)

    register(claim, "gnndrive-fig2", run)


_sampling_alone("pyg+", "gd-07")
_sampling_alone("ginex", "gd-09")


def _of_dim(dim: int) -> Any:
    return lambda config: config["dataset"]["dim"] == dim


def _over_dims(claim: str, system: str, value: Any, figure: str) -> None:
    """How many times as long an epoch takes at the largest dimension as at the smallest."""

    def run(records: Records) -> Measured:
        small, large = Side(system, where=_of_dim(64), name="dim 64"), Side(system, where=_of_dim(512), name="dim 512")
        # Device memory grows with the dimension.
        free = ["dataset", "device_memory_bytes"]
        found = usual_settings(records, [small, large], free=free, dim=None, batch_size=None, model="sage")
        return compare(found[0], value)

    register(claim, figure, run)


_over_dims("gd-08", "pyg+", SAMPLE, "gnndrive-fig2")
_over_dims("gd-16", "gnndrive", epoch_s, "gnndrive-fig8")
_over_dims("gd-17", "pyg+", epoch_s, "gnndrive-fig8")
_widest = times_faster("gnndrive", "pyg+", value=SAMPLE, model="sage", dim=512, batch_size=None)
register("gd-11", "gnndrive-fig2", _widest)


@answers("gd-12", "ginex-fig4")
def _extract_share(records: Records) -> Measured:
    """Share of pyg+'s epochs during which rows are being extracted."""
    setting = usual_settings(records, [Side("pyg+")], model="sage")[0]
    cell = setting.cells[0]
    parts, wholes = cell.samples(stage_s("extract")), cell.samples(epoch_s)
    if len(parts) != len(wholes):
        raise NotRun("the runs of pyg+ have no extract stage")
    shares = [100 * part / whole for part, whole in zip(parts, wholes, strict=True)]
    lines = [describe(cell, epoch_s), "extract of the wall time; sampling of later mini-batches runs beside it"]
    return Measured((median(shares),), runs=cell.runs, setting=setting.shared, detail=lines)


@answers("gd-13", "gnndrive-tab2")
def _preparation_share(records: Records) -> Measured:
    """Data preparation over the epoch, mariusgnn at its smallest cap."""
    found = usual_settings(records, [Side("mariusgnn")], memory=None, model="sage")
    setting = min(found, key=lambda seen: seen.cells[0].newest["memory"]["cap_bytes"] or 1 << 62)
    cell = setting.cells[0]
    spent, whole = cell.samples(PREPARATION), cell.samples(epoch_s)
    if not spent or len(spent) != len(whole):
        raise NotRun("the runs of mariusgnn have no data preparation of their own")
    shares = [100 * part / seconds for part, seconds in zip(spent, whole, strict=True)]
    return Measured((median(shares),), runs=cell.runs, setting=setting.shared, detail=[describe(cell, PREPARATION)])


def _device(claim: str, model: str) -> None:
    """The variant on the (emulated) accelerator over the one on the processor."""

    def run(records: Records) -> Measured:
        gpu = Side("gnndrive", where=lambda config: config["device"] != "cpu", name="gnndrive on the accelerator")
        cpu = Side("gnndrive", where=lambda config: config["device"] == "cpu", name="gnndrive on the processor")
        free = ["device", "device_memory_bytes", "memory"]
        found = usual_settings(records, [gpu, cpu], free=free, batch_size=None, model=model)[0]
        moved = "the processor's run has the device's memory in its host budget"
        emulated = str(found.cells[0].newest["config"]["device"]).startswith("emulated:")
        return compare(found, differs=[moved, *(["the accelerator is emulated"] if emulated else [])])

    register(claim, "gnndrive-fig11" if model == "sage" else "gnndrive-fig8", run)


_device("gd-14", "sage")
_device("gd-15", "gcn")


@answers("gd-18", "gnndrive-fig9")
def _little_memory(records: Records) -> Measured:
    """gnndrive over pyg+ at the smallest cap of dimension 512."""
    found = usual_settings(records, [Side("gnndrive"), Side("pyg+")], memory=None, dim=512)
    return compare(min(found, key=lambda setting: setting.cells[0].newest["memory"]["cap_bytes"] or 0))


@answers("gd-19", "gnndrive-fig9")
def _much_memory(records: Records) -> Measured:
    """pyg+ over gnndrive where the budget holds the features."""
    found = usual_settings(records, [Side("pyg+"), Side("gnndrive")], memory=None, dim=None)
    shares = [(budget_share(setting), setting) for setting in found]
    share, setting = max(shares, key=lambda entry: entry[0])
    if share < 1:
        raise NotRun(f"no cap holds the features; the largest budget holds {100 * share:.0f} % of them")
    return compare(setting, differs=["a smaller graph than in the other claims, all of it in memory"])


def _buffer(claim: str, *, cpu: bool) -> None:
    def run(records: Records) -> Measured:
        def here(config: Any) -> bool:
            return bool((config["device"] == "cpu") == cpu)

        twice = Side("gnndrive", {"feature_buffer_scale": 2.0}, here, "gnndrive with twice the feature buffer")
        once = Side("gnndrive", {"feature_buffer_scale": 1.0}, here, "gnndrive with its own feature buffer")
        # Room for four buffers' rows takes small mini-batches.
        wide: dict[str, Any] = {"memory": None, "device": None, "batch_size": None}
        return compare(usual_settings(records, [twice, once], free=["device_memory_bytes"], **wide)[0])

    register(claim, "gnndrive-fig12", run)


_buffer("gd-20", cpu=False)
_buffer("gd-21", cpu=True)


def _processes(claim: str, *, cpu: bool) -> None:
    def run(records: Records) -> Measured:
        def of(ranks: int) -> Side:
            return Side(
                "gnndrive",
                where=lambda config: config["ranks"] == ranks and (config["device"] == "cpu") == cpu,
                name=f"gnndrive in {ranks} process{'es' if ranks > 1 else ''}",
            )

        free = ["ranks", "memory", "device_memory_bytes", "batch_size", "max_batches"]
        # A limiter would hold both to the same epoch: processes are compared on the bare device, too.
        return compare(usual_settings(records, [of(2), of(1)], device=None, disk_class=None, free=free)[0])

    register(claim, "gnndrive-fig13", run)


_processes("gd-22", cpu=False)
_processes("gd-23", cpu=True)


def _to_accuracy(claim: str, baseline: str) -> None:
    """Seconds to the accuracy that both reach, at most 99 % of the lesser best."""

    def run(records: Records) -> Measured:
        from harness.figures.accuracy_runs import accuracy_curve, time_to

        found = accuracy_settings(records, "gnndrive", baseline)
        ours, theirs = found.cells[0].newest, found.cells[1].newest
        best = min(float(accuracy_curve(record)["accuracy"].max()) for record in (ours, theirs))
        target = 0.99 * best
        a, b = time_to(ours, target), time_to(theirs, target)
        if not a or not b:
            raise NotRun(f"one of them never reaches {100 * target:.1f} %")
        line = f"to {100 * target:.1f} %: gnndrive {a:.1f} s, {baseline} {b:.1f} s"
        return Measured(
            (Number(b / a, b / a, b / a, "range"),), runs=[*found.cells[0].runs, *found.cells[1].runs],
            setting=found.shared, detail=[line],
        )  # fmt: skip

    register(claim, "gnndrive-fig14", run)


def accuracy_settings(records: Records, *systems: str, **fixed: Any) -> Any:
    """The best supported setting of runs that judge their model on test nodes.

    Raises:
        NotRun: there is none.
    """
    any_value: dict[str, Any] = dict.fromkeys(
        ("memory", "dim", "batch_size", "fanout", "disk_class", "device", "test_nodes")
    )
    wanted = {**any_value, **fixed}
    free = ["memory", "disk_class"] if "in-memory" in systems else []
    sides = [Side(system) for system in systems]
    return usual_settings(records, sides, where=lambda config: config["test_nodes"] > 0, free=free, **wanted)[0]


def test_accuracy(record: Plain) -> float:
    """Mean accuracy on the test nodes over the last three epochs, in per cent: one epoch alone is noisier than a claim.

    Raises:
        NotRun: it was not judged.
    """
    from harness.figures.accuracy_runs import final_accuracy

    found = final_accuracy(record)
    if found is None:
        raise NotRun(f"{record['system']} has no accuracy on test nodes")
    return 100 * found


_to_accuracy("gd-24", "pyg+")
_to_accuracy("gd-25", "ginex")


def accuracy_gap(records: Records, system: str, other: str, **fixed: Any) -> Measured:
    """Points of test accuracy of one system over another's."""
    found = accuracy_settings(records, system, other, **fixed)
    a, b = (test_accuracy(cell.newest) for cell in found.cells)
    lines = [f"{system} {a:.2f} %, {other} {b:.2f} %"]
    runs = [*found.cells[0].runs, *found.cells[1].runs]
    return Measured((Number.exact(a - b),), runs=runs, setting=found.shared, detail=lines)


register("gd-26", "gnndrive-fig14", lambda records: accuracy_gap(records, "gnndrive", "in-memory"))


def _fio(records: Records) -> list[Plain]:
    points: list[Plain] = records.evidence.study("fio-grid").result["points"]
    return points


@answers("gd-27", "gnndrive-figB1")
def _async_over_sync(records: Records) -> Measured:
    """Best asynchronous depth of one thread over the best number of synchronous threads, 512 B direct reads."""
    points = [p for p in _fio(records) if p["block_bytes"] == 512 and p["direct"]]
    deep = max((p for p in points if p["engine"] != "sync"), key=lambda p: p["bytes_per_s"], default=None)
    wide = max((p for p in points if p["engine"] == "sync"), key=lambda p: p["bytes_per_s"], default=None)
    if deep is None or wide is None:
        raise NotRun("the study fio-grid lacks synchronous or asynchronous points")
    lines = [
        f"depth {deep['depth']}: {deep['bytes_per_s'] / 1e6:.1f} MB/s",
        f"{wide['threads']} threads: {wide['bytes_per_s'] / 1e6:.1f} MB/s",
    ]
    return Measured((ratio([deep["bytes_per_s"]], [wide["bytes_per_s"]]),), studies=["fio-grid"], detail=lines)


@answers("gd-28", "gnndrive-figB1")
def _buffered_over_direct(records: Records) -> Measured:
    """By how many per cent buffered reads stay behind direct ones, or lead, at the deepest queue of 512 B reads."""
    points = [p for p in _fio(records) if p["block_bytes"] == 512 and p["engine"] != "sync"]
    depth = max((p["depth"] for p in points), default=0)
    rates = {p["direct"]: p["bytes_per_s"] for p in points if p["depth"] == depth}
    if set(rates) != {True, False}:
        raise NotRun("the study fio-grid lacks buffered or direct points")
    number = Number.exact(100 * (rates[False] / rates[True] - 1))
    return Measured((number,), studies=["fio-grid"], detail=[f"at depth {depth}"])

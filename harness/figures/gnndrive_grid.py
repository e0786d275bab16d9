"""What the figures of the GNNDrive paper share: its systems, the CPU variant, plain runs, and rows of what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.figures import style
from harness.figures.base import Plain, gallery, only_systems, values, with_dims
from harness.figures.ginex_grid import batch_sizes, host_budget
from harness.figures.query import Group, NotDrawn, Point, Value, epoch_seconds, group_runs, pairs
from harness.figures.style import Look
from workloads.units import parse_bytes

if TYPE_CHECKING:
    import pandas as pd

    from harness.figures.evidence import Evidence

#: The paper's comparison (Section 5.1), baselines first.
SYSTEMS = ["pyg+", "ginex", "gnndrive"]
#: gnndrive trained on the processor, its feature buffer in host memory.
CPU = "gnndrive (cpu)"
_CPU_LOOK = Look("#8FB3E8", "d", "--", "....")

Where = Callable[[Mapping[str, Any]], Any]


def looks(name: str) -> Look:
    """A system's look; the CPU variant has one of its own."""
    return _CPU_LOOK if name == CPU else style.look(name)


def is_plain(config: Mapping[str, Any]) -> bool:
    """Whether a run trains all stages under a cap, one process, neighbour sampling, not for its accuracy."""
    return bool(
        config["stages"] == "all"
        and config["memory"] != "none"
        and config["ranks"] == 1
        and config["sampler"] == "neighbor"
        and not config["test_nodes"]
        and config["options"].get("feature_buffer_scale", 1.0) == 1.0
    )


def plain_runs(evidence: Evidence) -> pd.DataFrame:
    """The rows of the evidence whose runs are plain."""
    frame = evidence.frame
    return frame if frame.empty else frame[[is_plain(record["config"]) for record in frame["record"]]]


def usual_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with the dataset, mini-batch size, model and SSD class that most rows have: no sweep's far end."""
    if frame.empty:
        return frame
    keys = [
        repr(
            [
                record["config"]["dataset"]["name"],
                *(record["config"][key] for key in ("batch_size", "model", "disk_class")),
            ]
        )
        for record in frame["record"]
    ]
    usual = max(dict.fromkeys(keys), key=keys.count)
    return frame[[key == usual for key in keys]]


def in_bytes(profile: Plain) -> Plain:
    """The profile with its host budget in bytes, so that it stays the same over dimensions (32 GB in the paper)."""
    return {**profile, "run": {**profile["run"], "memory": f"+{host_budget(profile)}"}}


def narrow(profile: Plain) -> Plain:
    """The gallery's runs, mini-batches of `wide_batch_factor` of its size: the budget then holds the widest rows."""
    short = in_bytes(gallery(profile))
    (run,) = batch_sizes(short, values(profile, "wide_batch_factor", [1.0])[:1])
    return {**short, "run": {**short["run"], **run}}


def over_dims(profile: Plain, dims: list[int]) -> tuple[Plain, list[Plain]]:
    """The profile with a dataset for each dimension, and the run settings of each.

    Device memory holds as many rows at each of them, so that at the profile's own dimension runs are the usual ones.
    """
    changed, names = with_dims(profile, dims)
    memory = profile["run"].get("device_memory")
    base = int(profile["datasets"][profile["run"]["dataset"]].get("dim", 128))
    runs: list[Plain] = []
    for dim, name in zip(dims, names, strict=True):
        own = {} if memory is None or dim == base else {"device_memory": parse_bytes(memory) * dim // base}
        runs.append({"dataset": name, **own})
    return changed, runs


def with_runs(entries: Sequence[Any], runs: Sequence[Plain]) -> list[Plain]:
    """Each entry of a system with each of the run settings."""
    found = []
    for run in runs:
        for entry in entries:
            own: Plain = {"name": entry} if isinstance(entry, str) else dict(entry)
            found.append({**own, "run": {**own.get("run", {}), **run}})
    return found


def _having(where: Callable[[Any], bool], key: Callable[[Any], Any], value: Any) -> Callable[[Any], bool]:
    return lambda config: where(config) and bool(key(config) == value)


def largest_group(frame: pd.DataFrame, keys: Sequence[Where], where: Where, **how: Any) -> Group:
    """The group that compares most, of settings that vary together: one of `keys` is equal within it.

    Args:
        frame, how: as for `group_runs`.
        keys: what has to be equal of the settings that `ignore` leaves free.
        where: which configurations may enter.

    Raises:
        NotDrawn: no group has enough points.
    """
    records = [] if frame.empty else list(frame["record"])
    found = {(key, key(record["config"])) for record in records if where(record["config"]) for key in keys}
    best: Group | None = None
    reason = NotDrawn("there are no comparable runs yet")
    for key, value in sorted(found, key=lambda entry: (keys.index(entry[0]), str(entry[1]))):
        try:
            group = group_runs(frame, where=_having(where, key, value), **how)
        except NotDrawn as missing:
            reason = missing
            continue
        if best is None or _compares(group) > _compares(best):
            best = group
    if best is None:
        raise reason
    return best


def _compares(group: Group) -> tuple[int, int]:
    return pairs(group.points), len(group.points)


def device_bytes(config: Mapping[str, Any]) -> int:
    """Bytes of the device's memory; 0 without a device."""
    return int(config["device_memory_bytes"] or 0)


def grows(points: Iterable[Point], what: str) -> str:
    """For the caption: whether device memory differs between the points."""
    sizes = {device_bytes(point.record["config"]) for point in points if point.record} - {0}
    return f"device memory grows with the {what}" if len(sizes) > 1 else ""


def device_rows(config: Mapping[str, Any]) -> int:
    """Rows that the device's memory holds, in thousands; 0 without a device."""
    return round(device_bytes(config) / (4 * int(config["dataset"]["dim"])) / 1000)


def cpu_variant(profile: Plain, run: Plain | None = None) -> Plain:
    """gnndrive on the processor, the device's memory moved into the host budget; `run`: more settings of it."""
    entry = only_systems(profile, ["gnndrive"])[0]
    own: Plain = {"name": entry} if isinstance(entry, str) else dict(entry)
    host = host_budget(profile) + parse_bytes(profile["run"].get("device_memory") or 0)
    settings = {**own.get("run", {}), "device": "cpu", "device_memory": None, "memory": f"+{host}", **(run or {})}
    return {**own, "run": settings}


def variant_of(config: Mapping[str, Any]) -> str:
    """The name under which a run is drawn: its system's, or the CPU variant's."""
    cpu = config["system"] == "gnndrive" and config["device"] == "cpu"
    return CPU if cpu else str(config["system"])


def alike(group: Group, free: Iterable[str]) -> Where:
    """Whether a configuration equals the group's in all it shares, `free` keys apart."""
    kept = {key: value for key, value in group.shared.items() if key not in set(free)}
    return lambda config: all(_same(config[key], value) for key, value in kept.items() if key in config)


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or str(one) == str(other))


def cpu_points(
    frame: pd.DataFrame, group: Group, *, axis: Callable[[Mapping[str, Any]], Any], ignore: Sequence[str],
    value: Value = epoch_seconds, where: Where = is_plain,
) -> list[Point]:  # fmt: skip
    """Runs of the CPU variant that do the same work as a group of the GPU variant; none where there are none.

    Args:
        group: on a device with memory of its own.
        axis, ignore, value, where: as for `group_runs`.
    """
    same = alike(group, ["device", "device_memory_bytes", "memory", *ignore])
    try:
        found = group_runs(
            frame,
            axis=axis,
            ignore=ignore,
            value=value,
            where=lambda config: variant_of(config) == CPU and where(config) and same(config),
            want_axis=1,
        )
    except NotDrawn:
        return []
    return found.points


def rows_of(points: Iterable[Point], **columns: Any) -> pd.DataFrame:
    """A row a point, as the shared drawings take them, and with what the CSV tells beside: `series`, `x`, `y`, …"""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "series": variant_of(p.record["config"]) if p.record else p.system, "x": p.x, "y": p.value,
                "low": p.low, "high": p.high, "status": p.status, "samples": p.samples, "interval": p.interval_kind,
                "verdict": p.verdict, "run": p.record.get("run_id", ""), **columns,
            }
            for p in points
        ]
    )  # fmt: skip


def as_csv(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `rows_of`, also when renamed for bars, with the column names that all CSVs of epoch times have."""
    return rows.rename(columns={"series": "system", "group": "x", "y": "value"})


def run_ids(points: Iterable[Point]) -> list[str]:
    """Ids of the runs that stand for the points."""
    return [str(point.record["run_id"]) for point in points if "run_id" in point.record]

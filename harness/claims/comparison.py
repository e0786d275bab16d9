"""Comparisons that claims share: the settings in which all sides of a claim ran, and
the numbers in one setting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from harness.claims.measured import Measured, NotRun, Number
from harness.compare.comparable import comparable
from harness.figures.accuracy_runs import at_target, best_accuracy, final_accuracy
from harness.results.table import epochs_table
from workloads.arraytypes import JsonDict
from workloads.units import row_bytes

Runs = pd.DataFrame


#: One side of a comparison: the values of columns, settings, options or `dim` that its
#: runs have.
Side = Mapping[str, object]


def of(system: str, **where: object) -> Side:
    """Return a side: runs of a system with some values; everything else may vary."""
    return {"system": system, **where}


def runs_of(runs: Runs, side: Side) -> Runs:
    """Return the runs of a side."""
    for name, value in side.items():
        columns = [
            name,
            f"config.{name}",
            f"config.options.{name}",
            f"config.dataset.{name}",
        ]
        equal = runs.reindex(columns=columns) == value
        runs = runs[equal.any(axis="columns")]
    return runs


@dataclass(frozen=True)
class Setting:
    """The runs of all sides in one setting: `shared`, the settings and place of all,
    and a table for each side."""

    shared: JsonDict
    sides: list[Runs]

    @property
    def newest(self) -> list[JsonDict]:
        """Newest record of each side."""
        return [side["record"].iloc[-1] for side in self.sides]

    @property
    def systems(self) -> list[str]:
        """System of each side."""
        return [record["system"] for record in self.newest]

    @property
    def budget_bytes(self) -> int:
        """Least budget of the newest runs; 0 without a cap."""
        return min(record["memory"]["budget_bytes"] or 0 for record in self.newest)

    @property
    def budget_share(self) -> float:
        """Least budget of the runs over the bytes of the features."""
        data = self.shared["dataset"]
        feature_bytes = data["num_nodes"] * row_bytes(data["dim"], data["dtype"])
        return float(self.budget_bytes / feature_bytes)

    def measured(self, number: Number, *detail: str) -> Measured:
        """Return a number of this setting with its runs."""
        runs = pd.concat(self.sides)["run_id"]
        return Measured(number, list(runs), setting=self.shared, detail=list(detail))


def settings(
    runs: Runs, *sides: Side | str, free: Collection[str] = ()
) -> list[Setting]:
    """Return every setting in which each side has a measured run, newest first, all on
    the newest one's host.

    Args:
        runs: table of runs, oldest first.
        sides: sides, the better first; a system's name stands for all of its runs.
        free: settings in which the sides may differ, beside system and options.

    Raises:
        NotRun: there is no such setting; names the missing side, or how its runs ended.
    """
    named = [of(side) if isinstance(side, str) else side for side in sides]
    mine = [runs_of(runs, side) for side in named]
    measured = epochs_table(runs[runs["status"] == "ok"])["run_id"]
    done = [own[own["run_id"].isin(measured)] for own in mine]
    found = []
    for shared, records in comparable(pd.concat(done)["record"], free):
        ids = [record["run_id"] for record in records]
        own = [part[part["run_id"].isin(ids)] for part in done]
        if all(map(len, own)):
            # The better side's device shows whether the number is an emulator's.
            device = own[0]["config.device"].iloc[-1]
            found.append(Setting({**shared, "device": device}, own))
    if not found:
        missing = filter(None, map(_missing, named, mine))
        raise NotRun(" and ".join(missing) or "no two runs that differ in nothing else")
    found.sort(key=_newest_run, reverse=True)
    host = _host(found[0])
    return [setting for setting in found if _host(setting) == host]


def _newest_run(setting: Setting) -> str:
    return max(str(record["run_id"]) for record in setting.newest)


def _host(setting: Setting) -> list[object]:
    return [setting.shared.get(fact) for fact in ("host", "accelerator")]


def _missing(side: Side, runs: Runs) -> str:
    """Return the reason why a side has no measured run; empty where another side may be
    the reason."""
    reported = [f"{name} {value}" for name, value in side.items()]
    name = " with ".join(reported).removeprefix("system ")
    ended = sorted(set(runs["status"]))
    if not ended:
        return f"no run of {name}"
    if "ok" in ended:
        return ""
    return f"every run of {name} ended as {', '.join(ended)}"


def one_setting(runs: Runs, *sides: Side | str, free: Collection[str] = ()) -> Setting:
    """Return the only setting that holds all sides. Raises NotRun: there is none, or
    several."""
    found = settings(runs, *sides, free=free)
    facts = [setting.shared | {"limits": None} for setting in found]
    if any(other != facts[0] for other in facts):
        raise NotRun(
            "the profile has runs in several settings, and the claim does not say in "
            "which it is judged"
        )
    return found[0]


def samples(runs: Runs, *columns: str) -> pd.Series[float]:
    """Return the sum of columns of the table of runs or of epochs, in each row that has
    one of them.

    `trained_s` is an epoch without data preparation, `batch_s` the seconds a mini-batch
    (an epoch that `max_batches` cuts has as many of each process).
    """
    table = runs if columns[0] in runs else epochs_table(runs)
    if "batch_s" in columns:
        table["batch_s"] = table["seconds"] / table["batches"]
    if "trained_s" in columns:
        prepared_s = table.get("stages_s.data_prep", 0.0)
        table["trained_s"] = table["seconds"].sub(prepared_s, fill_value=0.0)
    parts = table.reindex(columns=list(columns)).astype(float)
    return parts.sum(axis="columns", min_count=1).dropna()


def ratio(setting: Setting, *columns: str) -> Measured:
    """Divide the median of the baseline, the second side, by that of the better side;
    by default of epoch times.

    Raises:
        NotRun: a side has none of the columns, or a zero is divided by.
    """
    compared = columns or ("seconds",)
    better, baseline = [samples(side, *compared) for side in setting.sides]
    if better.empty or baseline.empty or not better.all():
        raise NotRun("the runs do not hold what is compared")
    lines = [_described(side, *compared) for side in setting.sides]
    return setting.measured(Number.median(list(baseline), list(better)), *lines)


def saved(setting: Setting, *columns: str) -> Measured:
    """Return the per cent of the baseline that the better side saves. Raises NotRun."""
    found = ratio(setting, *columns)
    return replace(found, number=found.number.saved)


def added(setting: Setting, *columns: str) -> Measured:
    """Return the per cent by which the better side takes more than the baseline. Raises
    NotRun."""
    found = ratio(setting, *columns)
    return replace(found, number=found.number.added)


def share(
    setting: Setting, *columns: str, of: Collection[str] = ("seconds",)
) -> Measured:
    """Return the per cent that columns take of other columns, epoch by epoch, of the
    only side. Raises NotRun."""
    (side,) = setting.sides
    parts = samples(side, *columns)
    shares = 100 * parts / samples(side, *of)
    if shares.empty or not shares.lt(float("inf")).all():
        raise NotRun(f"the runs of {setting.systems[0]} do not hold what is compared")
    return setting.measured(Number.median(list(shares)), _described(side, *columns))


def _described(side: Runs, *columns: str) -> str:
    """Describe one side in a line: its value, and stages, bytes and requests of its
    newest run."""
    values = samples(side, *columns)
    record = side["record"].iloc[-1]
    line = f"{record['system']}: median {values.median():.4g} of {len(values)} epochs"
    spent = record["summary"].get("stages_s") or {}
    stages = [f"{name} {seconds:.3g} s" for name, seconds in spent.items()]
    if stages:
        line += f"; stages {', '.join(stages)}"
    last = record["epochs"][-1]
    if last["device_bytes"] is None:
        return line
    read_mib = last["device_bytes"] / 2**20
    return (
        f"{line}; {read_mib:.0f} MiB in {last['device_requests']:,} requests from the "
        "device"
    )


def over_settings(found: Sequence[Setting], *, most: bool = False) -> Measured:
    """Return the mean of the ratios in all settings, or the greatest. Raises NotRun in
    one setting only."""
    if len(found) < 2:
        raise NotRun(
            f"both ran in one setting only: it is no {'most' if most else 'mean'} of "
            "several"
        )
    ratios = [ratio(setting) for setting in found]
    numbers = sorted(one.number for one in ratios)
    number = numbers[-1]
    if not most:
        mean = sum(one.value for one in numbers) / len(numbers)
        number = Number(mean, numbers[0].value, number.value, "range")
    runs = [run for one in ratios for run in one.runs]
    lines = [line for one in ratios for line in one.detail]
    lines.append(f"over {len(found)} settings")
    return Measured(number, runs, setting=found[0].shared, detail=lines)


def tested(runs: Runs) -> Runs:
    """Return the runs with test accuracy after every epoch."""
    return runs[runs["config.test_nodes"] > 0]


def accuracy_gap(setting: Setting) -> Measured:
    """Return the points by which the better side's accuracy over its last three epochs
    exceeds the baseline's."""
    ours, theirs = map(_accuracy, setting.sides)
    better, baseline = setting.systems
    line = f"{better} {ours.value:.2f} %, {baseline} {theirs.value:.2f} %"
    return setting.measured(ours.minus(theirs), line)


def _accuracy(side: Runs) -> Number:
    known = 100 * side["record"].map(final_accuracy).dropna()
    if known.empty:
        raise NotRun("one of them has no accuracy on test nodes")
    kind = "range" if len(known) > 1 else "exact"
    return Number(known.mean(), known.min(), known.max(), kind)


def time_to_accuracy(setting: Setting) -> Measured:
    """Divide the seconds to an accuracy that both reach, 99 % of the lower best one:
    the baseline's by the better's."""
    target = 0.99 * min(best_accuracy(record) or 0.0 for record in setting.newest)
    ours, theirs = [at_target(record, target) for record in setting.newest]
    if not target or not ours or not theirs:
        raise NotRun(
            "one of them has no accuracy on test nodes, or never reaches the other's"
        )
    better, baseline = setting.systems
    line = f"to {100 * target:.1f} %: {better} {ours:.1f} s, {baseline} {theirs:.1f} s"
    return setting.measured(Number.exact(theirs / ours), line)

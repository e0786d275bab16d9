"""The order of the systems by the cost of a fresh epoch: comparable runs by setting,
never averaged over two."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from harness.compare.comparable import comparable, differing_options
from harness.records.cost import TrainingCost, fresh_epochs_s
from harness.records.record import COUNTED, Spread, spread
from workloads.arraytypes import JsonDict

# Seed and number of an epoch.
_Draw = tuple[int, int]


@dataclass(frozen=True)
class Standing:
    """One system in one setting: the measured epochs of all its rounds.

    Attributes:
        status: `ok`, or the reason for a missing measurement.
        cost: terms of T(E) over all rounds; None where nothing was measured.
        samples: seconds of every measured epoch with all of its work (`each` added).
        epoch_s: median and interval of `samples`.
        replays: whether epochs train on mini-batches sampled for an earlier epoch,
            which is another workload.
        own_batches: whether the system trained on other mini-batches than most systems
            of the setting.
        others: number of further option sets of the system in this setting, left out.
        lost: number of its runs without a time, by status.
    """

    system: str
    options: JsonDict
    status: str
    cost: TrainingCost | None
    samples: list[float]
    epoch_s: Spread | None
    replays: bool
    verdict: str
    record: JsonDict
    runs: list[str]
    own_batches: bool = False
    others: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RankedSetting:
    """Runs that are equal in all but the system, its options and bookkeeping, on one
    host.

    Attributes:
        shared: their configuration, and `host`, `limits`, `accelerator` of
            `harness.records.hosts.measured_on`.
        standings: least cost of a fresh epoch first, then those that replay samples,
            then those without a time.
        uncounted: verdict of each run that is left out for it: INVALID or SPOILT.
        headline: whether a bench profile, rather than a figure, asked for these runs.
    """

    shared: JsonDict
    standings: list[Standing]
    uncounted: list[str]
    newest: str
    headline: bool = False

    @property
    def timed(self) -> list[Standing]:
        """Standings with a time, those that replay samples last."""
        return [standing for standing in self.standings if standing.cost is not None]

    @property
    def measured(self) -> list[Standing]:
        """Standings of one workload with a time, fastest first: those with fresh
        samples, else those that replay."""
        fresh = [standing for standing in self.timed if not standing.replays]
        return fresh or self.timed

    @property
    def storage_bound(self) -> bool:
        """Whether at least half of the measured systems are storage-bound (rule 7)."""
        bound: list[bool] = [
            standing.record["class"] == "storage-bound" for standing in self.measured
        ]
        return 2 * sum(bound) >= len(bound)

    @property
    def graph_over_budget(self) -> float:
        """Bytes of the graph over the host budget, the most of all measured systems; 0
        where it is unknown."""
        ratios = [
            standing.record["summary"]["topology_over_budget"]
            for standing in self.measured
        ]
        return max((ratio for ratio in ratios if ratio is not None), default=0.0)

    @property
    def holds_graph(self) -> bool:
        """Whether the host budget holds the graph, as in the papers' settings (rule
        7)."""
        return 0 < self.graph_over_budget <= 1


def settings_of(
    records: Sequence[JsonDict], profiles: Sequence[str] = ()
) -> list[RankedSetting]:
    """Return every setting with a run of all stages: those with two systems first, then
    those of bench `profiles`, and of these the storage-bound ones, those whose memory
    holds the graph first."""
    groups = comparable(
        record for record in records if record["config"]["stages"] == "all"
    )
    settings = [_setting(shared, members, profiles) for shared, members in groups]
    return sorted(
        (setting for setting in settings if setting.standings),
        key=_weight,
        reverse=True,
    )


def _weight(setting: RankedSetting) -> tuple[int, bool, bool, bool, int, int, str]:
    measured = setting.measured
    samples = sum(len(standing.samples) for standing in measured)
    # A setting with one system has no order: it comes last even where a bench profile
    # asked for it.
    ranked = min(2, len(measured)), setting.headline
    return (
        *ranked,
        setting.storage_bound,
        setting.holds_graph,
        len(measured),
        samples,
        setting.newest,
    )


def _setting(
    shared: JsonDict, records: Sequence[JsonDict], profiles: Sequence[str]
) -> RankedSetting:
    counted = [record for record in records if record["verdict"] in COUNTED]
    option_sets: dict[str, dict[str, list[JsonDict]]] = {}
    for record in counted:
        text = json.dumps(record["config"]["options"], sort_keys=True, default=str)
        option_sets.setdefault(record["system"], {}).setdefault(text, []).append(record)
    common = _common_batches(counted)
    found = []
    for system, sets in option_sets.items():
        standings = [
            _standing(system, members, common, len(sets) - 1)
            for members in sets.values()
        ]
        # The option set with the fewest differing options stands for the system; of
        # equals the one with most samples.
        rank = [
            (-differing_options(system, one.options), len(one.samples), max(one.runs))
            for one in standings
        ]
        found.append(standings[rank.index(max(rank))])
    found.sort(key=_place)
    newest = max((record["run_id"] for record in counted), default="")
    asked = any(record["config"]["experiment"] in profiles for record in counted)
    uncounted = [
        record["verdict"] for record in records if record["verdict"] not in COUNTED
    ]
    return RankedSetting(shared, found, uncounted, newest, asked)


def _place(standing: Standing) -> tuple[bool, bool, float, str]:
    cost = standing.cost
    return (
        cost is None,
        standing.replays,
        cost.fresh_epoch_s if cost else 0.0,
        standing.system,
    )


def _digests(record: JsonDict) -> dict[_Draw, str]:
    """Return the digest of each epoch's mini-batches, by seed and epoch: other seeds
    draw other mini-batches."""
    seed = record["config"]["seed"]
    return {
        (seed, epoch["epoch"]): epoch["digest"]
        for epoch in record["epochs"]
        if epoch["digest"]
    }


def _common_batches(records: Sequence[JsonDict]) -> dict[_Draw, str]:
    """Return the digest of the mini-batches that most systems trained on, if two agree,
    by seed and epoch."""
    trained = {
        (record["system"], *entry)
        for record in records
        for entry in _digests(record).items()
    }
    # Sorted: of two digests with equally many systems it is always the same one.
    count = Counter((draw, digest) for _, draw, digest in sorted(trained))
    return {
        draw: digest
        for (draw, digest), systems in reversed(count.most_common())
        if systems > 1
    }


def _standing(
    system: str, records: list[JsonDict], common: Mapping[_Draw, str], others: int
) -> Standing:
    by_age = sorted(records, key=itemgetter("run_id"))
    ok = [record for record in by_age if record["status"] == "ok"]
    newest = by_age[-1]
    shown = (ok or by_age)[-1]
    samples = fresh_epochs_s(records)
    ended = "not measured" if newest["status"] == "ok" else newest["status"]
    bent = any(record["verdict"] == "CAVEATS" for record in ok or records)
    others_batches = [
        common.get(draw, own) != own
        for record in ok
        for draw, own in _digests(record).items()
    ]
    return Standing(
        system=system,
        options=dict(newest["config"]["options"]),
        status="ok" if samples else ended,
        cost=TrainingCost.of_runs(records),
        samples=samples,
        epoch_s=spread(samples, of="mean") if samples else None,
        replays=shown["facts"]["samples_reused"],
        verdict="CAVEATS" if bent else "VALID",
        record=shown,
        runs=[record["run_id"] for record in by_age],
        own_batches=any(others_batches),
        others=others,
        lost=Counter(
            record["status"] for record in records if record["status"] != "ok"
        ),
    )


def times_as_fast(fast: Standing, slow: Standing) -> Spread:
    """Return how many times as fast `fast` is: the ratio of the costs of a fresh epoch,
    with its interval."""
    ours, theirs = (
        [max(sample, 1e-9) for sample in side.samples] for side in (fast, slow)
    )
    return spread(theirs, ours, of="mean")


def without_cap(
    setting: RankedSetting, settings: Sequence[RankedSetting]
) -> Standing | None:
    """Return the fastest system of the same setting without a memory cap, which is the
    upper bound."""
    if setting.shared["memory"] == "none":
        return None
    first = []
    for other in settings:
        same = {name: other.shared[name] for name in ("isolation", "limits")}
        if other.measured and other.shared == {
            **setting.shared,
            **same,
            "memory": "none",
        }:
            first.append(other.measured[0])
    return min(first, key=_place, default=None)

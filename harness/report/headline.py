"""The headline in words: the fastest system, its lead, the confidence in it, the
setting and the caveats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from harness.compare.epochs import part_of_epoch, with_part
from harness.compare.sizes import data_sizes
from harness.compare.verdicts import uncounted_text
from harness.figures.draw.caveats import broken_rules
from harness.records.cost import TrainingCost, leaders, leading, shared_work
from harness.records.record import COUNTED, Spread, class_of
from harness.report.setting_words import in_words, listed
from harness.report.standings import (
    RankedSetting,
    Standing,
    settings_of,
    times_as_fast,
    without_cap,
)
from harness.settings import complete_options
from workloads.arraytypes import JsonDict

#: Outcomes of systems without a time, in words.
OUTCOMES = {
    "oom": "ran out of memory",
    "timeout": "ran out of time",
    "unsupported": "cannot run there",
    "not measured": "has no measured epoch",
}
NOTHING = (
    "There are no run records yet: `make bench` measures, `outcore run` makes one."
)
ALONE = "No other system was measured in this setting, so it is compared with none."
REUSED = " (samples reused)"
# Settings that are described beside the first; the table of runs has all.
LISTED = 12


@dataclass(frozen=True)
class Row:
    """One system of the table under the headline, as text for a reader.

    Attributes:
        epoch, interval: seconds of a fresh epoch with all of its work, and their median
            and range.
        each, before: seconds of it that are offline work, and seconds that a training
            spends once.
        times: the epoch over that of the first system.
        share: length of the bar, as a share of the slowest epoch.
    """

    system: str
    run: str
    storage: str
    verdict: str
    epoch: str
    interval: str = ""
    times: str = ""
    each: str = ""
    before: str = ""
    share: float = 0.0


@dataclass(frozen=True)
class Reported:
    """One setting in words; `place` and `lead` go on from the winner's name, `sure`
    gives the confidence. `trainings`: sentences on which system is ahead in a training
    of E epochs, all work counted. `part` of an epoch that the runs train
    (`part_of_epoch`). `option_sets`: sentences on which options stand for a system that
    has several."""

    setting: str
    winner: str
    place: str
    lead: str
    sure: str
    trainings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    part: str = ""
    option_sets: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Headline:
    """The opening of the report: the first setting, further ones, and `nothing`: the
    reason where there is none."""

    first: Reported | None
    others: list[Reported]
    unlisted: int
    nothing: str = ""


def headline(
    settings: Sequence[RankedSetting], records: Sequence[JsonDict]
) -> Headline:
    """Describe the settings in words; without a measured run, describe the records that
    exist."""
    if not records:
        return Headline(None, [], 0, NOTHING)
    reported = [setting for setting in settings if setting.measured]
    if not reported:
        ends = [
            one["status"] if one["verdict"] in COUNTED else one["verdict"].lower()
            for one in records
        ]
        what = ", ".join(
            f"{count} {end}" for end, count in sorted(Counter(ends).items())
        )
        return Headline(
            None,
            [],
            0,
            f"None of the {len(records)} runs counts as a measurement: {what}.",
        )
    first, *others = [emit(setting, settings) for setting in reported[: LISTED + 1]]
    return Headline(first, others, len(reported) - 1 - len(others))


def who_is_ahead(records: Sequence[JsonDict], profile: str) -> list[str]:
    """Return lines on the fastest system, its lead and confidence, and on which is
    ahead in a training of E epochs.

    Several settings are described one after the other, the most memory first.
    """
    settings = settings_of(records, [profile])
    found = headline(settings, records)
    if found.first is None:
        return [found.nothing]
    contested = [one for one in settings if len(one.measured) > 1]
    if len(contested) < 2:
        return _lines(found.first)
    contested.sort(key=attrgetter("graph_over_budget"))
    reported = [emit(one, settings) for one in contested]
    shared = set.intersection(*(set(one.setting.split("; ")) for one in reported))
    lines = []
    for one in reported:
        first, *more = _lines(one)
        own = [part for part in one.setting.split("; ") if part not in shared]
        lines += [f"{', '.join(own)}: {first}", *more]
    return lines


def _lines(reported: Reported) -> list[str]:
    return [
        f"{reported.winner} {reported.lead} {reported.sure}",
        *reported.trainings,
        *reported.option_sets,
    ]


def emit(setting: RankedSetting, settings: Sequence[RankedSetting]) -> Reported:
    """Describe one setting in words."""
    measured = setting.measured
    best = measured[0]
    assert best.cost is not None
    lead = (
        f"takes {_seconds(best.cost.fresh_epoch_s)} an epoch with all of its work "
        f"({_interval(best)})"
    )
    if len(measured) == 1:
        place = (
            "was measured alone"
            if len(setting.standings) == 1
            else "is the only one with a result"
        )
        sure = ALONE
    else:
        second = measured[1]
        ratio = times_as_fast(best, second)
        lead += f", {_times(_middle(ratio))} times as fast as {second.system}, the next"
        if len(measured) > 2:
            last = measured[-1]
            lead += (
                f", and {_times(_middle(times_as_fast(best, last)))} times as fast as "
                f"{last.system}, the slowest"
            )
        place = (
            "is ahead, not surely"
            if _is_open(best, second, ratio)
            else _fastest(setting)
        )
        sure = _sure(best, second, ratio)
    part = part_of_epoch(setting.shared)
    reported = (best.system, place, with_part(lead, part) + ".", sure)
    trainings = [with_part(sentence, part) for sentence in _trainings(setting)]
    notes = [with_part(note, part) for note in _notes(setting, settings)]
    return Reported(
        in_words(setting.shared),
        *reported,
        trainings,
        notes,
        _rows(setting),
        part,
        _option_sets(setting),
    )


def _costs(setting: RankedSetting) -> dict[str, TrainingCost]:
    return {
        standing.system: standing.cost
        for standing in setting.measured
        if standing.cost is not None
    }


def _fastest(setting: RankedSetting) -> str:
    """Return what the fastest system by a fresh epoch is, where others are ahead in
    trainings of some length, too."""
    costs = _costs(setting)
    ahead = {system for system, _ in leading(costs)}
    if ahead == {setting.measured[0].system}:
        return "is fastest"
    return f"is fastest by the epoch; in whole trainings {leaders(costs)}"


def _is_open(best: Standing, second: Standing, ratio: Spread) -> bool:
    return ratio.interval[0] <= 1 or len(best.samples) == len(second.samples) == 1


def _sure(best: Standing, second: Standing, ratio: Spread) -> str:
    """Return a sentence on how sure the order of the two fastest systems is."""
    ours = len(best.samples)
    theirs = len(second.samples)
    if ours == theirs == 1:
        once = f"One epoch of {best.system} and one of {second.system} were measured"
        return f"{once}: one sample each, no confidence estimate."
    low, high = ratio.interval
    between = (
        f"the ratio to {second.system} lies between {_times(low)} and {_times(high)}"
    )
    if ratio.interval_kind == "bootstrap95":
        sentence = (
            f"With 95 % confidence {between} (bootstrap over {ours} and {theirs} "
            "epochs)"
        )
        ending = f"{best.system} is the faster of the two."
    else:
        few = (
            f"a range of {ours} and {theirs} epochs, too few for a confidence interval"
        )
        sentence = f"Over every pair of epochs {between} ({few})"
        ending = (
            f"every measured epoch of {best.system} was faster than every one of "
            f"{second.system}."
        )
    if low <= 1:
        ending = "the interval includes 1, so either of the two may be the faster."
    return f"{sentence}: {ending}"


def _notes(setting: RankedSetting, settings: Sequence[RankedSetting]) -> list[str]:
    """Return sentences on systems without a time, the upper bound, other workloads, the
    class and caveats."""
    measured = setting.measured
    best = measured[0]
    ended: dict[str, list[str]] = {}
    for standing in setting.standings:
        if standing.epoch_s is None:
            ended.setdefault(_outcome(standing.status), []).append(standing.system)
    notes = [f"{listed(systems)} {outcome}." for outcome, systems in ended.items()]
    for standing in setting.timed:
        runs = f"of {len(standing.runs)} runs of {standing.system}"
        for status, number in sorted(standing.lost.items()):
            notes.append(
                f"{number} {runs} {_outcome(status)}: its time is of the others."
            )
    free = without_cap(setting, settings)
    if free is not None and free.cost is not None and best.cost is not None:
        behind = _times(best.cost.fresh_epoch_s / max(free.cost.fresh_epoch_s, 1e-9))
        uncapped = (
            f"Without a memory cap {free.system} takes "
            f"{_seconds(free.cost.fresh_epoch_s)} an epoch"
        )
        notes.append(f"{uncapped}; {best.system} takes {behind} times that.")
    replays = [standing.system for standing in setting.timed if standing.replays]
    if replays and len(replays) < len(setting.timed):
        earlier = "trains all epochs on samples of an earlier one"
        notes.append(f"{listed(replays)} {earlier}: another workload, ranked apart.")
    own = [standing.system for standing in measured if standing.own_batches]
    if own:
        notes.append(
            f"{listed(own)} trained on mini-batches of its own, not on those of the "
            "others."
        )
    if sizes := data_sizes({str(standing.record["class"]) for standing in measured}):
        notes.append(f"{sizes} (rule 7).")
    if setting.graph_over_budget > 1:
        another = "the papers' settings hold it, so this is another experiment (rule 7)"
        notes.append(
            f"The graph is {setting.graph_over_budget:.1f} x the host budget: "
            f"{another}."
        )
    bent = _bent(measured)
    if bent:
        notes.append(f"Caveats, rules not kept: {'; '.join(bent)}.")
    if setting.uncounted:
        verb = "were" if len(setting.uncounted) > 1 else "was"
        notes.append(f"{uncounted_text(setting.uncounted)} {verb} left out.")
    return notes


def _outcome(status: str) -> str:
    return OUTCOMES.get(status, status)


def _trainings(setting: RankedSetting) -> list[str]:
    """Return sentences on which system is ahead in a training of E epochs, where it is
    not the same at each E, and on offline work that longer trainings may share."""
    costs = _costs(setting)
    sentences = []
    if len(list(leading(costs))) > 1:
        sentences.append(
            "In a training of E epochs, with all work counted, the least time is that "
            f"of: {leaders(costs)}."
        )
    for standing in setting.timed:
        sentences += shared_work(standing.record)
    return sentences


def _option_sets(setting: RankedSetting) -> list[str]:
    """Return a sentence for each ranked system with several option sets: the one that
    stands for it."""
    found = []
    for standing in setting.measured:
        if not standing.others:
            continue
        usual = complete_options(standing.system, {})
        own = [
            f"{key}={value}"
            for key, value in standing.options.items()
            if usual.get(key) != value
        ]
        sets = f"Of {standing.others + 1} option sets of {standing.system}"
        found.append(
            f"{sets} this is the one nearest its defaults: "
            f"{' '.join(own) or 'its defaults'}."
        )
    return found


def _bent(standings: Sequence[Standing]) -> list[str]:
    systems: dict[str, list[str]] = {}
    for standing in standings:
        for rule in broken_rules(standing.record):
            systems.setdefault(rule, []).append(standing.system)
    return [
        f"{name} ({', '.join(dict.fromkeys(which))})" for name, which in systems.items()
    ]


def _rows(setting: RankedSetting) -> list[Row]:
    best = setting.measured[0]
    slowest = max(s.cost.fresh_epoch_s for s in setting.timed if s.cost)
    rows = []
    for standing in setting.standings:
        cost = standing.cost
        record = standing.record
        label = standing.system + (
            f" (+{standing.others} other option sets)" if standing.others else ""
        )
        label += REUSED if standing.replays else ""
        head = (label, str(record["run_id"]), class_of(record), standing.verdict)
        if cost is None:
            rows.append(Row(*head, _outcome(standing.status)))
            continue
        times = "1" if standing is best else _ratio(times_as_fast(best, standing))
        if standing.replays != best.replays:
            times = "–"
        epoch, each, before = map(
            _seconds, (cost.fresh_epoch_s, cost.each_s, cost.before_s)
        )
        share = cost.fresh_epoch_s / slowest if slowest > 0 else 0.0
        rows.append(Row(*head, epoch, _interval(standing), times, each, before, share))
    return rows


def _seconds(value: float) -> str:
    form = ",.0f" if value >= 1000 else ".3g" if value >= 0.001 or value == 0 else ".2e"
    return f"{value:{form}} s"


def _times(value: float) -> str:
    return (
        f"{value:.0f}"
        if value >= 100
        else f"{value:.3g}"
        if value >= 10
        else f"{value:.2f}"
    )


def _ratio(value: Spread) -> str:
    low, high = map(_times, value.interval)
    return _times(_middle(value)) + (f" [{low}–{high}]" if low != high else "")


def _interval(standing: Standing) -> str:
    value = standing.epoch_s
    count = len(standing.samples)
    if value is None or count == 1:
        return "one epoch" if count else ""
    low, high = (_seconds(end).removesuffix(" s") for end in value.interval)
    kind = "95 % interval" if value.interval_kind == "bootstrap95" else "range"
    return f"{kind} {low}–{high} s, median {_seconds(value.median)}, {count} epochs"


def _middle(value: Spread) -> float:
    """Return the mean, or the ratio of the means, of samples."""
    assert value.mean is not None
    return value.mean

"""T(E) = once + first + E x (each + epoch): one model of time, measured, and true at
every number of epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.judge.metrics import summarised_anew
from harness.records.cost import TrainingCost, leading
from harness.records.record import OfflineWork, Preprocess, Record
from harness.records.schema import with_offline_work
from harness.report import write_report
from harness.report.headline import headline
from harness.report.standings import settings_of
from tests.harness.records import make_record, save

SECONDS = st.floats(0.0, 1e4)
COSTS = st.builds(TrainingCost, SECONDS, SECONDS, SECONDS, st.floats(0.001, 1e4))


def plain(record: Record) -> dict[str, Any]:
    record.summary = summarised_anew(record)
    return record.to_json()


def diskgnn(epochs: int, each_s: float = 13.5, epoch_s: float = 0.745) -> Record:
    """Make a run of a system whose preparation samples and packs each of its epochs."""
    record = make_record("diskgnn", [epoch_s] * (epochs - 1), epochs=epochs)
    offline = OfflineWork(epochs=epochs, seconds=epochs * each_s)
    record.preprocess = Preprocess(seconds=epochs * each_s + 0.1, offline=offline)
    return record


@given(COSTS, COSTS, st.integers(1, 10**6))
def test_a_training_is_ahead_from_the_reported_epoch_on_and_not_before(
    one: TrainingCost, other: TrainingCost, e: int
) -> None:
    first = one.ahead_from(other)
    slack = 1e-9 * max(one.total_s(e), other.total_s(e))
    if first is not None and e >= first:
        assert one.total_s(e) <= other.total_s(e) + slack
    elif one.further_epoch_s < other.further_epoch_s or first is None:
        assert (
            one.total_s(e) >= other.total_s(e) - slack
            or one.further_epoch_s > other.further_epoch_s
        )


@given(st.lists(COSTS, min_size=1, max_size=6), st.integers(1, 5000))
def test_the_leader_of_each_number_of_epochs_has_the_least_total(
    costs: list[TrainingCost], epochs: int
) -> None:
    named = {str(number): cost for number, cost in enumerate(costs)}
    spans = list(leading(named))
    leader = [system for system, first in spans if first <= epochs][-1]
    least = min(cost.total_s(epochs) for cost in costs)
    assert spans[0][1] == 1
    assert named[leader].total_s(epochs) == pytest.approx(least, rel=1e-9)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), min_size=2, max_size=5),
    st.integers(1, 60),
)
@example([(10, 1), (5, 4), (0, 9)], 3)
def test_of_systems_that_take_the_lead_at_once_the_one_with_the_least_time_is_named(
    terms: list[tuple[int, int]], epochs: int
) -> None:
    costs = {
        str(number): TrainingCost(once, 0.0, 0.0, epoch / 2)
        for number, (once, epoch) in enumerate(terms)
    }
    leader = [system for system, first in leading(costs) if first <= epochs][-1]
    assert costs[leader].total_s(epochs) == min(
        cost.total_s(epochs) for cost in costs.values()
    )


@pytest.mark.parametrize("epochs", [3, 13])
def test_offline_work_of_each_epoch_never_pays_off_whatever_number_of_epochs_was_run(
    epochs: int,
) -> None:
    ours = make_record("outcore", [4.56] * (epochs - 1), epochs=epochs)
    story = headline(
        settings_of([plain(ours), plain(diskgnn(epochs))]), [plain(ours)]
    ).first
    assert story is not None
    assert story.winner == "outcore"
    (sentence,) = story.trainings
    assert sentence.startswith(
        f"diskgnn did the offline work of {epochs} epochs together"
    )
    assert [row.system for row in story.rows] == ["outcore", "diskgnn"]
    assert story.rows[1].epoch == "14.2 s"
    assert story.rows[1].each == "13.5 s"


def test_work_that_epochs_share_is_counted_once_in_a_training_and_in_parts_in_the_ranking() -> (
    None
):
    """Of 27 s for two epochs 24 s are one pass over the features: eight epochs need 24
    + 8 x 1.5 s."""
    record = diskgnn(2)
    assert record.preprocess.offline is not None
    record.preprocess.offline.shared_s = 24.0
    record.preprocess.offline.bytes_written = 2 << 30
    cost = TrainingCost.of(plain(record))
    assert cost is not None
    assert cost.fresh_epoch_s == pytest.approx(13.5 + 0.745)
    assert cost.total_s(2) == pytest.approx(0.1 + 27.0 + 2 * 0.745)
    assert cost.total_s(8) == pytest.approx(0.1 + 24.0 + 8 * (1.5 + 0.745))
    ours = make_record("outcore", [4.56], epochs=2)
    story = headline(settings_of([plain(ours), plain(record)]), [plain(ours)]).first
    assert story is not None
    assert story.winner == "outcore"
    least, together = story.trainings
    assert least.endswith("outcore for 1 to 10 epochs, diskgnn from 11 epochs on.")
    assert together.endswith(
        "2 epochs together and wrote 2.0 GiB for them: by its own measure they share "
        "24 s of 27 s, and T(E) counts these once. A training of more epochs needs "
        "disk for more."
    )


def test_epochs_in_several_episodes_share_nothing_that_a_longer_training_saves() -> (
    None
):
    record = make_record("diskgnn", [1.0, 1.0], epochs=3)
    record.preprocess = Preprocess(
        seconds=5.0, offline=OfflineWork(epochs=1, seconds=5.0, shared_s=4.0)
    )
    record.epochs[1].offline = OfflineWork(epochs=2, seconds=6.0, shared_s=4.0)
    cost = TrainingCost.of(plain(record))
    assert cost is not None
    assert cost.shared_s == cost.shared_each_s == 0.0


def test_one_time_work_pays_off_where_its_epochs_are_shorter() -> None:
    ours = make_record("outcore", [4.0, 4.0])
    ranked = make_record("ali+pg", [2.0, 2.0])
    ranked.preprocess = Preprocess(seconds=20.0)
    story = headline(settings_of([plain(ours), plain(ranked)]), [plain(ours)]).first
    assert story is not None
    assert story.winner == "ali+pg"
    assert story.trainings[0].endswith(
        "outcore for 1 to 10 epochs, ali+pg from 11 epochs on."
    )
    turns = "outcore for 1 to 10 epochs, ali+pg from 11 epochs on"
    assert story.place == f"is fastest by the epoch; in whole trainings {turns}"


def test_replayed_samples_are_ranked_apart() -> None:
    fresh = make_record("outcore", [4.0, 4.0])
    replay = make_record("outcore", [1.0, 1.0], options={"replay": True})
    other = make_record("ginex", [5.0, 5.0])
    replay.system = replay.config.system = "diskgnn"
    replay.facts = replay.facts.model_copy(update={"samples_reused": True})
    story = headline(
        settings_of([plain(one) for one in (replay, fresh, other)]), [plain(fresh)]
    ).first
    assert story is not None
    assert story.winner == "outcore"
    assert "1.25 times as fast as ginex, the next" in story.lead
    assert [row.system for row in story.rows] == [
        "outcore",
        "ginex",
        "diskgnn (samples reused)",
    ]
    assert any("ranked apart" in note for note in story.notes)


def test_work_cannot_hide_in_one_measured_epoch() -> None:
    """The first measured epoch packs the next two: the mean counts it, a median would
    not."""
    honest = make_record("ginex", [2.5, 2.5, 2.5])
    packs = make_record("gnndrive", [6.0, 1.0, 1.0])
    story = headline(settings_of([plain(honest), plain(packs)]), [plain(honest)]).first
    assert story is not None
    assert story.winner == "ginex"
    assert story.rows[1].epoch == "2.67 s"


def test_offline_work_within_an_epoch_counts_for_the_epochs_that_it_serves() -> None:
    record = make_record("diskgnn", [11.0, 1.0, 1.0, 11.0], epochs=5)
    record.epochs[0].seconds = 1.0
    record.preprocess = Preprocess(
        seconds=5.2, offline=OfflineWork(epochs=1, seconds=5.0)
    )
    record.epochs[1].offline = OfflineWork(epochs=3, seconds=10.0, made_s=2.0)
    record.epochs[4].offline = OfflineWork(epochs=1, seconds=10.0)
    cost = TrainingCost.of(plain(record))
    assert cost is not None
    assert cost.once_s == pytest.approx(0.2)
    assert cost.mean_epoch_s == pytest.approx(1.0)
    assert cost.each_s == pytest.approx(27.0 / 5)


def test_old_records_of_diskgnn_have_the_offline_work_of_their_epochs_and_replays_have_none() -> (
    None
):
    spent = {"seconds": 40.5, "planning_s": 0.5, "made_s": 3.0, "bytes_written": 7}
    old: dict[str, Any] = {
        "schema": 4,
        "system": "diskgnn",
        "config": {"options": {"resample_every": 1}, "epochs": 3},
        "notes": {"epochs_prepared": "0, 1, 2"},
        "preprocess": spent,
    }
    offline = with_offline_work(old)["preprocess"]["offline"]
    assert offline == {"epochs": 3, "seconds": 40.0, "made_s": 3.0, "bytes_written": 7}
    replay = {**old, "config": {"options": {"resample_every": 0}, "epochs": 3}}
    assert "offline" not in with_offline_work(replay)["preprocess"]
    assert with_offline_work(replay)["facts"]["samples_reused"] is True
    assert with_offline_work({**old, "system": "ginex"}) == {**old, "system": "ginex"}


def test_the_cost_of_a_record_is_derived_from_its_parts_not_from_what_it_states() -> (
    None
):
    record = diskgnn(3)
    record.summary = summarised_anew(record).model_copy(
        update={"each_s": 0.0, "once_s": 0.0}
    )
    cost = TrainingCost.of(plain(record))
    assert cost is not None
    assert cost.each_s == pytest.approx(13.5)
    assert cost.once_s == pytest.approx(0.1)


def test_the_report_states_from_how_many_epochs_on_which_training_takes_the_least_time(
    tmp_path: Path,
) -> None:
    ours = make_record("outcore", [4.0, 4.0])
    ranked = make_record("ali+pg", [2.0, 2.0])
    ranked.preprocess = Preprocess(seconds=20.0)
    save(tmp_path, ours, ranked)
    write_report(tmp_path, draw=False)
    assert (
        "outcore for 1 to 10 epochs, ali+pg from 11 epochs on."
        in (tmp_path / "report.html").read_text()
    )

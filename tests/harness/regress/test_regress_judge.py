from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.records.record import RuleOutcome
from harness.regress.decision import Comparison, Rules
from harness.regress.judge import compare
from harness.regress.samples import ConfigSamples, sample_of
from tests.harness.regress.samples_made import cells, made, session


def _metric(found: Comparison, name: str):
    return next(metric for metric in found.metrics if metric.name == name)


def test_the_same_commit_twice_is_the_same():
    found = compare(cells(session(10, seed=1)), cells(session(10, seed=2)), paired=True)
    assert (found.decision, found.exit_code) == ("same", 0)


def test_a_slower_epoch_regresses_names_its_stage_and_fails_the_gate():
    found = compare(
        cells(session(10, seed=1)), cells(session(10, epoch=1.1, seed=2)), paired=True
    )
    epoch = _metric(found, "epoch")
    assert (epoch.decision, epoch.stage) == ("regressed", "extract")
    assert epoch.interval is not None
    assert epoch.interval[0] < epoch.ratio < epoch.interval[1]
    assert (found.decision, found.exit_code) == ("regressed", 1)


def test_a_faster_epoch_improves_and_passes():
    found = compare(
        cells(session(10, epoch=1.1, seed=1)), cells(session(10, seed=2)), paired=True
    )
    assert (_metric(found, "epoch").decision, found.decision, found.exit_code) == (
        "improved",
        "improved",
        0,
    )


def test_a_change_below_the_least_effect_is_no_regression():
    found = compare(
        cells(session(12, noise=0.001, seed=1)),
        cells(session(12, epoch=1.02, noise=0.001, seed=2)),
        paired=True,
    )
    assert _metric(found, "epoch").decision == "same"
    strict = compare(
        cells(session(12, noise=0.001, seed=1)),
        cells(session(12, epoch=1.02, noise=0.001, seed=2)),
        Rules(min_effect=0.01),
        paired=True,
    )
    assert _metric(strict, "epoch").decision == "regressed"


def test_noise_that_hides_the_answer_is_undecided_and_passes():
    found = compare(
        cells(session(6, noise=0.2, seed=1)),
        cells(session(6, noise=0.2, seed=2)),
        paired=True,
    )
    assert _metric(found, "epoch").decision == "undecided"
    assert found.exit_code == 0


def test_epochs_that_took_turns_are_held_against_each_other():
    """The machine's pace changes up to threefold from epoch to epoch, the same for both
    sides."""
    rng = np.random.default_rng(5)

    def sides(slower: float) -> list[dict[str, ConfigSamples]]:
        paces = [rng.uniform(1.0, 3.0, 6) for _ in range(8)]
        runs = [
            [
                replace(
                    sample_of(
                        made(seconds=list(factor * pace * rng.normal(1, 0.01, 6)))
                    ),
                    epochs_s=[],
                )
                for pace in paces
            ]
            for factor in (1.0, slower)
        ]
        for side, factor in zip(runs, (1.0, slower), strict=True):
            for k, pace in enumerate(paces):
                if k:  # the first pair did not take turns: another pace for each side
                    side[k] = replace(
                        side[k], epochs_s=list(factor * pace * rng.normal(1, 0.01, 6))
                    )
        return [
            {"diskgnn": ConfigSamples("diskgnn", "diskgnn", "diskgnn", True, side)}
            for side in runs
        ]

    def decided(slower: float) -> str:
        return _metric(compare(*sides(slower), paired=True), "epoch").decision

    assert (decided(1.0), decided(1.05)) == ("same", "regressed")


def test_too_few_pairs_are_never_a_regression_of_time():
    found = compare(
        cells(session(3, seed=1)), cells(session(3, epoch=2.0, seed=2)), paired=True
    )
    epoch = _metric(found, "epoch")
    assert (epoch.decision, epoch.interval_kind) == ("undecided", "range")
    assert "too few" in epoch.note


def test_one_extra_request_in_one_run_a_side_is_caught():
    found = compare(cells([made()]), cells([made(requests=5001)]), paired=True)
    requests = _metric(found, "io_requests")
    assert (requests.decision, requests.base, requests.head) == (
        "regressed",
        15000,
        15003,
    )
    assert found.exit_code == 1


def test_fewer_requests_improve():
    assert (
        _metric(
            compare(cells([made()]), cells([made(requests=10)]), paired=True),
            "io_requests",
        ).decision
        == "improved"
    )


def test_a_changed_digest_is_an_error_unless_the_commit_declares_a_new_baseline():
    base = cells([made()])
    head = cells([made(digest="xxh3:ffff")])
    assert _metric(compare(base, head, paired=True), "digest").decision == "regressed"
    for declared in ("all", "diskgnn"):
        found = _metric(
            compare(base, head, paired=True, declared=frozenset({declared})), "digest"
        )
        assert found.decision == "same"
        assert "declared" in found.note
    other = compare(base, head, paired=True, declared=frozenset({"ginex"}))
    assert _metric(other, "digest").decision == "regressed"


def test_a_declared_baseline_never_excuses_a_slower_epoch():
    found = compare(
        cells(session(10, seed=1)),
        cells(session(10, epoch=1.2, seed=2)),
        paired=True,
        declared=frozenset({"all"}),
    )
    assert _metric(found, "epoch").decision == "regressed"


def test_counters_of_a_system_that_does_not_repeat_them_are_not_held_exactly():
    found = compare(
        cells([made("gnndrive")]), cells([made("gnndrive", requests=5001)]), paired=True
    )
    assert not any(metric.name == "io_requests" for metric in found.metrics)
    assert _metric(found, "digest").decision == "same"
    assert _metric(found, "device requests").kind == "count"


def test_a_counter_that_varies_within_one_side_is_reported_and_not_blamed():
    found = compare(
        cells([made(), made(requests=4999, number=1)]),
        cells([made(), made(number=1)]),
        paired=True,
    )
    requests = _metric(found, "io_requests")
    assert requests.decision == "undecided"
    assert "not the same in all runs of base" in requests.note


def test_a_run_that_fails_on_head_alone_regresses_and_on_base_alone_improves():
    good = cells([made()])
    bad = cells([made(status="failed", reason="boom")])
    found = compare(good, bad, paired=True)
    assert found.decision == "regressed"
    assert "boom" in _metric(found, "status").note
    assert compare(bad, good, paired=True).decision == "improved"


def test_out_of_memory_on_both_sides_is_the_same():
    side = cells([made(status="oom", reason="plan does not fit")])
    assert compare(side, side, paired=True).decision == "same"


@pytest.mark.parametrize("status", ["failed", "timeout"])
def test_what_fails_on_both_sides_is_undecided_with_its_reason(status):
    side = cells([made(status=status, reason="no room")])
    found = compare(side, side, paired=True)
    assert found.decision == "undecided"
    assert "no room" in _metric(found, "status").note


def test_a_metric_that_one_side_lacks_is_undecided():
    found = compare(cells([made()]), cells([made(drop=("io_requests",))]), paired=True)
    requests = _metric(found, "io_requests")
    assert requests.decision == "undecided"
    assert "head has none" in requests.note
    assert found.exit_code == 0


def test_a_cell_that_one_side_lacks_is_undecided():
    found = compare(cells([made()], [made("ginex")]), cells([made()]), paired=True)
    assert [
        metric.note for metric in found.metrics if metric.cell.startswith("ginex")
    ] == ["head has no run of it"]


def test_memory_and_preparation_are_held_too():
    base = cells(session(8, seed=1))
    more = compare(base, cells(session(8, seed=2, peak=220 << 20)), paired=True)
    assert _metric(more, "peak memory").decision == "regressed"
    slow = compare(
        base,
        cells([made(prepare_s=2.4 + 0.001 * k, number=k) for k in range(8)]),
        paired=True,
    )
    assert _metric(slow, "once").decision == "regressed"


def test_times_of_exact_gating_are_shown_and_decide_nothing():
    rules = Rules(gate_times=False)
    found = compare(
        cells(session(10, seed=1)),
        cells(session(10, epoch=1.5, seed=2)),
        rules,
        paired=True,
    )
    assert _metric(found, "epoch").decision == "regressed"
    assert (found.decision, found.exit_code) == ("same", 0)


def test_runs_that_fail_on_both_sides_leave_the_other_pairs_paired():
    base = session(9, seed=1, noise=0.001)
    head = session(9, seed=2, noise=0.001)
    # Times drift steeply from pair to pair: the sides are the same only where pairs
    # stay together.
    for number, (one, other) in enumerate(zip(base, head, strict=True)):
        for epoch in (*one.epochs, *other.epochs):
            epoch.seconds *= 1.5**number
    base[2] = made(status="timeout", number=2)
    head[5] = made(status="timeout", number=5)
    found = compare(cells(base), cells(head), paired=True)
    assert _metric(found, "epoch").samples == 7
    assert _metric(found, "epoch").ratio == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("systems", [1, 12])
def test_a_a_comparisons_are_almost_never_called_regressed(systems):
    false = 0
    for trial in range(60 // systems):
        sides = []
        for side in (1, 2):
            runs = [
                session(
                    6, noise=0.03, seed=1000 * trial + 100 * side + k, hidden=16 + k
                )
                for k in range(systems)
            ]
            sides.append(cells(*runs))
        false += compare(*sides, paired=True).decision == "regressed"
    assert false <= 1


def test_an_option_added_at_its_default_leaves_cells_the_same():
    base = cells([made(options={"packing": "batched"})])
    head = cells([made(options={})])
    assert list(base) == list(head)
    assert list(cells([made(options={"packing": "individual"})])) != list(base)


def _breaking(name: str, *, known: bool = True, detail: str = "") -> RuleOutcome:
    return RuleOutcome(rule="26", name=name, ok=False, known=known, detail=detail)


def test_a_head_whose_run_became_invalid_regresses_though_every_counter_is_the_same():
    broken = [_breaking("features_equal_the_dataset", detail="other bytes")]
    found = compare(
        cells([made()]),
        cells([made(broken=broken)]),
        Rules(gate_times=False),
        paired=True,
    )
    verdict = _metric(found, "verdict")
    assert (verdict.decision, verdict.base, verdict.head) == (
        "regressed",
        "VALID",
        "INVALID",
    )
    assert "features equal the dataset" in verdict.note
    assert found.exit_code == 1


def test_a_new_caveat_of_the_system_regresses_and_one_less_improves():
    caveat = cells([made(broken=[_breaking("loss_is_finite")])])
    assert (
        _metric(compare(cells([made()]), caveat, paired=True), "verdict").decision
        == "regressed"
    )
    assert (
        _metric(compare(caveat, cells([made()]), paired=True), "verdict").decision
        == "improved"
    )


@pytest.mark.parametrize(
    "name",
    [
        "disk_was_not_shared",
        "processors_were_quiet",
        "clock_is_close_to_the_gates",
        "distance_is_below_one",
    ],
)
def test_a_rule_that_other_programs_can_break_is_no_regression(name: str):
    found = compare(
        cells([made()]), cells([made(broken=[_breaking(name)])]), paired=True
    )
    assert _metric(found, "verdict").decision == "same"


def test_a_broken_rule_on_both_sides_allows_no_comparison_if_it_invalidates():
    broken = cells([made(broken=[_breaking("features_equal_the_dataset")])])
    found = compare(broken, broken, paired=True)
    assert _metric(found, "verdict").decision == "undecided"


def test_wrong_rows_of_a_measured_epoch_regress_by_their_digest():
    base = made(features=["xxh3:1", "xxh3:2", "xxh3:3"])
    head = made(features=["xxh3:1", "xxh3:2", "xxh3:0"])
    metric = _metric(
        compare(cells([base]), cells([head]), paired=True), "feature_digest"
    )
    assert (metric.decision, metric.note) == ("regressed", "differs from epoch 2 on")


def test_rows_of_another_salt_are_not_compared_and_everything_else_is():
    base = made(features=["xxh3:1", "xxh3:2", "xxh3:3"])
    head = made(features=["xxh3:4", "xxh3:5", "xxh3:6"])
    base.notes["salt"] = "0123456789abcdef"
    head.notes["salt"] = "fedcba9876543210"
    found = compare(cells([base]), cells([head]), paired=True)
    assert [
        metric.name for metric in found.metrics if metric.name == "feature_digest"
    ] == []
    assert _metric(found, "digest").decision == "same"
    head.notes["salt"] = base.notes["salt"]
    found = compare(cells([base]), cells([head]), paired=True)
    assert _metric(found, "feature_digest").decision == "regressed"


def test_runs_that_check_the_warm_up_alone_do_not_contradict_one_that_checks_every_epoch():
    whole = made(features=["xxh3:1", "xxh3:2", "xxh3:3"])
    first = made(features=["xxh3:1", None, None], number=1)
    found = compare(cells([whole, first]), cells([whole, first]), paired=True)
    assert _metric(found, "feature_digest").decision == "same"
    # A commit that cannot check measured epochs is compared by the epochs that both
    # checked.
    assert (
        _metric(
            compare(cells([first]), cells([whole]), paired=True), "feature_digest"
        ).decision
        == "same"
    )


def test_a_warm_up_that_takes_seconds_longer_regresses():
    found = compare(
        cells(session(8, seed=1)), cells(session(8, seed=2, warm_up_s=3.0)), paired=True
    )
    assert (_metric(found, "warm-up").decision, _metric(found, "epoch").decision) == (
        "regressed",
        "same",
    )


def test_offline_work_of_every_fresh_epoch_is_compared_apart_from_that_done_once():
    base = cells(session(8, seed=1, offline_s=2.0))
    slower = compare(base, cells(session(8, seed=2, offline_s=2.6)), paired=True)
    assert (_metric(slower, "each").decision, _metric(slower, "once").decision) == (
        "regressed",
        "same",
    )

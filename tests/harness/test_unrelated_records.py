"""Records of settings that no experiment plans change no table of a figure, no verdict
of a claim and no standing."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.claims import judge_one
from harness.claims.published import claims
from harness.compare.evidence import Evidence
from harness.compare.plan import base_of_gallery
from harness.compare.verdicts import NotDrawn
from harness.figures.base import catalogue
from harness.figures.ginex.page_cache import planned as ginex_fig4
from harness.report.standings import RankedSetting, settings_of
from harness.results.table import runs_table
from tests.harness.claim_records import MadeUp, profile, scale
from workloads.arraytypes import JsonDict

PLAIN = base_of_gallery(profile())
MADE = MadeUp(PLAIN)
# Claims of different sources and kinds: the bench, a sweep, an ablation, wide rows,
# variants, and a table of a figure.
CLAIMS = (
    "gd-01",
    "gd-18",
    "gd-20",
    "dg-12",
    "dg-20",
    "gx-01",
    "gx-12",
    "gx-13",
    "pg-06",
    "dt-02",
)
FIGURES = ("gnndrive-fig9", "diskgnn-fig18", "ginex-fig16", "gnndrive-fig12")
# It is drawn from a single run of pyg+, which an experiment of any size may have.
ONE_RUN = "ginex-fig4"
OF_ONE_RUN = "gx-05"


@cache
def planned() -> list[JsonDict]:
    """Make a record with its own epoch time for each cell that one of the claims
    declares."""
    found: dict[str, JsonDict] = {}
    for id_ in (*CLAIMS, OF_ONE_RUN):
        for number, cell in enumerate(MADE.cells(claims()[id_])):
            record = MADE.record(number, cell)
            found.setdefault(repr([record["system"], record["config"]]), record)
    for number, record in enumerate(found.values()):
        scale(record, 1.0 + 0.37 * number)
        record["run_id"] = f"20260101-{number:06d}-{record['system']}"
        record["class"] = "storage-bound"
    return list(found.values())


def batch(record: JsonDict) -> None:
    record["config"]["batch_size"] = 999


def graph(record: JsonDict) -> None:
    record["config"]["dataset"].update(name="another-graph", fingerprint="another")


def memory(record: JsonDict) -> None:
    record["config"]["memory"] = "+33MiB"


def model(record: JsonDict) -> None:
    record["config"].update(hidden=7, experiment="quick")


def invalid(record: JsonDict) -> None:
    record["config"]["fanout"] = [2, 2, 2]
    record["verdict"] = "INVALID"


def sampling(record: JsonDict) -> None:
    record["config"].update(stages="sample", seed=99)


UNRELATED = st.tuples(
    st.integers(0, 10_000),
    st.sampled_from([batch, graph, memory, model, invalid, sampling]),
    st.floats(0.01, 1000),
    st.booleans(),
    st.integers(1, 4),
)


@st.composite
def unrelated(draw: st.DrawFn) -> list[JsonDict]:
    """Draw records in settings that no cell plans, older or newer, fast or slow, some
    with other options."""
    found = []
    for number, (index, change, seconds, newer, times) in enumerate(
        draw(st.lists(UNRELATED, min_size=1, max_size=8))
    ):
        record = copy.deepcopy(planned()[index % len(planned())])
        scale(record, seconds)
        change(record)
        if times > 2:
            record["config"]["options"] = {}
        for again in range(times):
            name = f"{'2027' if newer else '2025'}0101-{10 * number + again:06d}-{record['system']}"
            found.append({**record, "run_id": name})
    return found


def evidence(records: list[JsonDict], *newer: JsonDict) -> Evidence:
    return Evidence(
        runs_table(records),
        experiments=[*newer, {**PLAIN, "figures": [*FIGURES, ONE_RUN]}],
    )


def drawn(figure: str, found: Evidence) -> Any:
    import matplotlib.pyplot as plt

    try:
        return catalogue()[figure].draw(found).data.to_dict("list")
    except NotDrawn as reason:
        return str(reason)
    finally:
        plt.close("all")


@cache
def before() -> tuple[dict[str, Any], dict[str, Any], dict[str, RankedSetting]]:
    found = evidence(planned())
    return (
        {id_: judge_one(id_, found, PLAIN) for id_ in CLAIMS},
        {figure: drawn(figure, found) for figure in FIGURES},
        {
            repr(setting.shared): setting
            for setting in settings_of(planned(), ["quick"])
        },
    )


def test_the_records_give_numbers_that_could_change() -> None:
    judged, tables, standings = before()
    assert all(one.measured is not None for one in judged.values()), {
        k: j.reason for k, j in judged.items()
    }
    assert all(isinstance(table, dict) for table in tables.values()), tables
    assert max(len(setting.measured) for setting in standings.values()) > 3


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(unrelated(), st.randoms(use_true_random=False))
def test_no_verdict_and_no_standing_moves(more: list[JsonDict], order: Any) -> None:
    records = [*planned(), *more]
    order.shuffle(records)
    judged, _, standings = before()
    found = evidence(records)
    assert {id_: judge_one(id_, found, PLAIN) for id_ in CLAIMS} == judged
    after = {
        repr(setting.shared): setting for setting in settings_of(records, ["quick"])
    }
    assert {key: _ranked(after[key]) for key in standings} == {
        key: _ranked(one) for key, one in standings.items()
    }


def _ranked(setting: RankedSetting) -> list[Any]:
    return [
        (s.system, s.options, sorted(s.samples), s.status, s.others, s.runs)
        for s in setting.standings
    ]


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(unrelated())
def test_no_table_of_a_figure_moves(more: list[JsonDict]) -> None:
    _, tables, _ = before()
    found = evidence([*planned(), *more])
    for figure in FIGURES:
        pd.testing.assert_frame_equal(
            pd.DataFrame(drawn(figure, found)), pd.DataFrame(tables[figure])
        )


@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(["pyg+", "ginex", "gnndrive", "diskgnn"]),
        min_size=1,
        unique=True,
    ),
    st.sampled_from(
        [{"memory": "+33MiB"}, {"batch_size": 7}, {"hidden": 99, "memory": "+33MiB"}]
    ),
)
def test_no_figure_follows_an_experiment_that_did_not_request_it(
    systems: list[str], change: JsonDict
) -> None:
    """Give a later experiment as many runs as a figure needs: the figure moves only
    where it requests that figure."""
    later = {
        **PLAIN,
        "name": "mine",
        "systems": systems,
        "run": {**PLAIN["run"], **change},
    }
    more = [
        copy.deepcopy(record) for record in planned() if record["system"] in systems
    ]
    for number, record in enumerate(more):
        record["config"].update(
            {**change, "memory": change.get("memory", record["config"]["memory"])}
        )
        record["run_id"] = f"20270101-{number:06d}-{record['system']}"
    _, tables, _ = before()
    found = evidence([*planned(), *more], later)
    for figure in FIGURES:
        pd.testing.assert_frame_equal(
            pd.DataFrame(drawn(figure, found)), pd.DataFrame(tables[figure])
        )

    def one_run(found: Evidence) -> list[str]:
        return list(found.cells(ONE_RUN, ginex_fig4, least=1).medians()["run"])

    assert one_run(found) == one_run(evidence(planned()))
    requested = one_run(evidence([*planned(), *more], {**later, "figures": [ONE_RUN]}))
    assert (requested != one_run(found)) == ("pyg+" in systems)


def test_a_related_record_does_move_its_claim() -> None:
    """Otherwise the properties above would hold for records that nothing reads."""
    declared = MADE.cells(claims()["gd-01"])
    slow = [record for record in planned() if record["system"] == "pyg+"]
    more = [
        {**copy.deepcopy(record), "run_id": f"2027-{k}"}
        for k, record in enumerate(slow)
    ]
    for record in more:
        scale(record, 5000.0)
    assert declared
    assert (
        judge_one("gd-01", evidence([*planned(), *more]), PLAIN) != before()[0]["gd-01"]
    )


@pytest.mark.parametrize("system", ["gnndrive", "diskgnn"])
def test_the_option_set_with_the_fewest_differing_options_stands_for_a_system(
    system: str,
) -> None:
    """The number of an ablation's runs does not matter, nor do options of runs in other
    settings."""
    from harness.compare.comparable import differing_options
    from harness.settings import check_options

    whole = next(record for record in planned() if record["system"] == system)
    options = dict(check_options(system, {}))
    name = next(key for key, value in options.items() if isinstance(value, bool))
    made = []
    for number, flipped in enumerate([False, True, True, True]):
        record = copy.deepcopy(whole)
        record["config"]["options"] = {**options, name: options[name] != flipped}
        made.append({**record, "run_id": f"20260101-{number:06d}-{system}"})
    assert differing_options(system, made[0]["config"]["options"]) == 0
    (standing,) = settings_of(made)[0].standings
    assert (standing.runs, standing.others) == ([made[0]["run_id"]], 1)

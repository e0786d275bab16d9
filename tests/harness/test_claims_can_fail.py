"""Every claim can be reproduced, and with bad enough numbers it is not reproduced."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.claims import judge_one
from harness.claims.published import Claim, claims, possible, verdict_of
from harness.compare.evidence import load_evidence
from harness.settings import check_options
from tests.harness.claim_records import Change, MadeUp, profile, scale
from workloads.arraytypes import JsonDict

RUNNABLE = [claim.id for claim in claims().values() if not claim.not_run]
MADE: dict[str, MadeUp] = {}


def made(device: str = "") -> MadeUp:
    """Return the planner for a device, made once: planning a figure's cells takes a
    while."""
    return MADE.setdefault(device, MadeUp(profile(device)))


def good(claim: Claim) -> float:
    """Return a number that agrees with the published one."""
    low, high = claim.ends
    if claim.bound in ("above", "below"):
        return 2 * low if claim.bound == "above" else high / 2
    if high == math.inf:
        return 1.1 * low or 1.0
    return 0.9 * high if low == -math.inf else (low + high) / 2


def bad(claim: Claim) -> float:
    """Return a number a little beyond the nearest one that refutes the claim."""
    refuting = [
        number
        for number in possible(claim.unit)
        if verdict_of(claim, number) == "not reproduced"
    ]
    if claim.unit == "%" and claim.neutral == "0":
        refuting = [number for number in refuting if number < 100]
    nearest = sorted(refuting, key=lambda number: abs(number - good(claim)))
    return nearest[min(2, len(nearest) - 1)]


#: System of the side whose quantity is divided by the other side's, by claim.
BASELINES = {
    **dict.fromkeys(
        ("gd-01", "gd-05", "gd-10", "gd-11", "gd-18", "gd-24", "gx-01", "gx-02"), "pyg+"
    ),
    **dict.fromkeys(("gd-02", "gd-06", "gd-25"), "ginex"),
    **dict.fromkeys(("gd-03", "gd-04", "dg-03", "dg-25"), "mariusgnn"),
    **dict.fromkeys(("gx-03", "gx-04"), "ali+pg"),
    **dict.fromkeys(("dt-03", "pg-01", "pg-02", "pg-03", "pg-06", "pg-11"), "dgl"),
    "gd-19": "gnndrive",
    "dg-04": "dgl-ondisk",
    "dg-26": "diskgnn",
    "dt-02": "uva",
    "gx-10": "ginex-pg",
}
#: Settings or options of this side, where both sides are of one system.
VARIANTS: dict[str, JsonDict] = {
    **{key: {"stages": "all"} for key in ("gd-07", "gd-09")},
    **{key: {"dim": 512} for key in ("gd-08", "gd-16", "gd-17")},
    **{key: {"device": "cpu"} for key in ("gd-14", "gd-15")},
    **{key: {"feature_buffer_scale": 1.0} for key in ("gd-20", "gd-21")},
    **{key: {"ranks": 1} for key in ("gd-22", "gd-23")},
    **{key: {"pipeline": False} for key in ("dg-11", "dg-12", "pg-10", "pg-14")},
    **{key: {"cache": "0x"} for key in ("dt-01", "dt-08", "dt-09", "dt-12")},
    "dg-10": {"packing": "individual"},
    "dg-15": {"disk_class": "aws-gp3/16"},
    "dg-20": {"packing": "off"},
    "dg-22": {"device_cache": "off"},
    "dg-24": {"host_cache": "off"},
    "gx-12": {"superbatch": 8},
}
#: Stages whose share is claimed, and the rest of the whole where it is not the epoch.
SHARES = {
    "gd-12": ("extract", ""),
    "gd-13": ("data_prep", ""),
    "gx-11": ("switch", ""),
    "pg-07": ("extract", "train"),
    "pg-13": ("extract", "train"),
}
#: System whose accuracy is claimed.
ACCURACY = {
    "gd-26": "gnndrive",
    "dg-08": "diskgnn",
    "dg-09": "diskgnn",
    "pg-12": "pagraph",
}


def _ratio(claim: Claim, value: float) -> Change:
    """Scale the side whose quantity is divided, so that the claim comes to `value`."""
    factor = value
    if claim.id == "gx-10":
        factor = 1 / (1 + value / 100)
    elif claim.unit == "%":
        factor = 1 / (1 - value / 100)

    def is_baseline(config: JsonDict) -> bool:
        if claim.id in BASELINES:
            return bool(config["system"] == BASELINES[claim.id])
        values = {**config, **config["options"], "dim": config["dataset"]["dim"]}
        return all(
            values.get(name) == wanted for name, wanted in VARIANTS[claim.id].items()
        )

    return _config(is_baseline, factor)


def _share(part: str, rest: str, value: float) -> Change:
    def change(record: JsonDict) -> None:
        scale(record, 100.0)
        for epoch in record["epochs"]:
            epoch["stages_s"] = {part: value} | ({rest: 100.0 - value} if rest else {})

    return change


def _accuracy(system: str, value: float) -> Change:
    def change(record: JsonDict) -> None:
        for epoch in record["epochs"]:
            epoch["test_accuracy"] = 0.5 + (
                value / 100 if record["system"] == system else 0.0
            )

    return change


def _config(test: Callable[[JsonDict], bool], factor: float) -> Change:
    return lambda record: scale(record, factor if test(record["config"]) else 1.0)


def _preprocess(value: float) -> Change:
    def change(record: JsonDict) -> None:
        # 50 epochs of a second.
        record["summary"]["once_s"] = 50 * value / (100 - value)

    return change


def _reorder(value: float) -> Change:
    def change(record: JsonDict) -> None:
        record["facts"]["reorder_s"] = value * 40e6 / 3.2e9

    return change


FUNCTIONS: dict[str, Callable[[float], Change]] = {
    "dg-23": _preprocess,
    "gx-13": lambda value: _config(
        lambda c: c["dataset"]["dim"] == 768 and c["system"] == "pyg+", value
    ),
    "gx-14": lambda value: _config(
        lambda c: c["memory"] == "+64MiB" and c["system"] == "pyg+", value
    ),
    "dt-10": _reorder,
}


def _coverage(
    weighted: float, reverse: float, degree: float
) -> Callable[[JsonDict], JsonDict]:
    def results(params: JsonDict) -> JsonDict:
        found = {
            "weighted-reverse-pagerank": weighted,
            "reverse-pagerank": reverse,
            "degree": degree,
        }
        shares = params["shares"]
        return {
            "shares": shares,
            "coverage": {
                name: [cover / 100] * len(shares) for name, cover in found.items()
            },
        }

    return results


def _search(seconds: float, amplification: float) -> Callable[[JsonDict], JsonDict]:
    best = {"seconds": 1.0, "amplification": 1.0}
    tried = {"seconds": seconds, "amplification": amplification}
    return lambda params: {
        "cases": [{"limit": 0.5, "heuristic": best, "brute_force": tried}]
    }


def _fio(fast: float, buffered: float) -> Callable[[JsonDict], JsonDict]:
    def point(engine: str, direct: bool, rate: float) -> JsonDict:
        return {
            "block_bytes": 512,
            "direct": direct,
            "engine": engine,
            "depth": 64,
            "threads": 1,
            "bytes_per_s": rate,
        }

    points = [
        point("async", True, fast),
        point("async", False, buffered),
        point("sync", True, 1.0),
    ]
    return lambda params: {"points": points}


def _space(value: float) -> Callable[[JsonDict], JsonDict]:
    def results(params: JsonDict) -> JsonDict:
        long = 100.0 * (value if len(params["fanout"]) == 3 else 1.0)
        points = [
            {"memory_share": share, "packed_x": value, "packed_bytes": long}
            for share in params["memory_shares"]
        ]
        return {"points": points, "accesses": 1}

    return results


def _policies(params: JsonDict, value: float) -> JsonDict:
    shares = params["shares"]

    def policy(name: str, misses: float) -> JsonDict:
        return {
            "policy": name,
            "misses": [misses] * len(shares),
            "fills": [0] * len(shares),
        }

    return {
        "accesses": 1000,
        "shares": shares,
        "policies": [policy("belady", 100 * value), policy("degree", 100)],
    }


def _partitions(
    value: float, shared: float, redundant: float = 0.0
) -> Callable[[JsonDict], JsonDict]:
    entries = [
        {
            "count": count,
            "hit_ratio": 0.1 * (value if count == 4 else 1),
            "redundant": redundant / 100,
            "hit_ratio_shared": 0.1 * (shared if count == 4 else 1),
        }
        for count in (1, 4, 8)
    ]
    return lambda params: {"partitions": entries}


def _device_hits(ours: float, others: float) -> Callable[[JsonDict], JsonDict]:
    def results(params: JsonDict) -> JsonDict:
        count = len(params["shares"])
        found = {"PaGraph": ours, "AliGraph": others, "random": others / 2}
        return {
            "shares": params["shares"],
            "hit_ratio": {name: [hit / 100] * count for name, hit in found.items()},
        }

    return results


STUDIES: dict[str, Callable[[float], Callable[[JsonDict], JsonDict]]] = {
    "gd-27": lambda value: _fio(value, value),
    "gd-28": lambda value: _fio(1.0, 1 + value / 100),
    "dg-13": lambda value: _search(value, 1.0),
    "dg-14": lambda value: _search(1.0, 1 / value),
    "dg-18": _space,
    "dg-19": _space,
    "dg-21": lambda value: lambda params: {"shares": [value / 100]},
    "gx-09": lambda value: lambda params: _policies(params, value),
    "dt-04": lambda value: _coverage(100, value, 100),
    "dt-05": lambda value: _coverage(100, 100, value),
    "dt-06": lambda value: _coverage(50 + value / 2, 10, 50 - value / 2),
    "dt-07": lambda value: _coverage(value, 0, 0),
    "dt-11": lambda value: _coverage(0, 0, value),
    "pg-04": lambda value: _device_hits(value, 1),
    "pg-05": lambda value: _device_hits(4 * value, 4),
    "pg-08": lambda value: _partitions(value, 1),
    "pg-09": lambda value: _partitions(1, 1, value),
    "pg-15": lambda value: _partitions(1, value),
}


def nothing(record: JsonDict) -> None:
    """Leave the record as it is."""


def change_of(claim: Claim, value: float) -> Change:
    """Return the change that makes a claim's runs come to a number."""
    if claim.id in FUNCTIONS:
        return FUNCTIONS[claim.id](value)
    if claim.id in SHARES:
        return _share(*SHARES[claim.id], value)
    if claim.id in ACCURACY:
        return _accuracy(ACCURACY[claim.id], value)
    return _ratio(claim, value)


@pytest.mark.parametrize(
    "id_", [id_ for id_ in RUNNABLE if id_ not in ("gx-05", "gx-06")]
)
def test_every_claim_can_hold_and_can_fail(id_: str) -> None:
    claim = claims()[id_]
    for value, verdict in ((good(claim), "reproduced"), (bad(claim), "not reproduced")):
        results = STUDIES[id_](value) if id_ in STUDIES else None
        change = nothing if id_ in STUDIES else change_of(claim, value)
        judged = made("cuda" if claim.emulated else "").judge(claim, change, results)
        assert judged.measured == pytest.approx(value, rel=1e-6, abs=1e-6), (
            judged.reason
        )
        assert judged.verdict == verdict, (value, judged.reason)
        assert judged.found is not None
        assert all(" " in study for study in judged.found.studies), (
            "a study is named with its key"
        )


@pytest.mark.parametrize(
    "id_", [claim.id for claim in claims().values() if claim.emulated]
)
def test_what_an_emulator_decides_is_emulated_whatever_the_number(id_: str) -> None:
    claim = claims()[id_]
    for value in (good(claim), bad(claim)):
        judged = made().judge(claim, change_of(claim, value))
        assert (judged.verdict, judged.measured) == (
            "emulated",
            pytest.approx(value, rel=1e-6),
        )
        assert "coefficients" in judged.reason


@pytest.fixture
def _closed() -> Iterator[None]:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.mark.parametrize(
    ("id_", "faults", "busy", "verdict"),
    [
        ("gx-05", 1.0, 0.05, "reproduced"),
        ("gx-05", 1.0, 0.9, "not reproduced"),
        ("gx-06", 0.88, 0.05, "reproduced"),
        ("gx-06", 0.1, 0.05, "not reproduced"),
    ],
)
def test_stalls_and_page_cache_misses_of_pyg_can_fail(
    _closed: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    id_: str,
    faults: float,
    busy: float,
    verdict: str,
) -> None:
    from tests.harness import tier_records

    share = {"sample": 0.5, "extract": 0.9, "transfer": busy / 2, "train": busy / 2}
    monkeypatch.setitem(tier_records.STAGES, "pyg+", share)
    plain = _fill_fig4(tmp_path, faults)
    assert judge_one(id_, load_evidence(tmp_path), plain).verdict == verdict


def _fill_fig4(root: Path, faults: float) -> JsonDict:
    """Write a run of pyg+ of ten mini-batches with `faults` major faults for each page
    read; return its profile."""
    from tests.harness.records import make_record
    from tests.harness.study_records import put_study
    from tests.harness.tier_records import BATCHES, save_run

    plain = profile()
    plain["gallery"]["base"]["run"]["max_batches"] = BATCHES
    options = check_options("pyg+", {})
    record = make_record(
        "pyg+", [10.0, 10.0], max_batches=BATCHES, memory="+64MiB", options=options
    )
    record.config.dataset.name = "kron-2m"
    for epoch in record.epochs:
        epoch.batches = BATCHES
    pages = 3 * BATCHES
    # An epoch of 10 s is 100 samples of telemetry for ten mini-batches.
    save_run(root, record, faults=faults * 100)
    put_study(
        root,
        "page-accesses",
        {
            "epoch": [k for k in range(3) for _ in range(BATCHES)],
            "batch": [*range(BATCHES)] * 3,
            "nodes": [1000] * pages,
            "feature_pages": [900] * pages,
            "topology_pages": [100] * pages,
        },
        dataset="kron-2m",
        model="sage",
        fanout=[10, 10, 10],
        batch_size=50,
        max_batches=BATCHES,
        epochs=3,
    )
    for path in (root / "studies").iterdir():
        text = path.read_text().replace(
            '"dataset": null', f'"dataset": {record.config.dataset.model_dump_json()}'
        )
        path.write_text(text)
    return plain


def test_no_two_claims_are_answered_by_one_measured_number() -> None:
    """Every record has numbers of its own, so that equal results show one number."""
    seen: dict[float, str] = {}
    for id_ in RUNNABLE:
        claim = claims()[id_]
        if id_ in STUDIES or id_ in ("gx-05", "gx-06"):
            continue

        def change(record: JsonDict) -> None:
            cell = json.dumps([record["system"], record["config"]], sort_keys=True)
            number = 1 + zlib.crc32(cell.encode()) % 10_007 / 1000
            scale(record, number)
            for epoch in record["epochs"]:
                epoch["test_accuracy"] = 0.5 + number / 100
                epoch["stages_s"] = {
                    stage: 0.01 * number ** (1.1 + 0.1 * index)
                    for index, stage in enumerate(epoch["stages_s"])
                }
                epoch["device_bytes"] = int(1e9 * number**1.7)
                epoch["counters"] = {"bytes_loaded": int(1e9 * number**2.3)}
            record["facts"] = {"pack_s": number**1.3, "reorder_s": number**1.9}
            record["preprocess"] = {"seconds": 0.1 * number}
            record["summary"]["once_s"] = 0.1 * number

        judged = made().judge(claim, change)
        assert judged.measured is not None, (id_, judged.reason)
        number = round(judged.measured, 6)
        assert number not in seen, (
            f"{id_} and {seen.get(number)} are one measured number"
        )
        seen[number] = id_

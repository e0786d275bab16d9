"""Automatic options: the paper's value where it fits, else the largest that does; given
values are never changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.interface import MemoryBudget
from systems.registry import load, names
from tests.support import make_tiny
from tests.systems.support_systems import assert_refused, running, workload_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError

CORES = 16
AUTOMATIC = [name for name in names() if load(name).info.options.automatic(CORES)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny(
        tmp_path_factory.mktemp("fit") / "tiny", nodes=20_000, edges=200_000, dim=64
    )


def planned(
    dataset: Dataset, name: str, host: int | None, **options: Any
) -> tuple[dict[str, int], dict[str, Any]]:
    """Plan for 16 cores; return bytes by buffer and the chosen options."""
    device = "cpu" if "cpu" in load(name).info.devices else "emulated:instant"
    workload = workload_of(dataset, batch_size=100, fanout=(10, 10))
    with running(
        name,
        workload,
        device=device,
        budget=MemoryBudget(host),
        cores=CORES,
        prepare=False,
        **options,
    ) as system:
        total = {
            item.name: item.bytes for item in system.plan().items if item.tier == "host"
        }
        assert host is None or sum(total.values()) <= host
        return total, system.options.model_dump()


def fits(dataset: Dataset, name: str, host: int, **options: Any) -> bool:
    try:
        planned(dataset, name, host, **options)
    except BudgetError:
        return False
    return True


def least(dataset: Dataset, name: str) -> int:
    low = 0
    high = 128 << 20
    while high - low > 16 << 10:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(dataset, name, middle) else (middle, high)
    return high


@pytest.mark.parametrize("name", AUTOMATIC)
def test_with_room_an_automatic_option_is_the_papers(
    dataset: Dataset, name: str
) -> None:
    best = {
        key: values[0]
        for key, values in load(name).info.options.automatic(CORES).items()
    }
    assert {key: planned(dataset, name, None)[1][key] for key in best} == best


@pytest.mark.parametrize("name", AUTOMATIC)
def test_the_papers_values_given_as_numbers_are_refused_where_auto_fits(
    dataset: Dataset, name: str
) -> None:
    steps = load(name).info.options.automatic(CORES)
    host = least(dataset, name)
    options = planned(dataset, name, host)[1]
    assert {key: options[key] for key in steps} != {
        key: values[0] for key, values in steps.items()
    }
    asked = {key: values[0] or 2 * CORES for key, values in steps.items()}
    assert not fits(dataset, name, host, **asked)


@given(host=st.integers(500_000, 20_000_000))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_automatic_option_could_be_larger(dataset: Dataset, host: int) -> None:
    steps = load("gnndrive").info.options.automatic(CORES)
    if not fits(dataset, "gnndrive", host):
        assert not fits(
            dataset,
            "gnndrive",
            host,
            **{key: values[-1] for key, values in steps.items()},
        )
        return
    options = planned(dataset, "gnndrive", host)[1]
    chosen = {key: options[key] for key in steps}
    for key, values in steps.items():
        for value in values[: values.index(chosen[key])]:
            assert not fits(dataset, "gnndrive", host, **{**chosen, key: value})


def test_a_given_option_stays_beside_an_automatic_one(dataset: Dataset) -> None:
    options = planned(dataset, "gnndrive", 6 << 20, extractors=1, samplers="auto")[1]
    assert (options["extractors"], options["samplers"]) == (1, 4)
    workload = workload_of(dataset, batch_size=100, fanout=(10, 10))
    message = re.escape("for 4 extractors")
    assert_refused(
        message,
        "gnndrive",
        workload,
        budget=MemoryBudget(6 << 20),
        extractors=4,
        prepare=False,
    )


def test_auto_is_refused_for_options_without_automatic_values(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="io_depth"):
        load("gnndrive").info.options.model_validate({"io_depth": "auto"})


def test_words_that_yaml_reads_as_values_stay_words() -> None:
    """YAML reads `-o host_cache=off` as False and `-o io_granularity=4096` as a number;
    word options take them back."""
    given_words = {
        "host_cache": False,
        "packing": False,
        "io_granularity": 4096,
        "pipeline": False,
    }
    options = load("diskgnn").info.options.model_validate(given_words).model_dump()
    assert {key: options[key] for key in given_words} == {
        "host_cache": "off",
        "packing": "off",
        "io_granularity": "4096",
        "pipeline": False,
    }

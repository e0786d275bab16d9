"""The least memory that fits is what a plan accepts, a refusal names it, and `auto` is
reported as what it became."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.interface import DiskProfile, MemoryBudget, Plan, PlanItem, Runtime
from systems.planning import LATER, MIB, Planner, least
from systems.registry import load, names
from tests.support import make_tiny
from tests.systems.loading_tools import make
from tests.systems.support_systems import workload_of
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import BudgetError, InputError

KIB = 1 << 10
DEVICE_BYTES = 16 << 20
NAMES = [name for name in names() if not name.startswith("dgl")]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny(
        tmp_path_factory.mktemp("planning") / "graph",
        nodes=20_000,
        edges=200_000,
        dim=64,
        seed=5,
    )


@contextmanager
def planner(
    graph: Dataset, name: str, device_bytes: int = DEVICE_BYTES, **options: Any
) -> Iterator[Planner]:
    """A planner on the processor, or on an emulated device where the system needs
    one."""
    kind = load(name)
    device = (
        "cpu"
        if "cpu" in kind.info.devices and device_bytes == DEVICE_BYTES
        else "emulated:instant"
    )
    accelerator = make_accelerator(
        device, memory_bytes=None if device == "cpu" else device_bytes
    )
    folder = graph.path.parent
    runtime = Runtime(
        accelerator, DiskProfile(), folder / "artefacts", folder / "scratch", 4
    )
    workload = workload_of(graph, batch_size=100, fanout=(10, 10))
    try:
        yield Planner(
            kind, workload, runtime, kind.info.options.model_validate(options), device
        )
    finally:
        accelerator.close()


def device_of(found: Planner) -> int | None:
    return None if found.device == "cpu" else DEVICE_BYTES


@given(
    threshold=st.integers(1, 1 << 45),
    step=st.integers(1, 1 << 22),
    rest=st.integers(0, 1 << 30),
)
def test_bisection_finds_the_first_multiple_that_fits(
    threshold: int, step: int, rest: int
) -> None:
    found = least(lambda size: size >= threshold, step=step, rest=rest)
    assert found is not None
    assert found >= threshold
    assert (found + rest) % step == 0
    assert found - step < max(threshold, 1)


def test_what_fits_no_memory_has_no_least() -> None:
    assert least(lambda size: False) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_least_memory_is_accepted_and_a_refusal_below_names_it(
    graph: Dataset, name: str
) -> None:
    with planner(graph, name) as found:
        device = device_of(found)
        size = found.least(device, step=64 * KIB)
        assert size is not None
        assert size % (64 * KIB) == 0
        found.planned(size, device).close()
        whole = found.least(device)
        assert whole is not None
        assert size <= whole
        with pytest.raises(BudgetError) as refused:
            found.planned(size - 64 * KIB, device)
        assert f"+{whole // MIB}MiB is the least that fits" in refused.value.fix
        assert re.search(
            r"needs .* is left of the .* host budget after .*reserve \(4\.0 MiB\)",
            refused.value.message,
        )


def test_a_cap_is_reported_as_a_cap(graph: Dataset) -> None:
    rest = 150 * MIB + 12345
    with planner(graph, "gnndrive") as of_budget, pytest.raises(BudgetError) as refused:
        of_cap = Planner(**{**vars(of_budget), "rest": rest})
        size = of_cap.least(None)
        assert size is not None
        assert (size + rest) % MIB == 0
        assert of_cap.fits(size, None)
        of_cap.planned(5 * MIB, None)
    assert refused.value.fix.startswith(
        f"{(size + rest) // MIB}MiB is the least that fits"
    )


def test_too_little_device_memory_is_reported_with_the_device_memory_that_does(
    graph: Dataset,
) -> None:
    with (
        planner(graph, "gnndrive", device_bytes=8192) as found,
        pytest.raises(BudgetError) as refused,
    ):
        found.planned(64 * MIB, 8192)
    assert "is left of the 8.0 KiB device budget" in refused.value.message
    enough = re.search(r"(\d+)MiB of device memory", refused.value.fix)
    assert enough is not None
    with planner(graph, "gnndrive", device_bytes=int(enough[1]) * MIB) as found:
        found.planned(64 * MIB, int(enough[1]) * MIB).close()


def test_where_no_memory_helps_the_fix_is_the_systems_own(graph: Dataset) -> None:
    with (
        planner(graph, "mariusgnn", buffer=1) as found,
        pytest.raises(BudgetError) as refused,
    ):
        found.planned(64 * MIB, None)
    assert refused.value.fix.startswith("raise buffer to")


def test_an_error_names_the_largest_buffers_and_what_the_caller_holds() -> None:
    budget = MemoryBudget.beside(
        100 * MIB, held=(PlanItem("rows handed out", 20 * MIB),)
    )
    assert budget.host == 100 * MIB - 20 * MIB - (100 * MIB) // 16
    plan = Plan(tuple(PlanItem(f"buffer {size}", size * MIB) for size in range(1, 8)))
    with pytest.raises(BudgetError) as refused:
        Plan((*plan.items, PlanItem("cache", 60 * MIB))).require("mine", budget)
    assert refused.value.message == (
        "mine: cache needs 60.0 MiB, 45.8 MiB is left of the 100.0 MiB host budget "
        "after rows handed out (20.0 MiB), buffer 7 (7.0 MiB), reserve (6.2 MiB), "
        "buffer 6 (6.0 MiB), buffer 5 (5.0 MiB), 4 smaller (10.0 MiB)"
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_option_at_auto_is_reported(graph: Dataset, name: str) -> None:
    with planner(graph, name) as found:
        device = device_of(found)
        system = found.planned(256 * MIB, device)
        chosen = found.chosen(system)
        system.close()
        automatic = found.options.automatic(4)
        assert {
            key for key, value in found.options if value == "auto"
        } | automatic.keys() <= chosen.keys()
        for key in automatic:
            assert chosen[key] in range(1, 257)
        if name == "gnndrive":
            assert (
                0
                <= system.plan().bytes_of("feature buffer")
                - int(chosen["feature_buffer"])
                < 4096
            )
        if name == "ali+pg":
            assert chosen["split"] == LATER, "it is tuned in preparation"
        fixed = {key: value for key, value in chosen.items() if key in automatic}
        with planner(graph, name, **fixed) as asked:
            assert (
                asked.chosen(asked.planned(256 * MIB, device)).keys()
                == chosen.keys() - fixed.keys()
            )


@pytest.mark.parametrize(
    "name", ["gnndrive", "diskgnn", "ginex", "in-memory", "outcore"]
)
def test_the_loader_takes_auto_as_runs_do(graph: Dataset, name: str) -> None:
    fields = load(name).info.options.model_fields.items()
    automatic = [
        key
        for key, field in fields
        if field.annotation is int and field.get_default() == 0
    ]
    words = [key for key, field in fields if field.get_default() == "auto"]
    asked = dict.fromkeys([*automatic, *words], "auto")
    with (
        make(graph, system=name, options=asked) as loader,
        make(graph, system=name) as plain,
    ):
        assert loader.plan == plain.plan
        assert loader.chosen == plain.chosen
        assert set(words) <= loader.chosen.keys()
        next(iter(loader))


def test_the_least_memory_that_the_loader_names_loads(graph: Dataset) -> None:
    with pytest.raises(BudgetError, match="is the least that fits") as refused:
        make(graph, system="gnndrive", memory="4200KiB")
    fault = refused.value.fix.partition(" ")[0]
    with make(graph, system="gnndrive", memory=fault) as loader:
        assert loader.plan.total("host") <= int(fault.removesuffix("MiB")) * MIB
        assert next(iter(loader)).num_nodes
    with pytest.raises(BudgetError):
        make(
            graph, system="gnndrive", memory=f"{int(fault.removesuffix('MiB')) - 1}MiB"
        )


def test_auto_is_refused_for_an_option_that_is_never_automatic(graph: Dataset) -> None:
    with pytest.raises(InputError, match="option io_depth"):
        make(graph, system="gnndrive", options={"io_depth": "auto"})

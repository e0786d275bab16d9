"""Orders of the driver to a host and their answers, and the identity that a host
reports: plain data between processes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from harness.plan.experiment import PlannedRun
from harness.records.code import code_of
from harness.records.record import Code
from workloads.errors import OutcoreError


class Content(BaseModel):
    """Part of all orders of a sweep that never changes, sent to each host once.

    Attributes:
        experiments: experiments of the sweep, as plain data.
        isolation: isolation backend; `auto` takes that of the experiments.
        fresh: whether to run cells again that have a record on the host.
        retry: whether to run cells again whose record was spoilt by other programs.
        modules: source files of systems of the driver's current folder, by relative
            path.
    """

    experiments: list[dict[str, Any]]
    isolation: str = "auto"
    fresh: bool = False
    retry: bool = True
    modules: dict[str, str] = Field(default_factory=dict)


class Order(BaseModel):
    """One order to a host.

    Attributes:
        task: `greet`: report the host's identity; `prepare`: make the datasets and
            report all configurations; `run`: execute one cell.
        number: index of the cell in the sweep's order.
        shared: whether another host of the sweep is the same machine, so that the
            series of runs ends with each run.
    """

    task: Literal["greet", "prepare", "run"]
    number: int = -1
    shared: bool = False


class Greeting(BaseModel):
    """Identity of a host.

    Attributes:
        commit: commit of its code; None where unknown.
        codes: fingerprints of the planned systems' and samplers' code, by `code_key`.
        environment: description of the host, as its records hold it.
        machine: digest of the running machine, equal for its containers.
    """

    commit: str | None = None
    codes: dict[str, Code] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)
    machine: str = ""


def codes_of(planned: list[PlannedRun]) -> dict[str, Code]:
    """Return the fingerprints of each planned system with its sampler in this
    process."""
    pairs = {(run.system, run.settings.sampler) for run in planned}
    found = {}
    for system, sampler in sorted(pairs):
        try:
            found[f"{system} {sampler}"] = code_of(system, sampler)
        except (OutcoreError, ImportError):
            continue  # its runs are refused one by one
    return found

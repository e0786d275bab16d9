"""Cases of a conformance check (dataset, workload, device, kind of run) and their
observations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from workloads.sampling.listing import DEFAULT, find, names

Kind = Literal[
    "run",
    "loss",
    "abandon",
    "close",
    "cut",
    "cut-late",
    "gone",
    "sample-only",
    "smallest",
    "artefacts",
    "lengths",
]


@dataclass(frozen=True)
class Case:
    """One run of the system under check.

    Attributes:
        name: the varied property.
        kind: `run` drives two epochs; `drive.py` describes the others.
        train: number of training nodes.
        device: `cpu`, `emulated:late` (a device tier without its speed, whose copies
            arrive when they are waited for), `emulated:null`, which keeps no rows, or
            another device.
        sampler: one whose layers share a subgraph runs three layers.
        cores: number of cores in the runtime, by which systems choose their threads.
        keep_order: whether the system has to keep the seed plan's order.
    """

    name: str
    kind: Kind = "run"
    nodes: int = 1500
    edges: int = 15000
    train: int = 150
    dim: int = 32
    dtype: str = "float32"
    index_dtype: str = "int32"
    sampler: str = DEFAULT
    fanout: tuple[int, ...] = (5, 5)
    replace: bool = False
    batch_size: int = 37
    device: str = "cpu"
    cores: int = 4
    keep_order: bool = False
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class CheckedEpoch:
    """One epoch as the system gave it, with the expected values.

    Attributes:
        structure, features: digests of the mini-batches' blocks and feature rows on
            arrival.
        late: digest of the feature rows just before each release, when the system had
            time to overwrite them.
        indices: positions of the mini-batches in the seed plan, in the order of
            arrival.
        seeds_once: whether the seed nodes of all mini-batches are the training nodes,
            each once.
        rows: number of feature rows of all mini-batches.
        own_features: digest of the dataset's feature rows of the mini-batches' nodes,
            for unfaithful systems.
        foreign_edges: number of edges whose source is no in-neighbour of their
            destination, for unfaithful systems.
    """

    structure: str = ""
    features: str = ""
    late: str = ""
    indices: list[int] = field(default_factory=list)
    seeds_once: bool = False
    rows: int = 0
    counters: dict[str, Any] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    own_features: str = ""
    foreign_edges: int = 0
    expected_structure: str = ""
    expected_features: str = ""
    expected_batches: int = 0
    expected_losses: list[float] = field(default_factory=list)


@dataclass
class Observation:
    """Results of one case. `error`: text of the exception; `crashed`: whether the
    process died or hung; `own_oracle`: whether the system defines its expected
    mini-batches itself (`System.oracle`); `prepared_bytes`: bytes of files after
    `prepare()` alone, by the number of epochs of the training; `loss_tolerance`:
    largest relative difference of a loss from the oracle's, which is computed on the
    processor."""

    case: str
    kind: str
    epochs: list[CheckedEpoch] = field(default_factory=list)
    plan_bytes: dict[str, int] = field(default_factory=dict)
    budget_bytes: dict[str, int | None] = field(default_factory=dict)
    error: str = ""
    error_type: str = ""
    error_file: bool = False
    error_offset: bool = False
    expected_failure: bool = False
    crashed: bool = False
    threads_left: list[str] = field(default_factory=list)
    files_left: list[str] = field(default_factory=list)
    close_seconds: float = 0.0
    close_errors: list[str] = field(default_factory=list)
    reused: list[bool] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    prepared_bytes: dict[int, int] = field(default_factory=dict)
    own_oracle: bool = False
    loss_tolerance: float = 1e-4


DIMS = (1, 32, 100, 127, 128, 129, 256, 768)
FANOUTS: tuple[tuple[int, ...], ...] = ((10, 10, 10), (5,), (-1, 3), (25, 10))
TIERS = {"cpu": "cpu", "emulated": "emulated:late", "cuda": "cuda"}


def left_out(
    devices: tuple[str, ...], faithful: bool = True, device: str = ""
) -> dict[str, str]:
    """Return the cases that `cases` leaves out on this host or for this system, with
    the reason.

    Args:
        devices, faithful, device: as in `cases`.
    """
    found: dict[str, str] = {}
    if not device and "cuda" in devices and not torch.cuda.is_available():
        found["cases on cuda"] = "this host has no GPU that torch can use"
    if not faithful:
        others = [name for name in names() if name != DEFAULT]
        found["cases of other samplers"] = (
            f"not faithful by design: {', '.join(others)} are not sampled"
        )
    return found


def cases(
    devices: tuple[str, ...], quick: bool, faithful: bool = True, device: str = ""
) -> list[Case]:
    """Return the cases of a check.

    Args:
        devices: kinds of device that the system supports.
        quick: fewer dimensions and fan-outs.
        faithful: whether the system supports every sampler.
        device: the device of all cases; empty for each supported kind that this host
            has.
    """
    base = Case("base")
    usable = [
        kind
        for kind in TIERS
        if kind in devices and (kind != "cuda" or torch.cuda.is_available())
    ]
    tiers = [device] if device else [TIERS[kind] for kind in usable]
    found: list[Case] = []
    for tier in tiers:
        on = replace(base, device=tier)
        dims = DIMS if not quick else (1, 127, 128) if tier == tiers[0] else (127, 128)
        for dim in dims:
            for dtype in ("float32", "float16"):
                index = "int64" if (dim + (dtype == "float16")) % 2 else "int32"
                found.append(
                    replace(
                        on,
                        name=f"dim {dim} {dtype} {index}",
                        dim=dim,
                        dtype=dtype,
                        index_dtype=index,
                    )
                )
        found.append(replace(on, name="smallest budget", kind="smallest", dim=100))
        found.append(replace(on, name="one core", cores=1))
        found.append(replace(on, name="in order", keep_order=True))
        found.append(replace(on, name="abandoned epoch", kind="abandon"))
        found.append(replace(on, name="closed in mid-epoch", kind="close"))
        found.append(replace(on, name="features truncated", kind="cut"))
    on = replace(base, device=tiers[0]) if tiers else base
    for fanout in FANOUTS[:1] if quick else FANOUTS:
        found.append(
            replace(on, name=f"fan-out {','.join(map(str, fanout))}", fanout=fanout)
        )
    found.append(replace(on, name="with replacement", replace=True))
    if faithful:
        rest = [(name, find(name)) for name in names() if name != base.sampler]
        found += [
            replace(
                on, name=f"{kind.title} sampling", sampler=name, fanout=kind.example
            )
            for name, kind in rest
        ]
    for size in (1, 10_000):
        found.append(
            replace(
                on,
                name=f"batch size {size}",
                batch_size=size,
                train=20 if size == 1 else 150,
            )
        )
    found.append(
        replace(on, name="features truncated in mid-run", kind="cut-late", batch_size=5)
    )
    found.append(replace(on, name="features gone", kind="gone"))
    found.append(replace(on, name="sampling only", kind="sample-only"))
    found.append(replace(on, name="prepared artefacts", kind="artefacts"))
    found.append(replace(on, name="trainings of 1 and 4 epochs", kind="lengths"))
    if "emulated" in devices and not device:
        found.append(
            replace(base, name="device that keeps no rows", device="emulated:null")
        )
    for tier in tiers:
        if not tier.startswith("emulated:"):  # which computes nothing
            found.append(
                replace(
                    base,
                    name="loss curve",
                    kind="loss",
                    keep_order=True,
                    batch_size=25,
                    device=tier,
                )
            )
    return [
        replace(case, name=f"{case.name} ({case.device.partition(':')[0]})")
        for case in found
    ]

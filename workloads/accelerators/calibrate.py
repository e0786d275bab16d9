"""Calibration of a profile on a real device, by the operations of which training steps
and copies consist."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from workloads.accelerator import Accelerator
from workloads.accelerators.profile import Coefficient, LayerShape, Profile, step_cost
from workloads.errors import HostError, require
from workloads.feature_table import SplitTable
from workloads.sampling.batch import Block, SampledBatch
from workloads.sparse import row_sums
from workloads.training import Trainer
from workloads.workload import ModelSpec


@dataclass(frozen=True)
class CalibrationSize:
    """Sizes of a calibration: rows of the table and of the gather, edges of the sum,
    repeats of each measurement."""

    table_rows: int = 1_000_000
    rows: int = 200_000
    destinations: int = 100_000
    degree: int = 15
    dim: int = 128
    hidden: int = 256
    launches: int = 2000
    repeats: int = 7


def calibrate(
    accelerator: Accelerator, name: str, size: CalibrationSize | None = None
) -> Profile:
    """Measure every coefficient of a profile on `accelerator`, idle otherwise; the best
    of several repeats counts. Raises HostError where the device was so busy that a
    large operation took no longer than a small one."""
    size = size or CalibrationSize()
    device = accelerator.torch_device
    measured = partial(_least_seconds, accelerator, size.repeats)
    table = torch.randn(size.table_rows, size.dim, device=device)
    rows = torch.randint(0, size.table_rows, (size.rows,), device=device)
    row_bytes = size.dim * 4

    one = torch.zeros(1, device=device)
    launches_s = measured(lambda: [one.add_(1) for _ in range(size.launches)])
    kernel_s = launches_s / size.launches
    gather_s = measured(lambda: torch.index_select(table, 0, rows))

    weight = torch.randn(size.hidden, size.dim, device=device)
    bias = torch.randn(size.hidden, device=device)
    sums = table[: size.destinations]
    product_s = measured(lambda: torch.addmm(bias, sums, weight.t()))
    product_flops = 2 * sums.shape[0] * size.dim * size.hidden
    flops = product_flops / _beyond(product_s, kernel_s)

    edges = size.destinations * size.degree
    indices = torch.randint(
        0, size.table_rows, (edges,), device=device, dtype=torch.int32
    )
    indptr = torch.arange(0, edges + 1, size.degree, device=device, dtype=torch.int32)
    edges_s = measured(lambda: row_sums(table, indptr, indices))
    edge_s = _beyond(edges_s, kernel_s) / (edges * size.dim)

    staging = accelerator.host_buffer(size.rows * row_bytes)
    staged = staging.view(torch.float32).view(size.rows, size.dim)
    staged.fill_(1.0)
    target = accelerator.allocate(size.rows, size.dim, torch.float32)
    copy_s = measured(lambda: accelerator.copy(target, staged[:1]).wait())
    whole_copy_s = measured(lambda: accelerator.copy(target, staged).wait())
    bus_s = _beyond(whole_copy_s, copy_s)
    # By the kernel that runs use, on a table all of whose rows are in host memory.
    split = SplitTable(target[:0], staged)
    shuffled = torch.randperm(size.rows)
    host_gather_s = measured(lambda: accelerator.gather(split, shuffled))
    zero_copy_s = _beyond(host_gather_s, kernel_s)

    how = f"measured on {_describe(device)} by `outcore device calibrate`"
    table_bytes = size.rows * row_bytes
    gather_work_s = _beyond(gather_s, kernel_s)
    values = {
        "step_s": 0.0,
        "kernel_s": kernel_s,
        "copy_s": copy_s,
        "edge_s": edge_s,
        "flops": flops,
        "memory_bytes_per_s": 2 * table_bytes / gather_work_s,
        "bus_bytes_per_s": table_bytes / bus_s,
        "zero_copy_bytes_per_s": table_bytes / zero_copy_s,
    }
    coefficients = {
        key: Coefficient(value=value, source=how, assumed=False)
        for key, value in values.items()
    }
    summary = f"{_describe(device)}, measured"
    profile = Profile.model_validate({"name": name, "summary": summary, **coefficients})
    fixed_s = _fixed_step_seconds(accelerator, profile, size)
    fixed = Coefficient(value=fixed_s, source=how, assumed=False)
    accelerator.free(target)
    accelerator.free_host(staged)
    return profile.model_copy(update={"step_s": fixed})


def to_toml(profile: Profile) -> str:
    """Format the profile as a file for `load_profile`."""
    tables = {"": {"name": profile.name, "summary": profile.summary}}
    for key, coefficient in profile.coefficients().items():
        tables[f"\n[{key}]\n"] = coefficient.model_dump()
    # JSON writes these values as TOML does.
    lines = []
    for header, table in tables.items():
        lines.append(header)
        for key, value in table.items():
            written = json.dumps(value, ensure_ascii=False)
            lines.append(f"{key} = {written}\n")
    return "".join(lines)


def _least_seconds(
    accelerator: Accelerator, repeats: int, action: Callable[[], object]
) -> float:
    """Return the least seconds of an action, after one run to warm up: interference
    only adds time."""
    action()
    return min(accelerator.seconds(action) for _ in range(repeats))


def _fixed_step_seconds(
    accelerator: Accelerator, profile: Profile, size: CalibrationSize
) -> float:
    """Return a tiny batch's seconds beside its work: the fixed time of framework and
    optimiser."""
    spec = ModelSpec(name="sage", layers=3, hidden=size.hidden)
    trainer = Trainer(spec, size.dim, 16, accelerator)
    indptr = np.arange(9, dtype=np.int64) * 2
    indices = np.arange(16, dtype=np.int32) % 8
    blocks = (Block(indptr, indices, 8, 8),) * 3
    labels = np.zeros(8, dtype=np.int64)
    batch = SampledBatch(0, 0, np.arange(8), 8, blocks, labels)
    table = torch.ones(8, size.dim, device=accelerator.torch_device)
    widths = (size.dim, size.hidden, size.hidden, 16)
    pairs = itertools.pairwise(widths)
    layers = [LayerShape(8, 8, 16, width, out) for width, out in pairs]
    whole = _least_seconds(
        accelerator, size.repeats, lambda: trainer.step(batch, table, None)
    )
    modelled = step_cost(profile, spec, layers).total
    return max(0.0, whole - modelled)


def _beyond(whole_s: float, launch_s: float) -> float:
    """Return the seconds of the work without its launch."""
    fix = "end what else uses it, and calibrate again"
    require(whole_s > launch_s, "the device is too busy to be measured", fix, HostError)
    return whole_s - launch_s


def _describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return "the processor"

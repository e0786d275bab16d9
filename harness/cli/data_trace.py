"""`outcore data trace`: feature row accesses of a workload, and the miss ratio of each cache policy."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from harness.cli.common import OnData, print_table
from workloads.dataset import Dataset, find_dataset
from workloads.errors import InputError
from workloads.sampling.listing import choices
from workloads.units import format_bytes, format_count, parse_bytes, parse_count
from workloads.workload import ModelSpec, SamplerSpec, Workload

DEFAULT_SIZES = "0.1%,0.5%,1%,2%,5%,10%,20%,50%"


def trace(
    name: Annotated[str, typer.Argument(help="the dataset's name, or the path of its folder")],
    call: OnData,
    policies: Annotated[str, typer.Option(help="of belady, lru, fifo, lfu, clock, sieve, s3-fifo, degree")] = "all",
    sizes: Annotated[
        str, typer.Option(help="of the cache: shares of the feature table (5%), bytes (64MiB) or rows (100k)")
    ] = DEFAULT_SIZES,
    sampler: Annotated[str, typer.Option(help=choices())] = "neighbor",
    fanout: Annotated[str, typer.Option(help="neighbours a node and hop, like 10,10,10")] = "10,10,10",
    batch_size: Annotated[int, typer.Option(help="seed nodes a mini-batch")] = 1000,
    max_batches: Annotated[int, typer.Option(help="at most so many mini-batches an epoch; 0: all")] = 0,
    epochs: Annotated[int, typer.Option(help="epochs, one after the other through the same cache")] = 1,
    seed: Annotated[int, typer.Option(help="of sampling and shuffling")] = 0,
    threads: Annotated[int, typer.Option(help="that sample and simulate")] = 2,
    fills: Annotated[
        bool,
        typer.Option("--fills/--no-fills", help="count what a static cache is filled with as missed, in the table"),
    ] = True,
) -> None:
    """Sample the mini-batches of a workload and show each cache policy's miss ratio by cache size.

    Rows of a mini-batch are asked for once each. Every cache starts empty but a static one, whose rows are read
    beforehand: counted too, all are measured alike. Holds the trace in memory: 12 bytes an access.
    """
    from systems.engine.cache.policies import POLICIES, RowTrace, compare

    dataset = find_dataset(name, call.data_root)
    chosen = list(POLICIES) if policies == "all" else [policy.strip() for policy in policies.split(",")]
    for policy in chosen:
        if policy not in POLICIES:
            raise InputError(f"there is no policy {policy!r}", f"choose of {', '.join(POLICIES)}")
    if epochs < 1 or threads < 1 or batch_size < 1:
        raise InputError("epochs, threads and batch size are 1 or more", "raise the one that is not")
    hops = _fanout(fanout)
    rows = _rows(sizes, dataset)
    spec = SamplerSpec(name=sampler, fanout=hops, batch_size=batch_size, max_batches=max_batches)
    workload = Workload(dataset, spec, ModelSpec(layers=len(hops)), seed=seed)
    progress = call.progress()
    progress(f"sampling {epochs} epoch{'s' if epochs > 1 else ''}")
    recorded = RowTrace.record(workload, epochs, threads=threads)
    found, took = [], {}
    for policy in chosen:
        progress(f"simulating {policy}")
        start = time.monotonic()
        found += compare(workload, recorded, [policy], rows, threads=threads)
        took[policy] = time.monotonic() - start
    simulated = [
        {
            "policy": entry.policy,
            "misses": entry.misses.tolist(),
            "fills": entry.fills.tolist(),
            "miss_ratio": entry.ratio.tolist(),
            "seconds": took[entry.policy],
        }
        for entry in found
    ]
    content = {
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "sampler": {"name": sampler, "fanout": list(hops), "batch_size": batch_size, "max_batches": max_batches},
        "epochs": epochs,
        "seed": seed,
        "batches": len(recorded.begins) - 1,
        "accesses": recorded.accesses,
        "unique_rows": recorded.num_rows,
        "row_bytes": _row_bytes(dataset),
        "sizes": rows,
        "policies": simulated,
    }

    def shown() -> None:
        counts = f"{format_count(recorded.accesses)} row accesses, {format_count(recorded.num_rows)} rows"
        title = f"{dataset.name}: {counts}; miss ratio{', fills of static caches counted' if fills else ''}"
        reads = [(entry.reads if fills else entry.misses) / max(1, recorded.accesses) for entry in found]
        texts = [
            (
                format_bytes(size * _row_bytes(dataset)),
                format_count(size),
                *(f"{ratios[index]:.4f}" for ratios in reads),
            )
            for index, size in enumerate(rows)
        ]
        if call.verbose:
            texts.append(("seconds", "", *(f"{took[entry.policy]:.2f}" for entry in found)))
        print_table(("cache", "rows", *(entry.policy for entry in found)), texts, title)

    call.tell(content, shown)


def _row_bytes(dataset: Dataset) -> int:
    return dataset.dim * dataset.feature_dtype.itemsize


def _fanout(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--fanout is {text!r}", "give one whole number a hop, like 10,10,10") from None


def _rows(text: str, dataset: Dataset) -> list[int]:
    """Parse cache sizes; return them in rows, ascending and distinct."""
    found = set()
    for part in (part.strip() for part in text.split(",")):
        if part.endswith("%"):
            try:
                share = float(part[:-1]) / 100
            except ValueError:
                raise InputError(f"--sizes has {part!r}", "write a share like 5%") from None
            found.add(round(share * dataset.num_nodes))
        elif part.lower().endswith("b"):
            found.add(parse_bytes(part, "--sizes") // max(1, _row_bytes(dataset)))
        else:
            found.add(parse_count(part, "--sizes"))
    if min(found) < 0:
        raise InputError(f"--sizes is {text!r}", "give sizes of 0 or more")
    return sorted(found)

"""`outcore data trace`: feature row accesses of a workload, and the miss ratio of each
cache policy."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from harness.cli.common import OnData
from harness.cli.table import Wide, print_table
from harness.progress import tracked
from workloads.dataset import find_dataset
from workloads.errors import InputError
from workloads.sampling.listing import choices
from workloads.units import format_bytes, format_count, parse_bytes, parse_count
from workloads.workload import ModelSpec, SamplerSpec, Workload

DEFAULT_SIZES = "0.1%,0.5%,1%,2%,5%,10%,20%,50%"


def trace(
    name: Annotated[
        str, typer.Argument(help="the dataset's name, or the path of its folder")
    ],
    table: Wide,
    call: OnData,
    policies: Annotated[
        str,
        typer.Option(
            help="all, or of belady, lru, fifo, lfu, clock, sieve, s3-fifo, degree"
        ),
    ] = "all",
    sizes: Annotated[
        str,
        typer.Option(
            help="cache sizes: shares of the feature table (5%), bytes (64MiB) or "
            "rows (100k)"
        ),
    ] = DEFAULT_SIZES,
    sampler: Annotated[str, typer.Option(help=choices())] = "neighbor",
    fanout: Annotated[
        str, typer.Option(help="neighbours per hop, like 10,10,10")
    ] = "10,10,10",
    batch_size: Annotated[int, typer.Option(help="seed nodes per mini-batch")] = 1000,
    max_batches: Annotated[
        int, typer.Option(help="most mini-batches per epoch; 0: all")
    ] = 0,
    epochs: Annotated[
        int, typer.Option(help="epochs, one after the other through the same cache")
    ] = 1,
    seed: Annotated[
        int, typer.Option(help="random seed of sampling and shuffling")
    ] = 0,
    threads: Annotated[
        int, typer.Option(help="threads for sampling and simulation")
    ] = 2,
    fills: Annotated[
        bool,
        typer.Option(
            "--fills/--no-fills",
            help="count the rows that fill a static cache as misses",
        ),
    ] = True,
) -> None:
    """Sample the mini-batches of a workload and show each cache policy's miss ratio by
    cache size.

    A mini-batch asks for each of its rows once. Every cache starts empty except a
    static one, whose rows are read beforehand; with those reads counted, all are
    measured alike. The trace is in memory: 12 bytes an access.

    Examples:
        outcore data trace kron-2m --policies belady,lru --sizes 1%,64MiB
        outcore data trace kron-2m --fanout 5,5 --max-batches 100
    """
    from systems.engine.cache.policies import POLICIES, RowTrace, compare

    dataset = find_dataset(name, call.data_root)
    chosen = (
        list(POLICIES)
        if policies == "all"
        else [policy.strip() for policy in policies.split(",")]
    )
    for policy in chosen:
        if policy not in POLICIES:
            raise InputError(
                f"there is no policy {policy!r}", f"choose of {', '.join(POLICIES)}"
            )
    if epochs < 1 or threads < 1 or batch_size < 1:
        raise InputError(
            "epochs, threads and batch size are 1 or more", "raise the one that is not"
        )
    try:
        hops = tuple(int(part) for part in fanout.split(","))
    except ValueError:
        raise InputError(
            f"--fanout is {fanout!r}", "give one whole number a hop, like 10,10,10"
        ) from None
    row_bytes = dataset.row_bytes
    rows = _rows(sizes, dataset.num_nodes, row_bytes)
    spec = SamplerSpec(
        name=sampler, fanout=hops, batch_size=batch_size, max_batches=max_batches
    )
    workload = Workload(dataset, spec, ModelSpec(layers=len(hops)), seed=seed)
    progress = call.progress()
    progress(f"sampling {epochs} epoch{'s' if epochs > 1 else ''}")
    recorded = RowTrace.record(workload, epochs, threads=threads)
    found = []
    took = {}
    for policy in tracked(progress, chosen, "simulating", "policies", str):
        start = time.monotonic()
        found += compare(workload, recorded, [policy], rows, threads=threads)
        took[policy] = time.monotonic() - start
    simulated = []
    for entry in found:
        counts = {
            "misses": entry.misses.tolist(),
            "fills": entry.fills.tolist(),
            "miss_ratio": entry.ratio.tolist(),
        }
        simulated.append(
            {"policy": entry.policy, **counts, "seconds": took[entry.policy]}
        )
    content = {
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "sampler": {
            "name": sampler,
            "fanout": list(hops),
            "batch_size": batch_size,
            "max_batches": max_batches,
        },
        "epochs": epochs,
        "seed": seed,
        "batches": len(recorded.begins) - 1,
        "accesses": recorded.accesses,
        "unique_rows": recorded.num_rows,
        "row_bytes": row_bytes,
        "sizes": rows,
        "policies": simulated,
    }

    def shown() -> None:
        counts = (
            f"{format_count(recorded.accesses)} row accesses, "
            f"{format_count(recorded.num_rows)} rows"
        )
        title = (
            f"{dataset.name}: {counts}; miss "
            f"ratio{', fills of static caches counted' if fills else ''}"
        )
        reads = [
            (entry.reads if fills else entry.misses) / max(1, recorded.accesses)
            for entry in found
        ]
        texts = []
        for index, size in enumerate(rows):
            ratios = (f"{of_policy[index]:.4f}" for of_policy in reads)
            texts.append((format_bytes(size * row_bytes), format_count(size), *ratios))
        if call.verbose:
            texts.append(
                ("seconds", "", *(f"{took[entry.policy]:.2f}" for entry in found))
            )
        heads = ("cache", "rows", *(entry.policy for entry in found))
        print_table(heads, texts, title, hidden=() if table.wide else ("rows",))

    call.emit(content, shown)


def _rows(text: str, num_nodes: int, row_bytes: int) -> list[int]:
    """Parse cache sizes; return them in rows, ascending and distinct."""
    found = set()
    for part in (part.strip() for part in text.split(",")):
        if part.endswith("%"):
            try:
                share = float(part[:-1]) / 100
            except ValueError:
                raise InputError(
                    f"--sizes has {part!r}", "write a share like 5%"
                ) from None
            found.add(round(share * num_nodes))
        elif part.lower().endswith("b"):
            found.add(parse_bytes(part, "--sizes") // max(1, row_bytes))
        else:
            found.add(parse_count(part, "--sizes"))
    if min(found) < 0:
        raise InputError(f"--sizes is {text!r}", "give sizes of 0 or more")
    return sorted(found)

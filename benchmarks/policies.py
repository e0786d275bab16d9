"""Accesses a second of the trace simulator by policy, over all cache sizes of a curve, on a skewed trace.

The trace has the papers' proportions: each mini-batch uses 3 % of the nodes, hot ones far more often. One-pass policies
are timed for the whole curve, others for its sizes one after another, both in accesses times sizes a second, against a
simple Python LRU of one size. Exit 1 if a policy is not five times as fast as that for one size.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import OrderedDict

import numpy as np

from systems.engine.cache.policies import DYNAMIC, ONE_PASS, RowTrace, simulate, simulate_static

TARGET = 5.0


def make_trace(nodes: int, batches: int, share: float, seed: int = 0) -> RowTrace:
    """Draw mini-batches of `share` x `nodes` nodes by a power law, each node once in a mini-batch."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(nodes)
    wanted = int(share * nodes)
    parts = []
    for _ in range(batches):
        drawn = np.unique((nodes * rng.random(2 * wanted) ** 4).astype(np.int64))
        parts.append(names[rng.permutation(drawn)[:wanted]])
    return RowTrace.of(parts, nodes)


def python_lru(trace: RowTrace, size: int, accesses: int) -> float:
    """Measure the accesses a second of a simple LRU in Python."""
    cache: OrderedDict[int, None] = OrderedDict()
    start = time.perf_counter()
    for row in trace.rows[:accesses].tolist():
        if row in cache:
            cache.move_to_end(row)
        else:
            if len(cache) == size:
                cache.popitem(last=False)
            cache[row] = None
    return accesses / (time.perf_counter() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    trace = make_trace(options.nodes, options.batches, 0.03)
    sizes = [int(share * options.nodes) for share in (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)]
    plain = python_lru(trace, sizes[4], min(trace.accesses, 1_000_000))
    print(f"{trace.accesses:,} accesses of {trace.num_rows:,} rows, {len(sizes)} sizes, {options.threads} threads")
    print(f"{'policy':10} {'seconds':>8} {'M accesses/s':>13} {'x sizes':>9}   miss ratio at 5 % and 20 %")
    slowest = 1e18
    for policy in DYNAMIC:
        start = time.perf_counter()
        found = simulate(trace, policy, sizes, threads=options.threads)
        took = time.perf_counter() - start
        slowest = min(slowest, trace.accesses * len(sizes) / took)
        _line(policy, took, trace, len(sizes), found.ratio)
    uses = np.bincount(trace.nodes[trace.rows], minlength=options.nodes)
    ranking = np.argsort(-uses, kind="stable")
    start = time.perf_counter()
    found = simulate_static(trace, ranking, sizes)
    _line("static", time.perf_counter() - start, trace, len(sizes), found.ratio)
    ratio = slowest / plain
    print(f"plain Python LRU of one size: {plain / 1e6:.2f} M accesses/s; slowest policy over it: {ratio:.0f} x")
    print(f"in one pass for all sizes: {', '.join(ONE_PASS)}")
    return 0 if ratio >= TARGET else 1


def _line(policy: str, took: float, trace: RowTrace, sizes: int, ratio: np.ndarray) -> None:
    rate = trace.accesses / took / 1e6
    print(f"{policy:10} {took:8.2f} {rate:13.1f} {rate * sizes:9.1f}   {ratio[4]:.4f} {ratio[6]:.4f}")


if __name__ == "__main__":
    sys.exit(main())

"""The plain Kronecker product of a small seed graph and a base graph, streamed in CSC
order.

Node (i, u) of the product has id `i * base nodes + u`: copy i of base node u. Its
in-neighbours are the copies j in N_S(i) of u's in-neighbours in the base, so every node
keeps its base node's neighbourhood, label and community: degree skew, homophily and
symmetry carry over, and a list ascends without sorting.
"""

from __future__ import annotations

import numpy as np

from workloads import _native
from workloads.arraytypes import Int32Array, Int64Array
from workloads.errors import InputError, require
from workloads.kronecker.rmat import rmat_base, rmat_base_bytes
from workloads.kronecker.spec import BaseGraph, GenerateSpec, TopologyPlan
from workloads.making.direct_stream import STREAM_BYTES
from workloads.making.progress import Progress
from workloads.making.writer import PartWriter, TopologySink

DEFAULT_COPIES_LINKED = 3
_BASE_NODES = 1 << 18
_MIN_COPIES = 4


def plan_kronecker(spec: GenerateSpec, progress: Progress) -> TopologyPlan:
    """Plan the product: exact N (the last copy is cut), E as near to `edges` as whole
    seed-graph edges allow.

    With a base, the seed graph has `expand` nodes (or as many as `nodes` needs) and
    edges / base edges edges (default: three a node: the copy itself and its two
    neighbours on a ring). Without a base, an R-MAT base is drawn whose size makes E
    exact but for rounding, with two copies linked to each. Raises InputError where the
    sizes contradict one another or cannot be reached, BudgetError where `max_memory`
    does not hold the base graph and the buffers.
    """
    if spec.base is None:
        base, copies, seed_edges, nodes = _drawn_base(spec, progress)
    else:
        base = sorted_base(spec.base, spec)
        copies, nodes = _copies(spec, base)
        whole = copies * base.num_nodes
        wanted = DEFAULT_COPIES_LINKED * copies
        if spec.edges:
            product_edges = spec.edges * (whole / nodes) ** 2
            wanted = round(product_edges / base.num_edges)
            if spec.edges < 0.95 * base.num_edges * nodes / base.num_nodes:
                least = round(base.num_edges * nodes / base.num_nodes)
                fault = (
                    f"--edges {spec.edges} is below the {least} that copies of "
                    f"{base.name} have already"
                )
                fix = f"give --edges {least} or more, or fewer --nodes"
                raise InputError(fault, fix)
        seed_edges = max(copies, wanted)
        if spec.edges and seed_edges > copies * copies:
            fault = (
                f"--edges {spec.edges} needs {seed_edges} links between {copies} "
                f"copies, which have {copies * copies}"
            )
            most = copies * copies * base.num_edges
            fix = f"give --edges {most} or less, or more --nodes"
            raise InputError(fault, fix)
        seed_edges = min(seed_edges, copies * copies)
    dtype = spec.dtype_for(nodes)
    seed_indptr, seed_indices = seed_graph(copies, seed_edges, spec.seed)
    # The stream keeps one more indptr where the last copy is cut, and three numbers a
    # copy.
    base_bytes = base.num_edges * 4 + base.num_nodes * 16
    seed_bytes = seed_edges * 4 + copies * 40
    needed = base_bytes + seed_bytes + STREAM_BYTES
    spec.require("the base graph and the write buffers", needed)
    stream = _native.KroneckerStream(
        base.indptr, base.indices, seed_indptr, seed_indices, nodes
    )

    def write(sink: TopologySink, progress: Progress) -> None:
        for part, stage, element, count, fill in (
            ("indptr", "indptr", np.dtype(np.int64), nodes + 1, stream.indptr),
            ("indices", "edges", dtype, stream.num_edges, stream.edges),
        ):
            with PartWriter(sink, part, element, count) as writer:
                at = 0
                while at < count:
                    room = writer.buffer()[: count - at]
                    fill(at, room, spec.num_threads)
                    writer.commit(room.shape[0])
                    at += room.shape[0]
                    progress(stage, at / count)

    details = {
        "base_nodes": base.num_nodes,
        "base_edges": base.num_edges,
        "copies": copies,
        "seed_edges": seed_edges,
    }
    return TopologyPlan(nodes, stream.num_edges, dtype, base, write, details)


def seed_graph(copies: int, edges: int, seed: int) -> tuple[Int64Array, Int32Array]:
    """Make the seed graph S in CSC: a circulant, so that all K copies have equally many
    neighbours (or one more).

    Every node gets a loop (a copy keeps its own edges), then its two neighbours on the
    ring (which connects the copies), then pairs at random distances (by `seed`), the
    same on both sides, so that S is symmetric where `edges` (K to K^2) is a multiple of
    `copies` that allows it. Returns `indptr` int64 [K + 1] and ascending `indices`
    int32 [edges].
    """
    if not copies <= edges <= copies * copies:
        raise ValueError("a seed graph has from K to K^2 edges")
    whole, rest = divmod(edges, copies)
    generator = np.random.Generator(np.random.Philox(key=seed))
    further = generator.permutation(max(0, (copies - 1) // 2 - 1)) + 2
    distances = np.concatenate([[1], further])
    offsets = [0]
    half = copies // 2 if copies % 2 == 0 and copies > 1 else None
    if half is not None and whole % 2 == 0 and whole > 0:
        # its own opposite: an even number of neighbours stays symmetric
        offsets.append(half)
    for distance in distances.tolist():
        if 0 < distance < copies - distance:
            offsets += [distance, copies - distance]
    if half is not None and half not in offsets:
        offsets.append(half)
    nodes = np.arange(copies, dtype=np.int64)
    target = np.repeat(nodes, whole)
    further_on = np.tile(np.array(offsets[:whole], dtype=np.int64), copies)
    source = (target + further_on) % copies
    if rest:  # one neighbour more, for nodes spread evenly
        extra = np.arange(rest, dtype=np.int64) * copies // rest
        target = np.concatenate([target, extra])
        extra_source = (extra + offsets[whole]) % copies
        source = np.concatenate([source, extra_source])
    order = np.lexsort((source, target))
    degrees = np.bincount(target + 1, minlength=copies + 1)
    indptr = np.cumsum(degrees, dtype=np.int64)
    return indptr, source[order].astype(np.int32)


def sorted_base(base: BaseGraph, spec: GenerateSpec) -> BaseGraph:
    """Copy the base graph with int32 ids and ascending lists; raises InputError where
    it is empty or has 2^31 nodes or more, BudgetError where it does not fit
    `max_memory`."""
    if base.num_nodes < 1 or base.num_edges < 1:
        fault = f"the base graph {base.name} has no edges"
        raise InputError(fault, "give one that has")
    if base.num_nodes >= 1 << 31:
        fault = f"the base graph {base.name} has {base.num_nodes} nodes"
        raise InputError(fault, "bases have fewer than 2^31")
    spec.require("the base graph", base.num_edges * 4 + base.num_nodes * 8)
    indices = np.array(base.indices, dtype=np.int32)
    indptr = np.ascontiguousarray(base.indptr, dtype=np.int64)
    _native.sort_lists(indptr, indices, spec.num_threads)
    return BaseGraph(
        indptr, indices, base.labels, base.features, base.num_classes, base.name
    )


def _copies(spec: GenerateSpec, base: BaseGraph) -> tuple[int, int]:
    """Return the numbers of copies and of nodes."""
    copies = spec.copies_of(base)
    nodes = spec.nodes or copies * base.num_nodes
    fault = (
        f"--nodes {nodes} and --expand {copies} contradict each other for a base of "
        f"{base.num_nodes} nodes"
    )
    valid = (copies - 1) * base.num_nodes < nodes <= copies * base.num_nodes
    require(valid, fault, "give one of them")
    return copies, nodes


def _drawn_base(
    spec: GenerateSpec, progress: Progress
) -> tuple[BaseGraph, int, int, int]:
    """Draw an R-MAT base for a product of the wanted size; return it with copies,
    seed-graph edges and nodes."""
    nodes, edges = spec.drawn_size()
    copies = spec.expand or _whole_copies(nodes)
    base_nodes = -(-nodes // copies)
    copies = -(-nodes // base_nodes)
    # Two copies linked to each; more where the base alone would be too dense.
    linked = 1
    if edges >= 2 * nodes:
        wanted = -(-4 * edges // (nodes * base_nodes))
        linked = min(copies, max(2, wanted))
    seed_edges = linked * copies
    # of the kept edges: the cut removes targets and sources
    share = (nodes / (copies * base_nodes)) ** 2
    base_edges = max(1, round(edges / share / seed_edges))
    spec.require("drawing a base graph", rmat_base_bytes(base_nodes, base_edges))
    progress("base graph", 0.0)
    base = rmat_base(
        base_nodes,
        base_edges,
        spec.seed,
        spec.num_threads,
        communities=spec.communities,
    )
    return base, copies, seed_edges, nodes


def _whole_copies(nodes: int) -> int:
    """Choose the copies of a base of at most 2^18 nodes; a number that divides `nodes`
    where one is near."""
    least = min(nodes, max(_MIN_COPIES, -(-nodes // _BASE_NODES)))
    near = range(least, least + least // 4 + 4)
    divisors = (copies for copies in near if nodes % copies == 0)
    return next(divisors, least)

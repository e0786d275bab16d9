"""Each system's reads and time of an epoch, predicted from the share, the system's plan and a device profile.

No system runs. Cache contents follow each system's own rule (Belady, most accesses, least recently used); the kernel's
page cache is modelled as S3-FIFO, as in ali+pg's tuner. A model predicts the disk's time; training runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from harness.advise.share import Share, device_seconds, misses, row_misses

if TYPE_CHECKING:
    from harness.advise.planned import Planned
    from systems.interface import DiskProfile

PAGE = 4096
_SEQUENTIAL = 1 << 20
_PAGE_CACHE = "s3-fifo"
Reads = dict[int, float]


@dataclass(frozen=True)
class Conditions:
    """The conditions of a forecast.

    Attributes:
        host: host budget in bytes.
        epochs: epochs of the whole training, over which preparation is spread.
        bus_bytes_per_s: bandwidth of copies to the device; 0: there is no bus, or copies are free.
    """

    host: int
    epochs: int
    cores: int
    profile: DiskProfile
    bus_bytes_per_s: float = 0.0


@dataclass(frozen=True)
class Forecast:
    """One system under one budget.

    Attributes:
        reads: request bytes -> number of requests of an epoch.
        device_s, train_s, sample_s, bus_s: seconds of an epoch of the disk, of training steps, of sampling on all cores
            and of copies to the device; they overlap.
        prepare_s: seconds before the first epoch.
        why: reason for the time, as text for a reader.
        options: options that the system lowers to fit the budget.
        refused: reason why the system cannot run or is not ranked; the other fields are empty then.
    """

    system: str
    reads: Reads = field(default_factory=dict)
    device_s: float = 0.0
    train_s: float = 0.0
    sample_s: float = 0.0
    bus_s: float = 0.0
    prepare_s: float = 0.0
    why: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    refused: str = ""

    @property
    def epoch_s(self) -> float:
        """Seconds of an epoch: those of its longest overlapping part."""
        return max(self.device_s, self.train_s, self.sample_s, self.bus_s)

    @property
    def bound(self) -> str:
        """Name of the part that limits an epoch."""
        parts = {"disk": self.device_s, "training": self.train_s, "sampling": self.sample_s, "bus": self.bus_s}
        return max(parts, key=lambda name: parts[name])

    def total_s(self, epochs: int) -> float:
        """Return the seconds of preparation and `epochs` epochs."""
        return self.prepare_s + epochs * self.epoch_s

    @property
    def bytes_read(self) -> float:
        """Bytes read in an epoch."""
        return sum(size * count for size, count in self.reads.items())


Model = Callable[[Share, "Planned", Conditions], "_Found"]


@dataclass
class _Found:
    """The result of a model: reads of the sampled mini-batches and of preparation, and rows that cross the bus."""

    reads: Reads
    why: str
    prepare: Reads = field(default_factory=dict)
    prepare_s: float = 0.0
    copied_rows: float = 0.0


_MODELS: dict[str, Model] = {}


def _models(*systems: str) -> Callable[[Model], Model]:
    def keep(model: Model) -> Model:
        _MODELS.update(dict.fromkeys(systems, model))
        return model

    return keep


def forecast(system: str, share: Share, planned: Planned, conditions: Conditions) -> Forecast:
    """Forecast one system; refuse it where its plan does not fit or no model exists.

    Args:
        system: name of the system.
        share, planned, conditions: sampled mini-batches, the system's plan, and budget with disk and cores.
    """
    if planned.refused:
        return Forecast(system, refused=planned.refused)
    if system not in _MODELS:
        return Forecast(system, refused="nothing here predicts it")
    found = _MODELS[system](share, planned, conditions)
    if not found.reads and found.why.startswith("needs "):
        return Forecast(system, refused=found.why)
    profile, scale = conditions.profile, share.scale
    row = row_bytes(share)
    bus = found.copied_rows * scale * row / conditions.bus_bytes_per_s if conditions.bus_bytes_per_s else 0.0
    return Forecast(
        system,
        reads={size: count * scale for size, count in found.reads.items()},
        device_s=scale * device_seconds(found.reads, profile),
        train_s=share.epoch_s(),
        sample_s=share.sample_s * share.num_batches / max(1, conditions.cores),
        bus_s=bus,
        prepare_s=device_seconds(found.prepare, profile) + found.prepare_s,
        why=found.why,
    )


def row_bytes(share: Share) -> int:
    """Return the bytes of a feature row."""
    dataset = share.workload.dataset
    return int(dataset.dim * dataset.feature_dtype.itemsize)


def request_bytes(share: Share, profile: DiskProfile) -> int:
    """Return the bytes of the read of one row: whole logical blocks."""
    block = profile.logical_block_bytes
    row = row_bytes(share)
    return -(-row // block) * block + (block if row % block else 0)


def _counted(share: Share) -> list[npt.NDArray[np.uint32]]:
    return share.nodes[share.sampled :]


def _accesses(share: Share) -> int:
    return sum(len(nodes) for nodes in _counted(share))


def _topology(share: Share, cache_bytes: int) -> float:
    """Count the pages of `indices` that sampling reads with `cache_bytes` of page cache."""
    pages = share.workload.dataset.topology_bytes // PAGE + 2
    return misses(_PAGE_CACHE, share.pages, pages, cache_bytes // PAGE)


def _feature_pages(share: Share) -> list[npt.NDArray[np.uint32]]:
    row = row_bytes(share)
    found = []
    for nodes in share.nodes:
        first = nodes.astype(np.int64) * row // PAGE
        last = ((nodes.astype(np.int64) + 1) * row - 1) // PAGE
        width = int((last - first).max(initial=0)) + 1
        every = np.concatenate([np.minimum(first + step, last) for step in range(width)])
        found.append(np.unique(every).astype(np.uint32))
    return found


def _mapped(share: Share, cache_bytes: int) -> float:
    """Count the pages read from disk where graph and features are memory-mapped and share the page cache."""
    begin = share.workload.dataset.topology_bytes // PAGE + 2
    ids = begin + share.workload.dataset.feature_bytes // PAGE + 2
    features = _feature_pages(share)
    parts = [
        np.concatenate([pages, rows + np.uint32(begin)]) for pages, rows in zip(share.pages, features, strict=True)
    ]
    return misses(_PAGE_CACHE, parts, ids, cache_bytes // PAGE)


def _hottest(share: Share, rows: int) -> npt.NDArray[np.bool_]:
    """Return bool [N]: the `rows` most accessed nodes, by `share.hot` or else by the sampled mini-batches."""
    if share.hot is not None:
        known = np.zeros(share.workload.dataset.num_nodes, dtype=bool)
        known[share.hot(rows)] = True
        return known
    counts = np.zeros(share.workload.dataset.num_nodes, dtype=np.int32)
    for nodes in share.nodes:
        counts[nodes] += 1
    held = np.zeros(len(counts), dtype=bool)
    rows = min(rows, int(np.count_nonzero(counts)))
    if rows:
        held[np.argpartition(counts, len(counts) - rows)[len(counts) - rows :]] = True
    return held


def _missed(share: Share, held: npt.NDArray[np.bool_]) -> int:
    return sum(int(np.count_nonzero(~held[nodes])) for nodes in _counted(share))


def _per_cent(part: float, whole: float) -> str:
    return f"{100 * part / max(1.0, whole):.0f} %"


def _sequential(nbytes: float) -> Reads:
    return {_SEQUENTIAL: nbytes / _SEQUENTIAL}


@_models("pyg+")
def _pyg_plus(share: Share, planned: Planned, conditions: Conditions) -> _Found:
    pages = _mapped(share, planned.left(conditions.host))
    return _Found(
        {PAGE: pages}, f"{pages / max(1, _accesses(share)):.2f} page reads for each row", copied_rows=_accesses(share)
    )


@_models("dgl-ondisk")
def _every_row(share: Share, planned: Planned, conditions: Conditions) -> _Found:
    rows = _accesses(share)
    reads = {request_bytes(share, conditions.profile): float(rows)}
    return _with_topology(share, reads, planned.left(conditions.host), "reads every row by itself", rows)


def _with_topology(share: Share, reads: Reads, cache_bytes: int, why: str, copied: float) -> _Found:
    pages = _topology(share, cache_bytes)
    reads[PAGE] = reads.get(PAGE, 0.0) + pages
    return _Found(
        reads, f"{why}; {pages / max(1, len(_counted(share))):.0f} graph pages a mini-batch", copied_rows=copied
    )


@_models("gnndrive")
def _gnndrive(share: Share, planned: Planned, conditions: Conditions) -> _Found:
    slots = {**planned.host, **planned.device}.get("feature buffer", 0) // row_bytes(share)
    # Rows of mini-batches in progress are hits too, so all slots count as one least-recently-used cache.
    missed = row_misses("lru", share, slots)
    reads = {request_bytes(share, conditions.profile): float(missed)}
    cache = planned.left(conditions.host) + planned.host.get("page cache of indices", 0)
    hits = _per_cent(_accesses(share) - missed, _accesses(share))
    return _with_topology(share, reads, cache, f"finds {hits} of the rows in its feature buffer", missed)


@_models("ali+pg")
def _ali_plus_pg(share: Share, planned: Planned, conditions: Conditions) -> _Found:
    cache = planned.host.get("neighbour and feature caches", 0)
    held = _hottest(share, cache // row_bytes(share))
    missed = _missed(share, held)
    pages = planned.left(conditions.host) + planned.host.get("page cache of indices", 0)
    hits = _per_cent(_accesses(share) - missed, _accesses(share))
    reads = {request_bytes(share, conditions.profile): float(missed)}
    found = _with_topology(share, reads, pages, f"caches {hits} of the accesses", _accesses(share))
    found.prepare = _sequential(int(held.sum()) * row_bytes(share))
    return found


@_models("ginex", "ginex-pg")
def _ginex(share: Share, planned: Planned, conditions: Conditions) -> _Found:
    system: Any = planned.system
    sizes = system._sizes
    row = row_bytes(share)
    if planned.host.get("feature cache map"):
        missed = _missed(share, _hottest(share, planned.host.get("feature cache", 0) // row))
        how = "static"
    else:
        missed = _belady(share, sizes.superbatch, sizes.capacity)
        how = f"Belady over superbatches of {sizes.superbatch}"
    # Sampling does not run beside the main loop, so its page cache also has the memory of the loop's buffers, less the
    # rows that stay cached, and no less than the plan's page cache of indices.
    loop = sum(planned.host.get(name, 0) for name in ("feature cache", "mini-batches read back")) - sizes.kept * row
    graph = 2 * share.graph_bytes * len(_counted(share))  # written by sampling, read back by the loop
    reads = {request_bytes(share, conditions.profile): float(missed), **_sequential(graph)}
    hits = _per_cent(_accesses(share) - missed, _accesses(share))
    own = min(share.workload.dataset.topology_bytes, conditions.host // 8)
    cache = max(own, planned.left(conditions.host) + loop)
    return _with_topology(share, reads, cache, f"caches {hits} of the accesses ({how})", _accesses(share))


def _belady(share: Share, superbatch: int, capacity: int) -> int:
    """Count the rows read over superbatches, which may cross epochs and start with an empty cache; fills count."""
    counted = _counted(share)
    step = max(1, superbatch)
    cold = _belady_cold(share, min(step, len(counted)), capacity)
    if step <= len(counted):
        return cold
    # A superbatch longer than the sample has a warm cache whose fill is shared by its `step` mini-batches. Slots stay
    # empty where they do not repay their fill, so smaller caches are tried too.
    rows = min(capacity, share.workload.dataset.num_nodes)
    warmed = [row_misses("belady", share, used) + used * len(counted) / step for used in (rows, rows // 2, rows // 4)]
    return round(min(cold, *warmed))


def _belady_cold(share: Share, step: int, capacity: int) -> int:
    counted = _counted(share)
    total = 0
    for begin in range(0, len(counted), step):
        part = counted[begin : begin + step]
        total += misses("belady", [*[part[0][:0]] * len(part), *part], share.workload.dataset.num_nodes, capacity)
    return total


@_models("diskgnn")
def _diskgnn(share: Share, planned: Planned, conditions: Conditions) -> _Found:
    from systems.diskgnn.fit import fit
    from systems.diskgnn.ranking import AccessCounts, miss_curve, slots_of

    system: Any = planned.system
    sizes = system._sizes
    nodes = share.workload.dataset.num_nodes
    counts = AccessCounts(nodes)
    every = [part.astype(np.int64) for part in share.nodes]
    for part in every:
        counts.add(part)
    wanted = sizes.table_rows + sizes.host_rows
    ranked = counts.hottest(wanted) if share.hot is None else share.hot(wanted)
    slots = slots_of(ranked, nodes)
    levels = fit(sizes, miss_curve(every, slots, len(ranked))).levels
    held = np.zeros(nodes, dtype=bool)
    held[ranked[: levels.cached]] = True
    missed = _missed(share, held)
    on_device = np.zeros(nodes, dtype=bool)
    on_device[ranked[: levels.direct]] = True
    row = row_bytes(share)
    packed = missed * row + len(_counted(share)) * share.graph_bytes + 12 * _accesses(share)
    epochs = conditions.epochs
    # Every epoch is sampled anew and packed by one pass over the features.
    written = epochs * share.scale * packed
    prepare = {PAGE: epochs * share.scale * _topology(share, conditions.host - planned.host.get("indptr", 0))}
    prepare |= _sequential(share.workload.dataset.feature_bytes + written)
    sampling = epochs * share.num_batches * share.sample_s / max(1, conditions.cores)
    hits = _per_cent(_accesses(share) - missed, _accesses(share))
    return _Found(
        _sequential(packed),
        f"caches {hits} of the accesses, the rest lies packed by mini-batch",
        prepare=prepare,
        prepare_s=sampling,
        copied_rows=_missed(share, on_device),
    )


@_models("outcore")
def _outcore(share: Share, planned: Planned, conditions: Conditions) -> _Found:
    from systems.outcore.cost import predict

    system: Any = planned.system
    sizes = system._sizes
    dataset, row = share.workload.dataset, row_bytes(share)
    missed = row_misses("belady", share, sizes.slots)
    groups = -(-share.num_batches // max(1, sizes.group))
    graphs = 2 * share.graph_bytes * share.num_batches
    once = system.options.shared_passes
    passes_each = 1 if once else len(share.workload.sampler.fanout)
    scanned = groups * (_pages_of_groups(share, sizes.group, once=once) * PAGE + passes_each * 8.0 * dataset.num_nodes)
    passes = graphs + scanned
    # Each group has a pass of its own over the table.
    found = predict(
        conditions.profile,
        uses=round(share.rows / groups),
        misses=round(missed * share.scale / groups),
        row_bytes=row,
        table_bytes=dataset.feature_bytes,
        beside=_sequential(passes / groups),
    )
    if found is not None and found.single < found.distribute:
        size = request_bytes(share, conditions.profile)
        reads = {size: missed * share.scale, **_sequential(passes)}
        how = "reads what it misses row by row"
    else:
        table = found.table_pass.reads() if found is not None else _sequential(dataset.feature_bytes)
        reads = _sequential(passes + 2 * missed * share.scale * row)
        for size, count in table.items():
            reads[size] = reads.get(size, 0.0) + groups * count
        how = "passes over graph and features"
    hits = _per_cent(_accesses(share) - missed, _accesses(share))
    # A row is stored in any free slot: the device's slots cross the bus when filled, the host's at every use.
    on_device = sizes.device_slots / max(1, sizes.slots)
    return _Found(
        {size: count / share.scale for size, count in reads.items()},
        f"{how}; keeps {hits} of the accesses (Belady over the epoch)",
        copied_rows=(1.0 - on_device) * _accesses(share) + on_device * missed,
    )


def _pages_of_groups(share: Share, group: int, *, once: bool) -> float:
    """Estimate the pages of `indices` that one group's passes read; `once`: one pass serves hops of several groups."""
    total, left, sampled = 0.0, 1.0, share.sampled
    most = share.workload.dataset.topology_bytes / PAGE + 1
    for hop in range(len(share.hop_pages[0])):
        seen = len(np.unique(np.concatenate([pages[hop] for pages in share.hop_pages[sampled:]]))) / most
        # A mini-batch leaves a share of the pages untouched; n mini-batches leave the n-th power of that share.
        untouched = max(0.0, 1.0 - seen) ** (min(group, share.num_batches) / sampled)
        total += most * (1.0 - untouched)
        left *= untouched
    return most * (1.0 - left) if once else total


@_models("in-memory", "dgl", "dgl+cache", "pagraph", "uva", "data-tiering")
def _resident(share: Share, planned: Planned, conditions: Conditions) -> _Found:
    dataset = share.workload.dataset
    needed = sum(planned.host.values())
    if needed > conditions.host:
        from workloads.units import format_bytes

        return _Found({}, f"needs {format_bytes(needed)} of host memory: graph and features stay there")
    cached = max(planned.device.get("device cache", 0), planned.device.get("feature cache", 0)) // row_bytes(share)
    copied = _missed(share, _hottest(share, cached))
    return _Found(
        {},
        "reads everything once, then nothing",
        prepare=_sequential(dataset.feature_bytes + dataset.topology_bytes),
        copied_rows=copied,
    )


def modelled() -> Sequence[str]:
    """Return the names of the systems that have a model here."""
    return sorted(_MODELS)

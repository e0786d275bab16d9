"""Quick device profile at the beginning of every series of runs: the roofline of the
series (methodology rule 10)."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from harness.cache import Cache, digest_of
from harness.isolation.base import Cap, IoLimit, Isolation, Limits
from harness.isolation.walls.needs import Needs
from harness.ssd.device import BlockDevice, block_device, direct_block_bytes
from harness.ssd.fio import fio_path, fio_tool
from harness.ssd.quiet import SEEN, WAITS_S, is_quiet, quietly, read_once, reread_gain
from harness.ssd.ways import DEPTHS, Reads, Way, search, way_of
from systems.readings import DiskPoint, DiskProfile
from workloads.errors import HostError
from workloads.units import format_bytes

MAX_AGE_S = 3600.0
# Age limit of a disturbed profile: measuring it before every run would disturb a busy
# machine more.
DISTURBED_AGE_S = 300.0
# Deepest queue of any system's large reads; disks behind a hypervisor gain well past 8.
_SEQUENTIAL_DEPTH = 32
_RAMP_S = 0.2
# Excludes the slice that the limiter lets through at once after an idle moment.
LIMITED_RAMP_S = 0.6
# Largest share of a job's permitted reads that may be in flight: fio waits for them
# when its time is up, which made a class of 60 MB/s look 17 % slow at depth 256.
_IN_FLIGHT = 0.02
_LEAST_DEPTH = 4
# A limit never makes a device faster, and fio's rates for one device differ by less
# than this.
_SLOW = 1.1
# More threads of Python than this only compete for the interpreter.
_MAX_THREADS = 32
_PLAIN_READS = Path(__file__).parent / "programs" / "plain_reads.py"
IN_PROCESS = "in-process"
_PAGE = 4096
_LARGE = 64 << 10
_STREAM = 1 << 20
# (bytes, depth, in order) of the reads of a profile.
_Sizes = Sequence[tuple[int, int, bool]]


def quick_profile(
    path: Path,
    limits: Limits | None = None,
    depths: Sequence[int] = DEPTHS,
    *,
    isolation: Isolation | None = None,
    cache: Path | None = None,
    seconds: float = 1.0,
    held: DiskProfile | None = None,
) -> DiskProfile:
    """Measure direct reads of the device under `path`: random 512 B, 4 KiB (one in
    flight too), 64 KiB; 1 MiB in order.

    On the bare device fio uses the best method (in flight, batch, threads) of a short
    search; about 15 seconds in all. A point is measured again after a pause where
    others used the disk or the processors. `cache` serves a profile of the same device,
    file system, limits and depths for an hour, a disturbed one for five minutes (a run
    that beats it has it measured again). Under limits there is no search, and low
    limits reduce the depth. Where second reads of a block are faster (a cache below the
    kernel), the file is read once before; `first_read` keeps the rates of first reads.

    Args:
        path: file of the dataset (its features), read and never written.
        limits: limits to measure under, in a cap of `isolation`; None for the bare
            device.
        depths: reads in flight to try for the random sizes; the best counts.
        cache: folder of kept profiles.
        seconds: duration of each point.
        held: profile in doubt: measure again, and return and keep the better rate of
            each point.

    Raises:
        HostError: the file cannot be read directly, fio refuses, or the device
            completes no read of some size.
    """
    path = path.resolve()
    device = block_device(path)
    kept_in = Cache(cache) if cache else None
    key = _key(device, limits, depths)
    io = limits.io if limits else ()
    if held is None and kept_in and (kept := _kept(kept_in, key)):
        return replace(kept, limited=_limited(io))
    block = direct_block_bytes(path)
    if block is None:
        raise HostError(
            f"{path} cannot be read with O_DIRECT on {device.file_system}",
            "move the data to ext4 or xfs",
        )
    with ExitStack() as stack:
        cap = (
            stack.enter_context(isolation.create("profile", Limits(None, io)))
            if isolation and io
            else None
        )
        if cap:
            cap.bring(Needs(read_only=(path, _PLAIN_READS)))
        if not fio_path():
            profile = _by_threads(
                path,
                _points(path, block, min(_MAX_THREADS, max(depths))),
                seconds,
                io,
                cap,
            )
        elif io:
            reads = Reads(path, cap=cap)
            points = []
            for size, depth, in_order in _points(path, block, min(256, max(depths))):
                way = Way(shallow(size, depth, io, seconds))
                points.append(
                    reads.measure(
                        size, way, seconds, LIMITED_RAMP_S, sequential=in_order
                    )
                )
            profile = DiskProfile(tuple(points), tool=fio_tool())
        else:
            profile = _at_its_best(
                Reads(path, device.numbers),
                _points(path, block, max(depths)),
                depths,
                seconds,
            )
    profile = replace(profile, logical_block_bytes=block, limited=_limited(io))
    if held is not None:
        profile = better_of(held, profile)
    if still := [
        format_bytes(point.block_bytes) for point in profile.points if not point.iops
    ]:
        raise HostError(
            f"no read of {still[0]} was completed in {seconds:g} s",
            "measure under higher limits",
        )
    if kept_in and (is_quiet(*profile.points) or _kept(kept_in, key) is None):
        kept_in.put("profile", key, {"measured_at": time.time(), **asdict(profile)})
    return profile


def forget(path: Path, cache: Path, depths: Sequence[int] = DEPTHS) -> None:
    """Remove the bare device's kept profile, made by `quick_profile` with these
    arguments, that was found wrong."""
    key = _key(block_device(path.resolve()), None, depths)
    Cache(cache).path("profile", key).unlink(missing_ok=True)


def _points(file: Path, block: int, depth: int) -> _Sizes:
    """Return the reads of a profile: random ones at `depth`, 4 KiB one in flight, 1 MiB
    in order."""
    nbytes = file.stat().st_size
    sizes = [
        size
        for size in sorted({max(512, block), _PAGE, _LARGE})
        if block <= size <= nbytes
    ]
    found = [(size, depth, False) for size in sizes]
    found += [(_PAGE, 1, False)] if _PAGE in sizes and depth > 1 else []
    return found + ([(_STREAM, _SEQUENTIAL_DEPTH, True)] if nbytes >= _STREAM else [])


def _at_its_best(
    reads: Reads, wanted: _Sizes, depths: Sequence[int], seconds: float
) -> DiskProfile:
    short = 0.3 * seconds
    sizes = list(dict.fromkeys(size for size, _, in_order in wanted if not in_order))
    first: tuple[DiskPoint, ...] = ()
    if _PAGE in sizes and reread_gain(reads.file) > SEEN:
        first = tuple(
            reads.measure(_PAGE, way, short, 0.0) for way in (Way(1), Way(max(depths)))
        )
        region = read_once(reads.file)
        reads = replace(
            reads,
            region_bytes=region if _STREAM <= region < reads.file.stat().st_size else 0,
        )
    tried: list[DiskPoint] = []
    ways: dict[int, Way] = {}
    # Requests up to a page cost a device and a processor alike, so one search serves
    # 512 B and 4 KiB.
    for size in (min(_PAGE, sizes[-1]), _LARGE):
        if size in sizes and size not in ways:
            found = search(reads, size, depths, short)
            tried += found
            ways[size] = way_of(found[0])
    pages = ways[min(_PAGE, sizes[-1])]
    waits = list(WAITS_S)
    points = []
    for size, depth, in_order in wanted:
        way = Way(depth) if in_order or depth == 1 else ways.get(size, pages)
        one = partial(reads.measure, size, way, seconds, _RAMP_S, sequential=in_order)
        points.append(_or_tried(quietly(one, waits), tried))
    best = DiskProfile(tuple(points), tool=fio_tool(), tried=tuple(tried))
    return replace(best, first_read=first, region_bytes=reads.region_bytes)


def _or_tried(point: DiskPoint, tried: Sequence[DiskPoint]) -> DiskPoint:
    """Return a quiet point unchanged, else the fastest of it and the search's points of
    the same size."""
    same = [
        other
        for other in tried
        if other.block_bytes == point.block_bytes and other.depth > 1 < point.depth
    ]
    return (
        point if is_quiet(point) else max([point, *same], key=lambda found: found.iops)
    )


def _limited(limits: Sequence[IoLimit]) -> tuple[float, float] | None:
    """Return requests and bytes per second of all disks together; 0 where a disk is not
    limited."""
    if not limits:
        return None
    counts = [limit.read_iops or 0 for limit in limits]
    rates = [limit.read_bytes_per_s or 0 for limit in limits]
    return float(sum(counts) if all(counts) else 0), float(
        sum(rates) if all(rates) else 0
    )


def better_of(first: DiskProfile, second: DiskProfile) -> DiskProfile:
    """Return each size at the higher of two measured rates, deep and one in flight
    apart; the methods may differ."""
    best: dict[tuple[int, str, bool], DiskPoint] = {}
    for point in (*first.points, *second.points):
        key = (point.block_bytes, point.pattern, point.depth == 1)
        if key not in best or point.iops > best[key].iops:
            best[key] = point
    first_read = first.first_read or second.first_read
    return replace(
        second,
        points=tuple(best.values()),
        tried=first.tried + second.tried,
        first_read=first_read,
    )


def slower_than(bare: DiskProfile, limited: DiskProfile) -> bool:
    """Return whether the bare device was profiled in a slow moment: some size and
    pattern is faster under limits."""

    def best(profile: DiskProfile) -> dict[tuple[int, str], float]:
        return {
            (p.block_bytes, p.pattern): p.iops
            for p in sorted(profile.points, key=lambda p: p.iops)
        }

    rates = best(bare)
    return any(
        key in rates and rate > _SLOW * rates[key]
        for key, rate in best(limited).items()
    )


def shallow(
    block_bytes: int, depth: int, limits: Sequence[IoLimit], seconds: float
) -> int:
    """Return a depth whose reads the limits let through in a small part of the time.

    Args:
        block_bytes, depth: size of a read, and the largest depth to return.
        limits: limits of all disks under the file.
        seconds: duration of the job.
    """
    rate = expected(limits, block_bytes)
    return (
        depth
        if math.isinf(rate)
        else min(depth, max(_LEAST_DEPTH, int(_IN_FLIGHT * seconds * rate)))
    )


def expected(limits: Sequence[IoLimit], block_bytes: int) -> float:
    """Return reads per second of `block_bytes` that the limits of all disks allow
    together; infinite without limits."""
    rates = [
        min(
            limit.read_iops or math.inf,
            (limit.read_bytes_per_s or math.inf) / block_bytes,
        )
        for limit in limits
    ]
    return float(sum(rates)) or math.inf


def _by_threads(
    path: Path,
    wanted: _Sizes,
    seconds: float,
    limits: Sequence[IoLimit],
    cap: Cap | None,
) -> DiskProfile:
    """Profile without fio: direct reads by threads of Python, a lower bound."""
    held = [
        (size, shallow(size, depth, limits, seconds), in_order)
        for size, depth, in_order in wanted
    ]
    asked = [
        f"{size}:{depth}:{'sequential' if in_order else 'random'}"
        for size, depth, in_order in held
    ]
    command = [
        sys.executable,
        "-S",
        "-E",
        str(_PLAIN_READS),
        str(path),
        str(seconds),
        *asked,
    ]
    done = subprocess.run(
        cap.command(command) if cap else command,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        message = (
            done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        )[-1]
        raise HostError(f"the device could not be measured ({message})", "install fio")
    points = [
        DiskPoint(
            size,
            depth,
            result["iops"],
            result["bytes_per_s"],
            "sequential" if in_order else "random",
        )
        for (size, depth, in_order), result in zip(
            held, json.loads(done.stdout), strict=True
        )
    ]
    return DiskProfile(tuple(points), tool=IN_PROCESS)


def _key(device: BlockDevice, limits: Limits | None, depths: Sequence[int]) -> str:
    io = [asdict(limit) for limit in limits.io] if limits else []
    where = [
        device.drive,
        device.numbers,
        device.holder,
        device.model,
        device.file_system,
        device.mount_options,
        device.scheduler,
    ]
    return digest_of([*where, io, sorted(depths), bool(fio_path())])


def _kept(cache: Cache, key: str) -> DiskProfile | None:
    """Return a kept profile; None where it is too old, damaged or missing."""
    kept = cache.get("profile", key, MAX_AGE_S)
    try:
        found = DiskProfile.from_plain(kept or {})
    except ValueError:
        return None
    if not is_quiet(*found.points):
        kept = cache.get("profile", key, DISTURBED_AGE_S)
    return found if kept and found.points else None

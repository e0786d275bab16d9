"""The quick device profile that every series of runs begins with: the roofline of the series (methodology rule 10)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from harness.isolation.base import Cap, IoLimit, Isolation, Limits, Needs
from harness.ssd.device import BlockDevice, block_device, direct_block_bytes
from harness.ssd.fio import FioJob, best_engine, fio_path, run_fio
from systems.interface import DiskPoint, DiskProfile
from workloads.errors import HostError

MAX_AGE_S = 3600.0
# As deep as any system reads large pieces; disks behind a hypervisor gain by it well past 8.
_SEQUENTIAL_DEPTH = 32
_RAMP_S = 0.2
# The limiter lets the slice of an idle moment through at once, which must be over.
LIMITED_RAMP_S = 0.6
# Under limits, reads in flight stay below this share of what the limits let through while fio counts: it waits for
# them when its time is up, which made a class of 60 MB/s look 17 % slow at depth 256.
_IN_FLIGHT = 0.02
_LEAST_DEPTH = 4
# No limit makes a device faster; what fio finds of the same device differs by less than this.
_SLOW = 1.1
# More threads than this only fight for the interpreter.
_MAX_THREADS = 32
_PLAIN_READS = Path(__file__).with_name("plain_reads.py")
IN_PROCESS = "in-process"
IN_PROCESS_CAVEAT = "the device profile is a lower bound: fio is not installed, so it was measured by Python threads"


def quick_profile(
    path: Path,
    limits: Limits | None = None,
    depths: Sequence[int] = (256,),
    *,
    isolation: Isolation | None = None,
    cache: Path | None = None,
    seconds: float = 1.0,
    max_age_s: float = MAX_AGE_S,
    held: DiskProfile | None = None,
) -> DiskProfile:
    """What the device under `path` does: 512 B, 4 KiB and 64 KiB random reads and 1 MiB sequential ones, direct.

    And 4 KiB with one in flight. About 1.2 s a point, so six seconds with one depth. Under low limits the depth is less
    than asked. A profile under an hour old for the same device, file system, limits and depths is reused from `cache`.

    Args:
        path: a file of the dataset (its features), read and never written.
        limits: measure under these, inside a cap of `isolation`; None for the bare device.
        depths: reads kept in flight for the random sizes.
        cache: folder for profiles.
        held: a profile that is doubted: the device is measured again whatever the cache has, and of both the better
            rate of each point is returned and kept.

    Raises:
        HostError: the file cannot be read directly, or fio refuses.
    """
    device = block_device(path)
    where = _cache_file(cache, device, limits, depths) if cache else None
    limited = _limited(limits.io) if limits else None
    if held is None and where and (kept := _load(where, max_age_s)) is not None:
        return replace(kept, limited=limited)
    block = direct_block_bytes(path)
    if block is None:
        raise HostError(f"{path} cannot be read with O_DIRECT on {device.file_system}", "move the data to ext4 or xfs")
    wanted = [(size, depth, False) for size in sorted({max(512, block), 4096, 65536}) for depth in depths]
    # What a thread gets that waits for every page.
    wanted += [] if 1 in depths else [(4096, 1, False)]
    wanted.append((1 << 20, _SEQUENTIAL_DEPTH, True))
    size = path.stat().st_size
    wanted = [point for point in wanted if point[0] <= size and point[0] >= block]
    if limits and limits.io:
        wanted = [(size, shallow(size, depth, limits.io, seconds), order) for size, depth, order in wanted]
    cap = isolation.create("profile", Limits(None, limits.io)) if isolation and limits and limits.io else None
    if cap:
        cap.bring(Needs(read_only=(path, _PLAIN_READS)))
    try:
        points, tool = _by_fio(path, wanted, seconds, cap) if fio_path() else _by_threads(path, wanted, seconds, cap)
    finally:
        if cap:
            cap.close()
    profile = DiskProfile(points=tuple(points), logical_block_bytes=block, tool=tool, limited=limited)
    if held is not None:
        profile = better_of(held, profile)
    if where:
        _save(where, profile)
    return profile


def _limited(limits: Sequence[IoLimit]) -> tuple[float, float] | None:
    """Requests and bytes a second of all disks together; 0 where one of them is not limited."""
    if not limits:
        return None
    counts, rates = [limit.read_iops for limit in limits], [limit.read_bytes_per_s for limit in limits]
    return (
        float(sum(count or 0 for count in counts)) if all(counts) else 0.0,
        float(sum(rate or 0 for rate in rates)) if all(rates) else 0.0,
    )


def better_of(first: DiskProfile, second: DiskProfile) -> DiskProfile:
    """Each point at the higher of two measured rates."""
    best = {(point.block_bytes, point.depth, point.pattern): point for point in first.points}
    for point in second.points:
        key = (point.block_bytes, point.depth, point.pattern)
        if key not in best or point.iops > best[key].iops:
            best[key] = point
    return replace(first, points=tuple(best.values()))


def slower_than(bare: DiskProfile, limited: DiskProfile) -> bool:
    """Whether the bare device was profiled in a slow moment: it is faster under limits, of some size and pattern."""

    def best(profile: DiskProfile) -> dict[tuple[int, str], float]:
        found: dict[tuple[int, str], float] = {}
        for point in profile.points:
            key = (point.block_bytes, point.pattern)
            found[key] = max(found.get(key, 0.0), point.iops)
        return found

    rates = best(bare)
    return any(key in rates and rate > _SLOW * rates[key] for key, rate in best(limited).items())


def shallow(block_bytes: int, depth: int, limits: Sequence[IoLimit], seconds: float) -> int:
    """A depth whose reads the limits let through in a small part of the time."""
    by_count = sum(limit.read_iops or 0 for limit in limits)
    by_bytes = sum(limit.read_bytes_per_s or 0 for limit in limits) / block_bytes
    rates = [rate for rate in (by_count, by_bytes) if rate]
    return min(depth, max(_LEAST_DEPTH, int(_IN_FLIGHT * seconds * min(rates)))) if rates else depth


_Wanted = Sequence[tuple[int, int, bool]]


def _by_fio(path: Path, wanted: _Wanted, seconds: float, cap: Cap | None) -> tuple[list[DiskPoint], str]:
    engine = best_engine()
    jobs = [
        FioJob(
            file=path.resolve(), block_bytes=size, depth=depth, pattern="sequential" if sequential else "random",
            seconds=seconds, ramp_seconds=LIMITED_RAMP_S if cap else _RAMP_S, engine=engine, exact_latency=False,
        )
        for size, depth, sequential in wanted
    ]  # fmt: skip
    results = run_fio(jobs, cap)
    points = [
        DiskPoint(result.job.block_bytes, result.job.depth, result.iops, result.bytes_per_s, result.job.pattern)
        for result in results
    ]
    return points, f"{results[0].version} {engine}"


def _by_threads(path: Path, wanted: _Wanted, seconds: float, cap: Cap | None) -> tuple[list[DiskPoint], str]:
    asked = [
        f"{size}:{min(depth, _MAX_THREADS)}:{'sequential' if sequential else 'random'}"
        for size, depth, sequential in wanted
    ]
    command = [sys.executable, "-S", "-E", str(_PLAIN_READS), str(path.resolve()), str(seconds), *asked]
    done = subprocess.run(cap.command(command) if cap else command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise HostError(f"the device could not be measured ({said})", "install fio")
    points = [
        DiskPoint(
            size, min(depth, _MAX_THREADS), result["iops"], result["bytes_per_s"],
            "sequential" if sequential else "random",
        )
        for (size, depth, sequential), result in zip(wanted, json.loads(done.stdout), strict=True)
    ]  # fmt: skip
    return points, IN_PROCESS


def _cache_file(folder: Path, device: BlockDevice, limits: Limits | None, depths: Sequence[int]) -> Path:
    key = json.dumps(
        [device.numbers, device.holder, device.model, device.file_system, device.mount_options, device.scheduler,
         [asdict(limit) for limit in limits.io] if limits else [], sorted(depths), bool(fio_path())],
    )  # fmt: skip
    return folder / f"profile-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def _load(where: Path, max_age_s: float) -> DiskProfile | None:
    try:
        kept = json.loads(where.read_text())
        if not 0 <= time.time() - kept["measured_at"] < max_age_s:
            return None
        points = tuple(DiskPoint(**point) for point in kept["points"])
        return DiskProfile(points, int(kept["logical_block_bytes"]), str(kept["tool"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # missing, or half of it: measure again


def _save(where: Path, profile: DiskProfile) -> None:
    content = json.dumps({"measured_at": time.time(), **asdict(profile)}, indent=1)
    where.parent.mkdir(parents=True, exist_ok=True)
    temporary = where.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_text(content)
        temporary.replace(where)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk costs a profile, not the run

"""Cost of telemetry at 10 Hz: processor time of the sampler over wall time, on a cap kept busy by a reader.

Must stay at or below 1 % of one core. Run: python benchmarks/telemetry_cost.py [--seconds 20]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness.isolation import IoLimit, Limits, select
from harness.ssd.device import block_device
from harness.telemetry.gpu import cuda_uuids
from harness.telemetry.recorder import Recorder
from workloads.tempfolder import TemporaryFolder

LIMIT_PERCENT = 1.0
# Reads a file larger than the cap repeatedly, so that memory counters change as in a run.
READER = """
import sys
while True:
    with open(sys.argv[1], "rb", buffering=0) as file:
        while file.read(1 << 16):
            pass
"""


def parts_us(recorder: Recorder, rounds: int = 200) -> dict[str, float]:
    """Return the median microseconds of each part of one sample."""
    cap = recorder._cap
    assert cap is not None
    found = {}
    for name, read in (
        ("cpu", recorder._cpu.read),
        ("disk", recorder._disk.read),
        ("pressure", recorder._pressure.read),
        ("memory of the cap", cap.memory),
    ):
        times = []
        for _ in range(rounds):
            start = time.thread_time_ns()
            read()
            times.append((time.thread_time_ns() - start) / 1e3)
        found[name] = round(statistics.median(times), 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp"), help="where the file to read is made (on a disk)"
    )
    parser.add_argument("--isolation", default="auto")
    options = parser.parse_args()
    backend = select(options.isolation).backend
    with TemporaryFolder(options.folder, "benchmark") as folder:
        file = Path(folder) / "read"
        file.write_bytes(b"x" * (96 << 20))
        disk = block_device(file).number
        limits = Limits(64 << 20, (IoLimit(disk),) if disk else ())
        with backend.create("telemetry-cost", limits) as cap:
            reader = subprocess.Popen(cap.command([sys.executable, "-S", "-E", "-c", READER, str(file)]))
            parts = parts_us(Recorder(cap, disk or None, gpus=cuda_uuids()[:1]))
            before = resource.getrusage(resource.RUSAGE_SELF)
            recorder = Recorder(cap, disk or None, gpus=cuda_uuids()[:1]).start()
            begin = time.monotonic()
            time.sleep(options.seconds)
            frame = recorder.stop()
            wall = time.monotonic() - begin
            after = resource.getrusage(resource.RUSAGE_SELF)
            reader.kill()
            reader.wait()
    process = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    percent = 100 * recorder.cpu_seconds / wall
    print(
        json.dumps(
            {
                "backend": backend.name,
                "samples": len(frame),
                "hz": round((len(frame) - 1) / wall, 2),
                "sampler_percent_of_a_core": round(percent, 3),
                "process_percent_of_a_core": round(100 * process / wall, 3),
                "limit_percent": LIMIT_PERCENT,
                "parts_us": parts,
                "held": percent <= LIMIT_PERCENT,
            }
        )
    )
    return 0 if percent <= LIMIT_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())

"""Command line of the phases: `scripts/gpu PHASE`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import import_module
from pathlib import Path

from gpu.steps import HOST_LACKS, Setting, run_phase
from harness.atomic import whole_file
from workloads.errors import HostError

DRY = "OUTCORE_GPU_DRY"
PHASES = {
    "check": "conformance of every system on the GPU, under the stream sanitizer too",
    "measure": "rates against the machine's ceilings, a training step against PyG's, a "
    "profile of the device",
    "compare": "systems on the GPU beside the same on its emulated profile",
}
LIMIT_S = 570.0


def parse(argv: list[str]) -> argparse.Namespace:
    phases = "\n".join(f"  {name}: {text}" for name, text in PHASES.items())
    parser = argparse.ArgumentParser(
        prog="scripts/gpu",
        description=f"Prove and measure the GPU path, a phase at a time:\n{phases}",
        epilog="exit codes: 0 all well; 1 a step failed or missed its target; 2 no GPU "
        "here, or wrong input",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("phase", choices=PHASES)
    parser.add_argument(
        "--device",
        default=os.environ.get(DRY) or "cuda",
        help="cuda, cuda:1, or emulated:NAME to try the phase without a GPU "
        f"(${DRY}); default: %(default)s",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/gpu"),
        help="results; default: %(default)s",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT_S,
        help="seconds of the phase; default: %(default)s",
    )
    parser.add_argument(
        "--only", default="", help="run only the steps whose name contains this"
    )
    parser.add_argument(
        "--again", action="store_true", help="repeat steps that are done already"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the names of the steps, run nothing"
    )
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def refused(device: str) -> str:
    """Return the reason why the device cannot be used here; empty if it can."""
    if device.startswith("emulated:"):
        return ""
    if device.partition(":")[0] != "cuda":
        return f"device {device!r} is no GPU: give cuda, cuda:1 or emulated:NAME"
    import torch

    if not torch.cuda.is_available():
        built = (
            ""
            if torch.version.cuda
            else f" (torch {torch.__version__} is built without CUDA)"
        )
        return (
            f"no CUDA device is usable here{built}: run it on a GPU machine, or try "
            f"{DRY}=emulated:a10g"
        )
    return ""


def main(argv: list[str]) -> int:
    """Run a phase, or one of its steps in this process."""
    asked = parse(argv)
    if why := refused(asked.device):
        print(f"scripts/gpu {asked.phase}: {why}", file=sys.stderr)
        return 2
    asked.out.mkdir(parents=True, exist_ok=True)
    setting = Setting(asked.device, asked.out.resolve())
    phase = import_module(f"gpu.{asked.phase}")
    steps = [step for step in phase.steps(setting) if asked.only in step.name]
    if not steps:
        print(
            f"scripts/gpu {asked.phase}: no step is called {asked.only!r}: see --list",
            file=sys.stderr,
        )
        return 2
    if asked.list:
        print("\n".join(step.name for step in steps))
        return 0
    if asked.step is None:
        kept = run_phase(
            asked.phase,
            steps,
            setting,
            limit_s=asked.limit,
            jobs=phase.jobs(),
            again=asked.again,
        )
        return 0 if kept else 1
    (step,) = (one for one in steps if one.name == asked.step)
    try:
        result = step.run(setting)
    except HostError as error:
        print(error, file=sys.stderr)
        return HOST_LACKS
    with whole_file(asked.answer, "the answer") as path:
        path.write_text(json.dumps(result, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`outcore device`: list the accelerators and the coefficients of emulated ones, or
measure a real one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.common import Call, Verbs
from harness.cli.table import print_table
from workloads.errors import InputError

app = Verbs(
    help="List accelerators and their coefficients, or measure a real one.",
    no_args_is_help=True,
)

_UNITS = {
    "step_s": "s",
    "kernel_s": "s",
    "copy_s": "s",
    "edge_s": "s/edge/float",
    "flops": "1/s",
}


@app.verb
def list_(call: Call) -> None:
    """Every device: `cpu`, `cuda` where there is one, and each profile with its
    coefficients and their sources.

    Examples:
        outcore device list
    """
    import torch

    from workloads.accelerators.profile import load_profile, profile_names

    cuda = [
        torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())
    ]
    profiles = [load_profile(name) for name in profile_names()]

    def shown() -> None:
        print("cpu             trains for real, host memory is the device")
        print(f"cuda            {', '.join(cuda) if cuda else 'none on this host'}")
        for profile in profiles:
            print(f"\nemulated:{profile.name}: {profile.summary}")
            rows = [
                (
                    name,
                    f"{one.value:.4g}",
                    _UNITS.get(name, "bytes/s"),
                    "assumed" if one.assumed else "",
                    one.source,
                )
                for name, one in profile.coefficients().items()
            ]
            print_table(
                ("coefficient", "value", "unit", "assumed", "source"),
                rows,
                prose=("source",),
            )

    real = [
        {"name": name, "kind": name, "present": there}
        for name, there in (("cpu", True), ("cuda", bool(cuda)))
    ]
    call.emit({"devices": [*real, *map(_emulated, profiles)]}, shown)


@app.verb
def calibrate(
    name: Annotated[str, typer.Argument(help="name of the profile to write")],
    call: Call,
    device: Annotated[str, typer.Option(help="cuda or cuda:1")] = "cuda",
    out: Annotated[
        Path | None, typer.Option(help="file to write; NAME.toml here without it")
    ] = None,
) -> None:
    """Measure every coefficient on a CUDA device and write them as a profile for
    `--device emulated:FILE.toml`.

    Examples:
        outcore device calibrate mygpu --device cuda:1
    """
    from workloads.accelerators.calibrate import calibrate as measure
    from workloads.accelerators.calibrate import to_toml
    from workloads.accelerators.make import make_accelerator

    if not device.startswith("cuda"):
        raise InputError(
            f"device {device!r} cannot be calibrated", "give cuda or cuda:1"
        )
    target = out or Path(f"{name}.toml")
    if target.exists():
        raise InputError(f"{target} exists already", "give another --out, or remove it")
    with (
        call.working("measuring the device"),
        closing(make_accelerator(device)) as accelerator,
    ):
        profile = measure(accelerator, name)
    target.write_text(to_toml(profile))
    content = {"path": str(target), **_emulated(profile)}
    call.emit(content, [f"{target}: use it as --device emulated:{target}"])


def _emulated(profile: Any) -> dict[str, Any]:
    return {
        "name": f"emulated:{profile.name}",
        "kind": "emulated",
        "present": True,
        "summary": profile.summary,
        "derived_from": profile.derived_from.model_dump()
        if profile.derived_from
        else None,
        "coefficients": {
            key: value.model_dump() for key, value in profile.coefficients().items()
        },
    }
